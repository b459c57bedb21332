"""A real cluster of Dask's, of two processes: the same results, also where a worker dies in the middle."""

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="Dask's distributed is not installed: pip install 'dask[distributed]'")
import dask.array as da
from distributed import Client, LocalCluster

import einsumx
from einsumx.conformance.oracle import expect, judge

EQUATION = "ij,jk,kl->il"
SHAPES = [(60, 40), (40, 50), (50, 30)]


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def small_client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="400 MB", dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def arrays():
    random = np.random.default_rng(1)
    return [random.normal(size=shape) for shape in SHAPES]


def end_process_once(path):
    """Kill the process that comes here first; where the path is a folder, every one."""
    try:
        if not Path(path).is_dir():
            Path(path).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyOnce:
    """Something stored; the first worker that reads a later block of it is killed."""

    def __init__(self, array, path):
        self.array, self.path, self.shape, self.dtype = array, str(path), array.shape, array.dtype

    def __getitem__(self, box):
        if box[0].start:
            end_process_once(self.path)
        return self.array[box]


def deadly_once(block, path):
    end_process_once(path)
    return block


@pytest.mark.parametrize("limit", ["50kB", "1MB"])
def test_blocks_on_its_workers_give_the_plain_sum(client, arrays, limit):
    result = einsumx.einsum(EQUATION, *arrays, memory_limit=limit, executor=client.get_executor())
    verdict = judge(result, expect(EQUATION, *arrays))
    assert verdict, verdict.wrong


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("jrl,ijr,ijrk,ijrl,ikmn->imn", [(20, 3, 16), (5, 20, 3), (5, 20, 3, 16), (5, 20, 3, 16), (5, 16, 3, 3)]),
        ("ij,jk->ik", [(120, 120), (120, 120)]),
    ],
)
def test_every_executor_gives_the_result_of_the_caller_alone_to_rounding(client, equation, shapes, tmp_path):
    random = np.random.default_rng(4)
    arrays = []
    for number, shape in enumerate(shapes):
        random.normal(size=shape).astype("float32").tofile(tmp_path / str(number))
        arrays.append(np.memmap(tmp_path / str(number), "float32", "r", shape=shape))
    expected = expect(equation, *arrays)
    spawn = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(2, spawn) as processes:
        executors = [None, threads, processes, client.get_executor()]
        if find_spec("loky"):
            executors.append(import_module("loky").get_reusable_executor(2))
        for executor in executors:
            result = einsumx.einsum(equation, *arrays, memory_limit="140kB", executor=executor)
            verdict = judge(result, expected)
            assert verdict, (executor, verdict.wrong)


def test_a_block_of_an_operand_is_sent_once(client, arrays, monkeypatch):
    sent = []
    scatter = client.scatter
    monkeypatch.setattr(client, "scatter", lambda block, **how: sent.append(block.size) or scatter(block, **how))
    einsumx.einsum(EQUATION, *arrays, memory_limit="50kB", executor=client.get_executor())
    assert sum(sent) == sum(array.size for array in arrays)


def test_an_operand_in_a_file_is_not_sent(client, arrays, tmp_path, monkeypatch):
    mapped = []
    for number, array in enumerate(arrays):
        array.tofile(tmp_path / str(number))
        mapped.append(np.memmap(tmp_path / str(number), "float64", "r", shape=array.shape))
    monkeypatch.setattr(client, "scatter", lambda block, **how: pytest.fail("sent"))
    result = einsumx.einsum(EQUATION, *mapped, memory_limit="50kB", executor=client.get_executor())
    verdict = judge(result, expect(EQUATION, *arrays))
    assert verdict, verdict.wrong


def test_a_worker_opens_an_operand_by_a_function(client, arrays, tmp_path, monkeypatch):
    mapped = []
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array)
        mapped.append(einsumx.opened_by(np.load, tmp_path / f"{number}.npy", mmap_mode="r"))
    monkeypatch.setattr(client, "scatter", lambda block, **how: pytest.fail("sent"))
    result = einsumx.einsum(EQUATION, *mapped, memory_limit="50kB", executor=client.get_executor())
    verdict = judge(result, expect(EQUATION, *arrays))
    assert verdict, verdict.wrong


def test_a_worker_that_dies_over_a_block_loses_nothing(client, arrays, tmp_path):
    (tmp_path / "once").touch()
    given = [DeadlyOnce(arrays[0], tmp_path / "once"), *arrays[1:]]
    result = einsumx.einsum(EQUATION, *given, memory_limit="50kB", executor=client.get_executor())
    assert not (tmp_path / "once").exists()
    verdict = judge(result, expect(EQUATION, *arrays))
    assert verdict, verdict.wrong


def test_a_block_over_which_every_worker_dies_is_given_up(client, arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    (tmp_path / "always").mkdir()  # which is not removed as a file is
    given = [DeadlyOnce(arrays[0], tmp_path / "always"), *arrays[1:]]
    with pytest.raises(einsumx.BlockError, match=r"block \[.*KilledWorker"):
        einsumx.einsum(EQUATION, *given, memory_limit="50kB", executor=client.get_executor())


def test_an_expression_is_sent_to_its_workers(client, arrays):
    run = einsumx.expression(EQUATION, SHAPES[0], *arrays[1:])
    verdict = judge(client.submit(run, arrays[0]).result(), expect(EQUATION, *arrays))
    assert verdict, verdict.wrong


def test_a_worker_that_dies_over_a_chunk_loses_nothing(client, arrays, tmp_path):
    (tmp_path / "once").touch()
    chunked = [da.from_array(array, chunks=20) for array in arrays]
    chunked[0] = chunked[0].map_blocks(deadly_once, str(tmp_path / "once"), dtype=float, meta=np.empty((0, 0)))
    result = einsumx.einsum(EQUATION, *chunked).compute(scheduler=client)
    assert not (tmp_path / "once").exists()
    verdict = judge(result, expect(EQUATION, *arrays))
    assert verdict, verdict.wrong


def peak_and_spilled(dask_worker):
    """The most bytes that a worker's process has held, and those that it has on disk."""
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024, dask_worker.data.spilled_total.disk


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process's peak")
@pytest.mark.parametrize(
    ("equation", "shapes", "chunks", "value"),
    [
        ("ki,kj->ij", [(1_000_000, 128)] * 2, [(20_000, 128)] * 2, 1_000_000),
        ("bij,bjk->bik", [(900, 256, 256)] * 2, [(15, 256, 256)] * 2, 256),
        ("ij,jk,kl->il", [(36_000, 3000), (3000, 50), (50, 80)], [(3000, 700), (800, 50), (20, 80)], 150_000),
    ],
)
def test_workers_with_little_memory_stay_within_it_also_where_one_dies(
    small_client, equation, shapes, chunks, value, tmp_path
):
    small_client.wait_for_workers(2)
    before = set(small_client.run(os.getpid).values())
    (tmp_path / "once").touch()
    meta = np.empty((0,) * len(shapes[0]))
    arrays = [da.ones(shape, chunks=sizes).map_blocks(np.array, meta=meta) for shape, sizes in zip(shapes, chunks)]
    assert sum(array.nbytes for array in arrays) > 800e6  # more than both workers have
    arrays[0] = arrays[0].map_blocks(deadly_once, str(tmp_path / "once"), dtype=float, meta=meta)
    result = einsumx.einsum(equation, *arrays)
    ends = small_client.compute(da.stack([result.min(), result.max()])).result(timeout=120)
    assert ends.tolist() == [value] * 2
    assert not (tmp_path / "once").exists()
    small_client.wait_for_workers(2)
    assert len(before & set(small_client.run(os.getpid).values())) == 1  # no other worker was restarted
    for peak, spilled in small_client.run(peak_and_spilled).values():
        assert peak < 400e6
        assert spilled == 0
