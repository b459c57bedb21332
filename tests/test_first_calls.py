"""First calls: they enter few Python functions where their sizes, letters or structure are new; no time is measured.

The bounds are about twice what Python 3.11 enters: they tell a search that is made again, and not one more function.
"""

import numpy as np
import pytest
from functions_entered import entered

import einsumx
from einsumx import einsum


@pytest.fixture(autouse=True)
def _no_plans():
    einsumx.cache_clear()
    for shapes in [(2, 2)] * 2, [(3, 3)] * 2:  # imports, and code that every plan shares
        einsum("ij,jk->ik", *map(np.ones, shapes))
    einsum("abc,dba->d", np.ones((2, 3, 4)), np.ones((5, 3, 2)))
    yield
    einsumx.cache_clear()


def first(equation, size):
    """The functions of a call whose labels all have a size that no call had before."""
    arrays = [np.ones((size,) * len(term)) for term in equation.partition("->")[0].split(",")]
    return entered(lambda: einsum(equation, *arrays))


KNOWN = {
    "ij,jk->ik": 90,
    "bij,bjk->bik": 105,
    "bind,bjnd->bnij": 125,
    "abc,cde->abde": 145,
    "ij,jk,kl->il": 200,
}
"""The most functions of a call with new sizes of a contraction that was planned for others."""


@pytest.mark.parametrize(("equation", "most"), KNOWN.items())
def test_other_sizes_of_a_known_contraction_enter_few_functions(equation, most):
    first(equation, 20)
    first(equation, 22)
    assert first(equation, 21) <= most


def test_other_letters_and_other_forms_of_a_known_contraction_enter_few_functions():
    first("ij,jk->ik", 20)
    assert first("xy,yz->xz", 21) <= KNOWN["ij,jk->ik"]
    forms = [
        lambda lhs, rhs, out: einsum("...b,bc->...c", lhs, rhs),
        lambda lhs, rhs, out: einsum(lhs, [0, 1], rhs, [1, 2], [0, 2]),
        lambda lhs, rhs, out: einsum("ij,jk->ik", lhs, rhs, out=out),
        lambda lhs, rhs, out: einsum("ij,jk->ik", lhs, rhs, dtype=None, optimize=False),
    ]
    for size, form in enumerate(forms, 22):
        form(*[np.ones((size + 10, size + 10))] * 2, np.empty((size + 10, size + 10)))
        operands = [np.ones((size, size)) for _ in range(3)]
        assert entered(lambda: form(*operands)) <= 210  # noqa: B023


NEW = {"xy,yz->xz": (100, 100), "xyz,yxw->zw": (80, 190), "xyzw,zyv->xvw": (290, 290)}
"""The most functions of a call whose contraction was never planned: with labels of size 4, and of size 12."""


@pytest.mark.parametrize(("equation", "most"), NEW.items())
def test_a_new_contraction_enters_few_functions(equation, most):
    counts = []
    for size in (4, 12):
        einsumx.cache_clear()
        counts.append(first(equation, size))
    assert counts[0] <= most[0]
    assert counts[1] <= most[1]


@pytest.mark.parametrize(
    ("equation", "most"), [("ij,jk->ik", 130), ("bij,bjk->bik", 130), ("bind,bjnd->bnij", 300), ("ij,jk,kl->il", 260)]
)
def test_other_sizes_on_packed_arrays_enter_few_functions_more_than_a_repeated_call(equation, most):
    strict = pytest.importorskip("array_api_strict")
    counts = []
    for size in (20, 22, 21, 21):
        arrays = [strict.ones((size,) * len(term)) for term in equation.partition("->")[0].split(",")]
        counts.append(entered(lambda: einsum(equation, *arrays)))  # noqa: B023
    assert counts[2] - counts[3] <= most


def test_each_step_of_a_network_of_equal_tensors_enters_few_functions():
    def chain(count):
        operands = [item for k in range(count) for item in (np.ones((4, 4)) / 4, [k, k + 1])]
        path = [(0, 1), *((0, last) for last in range(count - 2, 0, -1))]
        return entered(lambda: einsum(*operands, [0, count], optimize=path))

    short, long = chain(40), chain(90)
    assert (long - short) / 50 <= 62


def test_the_counter_notices_one_more_function():
    def empty():
        pass

    def calls_another():
        empty()

    assert (entered(empty), entered(calls_another)) == (0, 1)
