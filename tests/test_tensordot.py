"""``tensordot`` and ``transpose``: NumPy's meaning of axes, on every framework."""

import pickle
import random
from inspect import signature

import numpy as np
import pytest
from backends_under_test import INSTALLED

import einsumx
from einsumx import axes as axes_module
from einsumx import tensordot, transpose
from einsumx.errors import AxisError, BackendError, EinsumxError, SizeError, SublistError

A, B = np.arange(24.0).reshape(2, 3, 4), np.arange(60.0).reshape(4, 3, 5)


def problems(count, seed):
    """Random shapes of two operands with the axes to sum over, positive and negative, in any order."""
    chance = random.Random(seed)
    for _ in range(count):
        lhs, rhs = [[chance.choice((1, 2, 3)) for _ in range(chance.randint(0, 4))] for _ in range(2)]
        summed = chance.randint(0, min(len(lhs), len(rhs)))
        pair = [chance.sample(range(len(shape)), summed) for shape in (lhs, rhs)]
        for one, other in zip(*pair):
            rhs[other] = lhs[one]
        axes = [tuple(axis - chance.choice((0, len(shape))) for axis in part) for part, shape in zip(pair, (lhs, rhs))]
        yield tuple(lhs), tuple(rhs), tuple(axes)


def whole(shape, seed):
    """Small whole numbers, so that every framework's result is exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("float64")


def same(result, expected):
    np.testing.assert_array_equal(np.asarray(result), expected)
    assert np.shape(result) == np.shape(expected)


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_it_agrees_with_numpys_on_every_framework(backend):
    for number, (lhs, rhs, axes) in enumerate(problems(12, seed=5)):
        a, b = whole(lhs, number), whole(rhs, number + 1000)
        arrays = [backend.array(each, backend.float) for each in (a, b)]
        result = tensordot(*arrays, axes)
        same(backend.values(result), np.tensordot(a, b, axes))
        assert type(result) in (type(arrays[0]), np.float64)
        assert backend.dtype(result) == backend.float


@pytest.mark.parametrize("backend", INSTALLED, ids=str)
def test_transposes_agree_with_numpys_on_every_framework(backend):
    values = whole((2, 3, 4), 0)
    for axes in (None, (2, 0, 1), [-1, 0, 1]):
        same(backend.values(transpose(backend.array(values, backend.float), axes)), np.transpose(values, axes))


@pytest.mark.parametrize(
    "axes", [2, 0, np.int64(1), -1, ((2,), (0,)), (2, 0), ([0, 2], [1, 0]), (np.array([2]), (0,)), ((), ())]
)
def test_axes_are_read_as_numpy_reads_them(axes):
    b = B[:, :2] if isinstance(axes, tuple) else np.arange(48.0).reshape(3, 4, 4) if axes == 2 else B
    same(tensordot(A, b, axes), np.tensordot(A, b, axes))


def test_two_axes_are_the_default():
    same(tensordot(A, B.transpose(1, 0, 2)), np.tensordot(A, B.transpose(1, 0, 2)))
    assert signature(tensordot).parameters["axes"].default == signature(np.tensordot).parameters["axes"].default


def test_python_numbers_and_lists_are_operands():
    same(tensordot(2, 3, 0), 6)
    same(tensordot(A, 0.5, 0), A / 2)
    same(tensordot([1, 2], [3, 4], 1), 11)
    same(tensordot(A, [1, 2, 3, 4], 1), A @ [1, 2, 3, 4])
    same(transpose([[1, 2]]), [[1], [2]])
    same(transpose(5), 5)


def test_more_axes_than_letters_work():
    lhs, rhs = np.ones((1,) * 30 + (2,)), np.ones((2,) + (1,) * 30)
    equation = axes_module._tensordot_equation(1, lhs.shape, rhs.shape)  # NumPy before 2 has 32 axes for the result
    assert len(set(equation) - set(",->")) == 61
    assert tensordot(lhs, rhs, (tuple(range(31)), (1, *range(2, 31), 0))).shape == ()


def test_a_transpose_is_a_view():
    result = transpose(A, (2, 0, 1))
    assert np.shares_memory(result, A)
    assert result.strides == np.transpose(A, (2, 0, 1)).strides


def test_repeated_calls_share_a_plan():
    einsumx.cache_clear()
    for axes in (((2,), (0,)), ((2,), (0,)), ([2], [0])):
        tensordot(A, B, axes)
    assert einsumx.cache_info()["calls"][:2] == (2, 1)


@pytest.mark.parametrize(
    ("axes", "error", "message"),
    [
        (((0,), (7,)), AxisError, "axes= names axis 7 of operand 1, which has 3 axes"),
        (5, AxisError, r"axes=5 sums over 5 axes of each operand, but operand 0 has shape \(2, 3, 4\); pass at most 3"),
        (((0, 0), (0, 1)), SizeError, "names an axis of operand 0 twice"),
        (((0, 1), (1, -2)), SizeError, "names an axis of operand 1 twice"),
        (((0, 1), (0,)), SizeError, "has 2 axes of operand 0 and 1 of operand 1"),
        (((0,), (0,)), SizeError, "axis 0 of operand 0 has size 2 but axis 0 of operand 1"),
        ((0, 1, 2), SizeError, "the axes of operand 0 and those of operand 1"),
        (1.0, SublistError, "must be integers, not 1.0"),
    ],
)
def test_wrong_axes_are_einsumxs_errors_and_numpys(axes, error, message):
    with pytest.raises(error, match=message) as ours:
        tensordot(A, B, axes)
    assert isinstance(ours.value, EinsumxError)
    with pytest.raises((ValueError, IndexError, TypeError)) as theirs:
        np.tensordot(A, B, axes)
    assert isinstance(ours.value, type(theirs.value))


@pytest.mark.parametrize("axes", [(0,), (0, 0, 1), (0, 1, 5), 0])
def test_wrong_axes_of_a_transpose_are_errors_as_in_numpy(axes):
    with pytest.raises(SizeError) as ours:
        transpose(A, axes)
    assert type(pickle.loads(pickle.dumps(ours.value))) is type(ours.value)
    with pytest.raises(ValueError) as theirs:  # noqa: PT011
        np.transpose(A, axes)
    assert isinstance(ours.value, IndexError) == isinstance(theirs.value, IndexError)


def test_axes_of_size_1_do_not_broadcast():
    with pytest.raises(SizeError, match="has size 4 but axis 0 of operand 1, which is summed with it, has size 1"):
        tensordot(A, B[:1], ((2,), (0,)))


def test_operands_without_axes_are_errors_that_name_the_type():
    with pytest.raises(BackendError, match=r"operand 1 \(builtins.object\) has no shape"):
        tensordot(A, object(), 1)


# -- small products on NumPy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["abcdef,fdghai->bceghi", "abcdef,aghbi->cdefghi"])
def test_a_product_over_many_axes_of_size_2_is_one_matrix_product_and_no_loop_over_all_labels(equation):
    shapes = [(2,) * len(term) for term in equation.partition("->")[0].split(",")]
    text = str(einsumx.plan(equation, *map(np.ones, shapes)))
    assert "matmul" in text
    assert " einsum " not in text


# -- derivatives and tracing ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_gradients_and_torch_compile_go_through():
    torch = pytest.importorskip("torch")
    a, b = torch.rand(2, 3, 4, dtype=torch.float64, requires_grad=True), torch.rand(4, 3, 5, dtype=torch.float64)

    def function(one, other):
        return tensordot(transpose(one, (0, 2, 1)), other, axes=((1, 2), [0, 1]))

    (expected,) = torch.autograd.grad(torch.tensordot(a, b, dims=([2, 1], [0, 1])).sum(), a)
    for call in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
        (gradient,) = torch.autograd.grad(call(a, b).sum(), a)
        torch.testing.assert_close(gradient, expected)
        with pytest.raises(Exception, match="has size 2 but axis 1"):
            call(torch.ones(2, 2, 4, dtype=torch.float64), b)


def test_jax_traces_and_differentiates_it():
    jax = pytest.importorskip("jax")
    a, b = (jax.numpy.asarray(each, "float32") for each in (A, B))

    def function(one, other):
        return tensordot(one, transpose(other, (1, 0, 2)), 2)

    same(jax.jit(function)(a, b), np.tensordot(A, B.transpose(1, 0, 2), 2).astype("float32"))
    gradient = jax.grad(lambda one: function(one, b).sum())(a)
    same(gradient, np.broadcast_to(B.transpose(1, 0, 2).sum(2), A.shape).astype("float32"))


def test_axes_that_are_no_integers_are_refused_after_a_call_with_equal_ones_too():
    lhs, rhs = np.ones((2, 3)), np.ones((3, 4))
    assert tensordot(lhs, rhs, ([1], [0])).shape == (2, 4)
    with pytest.raises(SublistError, match=r"must be integers, not 1\.0"):
        tensordot(lhs, rhs, ([1.0], [0]))
