"""Peak memory under a limit: what NumPy and torch count stays within what the plan says, and that within the limit."""

import multiprocessing
import random
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import peaks
import pytest
from processes import printed
from stored import Stored, smallest

import einsumx
from einsumx import MemoryLimit
from einsumx.adapters.registry import backends
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.streaming import run as limited
from einsumx.streaming import worker
from einsumx.streaming.readers import Reader

pytestmark = pytest.mark.long

EQUATIONS = (
    "ab,bc->ac",
    "zab,zbc->zac",
    "ab,ab->ab",
    "ab,b->a",
    "aab,bc->ac",
    "a,b->ab",
    "ab->ba",
    "abc->b",
    "ab,bc,cd->ad",
    "ab,bc,cd,de->ae",
    "ab,bc,cd,de,ef->af",
    "zab,zbc,bd->zad",
    "xab,xbc,xcd,da->x",
    "ij,ik,il->jkl",
    "abc,ad,be,cf->def",
    "abc,abd,ae->cde",
    "abc,a,b,c->",
    "ab,cb,cd,ad->a",
)
DTYPES = ("float64", "float32", "float16", "complex64", "int8", "int32", "bool")
RUNS = 120
"""Blocks that a contraction is cut into at most, so that it does not take long."""

PLACE = 500
"""Bytes of Python's own objects that say where a block is, here and where the test counts what is read."""

TRANSPOSING = 60 * 60 * 16
"""Bytes of the buffer in which torch turns a part of a matrix round when it copies one."""


class Problem:
    """A random contraction of operands that are arrays, or are read block by block.

    The labels of the result, and one that is summed, are long; the others are short, so that the sum over all indices
    that the oracle takes is short for a part of the result.
    """

    def __init__(self, seed, backend, wrap):
        draw = random.Random(seed)
        self.equation, self.dtype, self.backend = draw.choice(EQUATIONS), draw.choice(DTYPES), backend
        terms, self.output = self.equation.split("->")
        self.terms = terms.split(",")
        labels = sorted(set(terms) - {","})
        summed = [label for label in labels if label not in self.output]
        long = {*self.output, *draw.sample(summed, min(1, len(summed)))}
        most = max(sum(label in long for label in term) for term in [*self.terms, self.output])
        base = {1: 20_000, 2: 600, 3: 75, 4: 26}[most]
        sizes = {label: draw.randint(base // 2, base) if label in long else draw.randint(2, 8) for label in labels}
        numbers = np.random.default_rng(seed)
        self.hosts = [
            peaks.laid_out([sizes[label] for label in term], self.dtype, draw.choice(peaks.LAYOUTS), numbers)
            for term in self.terms
        ]
        self.operands = [wrap(host, draw.random() < 0.6) for host in self.hosts]
        shape = tuple(sizes[label] for label in self.output)
        self.out = wrap(np.empty(shape, self.dtype), False) if shape and draw.random() < 0.5 else None
        self.limit = self._limit(draw.choice([0, 0, 0.05, 0.1, 0.2, 0.4, 0.7, 1]))

    def plan(self, limit):
        return einsumx.plan(self.equation, *self.operands, memory_limit=limit, backend=self.backend, out=self.out)

    def _limit(self, share):
        """Between the smallest limit and what all takes at once; more where it would be cut into too many blocks."""
        least = smallest(self.plan)
        limit = least + int(share * (self.plan("1 TB").peak_bytes - least))
        while prod(self.plan(limit).blocking.counts) > RUNS:
            limit = 2 * limit + 1000
        return limit

    def run(self):
        return einsumx.einsum(
            self.equation, *self.operands, memory_limit=self.limit, backend=self.backend, out=self.out
        )

    def check(self, result):
        """A few elements along each label of the result, by the oracle."""

        def corner(array, term):
            return array[tuple(slice(1, 3) if label in self.output else slice(None) for label in term)]

        parts = [corner(host, term) for host, term in zip(self.hosts, self.terms)]
        expected = expect(self.equation, *parts, dtype=self.dtype)
        assert judge(corner(np.asarray(result), self.output), expected), self.equation


def measured(problem, measure):
    """The bytes that a run takes, after one in which everything that is kept for later runs was made."""
    problem.check(problem.run())
    result, taken = measure(problem.run)
    problem.check(result)
    return taken


@pytest.mark.parametrize("seed", range(12, 24))
def test_numpy_stays_within_what_the_plan_says_and_that_within_the_limit(seed):
    problem = Problem(seed, "numpy", lambda host, is_stored: Stored(host) if is_stored else host)
    plan, taken = problem.plan(problem.limit), measured(problem, peaks.numpy_peak)
    assert plan.peak_bytes <= problem.limit
    assert taken <= plan.peak_bytes + peaks.OBJECTS + PLACE * prod(plan.blocking.counts)
    assert taken >= 0.85 * (plan.peak_bytes - plan.blocking.read_ahead)  # a thread may have read that, or not yet


@pytest.mark.skipif(not backends()["torch"], reason="torch is not installed")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("seed", range(12, 24))
def test_torch_stays_within_what_the_plan_says_and_that_within_the_limit(seed, monkeypatch):
    import torch

    class Tensor(Stored):
        """What is read by slices into memory that torch counts."""

        def __getitem__(self, box):
            return torch.from_numpy(self.array)[box].clone(memory_format=torch.contiguous_format).numpy()

    def wrap(host, is_stored):
        host = host if min(host.strides, default=0) >= 0 else host.copy()
        return Tensor(host) if is_stored else torch.from_numpy(host)

    # The profiler counts nothing of other threads.
    monkeypatch.setattr(limited, "Reader", lambda sources, *_: Reader(sources, iter(()), 0))
    problem = Problem(seed, "torch", wrap)
    plan, taken = problem.plan(problem.limit), measured(problem, peaks.torch_peak)
    assert plan.peak_bytes <= problem.limit
    predicted = plan.peak_bytes - plan.blocking.read_ahead
    assert taken <= predicted + TRANSPOSING
    if problem.dtype != "int32":  # whose products take more where all numbers are small
        assert taken >= 0.85 * predicted


SHARED = {
    "ab,bc->ac": [(500, 400), (400, 450)],
    "zab,zcb->zac": [(15, 120, 110), (15, 100, 110)],
    "ab,bc,cd->ad": [(350, 300), (300, 320), (320, 400)],
    "ab,ab->a": [(700, 600), (700, 600)],
}
"""Contractions that several compute."""


def shared(equation, dtype, executor, share):
    """Operands of which one is read block by block, and a limit that much above the smallest for the executor."""
    numbers = np.random.default_rng(0)
    first, *others = [peaks.numbers(shape, dtype, numbers) for shape in SHARED[equation]]
    operands = Stored(first), *others
    least = smallest(
        lambda limit: einsumx.einsum(equation, *operands, memory_limit=MemoryLimit(limit, executor=executor))
    )
    whole = einsumx.plan(equation, *operands, memory_limit="1 TB").peak_bytes
    return operands, least + int(share * whole)


@pytest.mark.parametrize("equation", SHARED)
def test_threads_stay_within_the_limit_together(equation):
    with ThreadPoolExecutor(2) as executor:
        for dtype, share in (("float64", 0.2), ("float16", 0.2), ("int32", 1)):
            operands, limit = shared(equation, dtype, executor, share)
            call = partial(einsumx.einsum, equation, *operands, memory_limit=MemoryLimit(limit, executor=executor))
            call()
            _, taken = peaks.numpy_peak(call)
            assert taken <= limit + peaks.OBJECTS


def begun():
    """In a worker: forget what earlier contractions left, and count from here; the bytes that there are."""
    worker._state.cache._clear()
    tracemalloc.reset_peak()
    return tracemalloc.get_traced_memory()[0]


def reached():
    """In a worker: the most bytes that there were."""
    return tracemalloc.get_traced_memory()[1]


def test_a_process_of_a_pool_and_the_caller_each_stay_within_the_limit():
    cases = [("ab,bc->ac", "float64", 0.2), ("ab,bc,cd->ad", "float16", 0.2), ("ab,ab->a", "float64", 1)]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), tracemalloc.start) as process:
        for equation, dtype, share in cases:
            operands, limit = shared(equation, dtype, process, share)
            operands = operands[0].array, *operands[1:]  # which reach the process as files
            call = partial(einsumx.einsum, equation, *operands, memory_limit=MemoryLimit(limit, executor=process))
            call()
            before = process.submit(begun).result()
            _, taken = peaks.numpy_peak(call)
            assert taken <= limit + peaks.OBJECTS
            assert process.submit(reached).result() - before <= limit + peaks.OBJECTS


@pytest.mark.skipif(not backends()["torch"], reason="torch is not installed")
@pytest.mark.parametrize(
    ("equation", "dtype"),
    [*((equation, "float64") for equation in SHARED), ("ab,bc->ac", "float16"), ("aab,bc->ac", "float16")],
)
def test_gradients_of_torch_stay_within_the_limit(equation, dtype):
    import torch

    shapes = SHARED.get(equation, [(60, 60, 80), (80, 300)])
    operands = [torch.ones(shape, dtype=getattr(torch, dtype), requires_grad=True) for shape in shapes]
    limit = int(1.6 * sum(operand.nbytes for operand in operands))  # with the gradients there is little room
    result, forward = peaks.torch_peak(lambda: einsumx.einsum(equation, *operands, memory_limit=limit))
    assert forward <= limit
    ones = torch.ones((), dtype=result.dtype).expand_as(result)  # as it comes from a sum
    for cotangent in (ones, ones.clone()):
        call = partial(torch.autograd.grad, result, operands, cotangent, retain_graph=True)
        gradients, backward = peaks.torch_peak(call)
        assert sum(gradient.nbytes for gradient in gradients) <= backward <= limit


COUNTED = """
import sys, threading, time
import numpy as np
import einsumx

def counted(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

def watch():
    while not ended.is_set():
        for name in most:
            most[name] = max(most[name], counted(name))
        time.sleep(0.001)

folder, kind = sys.argv[1:]
names = ("lhs", "rhs", "out", "small")
if kind == "map":
    lhs, rhs, out, small = (np.lib.format.open_memmap(f"{folder}/{name}.npy", "r+") for name in names)
elif kind == "h5":
    import h5py
    file = h5py.File(folder + "/arrays.h5", "r+", rdcc_nbytes=1 << 20)
    lhs, rhs, out, small = (file[name] for name in names)
else:
    import zarr
    lhs, rhs, out, small = (zarr.open(f"{folder}/{name}.zarr") for name in names)
einsumx.einsum("ij,jk->ik", small, small, memory_limit="9 MB", out=small)  # imports
np.ones((3000, 3000), np.float32) @ np.ones((3000, 3000), np.float32)  # BLAS keeps its buffers, once it has used them
before = {name: counted(name) for name in ("RssAnon", "RssFile")}
most, ended = dict(before), threading.Event()
watching = threading.Thread(target=watch)
watching.start()
einsumx.einsum("ij,jk->ik", lhs, rhs, memory_limit="20 MB", out=out)
ended.set()
watching.join()
assert (out[::999, ::777] == out.shape[0]).all()
print(most["RssAnon"] - before["RssAnon"], counted("RssFile") - before["RssFile"])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not count a process's pages")
@pytest.mark.parametrize(("kind", "of_python"), [("map", 200_000), ("h5", 1_000_000), ("zarr", 2_500_000)])
def test_the_system_counts_no_more_anonymous_memory_than_the_limit_and_gets_back_the_pages_of_maps(
    kind, of_python, tmp_path
):
    for name, size in {"lhs": 3000, "rhs": 3000, "out": 3000, "small": 300}.items():
        if kind == "map":
            np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", np.float32, (size, size))[:] = 1
            continue
        chunked = {"data": np.ones((size, size), np.float32), "chunks": (300, 300)}
        if kind == "h5":
            with pytest.importorskip("h5py").File(tmp_path / "arrays.h5", "a") as file:
                file.create_dataset(name, **chunked)
        else:
            pytest.importorskip("zarr").create_array(tmp_path / f"{name}.zarr", **chunked)
    found = printed(COUNTED, tmp_path, kind, OPENBLAS_NUM_THREADS="1", EINSUMX_NUM_THREADS="1")
    anonymous, mapped = map(int, found.split())
    assert anonymous <= 20e6 + of_python
    assert mapped <= 4e6  # of 108e6
