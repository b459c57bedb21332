"""The kind of a result on NumPy, as ``numpy.einsum`` returns it, and the warnings, which are none.

It is an array, a scalar or an object, writeable or not.
"""

import warnings
from fractions import Fraction

import numpy as np
import pytest

import einsumx

MATRIX, VECTOR, NUMBER = np.arange(9.0).reshape(3, 3), np.arange(3.0), np.array(2.0)

READ_ONLY = MATRIX.copy()
READ_ONLY.flags.writeable = False


class Named(np.ndarray):
    """A subclass that overrides nothing."""


def objects(array):
    found = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        found[place] = Fraction(int(array[place]), 3)
    return found


KINDS = {
    "float64": lambda array: array,
    "int8": lambda array: array.astype("int8"),
    "bool": lambda array: array.astype("bool"),
    "complex64": lambda array: array.astype("complex64"),
    "object": objects,
    "subclass": lambda array: array.view(Named),
    "matrix": lambda array: np.matrix(array) if array.ndim == 2 else array,
    "read-only": lambda array: READ_ONLY if array.ndim == 2 else array,
    "list": lambda array: array.tolist(),
    "scalar": lambda array: array if array.ndim else np.float32(array),
    "python number": lambda array: array if array.ndim else float(array),
}

EQUATIONS = {
    "i,i": "vv", "ii": "m", "ij->": "m", "->": "n", ",": "nn", "i,->i": "vn", "ij->ji": "m", "ii->i": "m", "i->i": "v",
    "ij->i": "m", "ij,jk,kl->": "mmm", "...->...": "n", "...": "m",
}  # fmt: skip


def of(kind, equation):
    arrays = {"m": MATRIX, "v": VECTOR, "n": NUMBER}
    return [KINDS[kind](arrays[name]) for name in EQUATIONS[equation]]


def described(result, arrays):
    """The type, the flags and the memory of a result."""
    if not isinstance(result, np.ndarray):
        return type(result), getattr(result, "dtype", None)
    shares = [np.shares_memory(result, np.asanyarray(array)) for array in arrays]
    return type(result), result.dtype, result.shape, result.flags.writeable, shares


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_result_is_of_the_kind_that_numpys_einsum_returns(equation, kind):
    arrays = of(kind, equation)
    try:
        expected = np.einsum(equation, *arrays)
    except TypeError:  # before NumPy 1.25, of objects
        pytest.skip("this NumPy has no einsum of objects")
    result = einsumx.einsum(equation, *arrays)
    assert described(result, arrays) == described(expected, arrays)
    np.testing.assert_array_equal(result, expected)
    with einsumx.patch("numpy"):
        assert described(np.einsum(equation, *arrays), arrays) == described(expected, arrays)


@pytest.mark.parametrize("optimize", [True, False, "greedy"])
def test_a_result_without_axes_is_a_scalar_whatever_the_path(optimize):
    for equation in ("i,i", "ii", "ij,jk,kl->"):
        assert type(einsumx.einsum(equation, *of("float64", equation), optimize=optimize)) is np.float64


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ji->ij", "ij,ji->", "bij,bjk->bik"])
def test_infinities_and_nan_raise_no_warnings(equation):
    """Unlike numpy.matmul's and numpy.multiply's, numpy.einsum's arithmetic is silent; so is this."""
    lhs, rhs = np.full((3, 3), np.inf), np.array([[0.0, np.nan, 1.0]] * 3)
    if equation.startswith("b"):
        lhs, rhs = lhs[None], rhs[None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(einsumx.einsum(equation, lhs, rhs)).any()


def test_the_callers_error_state_is_left_as_it_was():
    with np.errstate(all="raise"):
        einsumx.einsum("ij,jk->ik", np.full((2, 2), np.inf), np.zeros((2, 2)))
        assert np.geterr()["invalid"] == "raise"
