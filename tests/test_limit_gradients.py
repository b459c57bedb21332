"""Gradients under a memory limit on PyTorch: right, differentiable again, and within the limit."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import einsumx
from einsumx import MemoryLimitError, einsum
from einsumx.blocked.derivatives import backward
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_text

torch = pytest.importorskip("torch")

EQUATIONS = {
    "ij,jk->ik": [(2, 1), (3, 2)],
    "iij,j->i": [(2, 2, 2), (2,)],
    "jiji,->ij": [(2, 2, 2, 2), ()],
    "a,ab,b->": [(2,), (2, 2), (2,)],
    "ij->j": [(2, 3)],
}


def leaves(equation, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True) for shape in EQUATIONS[equation]]


def smallest(equation, operands):
    """The smallest limit under which a contraction and its gradients can be computed."""
    with pytest.raises(MemoryLimitError) as caught:
        einsum(equation, *operands, memory_limit=1)
    return caught.value.smallest


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [*((equation, torch.float64) for equation in EQUATIONS), ("ij,jk->ik", torch.complex128)],
    ids=str,
)
def test_gradients_and_their_gradients_under_a_limit_are_those_of_finite_differences(equation, dtype):
    operands = leaves(equation, dtype)
    limit = smallest(equation, operands)

    def within(*arrays):
        return einsum(equation, *arrays, memory_limit=limit)

    assert torch.autograd.gradcheck(within, operands)
    assert torch.autograd.gradgradcheck(within, operands)


def test_only_the_gradients_that_are_asked_for_are_computed_and_count():
    shapes = (40, 50), (50, 60)
    first, second = (torch.randn(shape, requires_grad=True) for shape in shapes)
    both = smallest_of(first, second)
    assert smallest_of(first, second.detach()) < both
    einsum("ij,jk->ik", first, second.detach(), memory_limit=both).sum().backward()
    assert first.grad is not None
    assert second.grad is None


def smallest_of(*operands):
    return smallest("ij,jk->ik", operands)


def test_nothing_but_the_operands_that_gradients_need_is_saved():
    first, second = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        einsum("ij,jk->ik", first, second, memory_limit=10**6)
    assert [tensor.data_ptr() for tensor in saved] == [second.data_ptr()]


def test_the_backward_contractions_stay_within_the_limit():
    operands = [torch.randn(shape, requires_grad=True) for shape in [(300, 400), (400, 350), (350, 200)]]
    limit = 1_600_000
    assert einsumx.plan("ij,jk,kl->il", *operands, memory_limit=limit).peak_bytes <= limit
    result = einsum("ij,jk,kl->il", *operands, memory_limit=limit)
    cotangent = torch.ones_like(result)
    with torch.profiler.profile(profile_memory=True, record_shapes=False) as profile:
        torch.autograd.grad(result, operands, cotangent)
    alive = highest = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            highest = max(highest, alive)
    gradients = sum(operand.nbytes for operand in operands)
    assert gradients < highest <= limit


def test_gradients_are_planned_once_before_the_contraction_runs():
    operands = [torch.randn(shape, requires_grad=True) for shape in [(30, 40), (40, 35)]]
    result = einsum("ij,jk->ik", *operands, memory_limit=20_000)
    before = einsumx.cache_info()["blocks"].misses
    result.backward(torch.ones_like(result))
    assert einsumx.cache_info()["blocks"].misses == before


def test_gradients_do_not_need_the_executor_that_computed_the_result():
    first, second = torch.randn(30, 40, requires_grad=True), torch.randn(40, 35, requires_grad=True)
    with ThreadPoolExecutor(2) as pool:
        result = einsum("ij,jk->ik", first, second, memory_limit=50_000, executor=pool)
    result.backward(torch.ones_like(result))
    torch.testing.assert_close(first.grad, second.detach().sum(1).expand(30, 40))
    torch.testing.assert_close(second.grad, first.detach().sum(0)[:, None].expand(40, 35))


def test_a_limit_that_no_gradient_fits_is_an_error_before_any_work():
    first, second = torch.randn(100, 100, requires_grad=True), torch.randn(100, 2)
    forward = 4000
    einsum("ij,jk->ik", first.detach(), second, memory_limit=forward)
    with pytest.raises(MemoryLimitError, match=r"ik|smallest memory_limit= is 4\d{4} bytes"):
        einsum("ij,jk->ik", first, second, memory_limit=forward)


def test_gradients_do_not_go_through_out():
    first, second = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6)
    with pytest.raises(einsumx.BackendError, match="out="):
        einsum("ij,jk->ik", first, second, out=torch.empty(4, 6), memory_limit=10**6)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
def test_a_compiled_function_keeps_the_limit_outside_of_its_graph():
    first, second = torch.randn(8, 9), torch.randn(9, 7)

    def function(first, second):
        return einsum("ij,jk->ik", first + 1, second, memory_limit=3000) * 2

    found = torch.compile(function, backend="aot_eager")(first, second)
    torch.testing.assert_close(found, (first + 1) @ second * 2)
    with pytest.raises(MemoryLimitError, match="smallest memory_limit="):
        torch.compile(lambda *arrays: einsum("ij,jk->ik", *arrays, memory_limit=1), backend="aot_eager")(first, second)


@pytest.mark.parametrize(
    ("equation", "shapes", "number", "written", "ones"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], 0, (((1, 2), (0, 2)), (0, 1)), ()),
        ("ij->j", [(2, 3)], 0, (((1,), (0,)), (0, 1)), (2,)),
        ("ij,j->i", [(2, 1), (3,)], 0, (((1,), (0,)), (0,)), ()),
        ("iij,j->", [(2, 2, 3), (1,)], 0, (((1,), (), (0,), (1,)), (0, 1)), (2, 3)),
    ],
)
def test_a_gradient_is_an_einsum_of_the_others_and_the_cotangent(equation, shapes, number, written, ones):
    found = backward(bind(parse_text(equation, len(shapes)), shapes), number)
    assert (found.written, found.ones) == (written, ones)
