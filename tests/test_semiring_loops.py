"""Products in a semiring as loops that numba compiles: the bits of functions of arrays, and only once they pay."""

import sys

import numpy as np
import pytest

from einsumx import Semiring
from einsumx.backends.numpy import loops
from einsumx.semirings import max_plus, max_times

SEMIRINGS = (
    max_plus,
    max_times,
    Semiring("narrowest path", "minimum", "maximum"),
)
SHAPES = (
    ((9, 30), (30, 17)),
    ((60, 30), (30, 9)),
    ((12, 600), (600, 500)),
    ((12, 1), (1, 12)),
    ((5, 20, 30), (1, 30, 20)),
    ((1, 40, 30), (5, 30, 40)),
    ((3, 200, 50), (3, 50, 200)),
)


def operands(shapes, dtype):
    rng = np.random.default_rng(0)
    for shape in shapes:
        array = rng.standard_normal(shape).astype(dtype)
        for value in (np.inf, -np.inf, np.nan):
            array[rng.random(shape) < 0.02] = value
        yield array


def product(lhs, rhs, semiring):
    return semiring.einsum("bij,bjk->bik" if lhs.ndim == 3 else "ij,jk->ik", lhs, rhs)


@pytest.mark.long
@pytest.mark.parametrize(("semiring", "dtype"), [*zip(SEMIRINGS, ["float32", "float64", "float64"])], ids=str)
def test_loops_give_the_bits_of_functions_of_arrays(semiring, dtype, monkeypatch):
    pytest.importorskip("numba")
    for shapes in SHAPES:
        lhs, rhs = operands(shapes, dtype)
        monkeypatch.setattr(loops, "_computed", -np.inf)
        expected = product(lhs, rhs, semiring)
        monkeypatch.setattr(loops, "_computed", np.inf)
        assert loops.product_loops(semiring.add, semiring.multiply, dtype, 1) is not None
        np.testing.assert_array_equal(product(lhs, rhs, semiring), expected)
        np.testing.assert_array_equal(product(lhs, np.asfortranarray(rhs), semiring), expected)


def test_loops_are_compiled_once_as_much_was_computed_as_they_cost(monkeypatch):
    """A process that computes little never waits for numba."""
    asked = []
    monkeypatch.setattr(loops, "_compiled", lambda *names: asked.append(names))
    monkeypatch.setattr(loops, "_computed", 0)
    square = np.ones((40, 40))
    for _ in range(3):
        product(square, square, max_plus)
    assert loops._computed == 3 * 40**3
    assert asked == []
    monkeypatch.setattr(loops, "_PAYS", 3 * 40**3)
    product(square, square, max_plus)
    assert asked == [("maximum", "add")]
    assert loops._computed == 3 * 40**3


def test_functions_of_arrays_stay_where_numba_cannot_compile(monkeypatch):
    """In half precision, without numba, and where its compiler is off."""
    monkeypatch.setattr(loops, "_computed", np.inf)
    assert loops.product_loops("maximum", "add", "float16", 1) is None
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "numba", None)
        assert loops._compiled.__wrapped__("maximum", "add") is None
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert loops._compiled.__wrapped__("maximum", "add") is None
