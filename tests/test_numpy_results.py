"""The kind of a result on NumPy, as ``numpy.einsum`` returns it: an array, a scalar or an object, writeable or not."""

import tracemalloc
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import einsumx
from einsumx.adapters.registry import get_backend
from einsumx.dtypes import NAMED, can_cast, itemsize, kind

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
    with einsumx.patched("numpy"):
        assert described(np.einsum(equation, *arrays), arrays) == described(expected, arrays)


@pytest.mark.parametrize("optimize", [True, False, "greedy"])
def test_a_result_without_axes_is_a_scalar_whatever_the_path(optimize):
    for equation in ("i,i", "ii", "ij,jk,kl->"):
        assert type(einsumx.einsum(equation, *of("float64", equation), optimize=optimize)) is np.float64


@pytest.mark.parametrize("code", "?bBhHiIlLqQefdgFDG")
def test_a_number_of_numpy_has_a_name_with_its_kind_and_size_on_every_system(code):
    dtype = np.dtype(code)
    name = get_backend("numpy").dtype_name(dtype)
    assert name in NAMED
    assert (kind(name), itemsize(name)) == (dtype.kind, dtype.itemsize)


@pytest.mark.parametrize(("wide", "narrow"), [("float96", "float64"), ("complex192", "complex128")])
def test_the_wide_numbers_of_32_bit_systems_are_numbers_on_all(wide, narrow):
    assert can_cast(narrow, wide)
    assert can_cast("int64", wide)
    assert not can_cast(wide, narrow)
    assert can_cast(wide, narrow, "same_kind")
    planned = einsumx.plan("ij,jk->ik", (2, 3), (3, 4), dtypes=narrow, accumulate=wide)
    assert einsumx.Plan.from_json(planned.to_json()) == planned
    assert einsumx.semirings.max_plus.plan("ij,jk->ik", (2, 3), (3, 4), dtypes="float96").dtype == "float96"


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
def test_numpys_rules_allow_the_casts_that_numpy_allows(casting):
    names = ["object", "bool", *[name for name in NAMED if name in vars(np) and name != "bool"]]
    for source, target in product(names, names):
        assert can_cast(source, target, casting) == np.can_cast(np.dtype(source), np.dtype(target), casting)


def test_the_second_product_of_elements_overwrites_the_first_one_and_no_operand():
    v, m, w = np.arange(300.0), np.arange(90000.0).reshape(300, 300), np.arange(300.0) - 7
    copies = [array.copy() for array in (v, m, w)]
    for equation in ("i,ij,j->ij", "i,ij,j->ji"):
        run = einsumx.expression(equation, v, m, w.shape)
        for _ in range(20):  # some op by op, others compiled
            tracemalloc.start()
            result = einsumx.einsum(equation, v, m, w)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1.2 * result.nbytes
            for found in (result, run(w)):  # which keeps v and m, and their product
                np.testing.assert_array_equal(found, np.einsum(equation, v, m, w))
    for array, copy in zip((v, m, w), copies):
        np.testing.assert_array_equal(array, copy)
