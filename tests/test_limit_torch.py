"""Memory limits on tensors that autograd, hooks and transforms of PyTorch have their hands on."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import peaks
import pytest

import einsumx
from einsumx import BackendError, MemoryLimitError, einsum

torch = pytest.importorskip("torch")

EQUATION, LIMIT = "ij,jk->ik", 3000


def leaves(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True) for shape in shapes]


def limited(*operands):
    return einsum(EQUATION, *operands, memory_limit=LIMIT)


def plain(*operands):
    return torch.einsum(EQUATION, *operands)


def smallest(*operands, equation=EQUATION):
    """The smallest limit under which a contraction and its gradients can be computed."""
    with pytest.raises(MemoryLimitError) as caught:
        einsum(equation, *operands, memory_limit=1)
    return caught.value.smallest


# -- gradients -------------------------------------------------------------------------------------------------------


def retained(function, x, y):
    result = function(x, y).sum()
    result.backward(retain_graph=True)
    result.backward()
    return x.grad, y.grad


def hooked(function, x, y):
    result = function(x, y)
    result.register_hook(lambda gradient: 3 * gradient)
    x.register_hook(lambda gradient: gradient + 1)
    result.sum().backward()
    return x.grad, y.grad


def checkpointed(function, x, y):
    from torch.utils.checkpoint import checkpoint

    return torch.autograd.grad(checkpoint(function, x, y, use_reentrant=False).sum(), (x, y))


def saved_elsewhere(function, x, y):
    with torch.autograd.graph.save_on_cpu():
        return torch.autograd.grad(function(x.T.contiguous().T, y).sum(), (x, y))


USES = {
    "one tensor twice": lambda function, x, y: torch.autograd.grad(function(x, x.T).sum(), x),
    "a result used twice": lambda function, x, y: torch.autograd.grad((function(x, y) * function(x, y)).sum(), (x, y)),
    "retain_graph": retained,
    "hooks": hooked,
    "checkpoint": checkpointed,
    "save_on_cpu": saved_elsewhere,
    "a transposed cotangent": lambda function, x, y: torch.autograd.grad(
        function(x, y), (x, y), torch.arange(24.0, dtype=torch.float64).reshape(6, 4).T
    ),
    "an expanded operand": lambda function, x, y: torch.autograd.grad(function(x[:1].expand(4, 5), y).sum(), (x, y)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_gradients_under_a_limit_are_those_without(use):
    theirs = use(plain, *leaves((4, 5), (5, 6)))
    torch.testing.assert_close(use(limited, *leaves((4, 5), (5, 6))), theirs)


@pytest.mark.long
@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [
        ("ij,jk->ik", [(2, 1), (3, 2)], torch.complex128),
        ("iij,j->i", [(2, 2, 2), (2,)], torch.float64),
        ("a,ab,b->", [(2,), (2, 2), (2,)], torch.float64),
        ("ij->j", [(2, 3)], torch.float64),
    ],
)
def test_gradients_of_gradients_under_a_limit_are_those_of_finite_differences(equation, shapes, dtype):
    operands = leaves(*shapes, dtype=dtype)
    limit = smallest(*operands, equation=equation)
    assert torch.autograd.gradgradcheck(lambda *arrays: einsum(equation, *arrays, memory_limit=limit), operands)


def test_only_the_gradients_that_are_asked_for_are_computed_and_count():
    x, y = leaves((40, 50), (50, 60))
    both = smallest(x, y)
    assert smallest(x, y.detach()) < both
    einsum(EQUATION, x, y.detach(), memory_limit=both).sum().backward()
    assert x.grad is not None
    assert y.grad is None


def test_nothing_but_the_operands_that_gradients_need_is_saved():
    x, y = leaves((4, 5), (5, 6))
    y, saved = y.detach(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        limited(x, y)
    assert [tensor.data_ptr() for tensor in saved] == [y.data_ptr()]


def test_gradients_do_not_need_the_executor_that_computed_the_result():
    x, y = leaves((30, 40), (40, 35))
    with ThreadPoolExecutor(2) as pool:
        result = einsum(EQUATION, x, y, memory_limit=einsumx.MemoryLimit(100_000, executor=pool))
    result.backward(torch.ones_like(result))
    torch.testing.assert_close(x.grad, y.detach().sum(1).expand(30, 40))
    torch.testing.assert_close(y.grad, x.detach().sum(0)[:, None].expand(40, 35))


def test_a_limit_that_no_gradient_fits_is_an_error_before_any_work():
    x, y = leaves((100, 100), (100, 2), dtype=torch.float32)
    forward = 4000
    einsum(EQUATION, x.detach(), y.detach(), memory_limit=forward)
    with pytest.raises(MemoryLimitError, match=r"smallest memory_limit= is 4\d{4} bytes"):
        einsum(EQUATION, x, y.detach(), memory_limit=forward)


def test_gradients_do_not_go_through_out():
    x, y = leaves((4, 5), (5, 6))
    with pytest.raises(einsumx.BackendError, match="out="):
        einsum(EQUATION, x, y, out=torch.empty(4, 6), memory_limit=10**6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_nothing_is_recorded_gradients_need_no_memory(mode):
    x, y = leaves((4, 5), (5, 6))
    with mode():
        limit = smallest(x, y)
        assert limit == 4 * 6 * 8  # the result alone
        assert not einsum(EQUATION, x, y, memory_limit=limit).requires_grad


def test_an_operand_that_no_gradient_needs_is_let_go():
    x, y = leaves((4, 5), (5, 6))
    inner = x.sin()
    result, there = limited(inner, y.detach()), weakref.ref(inner)
    del inner
    gc.collect()
    assert there() is None
    result.sum().backward()


def test_a_cotangent_is_not_written_to():
    (x,) = leaves((3, 4), dtype=torch.complex128)
    cotangent = torch.randn(4, 3, dtype=torch.complex128)
    before = cotangent.clone()
    (gradient,) = torch.autograd.grad(einsum("ij->ji", x, memory_limit=LIMIT), x, cotangent)
    assert torch.equal(cotangent, before)
    assert torch.equal(gradient, before.T)


@pytest.mark.long
@pytest.mark.parametrize(
    ("equation", "dtype"),
    [("zab,zbc->zac", torch.complex64), ("aab->b", torch.float32), ("ij,ik,il->jkl", torch.complex64)],
)
def test_a_backward_pass_takes_no_more_than_the_limit(equation, dtype):
    terms, _, output = equation.partition("->")
    size = {2: 150, 3: 35}[max(map(len, [*terms.split(","), output]))]
    operands = leaves(*[(size,) * len(term) for term in terms.split(",")], dtype=dtype)
    limit = smallest(*operands, equation=equation) * 21 // 20
    for _ in range(2):  # the first time, what is kept for later runs is made
        result = einsum(equation, *operands, memory_limit=limit)
        cotangent = torch.randn(result.shape[::-1]).to(dtype).permute(*reversed(range(result.ndim)))
        _, taken = peaks.torch_peak(lambda: torch.autograd.grad(result, operands, cotangent))  # noqa: B023
    assert taken <= limit


# -- what has no memory ----------------------------------------------------------------------------------------------

TRANSFORMS = {
    "grad": lambda x, y: torch.func.grad(lambda x: limited(x, y).sum())(x),
    "jvp": lambda x, y: torch.func.jvp(lambda x: limited(x, y), (x,), (x,)),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_are_refused(transform):
    x, y = (tensor.detach() for tensor in leaves((4, 5), (5, 6)))
    with pytest.raises(BackendError, match=r"torch\.func"):
        transform(x, y)


def test_a_tensor_that_is_differentiated_from_outside_is_refused_inside_of_a_transform():
    x, y = leaves((4, 5), (5, 6))
    with pytest.raises(BackendError, match=r"torch\.func"):
        torch.func.vmap(lambda scale: limited(x, y).sum() * scale)(torch.ones(3, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tangent_of_forward_mode_is_refused_and_not_lost(requires_grad):
    x, y = leaves((4, 5), (5, 6))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x if requires_grad else x.detach(), torch.ones_like(x))
        with pytest.raises(BackendError, match="forward mode"):
            limited(dual, y.detach())


def test_a_tensor_that_is_not_dense_is_said_to_be_so():
    with pytest.raises(BackendError, match="dense tensors"):
        limited(torch.eye(4).to_sparse(), torch.ones(4, 4))
