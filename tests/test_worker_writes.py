"""Results in files: room for them is set aside before any work, and workers write their blocks there themselves."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import printed
from stored import Returned, process_pool

import einsumx
from einsumx import MemoryLimit
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.storage import array_files as backing

pytestmark = pytest.mark.long

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


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with process_pool(2) as pool:
        yield pool


@pytest.fixture
def pool(processes: Executor) -> Returned:
    return Returned(processes)


def run(out: Any, executor: Executor, resume: Any = None) -> None:
    limit = MemoryLimit(LIMIT, executor=executor, resume=resume)
    einsumx.einsum(EQUATION, *operands(), out=out, memory_limit=limit)


# -- memory maps --------------------------------------------------------------------------------------------------


@LINUX
@pytest.mark.parametrize(
    ("shape", "dtype", "view"),
    [
        (SHAPE, "float32", lambda x: x),
        ((310, 420), ">f8", lambda x: x[4:304, 11:411]),
        (SHAPE[::-1], "float32", lambda x: x.T),
        ((600, 400), "float32", lambda x: x[::-2, ::-1]),
        (SHAPE, "float32", np.asarray),
        ((300, 3, 400), "float32", lambda x: x[:, 1]),
    ],
    ids=["whole", "part", "transposed", "reversed", "plain array", "of more axes"],
)
def test_workers_write_into_a_memory_map_and_send_nothing_back(
    shape: Any, dtype: str, view: Any, pool: Returned, tmp_path: Path
) -> None:
    whole = np.memmap(tmp_path / "out", dtype, "w+", offset=40, shape=shape)
    out = view(whole)
    run(out, pool)
    assert is_right(out)
    assert len(pool.values) > 2
    assert set(pool.values) == {None}
    assert np.count_nonzero(whole) == np.count_nonzero(out)


@pytest.mark.parametrize("instead", ["nothing", "a file", "a pipe"])
def test_a_map_whose_file_has_lost_its_name_is_written_all_the_same(
    instead: str, pool: Returned, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    out = np.memmap(path, "float32", "w+", shape=SHAPE)
    path.rename(tmp_path / "moved")
    if instead == "a file":
        path.write_bytes(bytes(300 * 400 * 4))
    elif instead == "a pipe":
        os.mkfifo(path)
    run(out, pool)
    assert is_right(out)
    assert instead != "a file" or not any(path.read_bytes())


def test_a_copy_on_write_map_is_written_in_memory_alone(pool: Returned, tmp_path: Path) -> None:
    np.memmap(tmp_path / "out", "float32", "w+", shape=SHAPE).flush()
    out = np.memmap(tmp_path / "out", "float32", "c", shape=SHAPE)
    run(out, pool)
    assert is_right(out)
    assert not np.fromfile(tmp_path / "out", "float32").any()


def test_blocks_that_several_workers_have_parts_of_are_added_up(pool: Returned, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(shape).astype("float32") for shape in [(3, 40_000), (40_000, 2)]]
    found = []
    for number in range(3):
        out = np.memmap(tmp_path / f"out{number}", "float32", "w+", shape=(3, 2))
        einsumx.einsum(EQUATION, *arrays, out=out, memory_limit=MemoryLimit("1MB", executor=pool))
        found.append(out.tobytes())
    assert len(set(found)) == 1
    assert judge(np.array(out), expect(EQUATION, *arrays))


# -- Zarr and HDF5 ------------------------------------------------------------------------------------------------


@LINUX
@pytest.mark.parametrize(
    ("chunks", "shards"),
    [((50, 400), None), ((70, 90), None), ((25, 100), (50, 200))],
    ids=["rows", "unlike the blocks", "shards"],
)
def test_workers_write_into_an_array_of_zarr_one_at_a_time_where_they_share_chunks(
    chunks: Any, shards: Any, pool: Returned, tmp_path: Path
) -> None:
    zarr = pytest.importorskip("zarr")
    out = zarr.create_array(tmp_path / "z", name="a/b", shape=SHAPE, chunks=chunks, shards=shards, dtype="float32")
    run(out, pool)
    assert is_right(zarr.open(tmp_path / "z")["a/b"])
    assert set(pool.values) == {None}


class Mixed(Executor):
    """Two workers, one of which does not see the files of the result."""

    _max_workers = 2

    def __init__(self, threads: Executor) -> None:
        self.threads, self.count = threads, 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        job, piece, permitted = pickle.loads(pickle.dumps(args))
        self.count += 1
        return self.threads.submit(fn, job, piece, permitted if self.count % 2 else None)


@LINUX
def test_the_caller_writes_its_blocks_while_no_worker_writes_to_chunks_that_they_share(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    a, b = (np.arange(600.0) % 7, np.arange(500.0) % 5)
    out = zarr.create_array(tmp_path / "z", shape=(600, 500), chunks=(80, 125), dtype="float64")
    with ThreadPoolExecutor(2) as threads:
        executor = Mixed(threads)
        einsumx.einsum("i,j->ij", a, b, out=out, memory_limit=MemoryLimit("200 kB", executor=executor))
    assert executor.count > 10
    assert (out[...] == a[:, None] * b).all()


def test_an_array_of_zarr_that_is_in_no_file_goes_through_the_caller(pool: Returned) -> None:
    zarr = pytest.importorskip("zarr")
    out = zarr.create_array({}, shape=SHAPE, chunks=(50, 50), dtype="float32")
    run(out, pool)
    assert is_right(out)


def test_a_dataset_of_hdf5_is_written_by_the_caller_who_has_it_open(pool: Returned, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "out.h5", "w") as file:
        run(file.create_dataset("c", SHAPE, "float32"), pool, resume=tmp_path / "journal")
    with h5py.File(tmp_path / "out.h5") as file:
        assert is_right(file["c"])


# -- workers and callers that end ---------------------------------------------------------------------------------


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
folder, speed, kind = sys.argv[1:]

class Slow:
    shape, dtype = (64, 64), np.dtype("float64")
    def __getitem__(self, box):
        if box[0].stop and speed == "slow":
            time.sleep(0.05)
        return np.ones(self.shape)[box]

if __name__ == "__main__":
    if kind == "map":
        out = np.memmap(folder + "/out", "float64", "r+", shape=(64, 900))
    else:
        import zarr
        out = zarr.open(folder + "/z", mode="r+")
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        limit = einsumx.MemoryLimit(
            "150kB", executor=pool, resume=folder + "/journal", progress=lambda *step: print(*step, flush=True)
        )
        einsumx.einsum("ij,jk->ik", Slow(), np.arange(64 * 900.0).reshape(64, 900), out=out, memory_limit=limit)
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

    killed = started("slow")
    try:
        with killed:
            for line in killed.stdout:
                if int(line.split()[0]) == 4:
                    break
            killed.kill()
            total = int(line.split()[1])
        written = len((tmp_path / "journal").read_text().splitlines()) - 1
        assert 4 <= written < total
        with started("fast") as caller:  # while workers of the first are still there
            told = [int(line.split()[1]) for line in caller.stdout]
        assert caller.returncode == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)  # its workers, which do not see that nobody is there
    assert told[-1] == total - written
    assert not (tmp_path / "journal").exists()
    out = np.memmap(tmp_path / "out", "float64", shape=(64, 900)) if kind == "map" else zarr.open(tmp_path / "z")
    expected = np.arange(64 * 900.0).reshape(64, 900).sum(axis=0)
    assert (out[...] == expected).all()


# -- room on the disk ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.name != "posix" or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


FULL = """
from concurrent.futures import Executor
import sys
import numpy as np
import einsumx
class Elsewhere(Executor):
    _max_workers = 1
a, b = np.ones((300, 400), "float32"), np.ones((400, 400), "float32")
out = np.memmap(sys.argv[1] + "/out", "float32", "w+", shape=(300, 400))
for out, executor in (out, None), (None, Elsewhere()):
    try:
        einsumx.einsum("ij,jk->ik", a, b, out=out, memory_limit=einsumx.MemoryLimit(1_000_000, executor=executor))
    except OSError as error:
        print(error.errno, error)
"""


def test_a_full_disk_is_an_error_before_any_work_and_not_the_end_of_the_process(small_disk: Path) -> None:
    of_out, of_operands = printed(FULL, small_disk, TMPDIR=str(small_disk)).splitlines()
    assert of_out.startswith(str(errno.ENOSPC))
    assert "the disk has no room for the 480000 bytes of out=" in of_out
    assert not np.fromfile(small_disk / "out", "float32").any()
    assert of_operands.startswith(str(errno.ENOSPC))
    assert "bytes of an operand that workers read from a temporary file" in of_operands
    assert list(small_disk.iterdir()) == [small_disk / "out"]


TRUNCATED = """
import os, sys
import numpy as np
import einsumx
shapes = {"operand 0": (300, 60), "operand 1": (60, 400), "out=": (300, 400)}
for cut in shapes:
    files = {name: f"{sys.argv[1]}/{cut} {name}" for name in shapes}
    a, b, out = (np.memmap(files[name], "float32", "w+", shape=shape) for name, shape in shapes.items())
    os.truncate(files[cut], 5000)
    try:
        einsumx.einsum("ij,jk->ik", a, b, out=out, memory_limit=300_000)
    except einsumx.BackendError as error:
        print(error)
"""


def test_a_file_that_was_truncated_under_a_map_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    for name, said in zip(("operand 0", "operand 1", "out="), printed(TRUNCATED, tmp_path).splitlines(), strict=True):
        assert f"the file of {name} was truncated after it was mapped" in said


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system sets no room aside")
@pytest.mark.parametrize(
    ("code", "is_full"),
    [
        *((code, True) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
        *((code, False) for code in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV)),
    ],
)
def test_room_that_is_refused_is_an_error_and_a_file_system_that_sets_none_aside_does_without(
    code: int, is_full: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    def fake_posix_fallocate(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(backing.os, "posix_fallocate", fake_posix_fallocate)
    out = np.memmap(tmp_path / "out", "float32", "w+", shape=SHAPE)
    if not is_full:
        einsumx.einsum(EQUATION, *operands(), out=out, memory_limit=LIMIT)
        assert is_right(out)
        return
    with pytest.raises(OSError, match=r"no room for the 480000 bytes of out= .* free space") as error:
        einsumx.einsum(EQUATION, *operands(), out=out, memory_limit=LIMIT)
    assert error.value.errno == code
    assert error.value.filename == str(tmp_path / "out")
    assert not out.any()


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
