"""Blocks on executors: the same results, in bounded memory, with nothing lost, sent twice or left behind."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from stored import CASES, Acting, Stored, process_pool

import einsumx
from einsumx import MemoryLimit
from einsumx.adapters.registry import get_backend
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.streaming import worker
from einsumx.streaming.readers import sources
from einsumx.streaming.shared_operands import SharedOperands, file_of

pytestmark = pytest.mark.long


def ends_the_process(path, box):
    """End the process that reads a later part: always where the path is a folder, or only while it is a file."""
    if box[0].start and path.exists():
        if not path.is_dir():
            path.unlink()
        os._exit(1)


class Inline(Executor):
    """Runs a task where it is submitted, but sends it and its result as to another process."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            task, given = pickle.loads(pickle.dumps((fn, args)))
            future.set_result(pickle.loads(pickle.dumps(task(*given))))
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future


def left_behind():
    """Files of operands that were sent and are still there, in folders or in memory."""
    files = list(Path(tempfile.gettempdir()).glob("einsumx-*"))
    for descriptor in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            files += [found for found in [descriptor.readlink()] if "memfd:einsumx" in str(found)]
    return files


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert left_behind() == []
    assert not [thread for thread in threading.enumerate() if thread.name == "einsumx-reader"]


@pytest.fixture(scope="module")
def pools():
    """Threads, processes, and what sends as to processes but runs here."""
    with ThreadPoolExecutor(3) as several, process_pool(2) as processes:
        yield {"threads": several, "processes": processes, "inline": Inline()}


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as several:
        yield several


def operands(equation, dtype="float64"):
    random = np.random.default_rng(3)
    return [random.integers(-3, 4, shape).astype(dtype) for shape in CASES[equation]]


# -- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "case", "dtype"),
    [
        ("threads", "ij,jk->ik", "float16"),
        ("threads", "ij,ij->", "float32"),
        ("threads", "iij->ji", "float32"),
        ("threads", "...i,ij->...j", "float16"),
        ("processes", "ij,jk->ki", "float64"),
        ("processes", "ab,bc,cd->ad", "float64"),
        ("processes", "i,j->ij", "float64"),
        ("processes", "ij,jk->ik (empty)", "float64"),
        ("inline", "ij,ij->", "bool"),
        ("inline", "ij->i", "int8"),
        ("inline", "bind,bjnd->bnij", "complex64"),
    ],
)
def test_an_executor_gives_the_plain_sum(pools, kind, case, dtype):
    equation, arrays = case.partition(" ")[0], operands(case, dtype)
    for limit in ("60kB", "1MB"):
        result = einsumx.einsum(equation, *arrays, memory_limit=MemoryLimit(limit, executor=pools[kind]))
        assert judge(result, expect(equation, *arrays))


def test_the_same_call_gives_the_same_bits_whichever_thread_comes_first(pool):
    arrays = [np.random.default_rng(5).normal(size=size).astype("float32") for size in [(3, 4000), (4000, 2)]]
    found = [
        einsumx.einsum("ij,jk->ik", *arrays, memory_limit=MemoryLimit("1MB", executor=pool)).tobytes() for _ in range(5)
    ]
    assert len(set(found)) == 1


def test_a_sum_without_blocks_of_its_result_is_shared_out_among_the_workers(pool):
    arrays = [Stored(np.ones(100)), Stored(np.ones(100))]
    assert einsumx.einsum("i,i->", *arrays, memory_limit=MemoryLimit(10000, executor=pool)) == 100
    boxes = {(box[0].start, box[0].stop) for box in arrays[0].boxes if box[0].stop}
    assert boxes == {(0, 25), (25, 50), (50, 75), (75, 100)}


def test_partial_sums_are_not_added_into_an_operand(pool):
    operand = np.ones((1, 8))
    assert einsumx.einsum("ij->i", operand, memory_limit=MemoryLimit(1000, executor=pool)).tolist() == [8]
    assert operand.tolist() == [[1] * 8]


def test_tensors_reach_processes_too(torch):
    arrays = [torch.arange(600, dtype=torch.bfloat16).reshape(20, 30).T / 64, torch.ones(20, 7, dtype=torch.bfloat16)]
    result = einsumx.einsum("ij,jk->ik", *arrays, memory_limit=MemoryLimit("40kB", executor=Inline()))
    assert result.dtype == torch.bfloat16
    assert judge(result.float().numpy(), expect("ij,jk->ik", *(x.float().numpy() for x in arrays), dtype="bfloat16"))


# -- memory -------------------------------------------------------------------------------------------------------


def test_a_bounded_number_of_pieces_is_in_flight():
    class Counting(ThreadPoolExecutor):
        flying = most = 0

        def submit(self, fn, /, *args, **kwargs):
            self.flying += 1
            self.most = max(self.most, self.flying)
            future = super().submit(fn, *args, **kwargs)
            future.add_done_callback(lambda done: setattr(self, "flying", self.flying - 1))
            return future

    with Counting(2) as pool:
        einsumx.einsum(
            "ij,jk->ik", np.ones((400, 50)), np.ones((50, 400)), memory_limit=MemoryLimit(1500000, executor=pool)
        )
        assert pool.most == 2


def test_values_that_many_blocks_need_are_computed_once_by_each_worker(pool):
    left, right = Stored(np.ones((40, 30))), Stored(np.ones((30, 50)))
    given = {"memory_limit": MemoryLimit(300000, executor=pool), "optimize": [(1, 2), (0, 1)]}
    result = einsumx.einsum("ab,bc,cd->ad", np.ones((400, 40)), left, right, **given)
    assert result.tolist() == np.full((400, 50), 1200.0).tolist()
    assert 1 <= len(left.boxes) <= 2 * len(set(map(str, left.boxes)))


def test_a_process_lets_kept_values_go_after_a_while(monkeypatch):
    monkeypatch.setattr(worker, "IDLE", 0.01)
    arrays = operands("ab,bc,cd->ad")
    einsumx.einsum(
        "ab,bc,cd->ad", *arrays, memory_limit=MemoryLimit("1MB", executor=Inline()), optimize=[(1, 2), (0, 1)]
    )
    deadline = time.monotonic() + 20
    while worker._state.cache._held is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert worker._state.cache._held is None


# -- sending ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "view"),
    [
        ("r", lambda x: x),
        ("r+", lambda x: x[2:, 1]),
        ("w+", lambda x: x.T),
        ("r", lambda x: x[::-2]),
        ("w+", lambda x: np.asarray(x)[1:]),
        ("r", lambda x: x[:0]),
    ],
    ids=["whole", "part", "transposed", "reversed", "plain", "empty"],
)
def test_a_view_of_a_memory_map_is_sent_as_a_place_in_its_file(tmp_path, mode, view):
    np.arange(70, dtype=">i4").tofile(tmp_path / "data")
    array = view(np.memmap(tmp_path / "data", ">i4", mode, offset=40, shape=(4, 5, 3)))
    if mode == "w+":
        array[...] = 7
    sent = pickle.dumps(file_of(array))
    opened = pickle.loads(sent).open()
    assert len(sent) < 500
    assert opened.dtype == array.dtype
    assert opened.tolist() == array.tolist()


def test_what_was_written_to_a_copy_on_write_map_is_sent_too(tmp_path):
    np.zeros(6).tofile(tmp_path / "data")
    array = np.memmap(tmp_path / "data", mode="c", dtype="float64")
    array[2] = 5
    assert einsumx.einsum("i->", array, memory_limit=MemoryLimit("1MB", executor=Inline())) == 5


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(2, 0, 1),
        lambda x: x[::2, ::-1],
        lambda x: np.broadcast_to(x[:, :1], x.shape),
        lambda x: x[:, :0],
        lambda x: x[0, 0, 0:1].reshape(()),
    ],
    ids=["transposed", "reversed", "broadcast", "empty", "scalar"],
)
def test_an_array_in_memory_is_opened_from_a_file_in_its_layout(view):
    array = view(np.arange(60.0).reshape(4, 5, 3))
    shared = SharedOperands(local=True)
    try:
        opened = pickle.loads(pickle.dumps(shared.share(_source(array)))).open()
        assert opened.tolist() == array.tolist()
        assert not array.size or np.argsort(opened.strides).tolist() == np.argsort(np.abs(array.strides)).tolist()
    finally:
        shared.close()


def test_an_array_that_is_given_twice_is_written_once_and_an_expanded_one_as_the_small_one_behind_it(tmp_path):
    array, shared = np.broadcast_to(np.ones(4), (1000, 4)), SharedOperands(local=False)
    try:
        assert shared.share(_source(array)) == shared.share(_source(array))
        (path,) = tmp_path.rglob("einsumx-*/*")
        assert path.stat().st_size == 32
    finally:
        shared.close()


def test_a_worker_that_does_not_see_the_file_of_an_operand_says_what_to_do(tmp_path):
    shared = SharedOperands(local=False)
    sent = shared.share(_source(np.ones(3)))
    shared.close()
    with pytest.raises(einsumx.BackendError, match=r"another machine .* TMPDIR"):
        sent.open()


def _source(array):
    return sources([array], get_backend("numpy"), "")[0][0]


# -- failures -----------------------------------------------------------------------------------------------------


def fails_late(box):
    if box[0].start:
        raise OSError("the disk is gone")


def test_a_piece_that_raises_is_named_and_not_tried_again(pool):
    array = Acting(np.ones((8, 3)), fails_late)
    with pytest.raises(
        einsumx.BlockError, match=r"block \[\d+:\d+, 0:3\] of the result of ij,jk->ik .* disk is"
    ) as caught:
        einsumx.einsum("ij,jk->ik", array, np.ones((3, 3)), memory_limit=MemoryLimit("1MB", executor=pool))
    assert isinstance(caught.value.__cause__, OSError)
    read = [box[0].start for box in array.boxes if box[0].stop]
    assert len(read) == len(set(read))


def test_an_interruption_ends_what_runs_on_threads(pool):
    def interrupt(box):
        if box[0].start:
            raise KeyboardInterrupt

    array = Acting(np.ones((64, 3)), interrupt)
    with pytest.raises(KeyboardInterrupt):
        einsumx.einsum("ij,jk->ik", array, np.ones((3, 3)), memory_limit=MemoryLimit("1MB", executor=pool))
    read = len(array.boxes)
    assert pool.submit(lambda: len(array.boxes)).result() == read


def counts_calls(path):
    """Leave a mark of each process that starts with this."""
    Path(path, str(os.getpid())).touch()


@pytest.mark.parametrize("kind", ["processes", "loky"])
def test_a_worker_that_dies_loses_nothing(kind, tmp_path):
    (tmp_path / "once").touch()
    started = tmp_path / "started"
    started.mkdir()
    array = Acting(np.ones((8, 3)), partial(ends_the_process, tmp_path / "once"))
    before = set(multiprocessing.active_children())
    if kind == "loky":
        loky = pytest.importorskip("loky")
        pool = loky.get_reusable_executor(2, initializer=counts_calls, initargs=(started,))
    else:
        pool = process_pool(2, counts_calls, started)
    out = np.memmap(tmp_path / "out", "float64", "w+", shape=(8, 3)) if kind == "processes" else None
    with pytest.warns(RuntimeWarning, match="continues in a new executor of the same kind") as caught:
        result = einsumx.einsum(
            "ij,jk->ik", array, np.ones((3, 3)), memory_limit=MemoryLimit("1MB", executor=pool), out=out
        )
    assert result.tolist() == np.full((8, 3), 3.0).tolist()
    assert not (tmp_path / "once").exists()
    assert caught[0].filename == __file__
    assert len(list(started.iterdir())) >= 2  # the new ones are initialized as the first ones were
    pool.shutdown()
    assert set(multiprocessing.active_children()) == before


@pytest.mark.filterwarnings("ignore:a worker of executor= died")
def test_a_block_that_ends_every_worker_is_given_up(tmp_path):
    array = Acting(np.ones((8, 3)), partial(ends_the_process, tmp_path))
    with pytest.raises(einsumx.BlockError, match=r"block \[.*workers of the executor died 3 times.*fewer workers"):
        einsumx.einsum("ij,jk->ik", array, np.ones((3, 3)), memory_limit=MemoryLimit("1MB", executor=process_pool(1)))


INTERRUPTED = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
import numpy as np, einsumx

class Slow:
    shape, dtype = (64, 64), np.dtype("float64")
    def __getitem__(self, box):
        if box[0].stop:
            print("reading", flush=True)
            time.sleep(0.1)
        return np.ones(self.shape)[box]

if __name__ == "__main__":
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        limit = einsumx.MemoryLimit("2MB", executor=pool)
        einsumx.einsum("ij,jk->ik", Slow(), np.ones((64, 640)), memory_limit=limit)
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory alone")
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGINT"])
def test_a_caller_that_is_ended_by_a_signal_leaves_nothing_behind(ending, tmp_path):
    (tmp_path / "program.py").write_text(INTERRUPTED)
    (tmp_path / "temporary").mkdir()
    caller = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with caller.stdout:
        assert caller.stdout.readline().startswith("reading")
    caller.send_signal(getattr(signal, ending))
    assert caller.wait(60) != 0
    assert list((tmp_path / "temporary").iterdir()) == []
    with suppress(ProcessLookupError):
        os.killpg(caller.pid, signal.SIGKILL)  # a pool's processes do not see that nobody is there
