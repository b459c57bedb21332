"""Results in files: room for them is set aside before any work, and workers write their blocks there themselves."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import peaks
import pytest
from stored import Stored

import einsumx
from einsumx.conformance.oracle import expect, judge
from einsumx.streaming import array_files as backing
from einsumx.streaming import worker

EQUATION = "ij,jk->ik"
SHAPE = (300, 400)
LIMIT = 300_000
ROOT = Path(einsumx.__file__).parents[1]
LINUX = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory alone")


def operands() -> tuple[Any, Any]:
    random = np.random.default_rng(7)
    return random.standard_normal((300, 60)).astype("float32"), random.standard_normal((60, 400)).astype("float32")


def is_right(out: Any) -> bool:
    return bool(judge(np.asarray(out[...], "float32"), expect(EQUATION, *operands())))


class Sent(Executor):
    """Gives tasks to processes, and keeps how many bytes each sends back."""

    def __init__(self, pool: Executor) -> None:
        self.pool, self.sizes = pool, []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future = self.pool.submit(fn, *args, **kwargs)
        future.add_done_callback(self.count)
        return future

    def count(self, future: Any) -> None:
        if not future.cancelled() and future.exception() is None:
            self.sizes.append(len(pickle.dumps(future.result())))


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def pool(processes: Executor) -> Sent:
    return Sent(processes)


def run(out: Any, executor: Executor, **options: Any) -> None:
    einsumx.einsum(EQUATION, *operands(), out=out, memory_limit=LIMIT, executor=executor, **options)


# -- memory maps --------------------------------------------------------------------------------------------------

VIEWS = {
    "whole": (SHAPE, lambda x: x),
    "part": ((310, 420), lambda x: x[4:304, 11:411]),
    "transposed": (SHAPE[::-1], lambda x: x.T),
    "reversed": (SHAPE, lambda x: x[::-1, ::-1]),
    "stepped": ((600, 400), lambda x: x[::2]),
    "plain array": (SHAPE, np.asarray),
    "of more axes": ((300, 3, 400), lambda x: x[:, 1]),
}


@LINUX
@pytest.mark.parametrize(("view", "dtype"), [*((view, "float32") for view in VIEWS), ("part", ">f8")])
def test_workers_write_into_a_memory_map_and_send_nothing_back(
    view: str, dtype: str, pool: Sent, tmp_path: Path
) -> None:
    shape, taken = VIEWS[view]
    whole = np.memmap(tmp_path / "out", dtype, "w+", offset=40, shape=shape)
    out = taken(whole)
    run(out, pool)
    assert is_right(out)
    assert len(pool.sizes) > 2
    assert max(pool.sizes) < 100
    assert np.count_nonzero(whole) == np.count_nonzero(out)


def removed(path: Path) -> None:
    path.unlink()


def another_in_its_place(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.write_bytes(bytes(300 * 400 * 4))


def a_pipe_in_its_place(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("replaced", [removed, another_in_its_place, a_pipe_in_its_place], ids=lambda how: how.__name__)
def test_a_map_whose_file_has_lost_its_name_is_written_all_the_same(replaced: Any, pool: Sent, tmp_path: Path) -> None:
    path = tmp_path / "out"
    out = np.memmap(path, "float32", "w+", shape=SHAPE)
    replaced(path)
    before = path.read_bytes() if path.is_file() else b""
    run(out, pool)
    assert is_right(out)
    assert before == (path.read_bytes() if path.is_file() else b"")


def test_a_copy_on_write_map_is_written_in_memory_alone(pool: Sent, tmp_path: Path) -> None:
    np.memmap(tmp_path / "out", "float32", "w+", shape=SHAPE).flush()
    out = np.memmap(tmp_path / "out", "float32", "c", shape=SHAPE)
    run(out, pool)
    assert is_right(out)
    assert not np.fromfile(tmp_path / "out", "float32").any()


def test_blocks_that_several_workers_have_parts_of_are_added_up(pool: Sent, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(shape).astype("float32") for shape in [(3, 40_000), (40_000, 2)]]
    found = []
    for number in range(3):
        out = np.memmap(tmp_path / f"out{number}", "float32", "w+", shape=(3, 2))
        einsumx.einsum(EQUATION, *arrays, out=out, memory_limit="1MB", executor=pool)
        found.append(out.tobytes())
    assert len(set(found)) == 1
    assert judge(np.array(out), expect(EQUATION, *arrays))


@LINUX
def test_a_worker_that_writes_stays_within_the_limit(tmp_path: Path) -> None:
    arrays = [np.ones(shape, "float16") for shape in [(500, 400), (400, 450)]]
    out = np.memmap(tmp_path / "out", "float16", "w+", shape=(500, 450))
    limit = 2 * out.nbytes
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), peaks.tracemalloc.start) as pool:

        def call() -> None:
            einsumx.einsum(EQUATION, *arrays, out=out, memory_limit=limit, executor=pool)

        call()
        before = pool.submit(begun).result()
        _, taken = peaks.numpy_peak(call)
        assert taken <= limit + peaks.OBJECTS
        assert pool.submit(reached).result() - before <= limit + peaks.OBJECTS


def begun() -> int:
    worker._state.cache._clear()
    peaks.tracemalloc.reset_peak()
    return peaks.tracemalloc.get_traced_memory()[0]


def reached() -> int:
    return peaks.tracemalloc.get_traced_memory()[1]


# -- Zarr and HDF5 ------------------------------------------------------------------------------------------------


@LINUX
@pytest.mark.parametrize(
    ("chunks", "shards"),
    [((50, 400), None), ((300, 400), None), ((70, 90), None), ((7, 400), None), ((25, 100), (50, 200))],
    ids=["rows", "one chunk", "unlike the blocks", "a few rows", "shards"],
)
def test_workers_write_into_an_array_of_zarr_one_at_a_time_where_they_share_chunks(
    chunks: Any, shards: Any, pool: Sent, tmp_path: Path
) -> None:
    zarr = pytest.importorskip("zarr")
    out = zarr.create_array(tmp_path / "z", name="a/b", shape=SHAPE, chunks=chunks, shards=shards, dtype="float32")
    run(out, pool)
    assert is_right(zarr.open(tmp_path / "z")["a/b"])
    assert max(pool.sizes) < 100


class Mixed(Executor):
    """Two workers, one of which does not see the files of the result."""

    _max_workers = 2

    def __init__(self, threads: Executor) -> None:
        self.threads, self.count = threads, 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        job, piece, outlet = pickle.loads(pickle.dumps(args))
        self.count += 1
        return self.threads.submit(fn, job, piece, outlet if self.count % 2 else None)


@LINUX
def test_the_caller_writes_its_blocks_while_no_worker_writes_to_chunks_that_they_share(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    a, b = (np.arange(600.0) % 7, np.arange(500.0) % 5)
    out = zarr.create_array(tmp_path / "z", shape=(600, 500), chunks=(600, 500), dtype="float64")
    with ThreadPoolExecutor(2) as threads:
        executor = Mixed(threads)
        einsumx.einsum("i,j->ij", a, b, out=out, memory_limit="200 kB", executor=executor)
    assert executor.count > 10
    assert (out[...] == a[:, None] * b).all()


def test_an_array_of_zarr_that_is_in_no_file_goes_through_the_caller(pool: Sent) -> None:
    zarr = pytest.importorskip("zarr")
    out = zarr.create_array({}, shape=SHAPE, chunks=(50, 50), dtype="float32")
    run(out, pool)
    assert is_right(out)


@pytest.mark.parametrize("chunks", [None, (50, 50)], ids=["contiguous", "chunked"])
def test_a_dataset_of_hdf5_is_written_by_the_caller_who_has_it_open(chunks: Any, pool: Sent, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "out.h5", "w") as file:
        run(file.create_dataset("c", SHAPE, "float32", chunks=chunks), pool, resume=tmp_path / "journal")
    with h5py.File(tmp_path / "out.h5") as file:
        assert is_right(file["c"])


# -- workers and callers that end ---------------------------------------------------------------------------------


class Deadly(Stored):
    """Values in a file; a part of them ends the process that reads it, while another file exists.

    It is small where it is sent: some versions of Python hang if a worker dies while its pool is writing to it
    (https://github.com/python/cpython/issues/94777).
    """

    def __init__(self, array: Any, path: Path) -> None:
        super().__init__(array)
        self.path, self.values = path, path.with_suffix(".npy")
        np.save(self.values, array)
        del self.array

    def __getitem__(self, box: Any) -> Any:
        if box[0].start and self.path.exists():
            self.path.unlink()
            os._exit(1)
        return np.load(self.values, mmap_mode="r")[box]


@pytest.mark.filterwarnings("ignore:a worker of executor= died")
def test_the_blocks_of_a_worker_that_dies_are_written_by_another(tmp_path: Path) -> None:
    out = np.memmap(tmp_path / "out", "float32", "w+", shape=SHAPE)
    (tmp_path / "once").touch()
    a, b = operands()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        einsumx.einsum(EQUATION, Deadly(a, tmp_path / "once"), b, out=out, memory_limit=LIMIT, executor=pool)
    assert not (tmp_path / "once").exists()
    assert is_right(out)


class Late(Executor):
    """Computes nothing but the first task until it is told to."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future: Future[Any] = Future()
        self.tasks.append(pickle.loads(pickle.dumps((fn, args))))
        if len(self.tasks) == 1:
            future.set_result(self.tasks[0][0](*self.tasks[0][1]))
        else:
            future.set_running_or_notify_cancel()
        if len(self.tasks) == 2:
            future.set_exception(OSError("cut off"))
        return future


@LINUX
def test_a_worker_that_is_late_does_not_write_into_what_became_of_the_file(tmp_path: Path) -> None:
    executor = Late()
    out = np.memmap(tmp_path / "out", "float32", "w+", shape=SHAPE)
    with pytest.raises(einsumx.BlockError, match="cut off"):
        run(out, executor)
    assert out.any()
    out[...] = 0
    for task, given in executor.tasks:
        with suppress(OSError, einsumx.BackendError):  # whose operands have gone with the call
            task(*given)
    assert not out.any()


KILLED = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import einsumx

class Slow:
    shape, dtype = (64, 64), np.dtype("float64")
    def __getitem__(self, box):
        if box[0].stop and sys.argv[2] == "slow":
            time.sleep(0.05)
        return np.ones(self.shape)[box]

def told(done, total):
    print(done, total, flush=True)

if __name__ == "__main__":
    kind, folder = sys.argv[3], sys.argv[1]
    if kind == "map":
        out = np.memmap(folder + "/out", "float64", "r+", shape=(64, 900))
    else:
        import zarr
        out = zarr.open(folder + "/z", mode="r+")
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        einsumx.einsum(
            "ij,jk->ik", Slow(), np.arange(64 * 900.0).reshape(64, 900), out=out, memory_limit="150kB", executor=pool,
            resume=folder + "/journal", progress=told,
        )
"""


@LINUX
@pytest.mark.parametrize("kind", ["map", "Zarr"])
def test_a_caller_that_is_killed_is_gone_on_with_by_the_same_call(kind: str, tmp_path: Path) -> None:
    if kind == "map":
        np.memmap(tmp_path / "out", "float64", "w+", shape=(64, 900)).flush()
    else:
        zarr = pytest.importorskip("zarr")
        zarr.create_array(tmp_path / "z", shape=(64, 900), chunks=(64, 50), dtype="float64")
    program = tmp_path / "program.py"
    program.write_text(KILLED)

    def started(speed: str) -> Any:
        return subprocess.Popen(
            [sys.executable, str(program), str(tmp_path), speed, kind], stdout=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    with started("slow") as caller:
        for line in caller.stdout:
            if int(line.split()[0]) == 4:
                break
        caller.kill()
        total = int(line.split()[1])
    try:
        written = len((tmp_path / "journal").read_text().splitlines()) - 1
        assert 0 < written < total
        with started("fast") as caller:  # while workers of the first are still there
            told = [int(line.split()[1]) for line in caller.stdout]
        assert caller.returncode == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(caller.pid, signal.SIGKILL)
    assert told[-1] == total - written
    assert not (tmp_path / "journal").exists()
    out = np.memmap(tmp_path / "out", "float64", shape=(64, 900)) if kind == "map" else zarr.open(tmp_path / "z")
    expected = np.arange(64 * 900.0).reshape(64, 900).sum(axis=0)
    assert (out[...] == expected).all()


# -- room on the disk ---------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.name != "posix" or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


FULL = """
import sys
import numpy as np
import einsumx
out = np.memmap(sys.argv[1] + "/out", "float32", "w+", shape=(300, 400))
try:
    einsumx.einsum("i,j->ij", np.ones(300, "float32"), np.ones(400, "float32"), out=out, memory_limit=300_000)
except OSError as error:
    print(error.errno, error)
"""


def test_a_full_disk_is_an_error_before_any_work_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        command = [sys.executable, "-c", FULL, str(disk)]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert found.returncode == 0
        assert found.stdout.startswith(str(errno.ENOSPC))
        assert "the disk has no room for the 480000 bytes of out=" in found.stdout
        assert not np.fromfile(disk / "out", "float32").any()


SPILLED = """
from concurrent.futures import Executor
import numpy as np
import einsumx
class Elsewhere(Executor):
    _max_workers = 1
try:
    a, b = np.ones((300, 400), "float32"), np.ones((400, 5), "float32")
    einsumx.einsum("ij,jk->ik", a, b, memory_limit=300_000, executor=Elsewhere())
except OSError as error:
    print(error.errno, error)
"""


def test_a_full_disk_for_the_files_of_operands_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        command, environment = [sys.executable, "-c", SPILLED], {**os.environ, "TMPDIR": str(disk)}
        found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert found.returncode == 0
        assert found.stdout.startswith(str(errno.ENOSPC))
        assert "bytes of an operand that workers read from a temporary file" in found.stdout
        assert list(disk.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system sets no room aside")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG], ids=errno.errorcode.get)
def test_room_that_is_refused_is_an_error(code: int, tmp_path: Path, monkeypatch: Any) -> None:
    def fake_posix_fallocate(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(backing.os, "posix_fallocate", fake_posix_fallocate)
    out = np.memmap(tmp_path / "out", "float32", "w+", shape=SHAPE)
    with pytest.raises(OSError, match=r"no room for the 480000 bytes of out= .* nothing was computed") as error:
        einsumx.einsum(EQUATION, *operands(), out=out, memory_limit=LIMIT)
    assert error.value.errno == code
    assert error.value.filename == str(tmp_path / "out")
    assert not out.any()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system sets no room aside")
@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV], ids=errno.errorcode.get)
def test_a_file_system_that_sets_no_room_aside_does_without(code: int, tmp_path: Path, monkeypatch: Any) -> None:
    def fake_posix_fallocate(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(backing.os, "posix_fallocate", fake_posix_fallocate)
    out = np.memmap(tmp_path / "out", "float32", "w+", shape=SHAPE)
    einsumx.einsum(EQUATION, *operands(), out=out, memory_limit=LIMIT)
    assert is_right(out)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system sets no room aside")
def test_room_is_set_aside_for_the_part_that_is_written_and_what_is_there_stays(
    tmp_path: Path, monkeypatch: Any
) -> None:
    real, calls = os.posix_fallocate, []

    def seen(descriptor: int, start: int, size: int) -> None:
        calls.append((start, size))
        real(descriptor, start, size)

    monkeypatch.setattr(backing.os, "posix_fallocate", seen)
    whole = np.memmap(tmp_path / "out", "float32", "w+", offset=128, shape=(900, 400))
    whole[0], whole[-1] = 3, 4
    einsumx.einsum(EQUATION, *operands(), out=whole[300:600], memory_limit=LIMIT)
    assert calls == [(128 + 300 * 1600, 300 * 1600)]
    assert is_right(whole[300:600])
    assert (whole[0] == 3).all()
    assert (whole[-1] == 4).all()
    assert (tmp_path / "out").stat().st_size == 128 + 900 * 1600


TRUNCATED = """
import os, sys
import numpy as np
import einsumx
folder, cut = sys.argv[1:]
shapes = {"operand 0": (300, 60), "operand 1": (60, 400), "out=": (300, 400)}
found = {name: np.memmap(folder + "/" + name, "float32", "w+", shape=shape) for name, shape in shapes.items()}
os.truncate(folder + "/" + cut, 5000)
try:
    einsumx.einsum("ij,jk->ik", found["operand 0"], found["operand 1"], out=found["out="], memory_limit=300_000)
except einsumx.BackendError as error:
    print(error)
"""


@pytest.mark.parametrize("cut", ["out=", "operand 0", "operand 1"])
def test_a_file_that_was_truncated_under_a_map_is_an_error_and_not_the_end_of_the_process(
    cut: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", TRUNCATED, str(tmp_path), cut]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert f"the file of {cut} was truncated after it was mapped" in found.stdout
