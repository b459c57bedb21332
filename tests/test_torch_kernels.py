"""The kernels that torch's products run by: results, derivatives and transforms, whichever is chosen for the shapes."""

import pytest

torch = pytest.importorskip("torch")

from einsumx.backends.torch import ADAPTER  # noqa: E402
from einsumx.backends.torch.choices import copies_turned, loop_axis, product_workspace  # noqa: E402
from einsumx.conformance.kit.oracle import expect, judge  # noqa: E402
from einsumx.ir.operand import Operand  # noqa: E402
from einsumx.ir.ops import Matmul  # noqa: E402

SHAPES = {
    "one matrix": ((3, 4), (4, 5)),
    "matrix and vector": ((3, 4), (4, 1)),
    "vector and matrix": ((1, 4), (4, 5)),
    "vectors": ((1, 4), (4, 1)),
    "nothing contracted over": ((3, 0), (0, 5)),
    "no rows": ((0, 3), (3, 1)),
    "a batch": ((2, 3, 4), (2, 4, 5)),
    "an empty batch": ((0, 3, 4), (1, 4, 5)),
    "lhs in every item": ((1, 3, 4), (2, 4, 5)),
    "rhs in every item": ((2, 3, 4), (1, 4, 5)),
    "a batch of matrices and vectors": ((2, 3, 4), (2, 4, 1)),
    "a batch of vectors and matrices": ((2, 1, 4), (2, 4, 5)),
    "a batch of vectors": ((2, 1, 4), (2, 4, 1)),
    "a batch of long vectors": ((2, 1, 2000), (2, 2000, 1)),
    "a batch of large matrices and vectors": ((2, 3, 600), (2, 600, 1)),
    "several tiny": ((2, 3, 3, 4), (2, 3, 4, 5)),
    "several empty": ((2, 0, 3, 4), (2, 0, 4, 5)),
    "several, long inner": ((2, 90, 16, 24), (2, 90, 24, 8)),
    "several, long outer": ((90, 2, 16, 24), (90, 2, 24, 8)),
    "several, each lacking one": ((1, 90, 16, 24), (2, 1, 24, 8)),
    "several, with vectors": ((2, 90, 40, 16), (2, 90, 16, 1)),
    "several, vectors first": ((90, 2, 1, 16), (1, 2, 16, 40)),
    "three": ((2, 30, 3, 12, 16), (2, 1, 3, 16, 12)),
    "several large, long inner": ((2, 40, 64, 48), (2, 40, 48, 32)),
    "several large, long outer": ((40, 2, 64, 48), (40, 2, 48, 32)),
}
EQUATIONS = {2: "ij,jk->ik", 3: "aij,ajk->aik", 4: "abij,abjk->abik", 5: "abcij,abcjk->abcik"}


def kernel(shapes):
    return ADAPTER.kernel(Matmul(2, 0, 1), shapes, "float64")


def layouts(values):
    """A tensor in several memory orders, its last two axes keeping one unit stride."""
    *batch, rows, cols = range(values.ndim)
    orders = [(*batch, rows, cols), (*batch, cols, rows), (rows, *batch, cols)]
    if len(batch) > 1:  # batch axes that do not merge into one
        orders += [(*batch[:-1], rows, batch[-1], cols), (*batch[:-1], cols, batch[-1], rows)]
    for axes in orders:
        inverse = sorted(range(values.ndim), key=axes.__getitem__)
        yield values.permute(axes).contiguous().permute(inverse)


def numbers(shapes):
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_products_are_right_in_every_layout_come_packed_and_write_into_no_operand(shapes):
    """Also of tensors that ask for gradients where none are recorded."""
    run = kernel(shapes)
    left, right = numbers(shapes)
    expected = expect(EQUATIONS[left.ndim], left.numpy(), right.numpy())
    for lhs in layouts(left):
        for rhs in layouts(right):
            with torch.no_grad():
                result = run(lhs.requires_grad_(), rhs)
            assert not (verdict := judge(result.numpy(), expected)).wrong, verdict
            assert result.is_contiguous()
            assert not result.requires_grad
            assert torch.equal(lhs, left)
            assert torch.equal(rhs, right)


def apart(*shape):
    """An operand whose last batch axis lies between the axes of its matrices, so that its batch axes do not merge."""
    _, second, rows, cols = shape
    return Operand(shape, "float32", (rows * second * cols, cols, second * cols, 1))


def transposed(operand):
    shape, strides = operand.shape, operand.strides
    return Operand((*shape[:2], *shape[:1:-1]), "float32", (*strides[:2], *strides[:1:-1]))


LOOPS = {
    "tiny": (apart(2, 4, 8, 8), apart(2, 4, 8, 8), None),
    "each step would save too few bytes": (apart(40, 8, 16, 32), apart(40, 8, 32, 16), None),
    "the outer axis is shorter": (apart(2, 64, 64, 64), apart(2, 64, 64, 64), 1),
    "the inner axis is shorter": (apart(64, 2, 64, 64), apart(64, 2, 64, 64), 0),
    "but the result would be copied": (apart(64, 8, 128, 16), apart(64, 8, 16, 128), None),
    "only one operand is copied": (apart(2, 64, 64, 64), Operand((2, 64, 64, 64), "float32"), 1),
    "nothing is copied": (Operand((2, 64, 64, 64), "float32"), Operand((2, 64, 64, 64), "float32"), None),
    "a copy would repeat an operand": (Operand((2, 64, 64, 64), "float32"), Operand((2, 1, 64, 64), "float32"), 1),
    "no elements": (apart(2, 0, 64, 64), apart(2, 0, 64, 64), None),
}


@pytest.mark.parametrize(("lhs", "rhs", "axis"), LOOPS.values(), ids=LOOPS)
def test_a_loop_over_batch_axes_runs_only_where_each_step_saves_a_large_copy(lhs, rhs, axis):
    assert loop_axis((lhs, rhs)) == axis
    copied = [operand for operand in (lhs, rhs) if operand.strides is not None or operand.shape[1] == 1]
    result = 4 * lhs.shape[0] * lhs.shape[1] * lhs.shape[2] * rhs.shape[3]
    expected = sum(4 * lhs.shape[0] * lhs.shape[1] * each.shape[2] * each.shape[3] for each in copied)
    assert product_workspace((lhs, rhs)) == {None: expected, 0: result, 1: 0}[axis]


def test_on_a_gpu_a_step_of_the_loop_must_save_more():
    attention = apart(64, 8, 100, 128), apart(64, 8, 128, 50)
    assert loop_axis(attention) == 0
    assert loop_axis(attention, on_cpu=False) is None
    assert loop_axis((apart(64, 2, 2000, 256), apart(64, 2, 256, 500)), on_cpu=False) is None
    few = apart(3, 64, 8000, 256), apart(3, 64, 256, 200)
    assert loop_axis(few, on_cpu=False) == 1


def test_large_copies_of_transposed_matrices_stay_transposed():
    straight, small = apart(8, 16, 32, 32), apart(2, 4, 16, 16)
    assert not copies_turned((straight, straight))
    assert copies_turned((transposed(straight), straight))
    assert copies_turned((straight, transposed(straight)))
    assert not copies_turned((transposed(small), small))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_derivatives_in_both_modes_are_right(shapes):
    run = kernel(shapes)
    lhs, rhs = numbers(shapes)
    tangents = torch.randn_like(lhs), torch.randn_like(rhs)
    with torch.autograd.forward_ad.dual_level():
        pair = [torch.autograd.forward_ad.make_dual(*each) for each in zip((lhs, rhs), tangents)]
        slope = torch.autograd.forward_ad.unpack_dual(run(*pair)).tangent
    torch.testing.assert_close(slope, tangents[0] @ rhs + lhs @ tangents[1])
    torch.testing.assert_close(torch.func.jvp(run, (lhs, rhs), tangents)[1], slope)

    cotangent = torch.randn_like(lhs @ rhs)
    wanted = [(cotangent @ rhs.mT).sum_to_size(lhs.shape), (lhs.mT @ cotangent).sum_to_size(rhs.shape)]
    leaves = [lhs.clone().requires_grad_(), rhs.clone().requires_grad_()]
    torch.testing.assert_close(list(torch.autograd.grad(run(*leaves), leaves, cotangent)), wanted)
    _, pullback = torch.func.vjp(run, lhs, rhs)
    torch.testing.assert_close(list(pullback(cotangent)), wanted)


@pytest.mark.parametrize("name", ["vectors", "lhs in every item", "a batch of matrices and vectors", "several tiny"])
def test_second_derivatives_are_right(name):
    operands = [array.requires_grad_() for array in numbers(SHAPES[name])]
    assert torch.autograd.gradgradcheck(kernel(SHAPES[name]), operands)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_products_are_mapped_over_one_operand_and_meta_tensors_give_shapes(shapes):
    run = kernel(shapes)
    lhs, rhs = torch.randn(2, *shapes[0], dtype=torch.float64), numbers(shapes)[1]
    result = torch.func.vmap(run, in_dims=(0, None))(lhs, rhs)
    torch.testing.assert_close(result, torch.stack([each @ rhs for each in lhs]))
    assert run(lhs[0].to("meta"), rhs.to("meta")).shape == result[0].shape


COPIED = {
    "a matrix with pages apart": ((1100, 1024), (1, 0)),
    "a matrix": ((700, 301), (1, 0)),
    "last axis first": ((16, 32, 64, 9), (3, 0, 1, 2)),
    "reversed": ((12, 9, 11, 10, 13), (4, 3, 2, 1, 0)),
    "mixed": ((12, 9, 11, 10, 13), (4, 1, 3, 0, 2)),
    "in long runs": ((10, 20, 30, 40), (1, 0, 2, 3)),
    "many tiny axes": ((2,) * 18, (17, 3, 5, 7, 0, 1, 2, 4, 6, 8, 10, 9, 16, 15, 14, 13, 11, 12)),
    "a short last axis": ((3, 50000), (1, 0)),
    "small": ((5, 6, 7), (2, 0, 1)),
    "empty": ((0, 200000), (1, 0)),
}


@pytest.mark.parametrize(("shape", "axes"), COPIED.values(), ids=COPIED)
def test_copies_are_packed_equal_and_fresh(shape, axes):
    whole = torch.randn(*shape, 2)
    for stored in (whole[..., 0].contiguous(), whole[..., 0], torch.view_as_complex(whole).conj(), whole[:1, ..., 1]):
        source = stored.expand(shape).permute(axes)
        result = ADAPTER.copy(source)
        assert result.is_contiguous()
        assert torch.equal(result, source)
        assert not result.numel() or result.data_ptr() != source.data_ptr()


@pytest.mark.parametrize(("shape", "axes"), COPIED.values(), ids=COPIED)
def test_copies_are_differentiated_and_mapped(shape, axes):
    source = torch.randn(shape, requires_grad=True)
    cotangent = torch.randn([shape[axis] for axis in axes])
    (gradient,) = torch.autograd.grad(ADAPTER.copy(source.permute(axes)), source, cotangent)
    assert torch.equal(gradient.permute(axes), cotangent)
    mapped = torch.func.vmap(lambda each: ADAPTER.copy(each.permute(axes)))(source.detach()[None])
    assert torch.equal(mapped[0], source.permute(axes))


# -- integers ---------------------------------------------------------------------------------------------------

INTEGERS = [("int8", 127), ("uint8", 255), ("int16", 2**15 - 1), ("int64", 2**63 - 1)]


@pytest.mark.parametrize("shapes", [((80, 70), (70, 60)), ((2, 1, 30, 40), (2, 9, 40, 16))])
@pytest.mark.parametrize(("dtype", "largest"), INTEGERS)
@pytest.mark.parametrize("divisor", [1, 2**40])
def test_integer_products_are_exact_and_wrap(dtype, largest, divisor, shapes):
    limit = max(largest // divisor, 1)
    lowest = 0 if dtype == "uint8" else -limit - 1
    lhs, rhs = (torch.randint(lowest, limit, shape, dtype=getattr(torch, dtype)) for shape in shapes)
    lhs.view(-1)[:2] = torch.tensor([lowest, limit])
    run = ADAPTER.kernel(Matmul(2, 0, 1), shapes, dtype)
    result = run(lhs, rhs)
    assert torch.equal(result, (lhs.long() @ rhs.long()).to(lhs.dtype))
    assert torch.equal(torch.func.vmap(run)(lhs[None], rhs[None])[0], result)


def test_an_integer_sum_one_beyond_float64_is_exact():
    lhs, rhs = torch.ones(80, 80, dtype=torch.int64), torch.ones(80, 80, dtype=torch.int64)
    lhs[:, 0] = 2**53
    result = ADAPTER.kernel(Matmul(2, 0, 1), [(80, 80), (80, 80)], "int64")(lhs, rhs)
    assert result.eq(2**53 + 79).all()


@pytest.mark.parametrize(("shape", "axes"), [((4, 5, 6), (0, 2)), ((4, 5), (0,))])
def test_a_sum_of_bools_is_an_or(shape, axes):
    array = torch.rand(shape) > 0.7
    assert torch.equal(ADAPTER.sum(array, axes), array.any(axes))
    assert torch.equal(torch.func.vmap(lambda each: ADAPTER.sum(each, axes))(array[None])[0], array.any(axes))
