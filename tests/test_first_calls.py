"""First calls: how many Python functions a call enters whose sizes, equation or structure are new; no time is measured.

The bounds are those of Python 3.10 and 3.11; later versions enter no function for a list comprehension.
"""

import sys

import numpy as np
import pytest

import einsumx
from einsumx import einsum


@pytest.fixture(autouse=True)
def _no_plans():
    einsumx.cache_clear()
    for shapes in [(2, 2)] * 2, [(3, 3)] * 2:  # imports, and code that every plan shares
        einsum("ij,jk->ik", *map(np.ones, shapes))
    yield
    einsumx.cache_clear()


def entered(call):
    """The number of Python functions that a call enters, without its own."""
    count = 0

    def note(frame, event, _):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count - 1


def first(equation, size, dtype="float64", **options):
    """The functions of a call whose labels all have a size that no call had before."""
    arrays = [np.ones((size,) * len(term), dtype) for term in equation.partition("->")[0].split(",")]
    return entered(lambda: einsum(equation, *arrays, **options))


KNOWN = {
    "ij,jk->ik": 145,
    "bij,bjk->bik": 145,
    "bind,bjnd->bnij": 280,  # pieces for several threads, too
    "abc,cde->abde": 220,
    "ij,jk,kl->il": 225,
}
"""The most functions of a call with new sizes of a contraction whose template exists."""


@pytest.mark.parametrize(("equation", "most"), KNOWN.items())
def test_other_sizes_of_a_known_contraction_enter_few_functions(equation, most):
    first(equation, 20)
    first(equation, 22)
    assert first(equation, 21) <= most


def test_forms_of_a_call_with_new_sizes_enter_few_more_functions():
    arrays = [[np.ones((size, size)) for _ in range(3)] for size in (20, 22, 21, 23, 24)]
    for lhs, rhs, _ in arrays[:2]:
        einsum("ij,jk->ik", lhs, rhs)
    forms = [
        lambda lhs, rhs, out: einsum(lhs, [0, 1], rhs, [1, 2], [0, 2]),
        lambda lhs, rhs, out: einsum("ij,jk->ik", lhs, rhs, out=out),
        lambda lhs, rhs, out: einsum("ij,jk->ik", lhs, rhs, dtype=None, optimize=False),
    ]
    for form, operands in zip(forms, arrays[2:]):
        form(*arrays[0])
        assert entered(lambda: form(*operands)) <= KNOWN["ij,jk->ik"] + 60  # noqa: B023


NEW = {"xy,yz->xz": (190, 190), "xyz,yxw->zw": (330, 1200), "xyzw,zyv->xvw": (430, 2400)}
"""The most functions of a call whose contraction has no template: with labels of size 4, and of size 12."""


@pytest.mark.parametrize(("equation", "most"), NEW.items())
def test_a_new_contraction_of_small_arrays_is_planned_without_a_search(equation, most):
    counts = []
    for size in (4, 12):
        einsumx.cache_clear()
        counts.append(first(equation, size))
    assert counts[0] <= most[0]
    assert counts[1] <= most[1]


def test_each_step_of_a_network_of_equal_tensors_enters_few_functions():
    def chain(count):
        operands = [item for k in range(count) for item in (np.ones((4, 4)) / 4, [k, k + 1])]
        path = [(0, 1), *((0, last) for last in range(count - 2, 0, -1))]
        return entered(lambda: einsum(*operands, [0, count], optimize=path))

    short, long = chain(40), chain(140)
    assert (long - short) / 100 <= 120


def test_the_counter_notices_one_more_function():
    def empty():
        pass

    def calls_another():
        empty()

    assert (entered(empty), entered(calls_another)) == (0, 1)
