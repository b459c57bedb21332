"""MXNet's adapter: plans, primitives, dtypes, gradients, hybridized blocks, threads, out=, errors before any work."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import einsumx
import einsumx.mxnet
from einsumx.backends.mxnet import ADAPTER
from einsumx.ir.ops import Cast, Copy, Matmul, Multiply, Native, Sum, Transpose
from einsumx.ir.verify import replay

if not find_spec("mxnet"):
    pytest.skip("MXNet is not installed", allow_module_level=True)

mx = einsumx.mxnet.load()
FIRST = mx.__version__.startswith("1.")
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]
HEADS, ROWS, COLS, UNITS = 8, 100, 50, 128


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def np_shape():
    """Shapes without axes or elements mean what they say, for what the tests themselves ask of MXNet."""
    with mx.util.np_shape(True):
        yield


def array(values, dtype=None):
    return ADAPTER.from_numpy(np.asarray(values, dtype))


def ops(plan, *kinds):
    """The ops of a plan that do something: by default all that compute or copy."""
    return [op for op in plan.ops if isinstance(op, kinds or (Transpose, Copy, Cast, Sum, Multiply, Matmul, Native))]


def plain_sum(terms, output, arrays):
    """The sum over every index, one index at a time."""
    sizes = {}
    for term, values in zip(terms, arrays):
        for label, size in zip(term, values.shape):
            sizes[label] = max(sizes.get(label, 1), size) if size else 0
    result = np.zeros([sizes[label] for label in output])
    for index in itertools.product(*map(range, sizes.values())):
        at = dict(zip(sizes, index))
        result[tuple(at[label] for label in output)] += np.prod(
            [
                values[tuple(at[label] if size > 1 else 0 for label, size in zip(term, values.shape))]
                for term, values in zip(terms, arrays)
            ]
        )
    return result


# -- plans ------------------------------------------------------------------------------------------------------


def test_heads_before_positions_are_one_batch_dot_without_a_copy():
    plan = einsumx.plan(
        "bnid,bnjd->bnij",
        (64, HEADS, ROWS, UNITS),
        (64, HEADS, COLS, UNITS),
        backend="mxnet",
        dtypes="float32",
    )
    assert ops(plan) == [Matmul(4, 2, 3, transpose_rhs=True)]


def test_positions_before_heads_swap_two_axes_of_each_operand_and_none_of_a_large_result():
    plan = einsumx.plan(
        "bind,bjnd->bnij",
        (8, 512, HEADS, 16),
        (8, 512, HEADS, 16),
        backend="mxnet",
        dtypes="float32",
    )
    swaps, (product,) = ops(plan)[:2], ops(plan)[2:]
    assert [(op.src, op.axes) for op in swaps] == [(0, (0, 2, 1, 3)), (1, (0, 2, 1, 3))]
    assert isinstance(product, Matmul)
    assert (product.transpose_lhs, product.transpose_rhs) == (False, True)


def test_mxnet_1_reads_positions_before_heads_where_they_lie_and_swaps_two_axes_of_a_small_result():
    plan = einsumx.plan(
        "bind,bjnd->bnij",
        (64, ROWS, HEADS, UNITS),
        (64, COLS, HEADS, UNITS),
        backend="mxnet",
        dtypes="float32",
    )
    assert ([type(op) for op in ops(plan)] == [Matmul, Transpose]) == FIRST
    assert [op.inner_batch for op in ops(plan, Matmul)] == [FIRST]


def test_a_shared_key_is_contracted_with_all_batches_at_once():
    plan = einsumx.plan(
        "bind,jnd->bnij",
        (64, ROWS, HEADS, UNITS),
        (COLS, HEADS, UNITS),
        backend="mxnet",
        dtypes="float32",
    )
    *swaps, product, last = ops(plan)
    assert [op.axes for op in (*swaps, last)] == [(1, 0, 2)] * 3
    assert isinstance(product, Matmul)
    assert replay(plan.ops, [operand.shape for operand in plan.operands])[product.out] == (
        HEADS,
        64 * ROWS,
        COLS,
    )


@pytest.mark.parametrize("equation", ["bnid,bnjd->bnij", "bind,bjnd->bnij", "bind,jnd->bnij"])
def test_what_einsum_runs_on_arrays_is_the_plan_of_their_shapes(equation):
    sizes = {"b": 4, "n": 3, "i": 20, "j": 10, "d": 32}
    shapes = [tuple(sizes[label] for label in term) for term in equation.partition("->")[0].split(",")]
    arrays = [array(np.ones(shape), "float32") for shape in shapes]
    assert einsumx.plan(equation, *arrays).ops == einsumx.plan(equation, *shapes, backend="mxnet", dtypes="float32").ops
    assert not ops(einsumx.plan(equation, *arrays), Native)


def test_a_tiny_product_is_one_call_of_the_native_kernel_and_a_larger_one_is_not():
    tiny = einsumx.plan("ij,jk->ik", (4, 4), (4, 4), backend="mxnet", dtypes="float32")
    large = einsumx.plan("ij,jk->ik", (40, 40), (40, 40), backend="mxnet", dtypes="float32")
    assert ops(tiny) == [Native(2, (0, 1), "ab,bc->ac")]
    assert [type(op) for op in ops(large)] == [Matmul]


def test_work_that_is_one_call_anyway_does_not_go_to_the_native_kernel():
    product = einsumx.plan("bij,bjk->bik", (8, 8, 8), (8, 8, 8), backend="mxnet", dtypes="float32")
    transposed = einsumx.plan("ij->ji", (2, 3), backend="mxnet", dtypes="float32")
    assert [type(op) for op in product.ops] == [Matmul]
    assert [type(op) for op in transposed.ops] == [Transpose]


@pytest.mark.parametrize("equation", ["ii->i", "ij,ij->i", "ij,jk->ik", "->", ",->"])
def test_what_the_native_kernel_differentiates_wrongly_never_goes_there(equation):
    shapes = {
        "ii->i": [(2, 2)],
        "ij,ij->i": [(1, 2), (2, 2)],
        "ij,jk->ik": [(2, 0), (0, 2)],
        "->": [()],
        ",->": [(), ()],
    }
    assert not ops(einsumx.plan(equation, *shapes[equation], backend="mxnet", dtypes="float32"), Native)


def test_an_outer_product_is_a_matmul_and_a_scaling_of_rows_is_not():
    outer = einsumx.plan("i,j->ij", (300,), (400,), backend="mxnet", dtypes="float32")
    scaled = einsumx.plan("ij,i->ij", (300, 400), (300,), backend="mxnet", dtypes="float32")
    assert [type(op) for op in ops(outer)] == [Matmul]
    assert [type(op) for op in ops(scaled)] == [Multiply]


def test_no_op_transposes_more_than_six_axes_and_none_sums_more_than_five():
    labels = "abcdefghijkl"
    turned = einsumx.plan(f"{labels}->{labels[::-1]}", (2,) * 12, backend="mxnet", dtypes="float32")
    summed = einsumx.plan(f"{labels}->{labels[::2]}", (2,) * 12, backend="mxnet", dtypes="float32")
    assert all(len(op.axes) <= 6 for op in ops(turned, Transpose))
    assert ops(turned, Transpose)
    ranks = replay(summed.ops, [(2,) * 12])
    assert ops(summed, Sum)
    assert all(len(ranks[op.src]) <= 5 for op in ops(summed, Sum))


def test_a_diagonal_or_a_transpose_is_not_copied_again_for_the_result():
    for equation in ("ii->i", "ij->ji"):
        assert len(einsumx.plan(equation, (300, 300), backend="mxnet", dtypes="float32").ops) == 1


# -- values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["bnid,bnjd->bnij", "bind,bjnd->bnij", "bind,jnd->bnij"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_products_are_right(equation, dtype, random):
    sizes = {"b": 3, "n": 4, "i": 10, "j": 5, "d": 16}
    first, second = (
        random.standard_normal([sizes[label] for label in term]).astype(dtype)
        for term in equation.partition("->")[0].split(",")
    )
    heads = first if equation.startswith("bn") else first.transpose(0, 2, 1, 3)
    keys = {"bnjd": second, "bjnd": np.moveaxis(second, -2, -3), "jnd": np.moveaxis(second, -2, -3)}
    expected = heads @ np.swapaxes(keys[equation[5:].partition("-")[0]], -1, -2)
    result = einsumx.einsum(equation, array(first), array(second))
    assert result.dtype == dtype
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=0, atol=1e-4 if dtype == "float32" else 1e-13)


def test_permutations_of_many_axes_are_staged_right(random):
    labels = "abcdefghijklmno"
    values = random.standard_normal([3, *[1, 2] * 7])
    for _ in range(10):
        axes = random.permutation(15)
        equation = f"{labels}->{''.join(labels[axis] for axis in axes)}"
        np.testing.assert_array_equal(einsumx.einsum(equation, array(values)).asnumpy(), values.transpose(axes))


def test_sums_of_many_scattered_axes_are_staged_right(random):
    values = random.integers(-5, 5, (2, 3) * 6).astype("float64")
    result = einsumx.einsum("abcdefghijkl->bdfhjl", array(values))
    np.testing.assert_array_equal(result.asnumpy(), values.sum((0, 2, 4, 6, 8, 10)))


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(3, 0), (0, 2)], (3, 2)),
        ("ij,jk->ik", [(0, 3), (3, 2)], (0, 2)),
        ("bij,bjk->bik", [(0, 3, 2), (0, 2, 4)], (0, 3, 4)),
        ("ij->i", [(0, 3)], (0,)),
        ("ij->j", [(0, 3)], (3,)),
        ("i,j->ij", [(0,), (3,)], (0, 3)),
        ("ij,i->ij", [(3, 0), (3,)], (3, 0)),
        ("ii->i", [(0, 0)], (0,)),
        ("ijk->kij", [(2, 0, 3)], (3, 2, 0)),
        ("i,i->", [(0,), (0,)], ()),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "bool"])
def test_sizes_of_zero_give_zeros_or_nothing(equation, shapes, expected, dtype):
    result = einsumx.einsum(equation, *(array(np.ones(shape), dtype) for shape in shapes))
    assert result.shape == expected
    assert not result.asnumpy().any()


# -- dtypes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [3, 40])
def test_every_dtype_is_kept_and_integers_wrap(dtype, size, random):
    low = 0 if dtype in ("bool", "uint8") else -9
    first, second = (random.integers(low, 10, (size, size)).astype(dtype) for _ in range(2))
    exact = first.astype("int64") @ second.astype("int64")
    expected = exact != 0 if dtype == "bool" else exact.astype(dtype)
    result = einsumx.einsum("ij,jk->ki", array(first), array(second))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.asnumpy(), expected.T)


@pytest.mark.parametrize("dtype", DTYPES)
def test_diagonals_sums_and_transposes_keep_every_dtype(dtype, random):
    values = random.integers(0, 2, (5, 6, 6, 7)).astype(dtype)
    taken = values.diagonal(0, 1, 2)
    expected = taken.any(0) if dtype == "bool" else taken.sum(0, dtype=dtype)
    result = einsumx.einsum("aiib->ib", array(values))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.asnumpy(), expected.T)


def test_sums_of_int8_wrap_and_stay_int8():
    result = einsumx.einsum("ij->j", array(np.full((3, 2), 100), "int8"))
    assert result.dtype == "int8"
    assert result.asnumpy().tolist() == [44, 44]


def test_float16_accumulates_in_float32():
    ones = array(np.ones((5000, 3)), "float16")
    result = einsumx.einsum("ij,ik->jk", ones, ones)
    assert result.dtype == "float16"
    assert (result.asnumpy() == 5000).all()  # 2048 is where float16 stops counting by ones


@pytest.mark.parametrize(("first", "second"), [*itertools.product(DTYPES, DTYPES)])
def test_dtypes_promote_as_in_multiply(first, second):
    if {first, second} == {"int8", "uint8"}:
        with pytest.raises(einsumx.BackendError, match="both int8 and uint8"):
            ADAPTER.promote([first, second])
        return
    product = mx.np.multiply(array(np.ones(2), first), array(np.ones(2), second))
    assert ADAPTER.promote([first, second]) == product.dtype
    assert einsumx.einsum("i,i->i", array(np.ones(2), first), array(np.ones(2), second)).dtype == product.dtype


def test_a_dtype_asked_for_is_computed_in():
    small = array(np.full((3, 3), 100), "int8")
    result = einsumx.einsum("ij,jk->ik", small, small, dtype="int32")
    assert result.dtype == "int32"
    assert (result.asnumpy() == 30000).all()


def test_python_scalars_and_lists_follow_the_arrays():
    half, whole = array(np.ones((2, 3)), "float16"), array(np.ones((2, 3)), "int8")
    assert einsumx.einsum(",ij->ij", 2.5, half).dtype == "float16"
    assert einsumx.einsum(",ij->ij", 3, whole).dtype == "int8"
    assert einsumx.einsum(",ij->ij", 2.5, whole).dtype == "float32"
    assert einsumx.einsum("ij,j->i", half, [1, 2, 3]).asnumpy().tolist() == [6, 6]
    assert einsumx.einsum("i,i->", [1, 2], [3, 4], backend="mxnet").item() == 11


@pytest.mark.parametrize(("value", "dtype"), [(300, "int8"), (-1, "uint8"), (2j, "float32")])
def test_a_python_scalar_that_does_not_fit_is_an_error(value, dtype):
    with pytest.raises(einsumx.BackendError, match=r"does not fit|has no arrays"):
        einsumx.einsum(",i->i", value, array(np.ones(2), dtype))


# -- primitives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_the_transpose_primitive_is_right_for_every_permutation(rank, dtype, random):
    values = random.integers(0, 2, range(2, rank + 2)).astype(dtype)
    ours = array(values)
    for axes in itertools.permutations(range(rank)):
        np.testing.assert_array_equal(ADAPTER.transpose(ours, axes).asnumpy(), values.transpose(axes))


def test_the_reshape_primitive_shares_memory():
    whole = array(np.zeros(6), "float32")
    ADAPTER.reshape(whole, (2, 3))[1] = 1
    assert whole.asnumpy().tolist() == [0, 0, 0, 1, 1, 1]


def test_reshapes_in_a_plan_read_slices_where_they_lie():
    whole = np.arange(48.0).reshape(4, 3, 4)
    rows = array(whole)[1:3]
    result = einsumx.einsum("abc,cd->abd", rows, array(np.eye(4)), dtype="float64")
    np.testing.assert_array_equal(result.asnumpy(), whole[1:3])


@pytest.mark.parametrize("flags", [*itertools.product([False, True], repeat=2)])
def test_the_matmul_primitive_reads_operands_transposed(flags, random):
    lhs, rhs = random.standard_normal((2, 3, 4)), random.standard_normal((2, 4, 5))
    given = [np.swapaxes(values, 1, 2) if flag else values for values, flag in zip((lhs, rhs), flags)]
    result = ADAPTER.matmul(*map(array, given), *flags)
    np.testing.assert_allclose(result.asnumpy(), lhs @ rhs, rtol=1e-13)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(3, 4, 5), (40, 50, 60), (30000, 3, 2)])
def test_the_sum_primitive_is_right_for_small_and_large_arrays(axes, shape, random):
    values = random.integers(-9, 9, shape).astype("float32")
    result = ADAPTER.sum(array(values), axes)
    np.testing.assert_array_equal(result.asnumpy(), values.sum(axes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_cast_to_bool_asks_for_what_is_not_zero(dtype):
    values = np.array([0, 1, 2, 0]).astype(dtype)
    assert ADAPTER.cast(array(values), "bool").asnumpy().tolist() == [False, True, True, False]


def test_a_pure_rearrangement_does_not_alias_its_operand():
    operand = array(np.zeros((2, 3)), "float32")
    for equation in ("ij->ij", "ij->ji", "ij,->ij"):
        result = einsumx.einsum(equation, operand, *([1.0] if "," in equation else []))
        result[:] = 5
        assert not operand.asnumpy().any()


def test_the_native_kernel_is_reached_whatever_mx_np_einsum_stands_for(monkeypatch):
    monkeypatch.setattr(mx.np, "einsum", pytest.fail)
    monkeypatch.setattr(mx.ndarray.numpy, "einsum", pytest.fail)
    operand = array(np.arange(6).reshape(2, 3), "float32")
    result = einsumx.einsum("ij,ij->i", operand, operand)
    assert ops(einsumx.plan("ij,ij->i", operand, operand), Native)
    assert result.asnumpy().tolist() == [5, 50]
    assert ADAPTER.native("ij->j", [operand]).asnumpy().tolist() == [3, 5, 7]


def test_what_mxnet_refuses_of_a_primitive_is_its_own_error():
    with pytest.raises(mx.base.MXNetError, match="Size of label 'j'"):
        ADAPTER.native("ij,jk->ik", [array(np.ones((2, 3))), array(np.ones((2, 3)))])
    with pytest.raises(mx.base.MXNetError, match="shape"):
        ADAPTER.matmul(array(np.ones((1, 2, 3))), array(np.ones((1, 2, 3))), False, False)


# -- out= -------------------------------------------------------------------------------------------------------


def test_out_is_written_cast_and_returned(random):
    values = random.integers(-3, 4, (20, 20)).astype("float32")
    out = array(np.full((20, 20), 9), "float64")
    assert einsumx.einsum("ij,jk->ki", array(values), array(values), out=out) is out
    np.testing.assert_array_equal(out.asnumpy(), (values @ values).T)


def test_out_may_be_an_operand_or_a_slice():
    square = array([[1, 2], [3, 4]], "float32")
    einsumx.einsum("ij,jk->ki", square, square, out=square)
    assert square.asnumpy().tolist() == [[7, 15], [10, 22]]
    whole = array(np.zeros((3, 2)), "float32")
    einsumx.einsum("ij->j", square, out=whole[1])
    assert whole.asnumpy().tolist() == [[0, 0], [17, 37], [0, 0]]


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_out_without_axes_or_elements_is_written(shape):
    out = array(np.zeros(shape), "float32")
    with mx.util.np_array(False), mx.util.np_shape(False):
        einsumx.einsum("...,->...", array(np.ones(shape), "float32"), 2.0, out=out)
    np.testing.assert_array_equal(out.asnumpy(), np.full(shape, 2.0))


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.zeros((3, 3), "float32"), einsumx.SizeError),
        (np.zeros((2, 2), "int32"), einsumx.BackendError),
        (np.zeros((2, 2, 1), "float32"), einsumx.SizeError),
    ],
)
def test_an_out_that_does_not_fit_is_refused_and_untouched(out, error):
    ours, square = array(out), array(np.ones((2, 2)), "float32")
    with pytest.raises(error, match="out="):
        einsumx.einsum("ij,jk->ik", square, square, out=ours)
    assert not ours.asnumpy().any()


def test_writing_into_out_is_recorded(random):
    lhs, rhs = (array(random.integers(-3, 4, shape), "float32") for shape in ((2, 3), (3, 4)))
    for operand in (lhs, rhs):
        operand.attach_grad("add")
        operand.grad[()] = 1
    out = array(np.zeros((4, 2)), "float64")
    with mx.autograd.record():
        assert einsumx.einsum("ij,jk->ki", lhs, rhs, out=out) is out
        loss = (out * out).sum()
    loss.backward()
    product = lhs.asnumpy() @ rhs.asnumpy()
    np.testing.assert_array_equal(out.asnumpy(), product.T)
    np.testing.assert_array_equal(lhs.grad.asnumpy(), 1 + 2 * product @ rhs.asnumpy().T)
    np.testing.assert_array_equal(rhs.grad.asnumpy(), 1 + 2 * lhs.asnumpy().T @ product)


@pytest.mark.parametrize("shape", [(), (0, 3), (5, 1, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_autograd_does_not_know_is_written_into_while_it_records(dtype, shape):
    out, operand = array(np.zeros(shape), dtype), array(np.ones(shape), dtype)
    with mx.autograd.record():
        for _ in range(2):
            einsumx.einsum("...->...", operand, out=out)
    np.testing.assert_array_equal(out.asnumpy(), np.ones(shape))


@pytest.mark.parametrize("kind", ["a variable", "a result", "an operand", "a view of an operand"])
def test_an_out_that_autograd_could_not_differentiate_through_is_refused_and_untouched(kind):
    square, factor = array([[1, 2], [3, 4]], "float32"), array(np.eye(2), "float32")
    factor.attach_grad()
    with mx.autograd.record():
        out = {
            "a variable": factor,
            "a result": factor * 2,
            "an operand": square,
            "a view of an operand": square.reshape_view((2, 2)),
        }[kind]
        before = out.asnumpy()
        with pytest.raises(einsumx.BackendError, match="autograd"):
            einsumx.einsum("ij,jk->ik", square, factor, out=out)
    np.testing.assert_array_equal(out.asnumpy(), before)


# -- errors before any work -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["first", "second", "out"])
def test_legacy_arrays_are_refused_with_the_call_that_converts_them(place):
    ours, legacy = array(np.ones((2, 2)), "float32"), mx.nd.ones((2, 2))
    operands = [legacy if place == "first" else ours, legacy if place == "second" else ours]
    with pytest.raises(einsumx.BackendError, match=r"\.as_np_ndarray\(\)"):
        einsumx.einsum("ij,jk->ik", *operands, out=legacy if place == "out" else None)


def test_sparse_arrays_are_refused():
    with pytest.raises(einsumx.BackendError, match="tostype"):
        einsumx.einsum("ij->ji", mx.nd.ones((2, 2)).tostype("csr"))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda a: einsumx.einsum("ij,jk->ik", a, a), einsumx.SizeError),
        (lambda a: einsumx.einsum("ijk->i", a), einsumx.SizeError),
        (lambda a: einsumx.einsum("ij->ik", a), einsumx.EquationError),
        (lambda a: einsumx.einsum("ij->ji", a, dtype="complex64"), einsumx.BackendError),
        (lambda a: einsumx.einsum("ij->ji", a, dtype="int16"), einsumx.BackendError),
        (lambda a: einsumx.einsum("ij->ji", a, order="F"), einsumx.BackendError),
        (lambda a: einsumx.einsum("ij,ij->", a, np.ones((2, 3))), einsumx.BackendError),
        (lambda a: einsumx.einsum("ij,ij->", a, a, optimize=[(0, 2)]), einsumx.PathError),
    ],
)
def test_what_is_invalid_never_reaches_the_engine(call, error, monkeypatch):
    operand = array(np.ones((2, 3)), "float32")
    for name in ("transpose", "reshape", "multiply", "matmul", "sum", "native", "cast", "copy", "diagonal"):
        monkeypatch.setattr(ADAPTER, name, pytest.fail, raising=True)
    with pytest.raises(error):
        call(operand)


def test_a_constant_that_asks_for_a_gradient_is_refused():
    weights = array(np.ones((2, 3)), "float32")
    weights.attach_grad()
    with pytest.raises(einsumx.BackendError, match="gradient"):
        einsumx.expression("ij,jk->ik", weights, (3, 4))


# -- gradients --------------------------------------------------------------------------------------------------

DIFFERENTIATED = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bnid,bnjd->bnij": [(2, 2, 3, 4), (2, 2, 2, 4)],
    "bind,bjnd->bnij": [(2, 3, 2, 2), (2, 2, 2, 2)],
    "bnij,bjnd->bind": [(2, 2, 3, 2), (2, 2, 2, 4)],
    "bind,jnd->bnij": [(2, 3, 2, 2), (2, 2, 2)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    "ijk,ikl->jl": [(2, 3, 2), (2, 2, 3)],
    "ii->i": [(3, 3)],
    "ii->": [(3, 3)],
    "iij,j->i": [(3, 3, 2), (2,)],
    "ij->": [(2, 3)],
    "ij->ij": [(2, 3)],
    "ij,ij->i": [(1, 4), (2, 4)],
    "ij,ij->ij": [(1, 4), (2, 1)],
    "i,j->ij": [(2,), (3,)],
    "ij,i->ij": [(2, 3), (2,)],
    "ij,jk->ki": [(2, 0), (0, 3)],
    "ij,jk->k": [(0, 2), (2, 3)],
    "i,j->j": [(0,), (3,)],
    "ij,i->ji": [(3, 0), (3,)],
    ",->": [(), ()],
    "abc,d->d": [(2, 3, 2), (3,)],
}


def recorded(equation, values, request_):
    """Operands that ask for gradients, which are 7 before, and the result of a recorded call on them."""
    operands = list(map(array, values))
    for operand in operands:
        operand.attach_grad(request_)
        operand.grad[()] = 7
    with mx.autograd.record():
        result = einsumx.einsum(equation, *operands)
    return operands, result


@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
@pytest.mark.parametrize("equation", [*DIFFERENTIATED])
@pytest.mark.parametrize("lowered", [False, True], ids=["tiny", "lowered"])
def test_gradients_are_those_of_the_plain_sum(equation, dtype, request_, lowered, random, monkeypatch):
    if lowered:  # what is too small to be worth it otherwise
        monkeypatch.setattr(ADAPTER, "cpu", replace(ADAPTER.cpu, rates=replace(ADAPTER.cpu.rates, native=0.0)))
        einsumx.cache_clear()
    terms, output = equation.partition("->")[0].split(","), equation.partition("->")[2]
    values = [random.integers(1, 4, shape).astype(dtype) for shape in DIFFERENTIATED[equation]]
    operands, result = recorded(equation, values, request_)
    head = random.integers(1, 4, result.shape).astype(dtype)
    result.backward(array(head))
    # The contraction is linear in each operand, so its derivative by an element is the result for a unit there.
    for place, operand in enumerate(operands):
        expected = np.zeros(operand.shape)
        for index in np.ndindex(operand.shape):
            unit = np.zeros(operand.shape)
            unit[index] = 1
            units = [unit if place == other else value.astype("float64") for other, value in enumerate(values)]
            expected[index] = (plain_sum(terms, output, units) * head).sum()
        np.testing.assert_array_equal(operand.grad.asnumpy(), expected + (7 if request_ == "add" else 0))
    if lowered:
        einsumx.cache_clear()


@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("equation", ["ij,kj->ik", "ij,jk->ik", "ji,kj->ik", "ji,jk->ik", "ij,kj->ki", "j,kj->k"])
def test_a_large_single_product_and_its_gradients_are_right(equation, request_, random):
    sizes = {"i": 260, "j": 40 if "i" in equation else 2048, "k": 270 if "i" in equation else 1024}
    terms, output = equation.partition("->")[0].split(","), equation.partition("->")[2]
    values = [random.integers(-3, 4, [sizes[label] for label in term]).astype("float32") for term in terms]
    operands, result = recorded(equation, values, request_)
    head = random.integers(-3, 4, result.shape).astype("float32")
    result.backward(array(head))
    lhs = values[0] if terms[0] != "ji" else values[0].T
    rhs = values[1] if terms[1] == "jk" else values[1].T
    product, inner = lhs @ rhs, head.T if output == "ki" else head
    np.testing.assert_array_equal(result.asnumpy(), product.T if output == "ki" else product)
    first = inner @ rhs.T
    second = np.outer(lhs, inner) if lhs.ndim == 1 else lhs.T @ inner
    gradients = [first.T if terms[0] == "ji" else first, second if terms[1] == "jk" else second.T]
    for operand, gradient in zip(operands, gradients):
        np.testing.assert_array_equal(operand.grad.asnumpy(), gradient + (7 if request_ == "add" else 0))


def test_gradients_of_large_sums_and_casts_add_up(random):
    matrix = array(random.standard_normal((300, 400)), "float32")
    matrix.attach_grad("add")
    matrix.grad[:] = 1
    with mx.autograd.record():
        result = einsumx.einsum("ij->j", matrix, dtype="float64")
    result.backward(array(np.arange(400.0)))
    np.testing.assert_array_equal(matrix.grad.asnumpy(), np.broadcast_to(np.arange(400.0) + 1, (300, 400)))


def test_a_loss_differentiates_with_np_shape_off():
    first, second = array([1, 2, 3], "float32"), array([4, 5, 6], "float32")
    with mx.util.np_array(False), mx.util.np_shape(False):
        first.attach_grad()
        with mx.autograd.record():
            loss = einsumx.einsum("i,i->", first, second)
        loss.backward()
        assert loss.item() == 32
        assert first.grad.asnumpy().tolist() == [4, 5, 6]


# -- hybridized blocks --------------------------------------------------------------------------------------------


class Contraction(mx.gluon.HybridBlock):
    """A block whose forward is one einsum."""

    def __init__(self, equation):
        super().__init__()
        self.equation = equation

    def forward(self, *operands):
        return einsumx.einsum(self.equation, *operands)


@pytest.mark.skipif(FIRST, reason="MXNet 1 hybridizes hybrid_forward and not forward")
@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [
        ("bind,bjnd->bnij", [(3, 5, 2, 4), (3, 6, 2, 4)], "float32"),
        ("bind,bjnd->bnij", [(9, 50, 2, 4), (9, 6, 2, 4)], "float32"),
        ("ij->j", [(300, 400)], "float32"),
        ("ij->ij", [(5, 6)], "float32"),
        ("ij,jk->ik", [(50, 60), (60, 70)], "float16"),
        ("iij,j->i", [(3, 3, 2), (2,)], "float64"),
        ("ij,ij->i", [(1, 4), (2, 4)], "float64"),
        ("ij,jk->ik", [(5, 0), (0, 4)], "float64"),
    ],
)
def test_hybridized_blocks_trace_it_with_its_gradients(equation, shapes, dtype, random):
    block = Contraction(equation)
    block.hybridize()
    for _ in range(2):  # the trace, and what was traced
        values = [random.integers(-2, 3, shape).astype(dtype) for shape in shapes]
        grads = []
        for call in (block, lambda *operands: einsumx.einsum(equation, *operands)):
            operands = list(map(array, values))
            for operand in operands:
                operand.attach_grad()
            with mx.autograd.record():
                result = call(*operands)
            result.backward()
            grads.append([result.asnumpy(), *(operand.grad.asnumpy() for operand in operands)])
        terms, output = equation.partition("->")[0].split(","), equation.partition("->")[2]
        if max(map(np.size, values)) < 1000:
            np.testing.assert_array_equal(grads[0][0], plain_sum(terms, output, values))
        for traced, eager in zip(*grads):
            np.testing.assert_array_equal(traced, eager)


def test_a_block_that_is_not_hybridized_runs_it():
    result = Contraction("ij,jk->ik")(array(np.ones((2, 3)), "float32"), array(np.ones((3, 4)), "float32"))
    assert (result.asnumpy() == 3).all()


# -- threads ------------------------------------------------------------------------------------------------------


def test_threads_get_right_results_for_every_shape():
    """np-shape semantics are a switch of the thread, off in new ones: zero sizes and no axes must not depend on it."""

    def work(size):
        values = np.arange(size * 3.0).reshape(size, 3)
        ours = array(values)
        total = einsumx.einsum("ij->", ours)
        product = einsumx.einsum("ij,ik->jk", ours, ours)
        return total.shape == () and total.item() == values.sum() and (product.asnumpy() == values.T @ values).all()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [*range(20)] * 3))


@pytest.mark.parametrize("active", [False, True])
def test_the_threads_np_shape_switch_is_left_as_it_was(active):
    with mx.util.np_array(active), mx.util.np_shape(active):
        einsumx.einsum("ij->", array(np.ones((2, 3)), "float32"))
        assert mx.util.is_np_shape() is active


def test_threads_that_share_prepared_calls_do_not_see_each_others_arrays():
    """Eight threads run the same plans at once, each on a matrix of its own number."""
    equations = {"ij,jk->ik": 2, "ij->ji": 1, "ij,ij->ij": 2, "ii->i": 1, "ij->i": 1, "ij,jk,kl->li": 3}
    values = [np.full((3, 3), number + 1.0) for number in range(8)]
    expected = [
        {
            equation: plain_sum(
                equation.partition("->")[0].split(","), equation[equation.index(">") + 1 :], [own] * many
            )
            for equation, many in equations.items()
        }
        for own in values
    ]

    def work(number):
        own = array(values[number])
        for _ in range(100):
            for equation, many in equations.items():
                result = einsumx.einsum(equation, *[own] * many).asnumpy()
                np.testing.assert_array_equal(result, expected[number][equation])

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(work, range(8))] == [None] * 8


# -- arrays to and from the host ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_survive_the_way_to_mxnet_and_back(shape, dtype):
    values = np.ones(shape, dtype)
    with mx.util.np_array(False), mx.util.np_shape(False):
        ours = ADAPTER.from_numpy(values, "cpu")
    back = ADAPTER.to_numpy(ours)
    assert (back.shape, back.dtype) == (shape, dtype)
    assert ADAPTER.device(ours) == "cpu"
    np.testing.assert_array_equal(back, values)
