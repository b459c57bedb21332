"""Gradients that einsumx computes itself, as contractions: what is kept for them, and where autograd is not alone."""

from functools import partial

import pytest

import einsumx

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # of torch's forward mode

HALF, SINGLE, DOUBLE, COMPLEX = torch.bfloat16, torch.float32, torch.float64, torch.complex128

LINEAR = "bi,oi->bo", (128, 256), (64, 256)
TRIANGLE = "ikc,jkc->ijc", (16, 40, 64), (24, 40, 64)
FORM = "bi,ij,bj->b", (64, 256), (256, 200), (64, 200)
"""The copies and casts of these are large."""

OWN = {
    "rows and matrices": ("bd,bkd->bk", (16, 128), (16, 256, 128)),
    "outer products": ("bld,dn->bldn", (4, 64, 64), (64, 16)),
    "copies": TRIANGLE,
    "a diagonal": ("iikc,jkc->ijc", (20, 20, 20, 32), (24, 20, 32)),
    "a label summed alone": ("ikcx,jkc->ijc", (16, 20, 32, 2), (24, 20, 32)),
    "an axis that broadcasts": ("bld,bdn->bldn", (1, 64, 64), (4, 64, 16)),
}
"""Contractions of float64 whose gradients are contractions."""


def tensors(*shapes, dtype=DOUBLE):
    generator = torch.Generator().manual_seed(0)
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,) * len(shapes)
    made = [torch.randn(shape, dtype=COMPLEX, generator=generator) for shape in shapes]
    made = [4 * each if wanted.is_complex else 4 * each.real for each, wanted in zip(made, dtypes)]
    made = [each.to(wanted) for each, wanted in zip(made, dtypes)]
    return [each.requires_grad_(each.is_floating_point() or each.is_complex()) for each in made]


def gradients(function, equation, operands, **options):
    """The gradients of a weighted sum of the result by the operands that ask for one."""
    result = function(equation, *operands, **options)
    cotangent = torch.linspace(-1, 2, result.numel(), dtype=DOUBLE).reshape(result.shape).to(HALF).to(result.dtype)
    leaves = [each for each in operands if each.requires_grad]
    return torch.autograd.grad(result, leaves, cotangent)


def bytes_kept(function, operands):
    """The bytes that autograd keeps beside the operands."""
    own = {each.untyped_storage().data_ptr() for each in operands}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = tensor, storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function(*operands)
    return sum(size for place, (_, size) in kept.items() if place not in own)


def is_own(result):
    """Whether einsumx computes the gradients of a result."""
    return "_Within" in type(result.grad_fn).__name__


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [
        (LINEAR, HALF),
        (LINEAR, torch.float16),
        (LINEAR, (HALF, SINGLE)),
        (TRIANGLE, HALF),
        (TRIANGLE, SINGLE),
        (FORM, HALF),
        (("ij,jk,kl,lm->im", (160, 160), (160, 160), (160, 160), (160, 160)), HALF),
    ],
    ids=str,
)
def test_no_casts_and_copies_of_large_operands_are_kept(equation, dtype):
    equation, *shapes = equation
    operands = tensors(*shapes, dtype=dtype if isinstance(dtype, tuple) else (dtype,) * len(shapes))
    assert bytes_kept(lambda *arrays: einsumx.einsum(equation, *arrays), operands) == 0


def test_of_two_operands_only_the_one_that_a_gradient_needs_is_kept():
    lhs, rhs = tensors(*TRIANGLE[1:])
    rhs = rhs.detach()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        result = einsumx.einsum(TRIANGLE[0], lhs, rhs)
    assert [each.data_ptr() for each in kept] == [rhs.data_ptr()]
    assert is_own(result)


@pytest.mark.parametrize("name", OWN)
def test_gradients_are_those_of_torch(name):
    equation, *shapes = OWN[name]
    operands = tensors(*shapes)
    assert is_own(einsumx.einsum(equation, *operands))
    wanted = gradients(torch.einsum, equation, operands)
    for gradient, other in zip(gradients(einsumx.einsum, equation, operands), wanted):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize(
    "dtype",
    [(COMPLEX, COMPLEX), (COMPLEX, DOUBLE), (DOUBLE, COMPLEX), (torch.int64, DOUBLE), (SINGLE, DOUBLE)],
    ids=str,
)
@pytest.mark.parametrize("conj", [(), 0, (0, 1)])
def test_gradients_of_mixed_dtypes_and_conjugates_are_those_of_torch(dtype, conj):
    equation, *shapes = TRIANGLE
    operands = tensors(*shapes, dtype=dtype)
    assert is_own(einsumx.einsum(equation, *operands, conj=conj))

    def wanted(equation, *operands, conj):
        places = (conj,) if conj == 0 else conj
        arrays = [each.conj() if place in places else each for place, each in enumerate(operands)]
        common = torch.result_type(*operands)
        return torch.einsum(equation, *[each.to(common) for each in arrays])

    found = gradients(einsumx.einsum, equation, operands, conj=conj)
    for gradient, other in zip(found, gradients(wanted, equation, operands, conj=conj), strict=True):
        assert gradient.dtype is other.dtype
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("equation", [LINEAR, FORM, TRIANGLE], ids=str)
def test_gradients_of_half_precision_are_rounded_once(equation):
    equation, *shapes = equation
    operands = tensors(*shapes, dtype=HALF)
    exact = [each.detach().double().requires_grad_() for each in operands]
    for gradient, other in zip(gradients(einsumx.einsum, equation, operands), gradients(torch.einsum, equation, exact)):
        assert gradient.dtype is HALF
        torch.testing.assert_close(gradient.double(), other, rtol=1 / 256, atol=1e-3 * float(other.abs().max()))


@pytest.mark.parametrize("equation", [TRIANGLE, OWN["rows and matrices"], OWN["outer products"], FORM], ids=str)
def test_gradients_of_gradients_are_those_of_torch(equation):
    equation, *shapes = equation
    is_half = equation == FORM[0]
    operands = tensors(*shapes, dtype=HALF if is_half else DOUBLE)

    def second(function, operands):
        result = function(equation, *operands)
        first = torch.autograd.grad((result * result).sum(), operands, create_graph=True)
        return torch.autograd.grad(sum((each * each).sum() for each in first), operands)

    assert is_own(einsumx.einsum(equation, *operands))
    exact = [each.detach().double().requires_grad_() for each in operands]
    for gradient, other in zip(second(einsumx.einsum, operands), second(torch.einsum, exact)):
        if is_half:
            error = (gradient.double() - other).abs().max() / other.abs().max()
            assert error < 2e-2
        else:
            torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("place", range(3))
def test_a_gradient_by_one_of_three_half_operands_is_that_by_all(place):
    equation, *shapes = FORM
    operands = tensors(*shapes, dtype=HALF)
    wanted = gradients(einsumx.einsum, equation, operands)[place]
    alone = [each.detach().requires_grad_(number == place) for number, each in enumerate(operands)]
    (found,) = gradients(einsumx.einsum, equation, alone)
    assert torch.equal(found, wanted)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_gradients_by_complex_operands_of_a_real_result_are_those_of_the_calls():
    equation, *shapes = TRIANGLE
    operands = tensors(*shapes, dtype=(COMPLEX, COMPLEX))

    def wanted(equation, *operands, **_):
        return torch.einsum(equation, *[each.real for each in operands])

    options = {"dtype": "float64", "casting": "unsafe"}
    for gradient, other in zip(
        gradients(einsumx.einsum, equation, operands, **options), gradients(wanted, equation, operands)
    ):
        torch.testing.assert_close(gradient, other)


def test_an_expression_keeps_no_casts_either():
    equation, *shapes = FORM
    operands = tensors(*shapes, dtype=HALF)
    assert bytes_kept(einsumx.expression(equation, *shapes), operands) == 0


def test_gradients_of_gradients_keep_no_copies_either():
    equation, *shapes = TRIANGLE
    lhs, rhs = tensors(*shapes)
    (gradient,) = torch.autograd.grad(einsumx.einsum(equation, lhs, rhs).square().sum(), lhs, create_graph=True)
    assert is_own(gradient)


ROWS = [
    ("bhd,bhd->bh", (8, 32, 64), (8, 32, 64)),
    ("bhd,dhb->hb", (64, 4, 64), (64, 4, 64)),
    ("bhd,bhd->hb", (64, 32, 64), (1, 32, 64)),
]


@pytest.mark.parametrize("equation", ROWS, ids=str)
def test_products_of_rows_with_rows_have_no_gradients_by_products_of_matrices(equation):
    equation, *shapes = equation
    operands = tensors(*shapes)
    result = einsumx.einsum(equation, *operands)
    names, nodes = set(), [result.grad_fn]
    while nodes:
        node = nodes.pop()
        names.add(node.name())
        nodes += [each for each, _ in node.next_functions if each is not None]
    assert "MulBackward0" in names
    assert not names & {"BmmBackward0", "MmBackward0", "UnsafeViewBackward0"}
    torch.testing.assert_close(result, torch.einsum(equation, *operands))
    wanted = gradients(torch.einsum, equation, operands)
    for gradient, other in zip(gradients(einsumx.einsum, equation, operands), wanted):
        torch.testing.assert_close(gradient, other)
    assert bytes_kept(lambda *arrays: einsumx.einsum(equation, *arrays), operands) == 0


# -- others than a backward pass ---------------------------------------------------------------------------------------


def batched(function, operands, cotangents):
    return torch.autograd.grad(function(*operands), operands, cotangents, is_grads_batched=True)


def one_by_one(function, operands, cotangents):
    found = [torch.autograd.grad(function(*operands), operands, each) for each in cotangents]
    return [torch.stack(each) for each in zip(*found)]


@pytest.mark.parametrize(("equation", "dtype"), [(TRIANGLE, DOUBLE), (FORM, HALF)], ids=str)
def test_a_batch_of_cotangents_has_the_gradients_of_each(equation, dtype):
    equation, *shapes = equation
    operands = tensors(*shapes, dtype=dtype)

    def function(*arrays):
        return einsumx.einsum(equation, *arrays)

    cotangents = torch.stack([function(*operands).detach(), torch.ones_like(function(*operands))])
    wanted = one_by_one(function, operands, cotangents)
    for gradient, other in zip(batched(function, operands, cotangents), wanted):
        torch.testing.assert_close(gradient, other)


def with_vmap(function, lhs, rhs):
    return torch.func.vmap(function)(lhs.expand(2, *lhs.shape), rhs.expand(2, *rhs.shape))


def with_grad(function, lhs, rhs):
    return torch.func.grad(lambda lhs: function(lhs, rhs).square().sum())(lhs)


def with_hessian(function, lhs, rhs):
    scale = torch.tensor(2.0, dtype=lhs.dtype)
    return torch.func.hessian(lambda scale: function(scale * lhs, scale * rhs).sum())(scale)


def with_jvp(function, lhs, rhs):
    return torch.func.jvp(function, (lhs, rhs), (rhs.new_ones(lhs.shape), rhs))[1]


def with_tangents(function, lhs, rhs):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(lhs, torch.ones_like(lhs))
        return torch.autograd.forward_ad.unpack_dual(function(dual, rhs)).tangent


def in_reverse_over_tangents(function, lhs, rhs):
    return torch.func.vjp(lambda lhs: torch.func.jvp(function, (lhs, rhs), (lhs, rhs))[1], lhs)[1](function(lhs, rhs))[
        0
    ]


def checkpointed(function, lhs, rhs):
    from torch.utils.checkpoint import checkpoint

    return torch.autograd.grad(checkpoint(function, lhs, rhs, use_reentrant=False).square().sum(), lhs)[0]


def saved_on_the_cpu(function, lhs, rhs):
    with torch.autograd.graph.save_on_cpu():
        return torch.autograd.grad(function(lhs, rhs).square().sum(), lhs)[0]


def written_to(function, lhs, rhs):
    return torch.autograd.grad(function(lhs, rhs).mul_(2).relu_().sum(), lhs)[0]


def one_tensor_twice(function, lhs, rhs):
    return torch.autograd.grad(function(lhs, lhs).square().sum(), lhs)[0]


def retained(function, lhs, rhs):
    result = function(lhs, rhs).square().sum()
    torch.autograd.grad(result, lhs, retain_graph=True)
    return torch.autograd.grad(result, lhs)[0]


def expanded(function, lhs, rhs):
    leaf = lhs[:1].detach().requires_grad_()
    return torch.autograd.grad(function(leaf.expand(lhs.shape), rhs).square().sum(), leaf)[0]


def hooked(function, lhs, rhs):
    calls = []
    lhs = lhs.detach().requires_grad_()
    lhs.register_hook(lambda gradient: calls.append(gradient) or 3 * gradient)
    function(lhs, rhs).square().sum().backward()
    assert len(calls) == 1
    return lhs.grad


def in_a_graph(function, lhs, rhs):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    return torch.autograd.grad(compiled(lhs, rhs).square().sum(), lhs)[0]


def of_autocast(function, lhs, rhs):
    result = function(lhs, rhs)
    with torch.autocast("cpu", HALF):
        return torch.autograd.grad(result.square().sum(), lhs)[0]


USES = [
    with_vmap, with_grad, with_hessian, with_jvp, with_tangents, in_reverse_over_tangents, checkpointed,
    saved_on_the_cpu, written_to, one_tensor_twice, retained, expanded, hooked, in_a_graph, of_autocast,
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_gradients_in_other_uses_of_autograd_are_those_of_torch(use):
    equation, shape = TRIANGLE[0], (16, 40, 64)
    lhs, rhs = tensors(shape, shape)
    found, wanted = [use(partial(function, equation), lhs, rhs) for function in (einsumx.einsum, torch.einsum)]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("equation", "dtype"), [(TRIANGLE, DOUBLE), (FORM, HALF)], ids=str)
def test_an_operand_that_was_written_to_is_an_error_as_in_torch(equation, dtype):
    equation, *shapes = equation
    operands = tensors(*shapes, dtype=dtype)
    result = einsumx.einsum(equation, *operands)
    with torch.no_grad():
        operands[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_gradients_of_three_half_operands_hook_each_operand_once():
    equation, *shapes = FORM
    operands = tensors(*shapes, dtype=HALF)
    calls = []
    operands[1].register_hook(calls.append)
    einsumx.einsum(equation, *operands).sum().backward()
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [
        (("ij,jk->ik", (64, 64), (64, 64)), SINGLE),
        (("ij,jk->ik", (256, 256), (256, 256)), SINGLE),
        (("ij,jk->ik", (16, 16), (16, 16)), HALF),
        (("ikc,jkc->ijc", (4, 4, 8), (4, 4, 8)), SINGLE),
        (("ni,ni->n", (64, 32), (64, 32)), SINGLE),
        (("bij,bjk->bik", (16, 32, 32), (16, 32, 32)), SINGLE),
        (("ij,jk,kl->il", (128, 128), (128, 128), (128, 128)), SINGLE),
    ],
    ids=str,
)
def test_gradients_of_small_calls_and_of_products_without_copies_are_left_to_torch(equation, dtype):
    equation, *shapes = equation
    operands = tensors(*shapes, dtype=(dtype,) * len(shapes))
    assert not is_own(einsumx.einsum(equation, *operands))
