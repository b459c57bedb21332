"""Memory limits on tensors that autograd, hooks and transforms of PyTorch have their hands on."""

import gc
import weakref

import peaks
import pytest

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
    "not leaves": lambda function, x, y: torch.autograd.grad(function(x.sin(), 2 * y).sum(), (x, y)),
    "one tensor twice": lambda function, x, y: torch.autograd.grad(function(x, x.T).sum(), x),
    "a result used twice": lambda function, x, y: torch.autograd.grad((function(x, y) * function(x, y)).sum(), (x, y)),
    "one gradient of two": lambda function, x, y: torch.autograd.grad(function(x, y).sum(), y),
    "the other is constant": lambda function, x, y: torch.autograd.grad(function(x, y.detach()).sum(), x),
    "retain_graph": retained,
    "hooks": hooked,
    "checkpoint": checkpointed,
    "save_on_cpu": saved_elsewhere,
    "an expanded cotangent": lambda function, x, y: torch.autograd.grad(function(x, y).sum(), (x, y)),
    "a transposed cotangent": lambda function, x, y: torch.autograd.grad(
        function(x, y), (x, y), torch.arange(24.0, dtype=torch.float64).reshape(6, 4).T
    ),
    "a view of a parameter": lambda function, x, y: torch.autograd.grad(function(x[::2], y[:, 1:]).sum(), (x, y)),
    "an expanded operand": lambda function, x, y: torch.autograd.grad(function(x[:1].expand(4, 5), y).sum(), (x, y)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_gradients_under_a_limit_are_those_without(use):
    theirs = use(plain, *leaves((4, 5), (5, 6)))
    torch.testing.assert_close(use(limited, *leaves((4, 5), (5, 6))), theirs)


@pytest.mark.parametrize("shapes", [[(0, 5), (5, 6)], [(4, 0), (0, 6)], [(4, 5), (5, 0)], [(0, 0), (0, 0)]], ids=str)
def test_gradients_of_tensors_without_elements(shapes):
    ours, theirs = (torch.autograd.grad(each(*(o := leaves(*shapes))).sum(), o) for each in (limited, plain))
    torch.testing.assert_close(ours, theirs)


def test_gradients_of_tensors_without_axes():
    x, y = leaves((), ())
    einsum(",->", x, y, memory_limit=LIMIT).backward()
    torch.testing.assert_close((x.grad, y.grad), (y.detach(), x.detach()))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_nothing_is_recorded_gradients_need_no_memory(mode):
    x, y = leaves((4, 5), (5, 6))
    with mode():
        with pytest.raises(MemoryLimitError) as caught:
            einsum(EQUATION, x, y, memory_limit=1)
        assert caught.value.smallest == 4 * 6 * 8  # the result alone
        result = einsum(EQUATION, x, y, memory_limit=caught.value.smallest)
    assert not result.requires_grad


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("equation", ["zab,zbc->zac", "ab,ab->ab", "aab->b", "ij,ik,il->jkl"])
def test_a_backward_pass_takes_no_more_than_the_limit(equation, dtype):
    terms, _, output = equation.partition("->")
    size = {1: 2000, 2: 150, 3: 35}[max(map(len, [*terms.split(","), output]))]
    operands = [torch.randn((size,) * len(term)).to(dtype).requires_grad_() for term in terms.split(",")]
    with pytest.raises(MemoryLimitError) as caught:
        einsum(equation, *operands, memory_limit=1)
    limit = caught.value.smallest + caught.value.smallest // 20
    for _ in range(2):  # the first time, what is kept for later runs is made
        result = einsum(equation, *operands, memory_limit=limit)
        cotangent = torch.randn(result.shape[::-1]).to(dtype).permute(*reversed(range(result.ndim)))
        _, taken = peaks.torch_peak(lambda: torch.autograd.grad(result, operands, cotangent))  # noqa: B023
    assert taken <= limit


# -- what has no memory ----------------------------------------------------------------------------------------------

TRANSFORMS = {
    "grad": lambda x, y: torch.func.grad(lambda x: limited(x, y).sum())(x),
    "vmap": lambda x, y: torch.func.vmap(limited, (None, 0))(x, y[None]),
    "jvp": lambda x, y: torch.func.jvp(lambda x: limited(x, y), (x,), (x,)),
    "vjp": lambda x, y: torch.func.vjp(lambda x: limited(x, y), x),
    "jacrev": lambda x, y: torch.func.jacrev(lambda x: limited(x, y))(x),
    "hessian": lambda x, y: torch.func.hessian(lambda x: limited(x, y).sum())(x),
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


@pytest.mark.filterwarnings("ignore")  # of what torch.compile meets outside of the graph
@pytest.mark.parametrize("rows", [4, 0])
def test_a_compiled_function_has_gradients_under_a_limit(rows):
    x, y = leaves((rows, 5), (5, 6))
    result = torch.compile(lambda x, y: 2 * limited(x + 1, y), backend="aot_eager")(x, y)
    found = torch.autograd.grad(result.sum(), (x, y))
    torch.testing.assert_close(found, torch.autograd.grad(2 * plain(x + 1, y).sum(), (x, y)))
