"""The memory pool: large arrays lie where others were before, but never where one still is."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from processes import printed

import einsumx
from einsumx.host import array_memory

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory pool needs Linux")

LARGE = (3000, 3000)
"""The shape of a result of 36 MB in float32."""
SIZE = 36 << 20
"""The bytes of its block: a whole number of huge pages."""


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> None:
    """Nothing that tests before these have left, which each garbage collection would go through."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty pool with the default bound, for one test."""
    einsumx.cache_clear()
    monkeypatch.setattr(array_memory, "_pool", array_memory._MemoryPool())
    monkeypatch.setattr(array_memory, "_counts_idle_memory", lambda: False)
    einsumx.set_memory_pool("1GiB")
    yield
    gc.collect()
    einsumx.set_memory_pool(0)


def vectors() -> Any:
    rng = np.random.default_rng(1)
    return [torch.from_numpy(rng.integers(1, 5, (size, 2)).astype("f4")) for size in LARGE]


def outer(lhs: Any, rhs: Any, **options: Any) -> Any:
    """A large result, computed by a matrix product."""
    return einsumx.einsum("ik,jk->ij", lhs, rhs, **options)


def address(array: Any) -> int:
    return int(array.data_ptr())


def used() -> int:
    """How many arrays were placed in the pool."""
    info = einsumx.memory_pool_info()
    return info.hits + info.misses


# -- reuse --------------------------------------------------------------------------------------------------------


def test_a_large_result_lies_where_the_one_before_was_on_huge_pages() -> None:
    arrays = vectors()
    first = address(outer(*arrays))
    assert first % (2 << 20) == 0
    assert [address(outer(*arrays)) for _ in range(3)] == [first] * 3
    assert einsumx.memory_pool_info() == (1 << 30, SIZE, 3, 1)


def test_a_small_result_is_not_in_the_pool() -> None:
    einsumx.einsum("ij,jk->ik", torch.ones((100, 90)), torch.ones((90, 80)))
    assert used() == 0


def test_arrays_of_numpy_are_its_own() -> None:
    lhs, rhs = vectors()
    assert outer(lhs.numpy(), rhs.numpy()).flags.owndata
    assert used() == 0


def test_results_of_nearly_equal_size_share_memory_and_others_do_not() -> None:
    lhs, rhs = vectors()
    first = address(outer(lhs, rhs))
    assert address(outer(lhs[:2850], rhs)) == first
    assert address(outer(lhs[:2950], rhs)) == first
    assert address(outer(torch.cat([lhs, lhs]), rhs)) != first
    assert einsumx.memory_pool_info()[2:] == (2, 2)
    half = torch.cat([lhs, lhs])[:4000]
    outer(half, rhs)  # 48 MB, for which a block of 72 MB would be wasted, and one of 36 MB is too small
    assert einsumx.memory_pool_info()[2:] == (2, 3)


def test_intermediate_arrays_return_to_the_pool_before_the_call_ends() -> None:
    a, b, square = torch.ones((3000, 4)), torch.ones((4, 3000)), torch.ones((3000, 3000))
    path = [(0, 1), (0, 1), (0, 1)]
    einsumx.einsum("ij,jk,ki,ki->ik", a, b, square, square, optimize=path)
    for _ in range(2):
        before = einsumx.memory_pool_info()
        einsumx.einsum("ij,jk,ki,ki->ik", a, b, square, square, optimize=path)
        after = einsumx.memory_pool_info()
        assert after.misses == before.misses
        assert after.hits > before.hits


# -- no reuse while a view lives ------------------------------------------------------------------------------------


def test_memory_is_not_used_again_while_a_tensor_or_an_array_of_it_lives() -> None:
    lhs, rhs = vectors()
    for view_of in (lambda result: result[1:].t(), lambda result: result.untyped_storage(), torch.Tensor.numpy):
        einsumx.cache_clear()
        result = outer(lhs, rhs)
        first = result.data_ptr()
        view = view_of(result)
        del result
        assert outer(lhs, rhs).data_ptr() != first
        del view
        gc.collect()
        assert einsumx.memory_pool_info().held == 2 * SIZE


def test_a_cycle_that_holds_a_result_gives_its_memory_back_when_it_is_collected() -> None:
    arrays = vectors()
    cycle: list[Any] = [outer(*arrays)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert einsumx.memory_pool_info().held == SIZE


# -- bounds ---------------------------------------------------------------------------------------------------------


def test_the_pool_holds_at_most_its_bound() -> None:
    arrays = vectors()
    einsumx.set_memory_pool(2 * SIZE + 1)
    results = [outer(*arrays) for _ in range(4)]
    places = [address(result) for result in results]
    while results:
        del results[0]
        assert einsumx.memory_pool_info().held <= 2 * SIZE + 1
    assert einsumx.memory_pool_info().held == 2 * SIZE
    assert {address(outer(*arrays)), address(outer(*arrays))} <= set(places[2:])  # the last ones were kept


def test_a_smaller_bound_returns_memory_at_once() -> None:
    results = [outer(*vectors()) for _ in range(2)]
    del results
    einsumx.set_memory_pool("40MB")
    assert einsumx.memory_pool_info() == (40_000_000, SIZE, 0, 2)
    einsumx.set_memory_pool(SIZE - 1)
    assert einsumx.memory_pool_info().held == 0


def test_a_pool_of_no_bytes_leaves_arrays_to_their_framework() -> None:
    einsumx.set_memory_pool(0)
    outer(*vectors())
    assert used() == 0


def test_clearing_the_caches_returns_the_memory() -> None:
    outer(*vectors())
    kept = outer(*vectors())
    second = outer(*vectors())
    del second
    assert einsumx.memory_pool_info().held == SIZE
    einsumx.cache_clear()
    assert einsumx.memory_pool_info().held == 0
    assert torch.equal(kept, outer(*vectors()))


def test_nothing_is_held_where_idle_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_memory, "_counts_idle_memory", lambda: True)
    outer(*vectors())
    assert einsumx.memory_pool_info().held == 0


@pytest.mark.parametrize(
    ("size", "error", "text"),
    [
        (-1, ValueError, "at least 0, not -1"),
        ("much", ValueError, "'much', which is not an amount of memory; write '1GiB'"),
        (True, TypeError, "a number of bytes or a text such as '1GiB', not True"),
    ],
)
def test_an_unreadable_size_is_an_error(size: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        einsumx.set_memory_pool(size)
    assert einsumx.memory_pool_info().bound == 1 << 30


@pytest.mark.parametrize(("size", "nbytes"), [("2 MiB", 2 << 20), ("0", 0), (np.int64(7), 7)])
def test_a_size_is_bytes_or_text(size: Any, nbytes: int) -> None:
    einsumx.set_memory_pool(size)
    assert einsumx.memory_pool_info().bound == nbytes


@pytest.mark.long
def test_the_environment_sets_the_bound_and_an_array_that_lives_until_the_end_causes_no_message() -> None:
    program = (
        "import torch, einsumx\n"
        "a = torch.ones((3000, 1))\n"
        "kept = einsumx.einsum('ik,jk->ij', a, a)\n"
        "cycle = [einsumx.einsum('ik,jk->ij', a, a)]\n"
        "cycle.append(cycle)\n"
        "print(einsumx.memory_pool_info().bound)"
    )
    assert printed(program, EINSUMX_MEMORY_POOL="64MiB") == f"{64 << 20}\n"


# -- memory that runs short -----------------------------------------------------------------------------------------


def test_if_the_system_has_no_memory_left_the_pool_returns_its_own_and_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lhs, rhs = vectors()
    outer(lhs, rhs)
    block, held = array_memory._Block, []

    def scarce(nbytes: int) -> Any:
        held.append(einsumx.memory_pool_info().held)
        if held[-1]:
            raise OSError(12, "Cannot allocate memory")
        return block(nbytes)

    monkeypatch.setattr(array_memory, "_Block", scarce)
    result = outer(torch.cat([lhs, lhs]), rhs)
    assert held == [SIZE, 0]
    assert torch.equal(result, torch.cat([lhs, lhs]) @ rhs.T)
    assert einsumx.memory_pool_info().misses == 2


def test_without_memory_for_the_pool_an_array_is_its_frameworks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(nbytes: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(array_memory, "_Block", none)
    result = outer(*vectors())
    assert torch.equal(result, vectors()[0] @ vectors()[1].T)


def test_under_a_memory_limit_the_pool_is_empty_and_not_used() -> None:
    arrays = vectors()
    outer(*arrays)
    before = used()
    result = outer(*arrays, memory_limit="100MB")
    assert einsumx.memory_pool_info().held == 0
    assert used() == before
    assert torch.equal(result, outer(*arrays))


@pytest.mark.long
def test_threads_never_get_the_same_memory() -> None:
    rng = np.random.default_rng(2)
    lhs, rhs = vectors()
    sizes = rng.integers(2850, 3000, (4, 8))

    def hammer(number: int) -> None:
        kept: list[Any] = []
        for size in sizes[number]:
            part = (number + 1) * lhs[:size]
            kept = [*kept[-1:], (outer(part, rhs), part)]
            for result, factor in kept:
                assert torch.equal(result[:, 0], factor @ rhs[0])
                assert result[-1, -1] == factor[-1] @ rhs[-1]

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(hammer, range(4)))
    assert einsumx.memory_pool_info().hits > 0
    assert einsumx.memory_pool_info().held <= 1 << 30


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_child_of_fork_has_its_own_memory() -> None:
    lhs, rhs = vectors()
    result = outer(lhs, rhs)
    expected = result.clone()
    outer(lhs, rhs)
    child = os.fork()
    if not child:  # where PyTorch's threads are gone, so that nothing large is computed
        status = 1
        try:
            if einsumx.memory_pool_info().held == 0 and np.array_equal(result, expected):
                result.numpy()[:] = -1
                del result
                status = einsumx.memory_pool_info().held != SIZE
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(result, expected)
    assert einsumx.memory_pool_info().held == SIZE


# -- PyTorch --------------------------------------------------------------------------------------------------------


TENSORS = {
    "ik,jk->ij": [(3000, 2), (3001, 2)],
    "bik,jk->bij": [(40, 500, 3), (501, 3)],
    "abik,bajk->abij": [(5, 8, 500, 3), (8, 5, 501, 3)],
    "iakb,jbka->abij": [(500, 5, 3, 8), (501, 8, 3, 5)],
    "ik,ij->ij": [(3000, 2), (3000, 3001)],
    "i,j->ij": [(3000,), (3001,)],
    "ij,ij->ji": [(3000, 3001), (3000, 3001)],
}
DTYPES = ("float32", "bfloat16", "complex64", "int32")


@pytest.mark.long
@pytest.mark.parametrize(("equation", "dtype"), list(zip(TENSORS, itertools.cycle(DTYPES))))
def test_tensors_in_the_pool_are_right(equation: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.integers(0, 3, shape).astype("f4") for shape in TENSORS[equation]]
    operands = [torch.from_numpy(array).to(getattr(torch, dtype)) for array in arrays]
    expected = torch.from_numpy(np.einsum(equation, *arrays, optimize=True))
    for _ in range(2):
        result = einsumx.einsum(equation, *operands, order="C")
        assert result.dtype is getattr(torch, dtype)
        assert result.is_contiguous()
        assert torch.equal(result.real if result.is_complex() else result.float(), expected)
    assert used() > 0 or result.nbytes <= 1 << 25


def test_a_tensor_in_the_pool_is_an_ordinary_tensor() -> None:
    result = outer(*vectors())
    expected = vectors()[0] @ vectors()[1].T
    assert not result._is_view()
    assert torch.equal(pickle.loads(pickle.dumps(result)), expected)
    assert np.array_equal(np.from_dlpack(result), expected)
    assert result.numpy().flags.writeable
    assert outer(*vectors()).resize_(10, 10).shape == (10, 10)
    with pytest.raises(RuntimeError, match="not resizable"):
        outer(*vectors()).resize_(2 * LARGE[0], LARGE[1])
    assert torch.equal(outer(*vectors()).share_memory_(), expected)


def test_results_with_gradients_are_not_in_the_pool() -> None:
    lhs, rhs = vectors()
    lhs.requires_grad_()
    result = outer(lhs, rhs)
    assert used() == 0
    result.sum().backward()
    assert torch.equal(lhs.grad, rhs.sum(0).expand(lhs.shape))
    with torch.no_grad():
        assert not outer(lhs, rhs).requires_grad
    assert used() == 1


def test_a_torch_that_does_not_tell_who_observes_gets_no_memory_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    from einsumx.backends.torch import kernels

    monkeypatch.setattr(kernels, "_OBSERVERS", None)
    result = outer(*vectors())
    assert torch.equal(result, vectors()[0] @ vectors()[1].T)
    assert used() == 0


def test_results_under_autocast_are_in_the_pool() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = outer(*vectors())
    assert result.dtype is torch.bfloat16
    assert used() > 0


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch itself
def test_results_that_a_transform_a_mode_or_a_trace_observes_are_not_in_the_pool() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils.flop_counter import FlopCounterMode

    lhs, rhs = vectors()
    expected = lhs @ rhs.T
    assert torch.equal(torch.func.vmap(lambda lhs: outer(lhs, rhs))(lhs[None])[0], expected)
    primal, tangent = torch.func.jvp(lambda lhs: outer(lhs, rhs), (lhs,), (lhs,))
    assert torch.equal(primal, tangent)
    with FlopCounterMode(display=False) as counter:
        outer(lhs, rhs)
    assert counter.get_total_flops() == 2 * 2 * LARGE[0] * LARGE[1]
    with FakeTensorMode() as mode:
        assert outer(mode.from_tensor(lhs), mode.from_tensor(rhs)).shape == LARGE
    graph = make_fx(partial(einsumx.einsum, "ik,jk->ij"), tracing_mode="real")(lhs, rhs)
    assert torch.equal(graph(2 * lhs, rhs), 2 * expected)
    assert used() == 0
