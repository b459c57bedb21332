"""MXNet's adapter: its plans and primitives, writing into out= while autograd records, and gradients that add up."""

from dataclasses import replace

import numpy as np
import pytest
from mxnet_under_test import FIRST, mx

import einsumx
from einsumx.backends.mxnet import ADAPTER
from einsumx.conformance.kit.oracle import expect, expect_gradient, judge
from einsumx.ir.ops import Cast, Copy, Matmul, Multiply, Native, Sum, Transpose

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


def planned(equation, *shapes):
    """A plan in single precision."""
    return einsumx.plan(equation, *shapes, backend="mxnet", dtypes="float32")


def ops(plan, *kinds):
    """The ops of a plan that do something: by default all that compute or copy."""
    return [op for op in plan.ops if isinstance(op, kinds or (Transpose, Copy, Cast, Sum, Multiply, Matmul, Native))]


# -- plans ------------------------------------------------------------------------------------------------------


def test_heads_before_positions_are_one_batch_dot_without_a_copy():
    plan = planned("bnid,bnjd->bnij", (64, HEADS, ROWS, UNITS), (64, HEADS, COLS, UNITS))
    assert ops(plan) == [Matmul(4, 2, 3, transpose_rhs=True)]


def test_positions_before_heads_swap_two_axes_of_each_operand_and_none_of_a_large_result():
    *swaps, product = ops(planned("bind,bjnd->bnij", (8, 512, HEADS, 16), (8, 512, HEADS, 16)))
    assert [(op.src, op.axes) for op in swaps] == [(0, (0, 2, 1, 3)), (1, (0, 2, 1, 3))]
    assert isinstance(product, Matmul)
    assert (product.transpose_lhs, product.transpose_rhs) == (False, True)


def test_mxnet_1_reads_positions_before_heads_where_they_lie_and_swaps_two_axes_of_a_small_result():
    plan = planned("bind,bjnd->bnij", (64, ROWS, HEADS, UNITS), (64, COLS, HEADS, UNITS))
    assert ([type(op) for op in ops(plan)] == [Native, Transpose]) == FIRST


def test_a_shared_key_is_contracted_with_all_batches_at_once():
    plan = planned("bind,jnd->bnij", (64, ROWS, HEADS, UNITS), (COLS, HEADS, UNITS))
    *swaps, product, last = ops(plan)
    assert [op.axes for op in (*swaps, last)] == [(1, 0, 2)] * 3
    assert isinstance(product, Matmul)
    assert plan.values[product.out].shape == (HEADS, 64 * ROWS, COLS)


def test_what_einsum_runs_on_arrays_is_the_plan_of_their_shapes():
    shapes = [(4, 20, 3, 32), (10, 3, 32)]
    plan = einsumx.plan("bind,jnd->bnij", *(array(np.ones(shape), "float32") for shape in shapes))
    assert plan.ops == planned("bind,jnd->bnij", *shapes).ops
    assert not ops(plan, Native)


@pytest.mark.parametrize(
    ("equation", "shapes", "kind"),
    [
        ("bij,jk->bik", [(2, 3, 4), (4, 4)], Native),  # tiny
        ("bij,jk->bik", [(20, 30, 40), (40, 40)], Matmul),
        ("ij,jk->ik", [(4, 4), (4, 4)], Matmul),  # one call anyway
        ("bij,bjk->bik", [(8, 8, 8), (8, 8, 8)], Matmul),
        ("ij->ji", [(2, 3)], Transpose),
        ("i,j->ij", [(300,), (400,)], Matmul),
        ("ij,i->ij", [(300, 400), (300,)], Multiply),
    ],
)
def test_one_call_is_that_of_the_native_kernel_only_for_tiny_work_that_takes_more_calls_otherwise(
    equation, shapes, kind
):
    assert [type(op) for op in ops(planned(equation, *shapes))] == [kind]


def test_a_diagonal_or_a_transpose_is_not_copied_again_for_the_result():
    for equation in ("ii->i", "ij->ji"):
        assert len(planned(equation, (300, 300)).ops) == 1


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii->i", [(2, 2)]),
        ("ij,ij->i", [(1, 2), (2, 2)]),
        ("ij,jk->ik", [(2, 0), (0, 2)]),
        ("->", [()]),
        (",->", [(), ()]),
    ],
)
def test_what_the_native_kernel_differentiates_wrongly_never_goes_there(equation, shapes):
    assert not ops(planned(equation, *shapes), Native)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
@pytest.mark.parametrize(
    ("equation", "kind"), [("abcdefghijkl->lkjihgfedcba", Transpose), ("abcdefghijkl->acegik", Sum)]
)
def test_more_axes_than_mxnet_takes_are_one_op(equation, kind, dtype, random):
    values = random.integers(0, 2, (2, 1, 2, 3) * 3).astype(dtype)
    plan = einsumx.plan(equation, array(values))
    assert [type(op) for op in ops(plan)] == [kind]
    verdict = judge(einsumx.einsum(equation, array(values)).asnumpy(), expect(equation, values))
    assert verdict, verdict.wrong
    scope = {}
    exec(plan.source(), scope)
    assert judge(scope["contraction"](array(values)).asnumpy(), expect(equation, values))


# -- values -----------------------------------------------------------------------------------------------------


def test_signed_and_unsigned_bytes_have_no_dtype_in_common():
    with pytest.raises(einsumx.BackendError, match="does not promote int8 and uint8"):
        einsumx.einsum("i,i->i", array(np.ones(2), "int8"), array(np.ones(2), "uint8"))


@pytest.mark.parametrize(("value", "dtype"), [(300, "int8"), (-1, "uint8"), (2j, "float32")])
def test_a_python_scalar_that_does_not_fit_is_an_error(value, dtype):
    with pytest.raises(einsumx.BackendError, match=r"does not fit|does not support"):
        einsumx.einsum(",i->i", value, array(np.ones(2), dtype))


# -- primitives -------------------------------------------------------------------------------------------------


def test_reshapes_in_a_plan_read_slices_where_they_lie():
    whole = np.arange(48.0).reshape(4, 3, 4)
    rows = array(whole)[1:3]
    result = einsumx.einsum("abc,cd->abd", rows, array(np.eye(4)), dtype="float64")
    np.testing.assert_array_equal(result.asnumpy(), whole[1:3])


@pytest.mark.parametrize("shape", [(3, 4, 5), (40, 50, 60), (30000, 3, 2)])
def test_the_sum_primitive_is_right_for_small_and_large_arrays(shape, random):
    values = random.integers(-9, 9, shape).astype("float32")
    ours = array(values)
    for axes in [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]:
        np.testing.assert_array_equal(ADAPTER.sum(ours, axes).asnumpy(), values.sum(axes))


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


def test_out_may_be_a_slice():
    whole = array(np.zeros((3, 2)), "float32")
    einsumx.einsum("ij->j", array([[7, 15], [10, 22]], "float32"), out=whole[1])
    assert whole.asnumpy().tolist() == [[0, 0], [17, 37], [0, 0]]


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_out_without_axes_or_elements_is_written(shape):
    out = array(np.zeros(shape), "float32")
    with mx.util.np_array(False), mx.util.np_shape(False):
        einsumx.einsum("...,->...", array(np.ones(shape), "float32"), 2.0, out=out)
    np.testing.assert_array_equal(out.asnumpy(), np.full(shape, 2.0))


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


@pytest.mark.parametrize(("dtype", "shape"), [("float32", ()), ("bool", (0, 3)), ("int8", (5, 1, 4))])
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


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["first", "second", "out"])
def test_legacy_arrays_are_refused_with_the_call_that_converts_them(place):
    ours, legacy = array(np.ones((2, 2)), "float32"), mx.nd.ones((2, 2))
    operands = [legacy if place == "first" else ours, legacy if place == "second" else ours]
    with pytest.raises(einsumx.BackendError, match=r"\.as_np_ndarray\(\)"):
        einsumx.einsum("ij,jk->ik", *operands, out=legacy if place == "out" else None)


def test_a_constant_that_asks_for_a_gradient_is_refused():
    weights = array(np.ones((2, 3)), "float32")
    weights.attach_grad()
    with pytest.raises(einsumx.BackendError, match="gradient"):
        einsumx.expression("ij,jk->ik", weights, (3, 4))


# -- gradients --------------------------------------------------------------------------------------------------

DIFFERENTIATED = {
    "bnid,bnjd->bnij": [(2, 2, 3, 4), (2, 2, 2, 4)],
    "bnij,bjnd->bind": [(2, 2, 3, 2), (2, 2, 2, 4)],
    "bind,jnd->bnij": [(2, 3, 2, 2), (2, 2, 2)],
    "ij,jk,kl->li": [(2, 3), (3, 2), (2, 3)],
    "ijk,ikl->jl": [(2, 3, 2), (2, 2, 3)],
    "ij->": [(2, 3)],
    "ij->ij": [(2, 3)],
    "ij,ij->ij": [(1, 4), (2, 1)],
    "i,j->ij": [(2,), (3,)],
    "ij,i->ij": [(2, 3), (2,)],
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


@pytest.mark.parametrize(("dtype", "request_"), [("float64", "write"), ("float64", "add"), ("int32", "add")])
@pytest.mark.parametrize("equation", DIFFERENTIATED)
def test_gradients_of_what_is_not_left_to_the_native_kernel_are_right(equation, dtype, request_, random, monkeypatch):
    """Problems that are too small for that otherwise; the native kernel's gradients are those of the suite."""
    monkeypatch.setattr(ADAPTER, "cpu", replace(ADAPTER.cpu, rates=replace(ADAPTER.cpu.rates, native=0.0)))
    einsumx.cache_clear()
    values = [random.integers(1, 4, shape).astype(dtype) for shape in DIFFERENTIATED[equation]]
    operands, result = recorded(equation, values, request_)
    einsumx.cache_clear()
    head = random.integers(1, 4, result.shape).astype(dtype)
    result.backward(array(head))
    exact = [each.astype("float64") for each in values]
    for place, operand in enumerate(operands):
        found = operand.grad.asnumpy() - (7 if request_ == "add" else 0)
        assert judge(found.astype("float64"), expect_gradient(place, head.astype("float64"), equation, *exact)), place


@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("equation", ["ij,kj->ik", "ij,jk->ik", "ji,kj->ik", "ji,jk->ik", "ij,kj->ki", "j,kj->k"])
def test_a_large_single_product_and_its_gradients_are_right(equation, request_, random):
    sizes = {"i": 260, "j": 40 if "i" in equation else 2048, "k": 270 if "i" in equation else 1024}
    (first, second), output = equation.partition("->")[0].split(","), equation.partition("->")[2]
    lhs, rhs = (random.integers(-3, 4, [sizes[label] for label in term]).astype("float32") for term in (first, second))
    operands, result = recorded(equation, (lhs, rhs), request_)
    head = random.integers(-3, 4, result.shape).astype("float32")
    result.backward(array(head))
    np.testing.assert_array_equal(result.asnumpy(), np.einsum(equation, lhs, rhs))
    gradients = np.einsum(f"{output},{second}->{first}", head, rhs), np.einsum(f"{output},{first}->{second}", head, lhs)
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


# -- arrays and threads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [False, True])
def test_the_threads_np_shape_switch_is_left_as_it_was(active):
    with mx.util.np_array(active), mx.util.np_shape(active):
        einsumx.einsum("ij->", array(np.ones((2, 3)), "float32"))
        assert mx.util.is_np_shape() is active


@pytest.mark.parametrize(("shape", "dtype"), [((), "float32"), ((0, 3), "bool"), ((2, 3), "int64")])
def test_arrays_survive_the_way_to_mxnet_and_back(shape, dtype):
    values = np.ones(shape, dtype)
    with mx.util.np_array(False), mx.util.np_shape(False):
        ours = ADAPTER.from_numpy(values, "cpu")
    back = ADAPTER.to_numpy(ours)
    assert (back.shape, back.dtype) == (shape, dtype)
    assert ADAPTER.device(ours) == "cpu"
    np.testing.assert_array_equal(back, values)
