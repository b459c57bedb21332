"""A real cluster of Dask's, of two processes: the same results, also where a worker dies in the middle."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="Dask's distributed is not installed: pip install 'dask[distributed]'")
import dask.array as da
from distributed import Client, LocalCluster

import einsumx
from einsumx import MemoryLimit
from einsumx.conformance.kit.oracle import expect, judge

EQUATION = "ij,jk,kl->il"
SHAPES = [(60, 40), (40, 50), (50, 30)]


@pytest.fixture(scope="module")
def client():
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


def check(found, arrays):
    assert judge(found, expect(EQUATION, *arrays))


def test_blocks_on_its_workers_give_the_plain_sum_and_a_block_of_an_operand_is_sent_once(client, arrays, monkeypatch):
    sent = []
    scatter = client.scatter
    monkeypatch.setattr(client, "scatter", lambda block, **how: sent.append(block.size) or scatter(block, **how))
    check(einsumx.einsum(EQUATION, *arrays, memory_limit=MemoryLimit("50kB", executor=client.get_executor())), arrays)
    assert sum(sent) == sum(array.size for array in arrays)


@pytest.mark.parametrize("opened", [False, True])
def test_an_operand_in_a_file_is_not_sent(client, arrays, opened, tmp_path, monkeypatch):
    operands = []
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array)
        operand = einsumx.opened_by(np.load, tmp_path / f"{number}.npy", mmap_mode="r")
        operands.append(operand if opened else np.load(tmp_path / f"{number}.npy", mmap_mode="r"))
    monkeypatch.setattr(client, "scatter", lambda block, **how: pytest.fail("sent"))
    check(einsumx.einsum(EQUATION, *operands, memory_limit=MemoryLimit("50kB", executor=client.get_executor())), arrays)


def test_an_expression_is_sent_to_its_workers(client, arrays):
    run = einsumx.expression(EQUATION, SHAPES[0], *arrays[1:])
    check(client.submit(run, arrays[0]).result(), arrays)


def test_a_worker_that_dies_over_a_block_loses_nothing(client, arrays, tmp_path):
    (tmp_path / "once").touch()
    given = [DeadlyOnce(arrays[0], tmp_path / "once"), *arrays[1:]]
    check(einsumx.einsum(EQUATION, *given, memory_limit=MemoryLimit("50kB", executor=client.get_executor())), arrays)
    assert not (tmp_path / "once").exists()


def peak_and_spilled(dask_worker):
    """The most bytes that a worker's process has held, and those that it has on disk."""
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024, dask_worker.data.spilled_total.disk


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process's peak")
def test_workers_with_little_memory_stay_within_it_also_where_one_dies_over_a_chunk(client, tmp_path):
    client.wait_for_workers(2, timeout=120)
    before = set(client.run(os.getpid).values())
    (tmp_path / "once").touch()
    meta = np.empty((0, 0))
    first, second = (da.ones((500_000, 128), chunks=(20_000, 128)).map_blocks(np.array, meta=meta) for _ in range(2))
    assert first.nbytes + second.nbytes > 800e6  # more than both workers have
    first = first.map_blocks(deadly_once, str(tmp_path / "once"), dtype=float, meta=meta)
    result = einsumx.einsum("ki,kj->ij", first, second)
    ends = client.compute(da.stack([result.min(), result.max()])).result(timeout=120)
    assert ends.tolist() == [500_000] * 2
    assert not (tmp_path / "once").exists()
    client.wait_for_workers(2, timeout=120)
    assert len(before & set(client.run(os.getpid).values())) == 1  # no other worker was restarted
    for peak, spilled in client.run(peak_and_spilled).values():
        assert peak < 400e6
        assert spilled == 0


def test_a_block_over_which_every_worker_dies_is_given_up(client, arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    (tmp_path / "always").mkdir()  # which is not removed as a file is
    given = [DeadlyOnce(arrays[0], tmp_path / "always"), *arrays[1:]]
    with pytest.raises(einsumx.BlockError, match=r"block \[.*KilledWorker"):
        einsumx.einsum(EQUATION, *given, memory_limit=MemoryLimit("50kB", executor=client.get_executor()))


def test_a_cluster_that_is_gone_is_told_with_what_is_done_and_resume_goes_on(tmp_path):
    lhs, rhs = np.ones((400, 30)), np.ones((30, 20))
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", float, (400, 20))
    limit = partial(MemoryLimit, "20 kB", resume=tmp_path / "journal")
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        executor = client.get_executor()

        def close_in_the_middle(done, total):
            if done == total // 2:
                cluster.close()

        left = "blocks done: [1-9][0-9]* of [0-9]+; the same call with resume=.*journal' continues from there"
        with pytest.raises(einsumx.BlockError, match=rf"could not be computed.*\n  {left}"):
            einsumx.einsum(
                "ij,jk->ik", lhs, rhs, out=out, memory_limit=limit(executor=executor, progress=close_in_the_middle)
            )
        with pytest.raises(ValueError, match="the cluster of executor= does not answer"):
            einsumx.einsum("ij,jk->ik", lhs, rhs, out=out, memory_limit=limit(executor=executor))
    with ThreadPoolExecutor(1) as executor:
        einsumx.einsum("ij,jk->ik", lhs, rhs, out=out, memory_limit=limit(executor=executor))
    assert (out == 30).all()
