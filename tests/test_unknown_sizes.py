"""Sizes that are not known when a contraction is planned."""

import pickle

import numpy as np
import pytest
from planted_faults import Numpy

import einsumx
from einsumx import SizeError, plan
from einsumx.ir.bind import bind
from einsumx.ir.operand import Operand
from einsumx.ir.parse import parse_text
from einsumx.ir.sizes import TYPICAL, UNKNOWN, Unknown, evaluated
from einsumx.runtime.execute import run_of_any_size
from einsumx.runtime.front import contraction
from einsumx.runtime.prepare import runnable
from einsumx.runtime.request import Request

# -- sizes ----------------------------------------------------------------------------------------------------------


def test_an_unknown_size_equals_no_number_and_no_other_size():
    rows, cols = Unknown("i"), Unknown("j")
    assert rows not in (0, 1, TYPICAL, cols, UNKNOWN)
    assert rows == Unknown("i")
    assert hash(rows) == hash(Unknown("i"))
    assert rows * cols == cols * rows != rows * rows
    with pytest.raises(TypeError):  # a framework takes it for no number
        np.zeros((rows, 3))


def test_products_of_sizes_remember_their_factors():
    rows, cols = Unknown("i"), Unknown("j")
    assert evaluated(6 * rows * cols * rows, {"i": 2, "j": 5}) == 120
    assert evaluated(np.prod([rows, 3], dtype=object), {"i": 2}) == 6
    assert rows * 0 == 0
    assert float(rows.assumed) * 2 == 2.0 * rows


# -- binding --------------------------------------------------------------------------------------------------------


def bound(equation, *shapes):
    shapes = [tuple(UNKNOWN if size is None else size for size in shape) for shape in shapes]
    return bind(parse_text(equation, len(shapes)), shapes)


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(None, None), (3, None)], "((i, 3), (3, k))"),
        ("ij,ij->ij", [(None, None), (1, 4)], "((i, 4), (1, 4))"),
        ("ii->i", [(None, 3)], "((3, 3),)"),
        ("ii,i->i", [(None, 1), (5,)], "((1, 1), (5,))"),
        ("...i,...->i", [(None, None), (None,)], "((a, i), (a,))"),
    ],
)
def test_an_unknown_size_is_that_of_its_label(equation, shapes, expected):
    assert repr(bound(equation, *shapes).shapes) == expected


def test_known_sizes_must_agree_beside_unknown_ones():
    with pytest.raises(SizeError, match="label 'j' has size 3 in operand 0"):
        bound("ij,jk,jl->ikl", (None, 3), (None, None), (4, 2))


# -- plans ----------------------------------------------------------------------------------------------------------


def test_a_plan_prints_labels_for_unknown_sizes():
    assert str(plan("aij,ijb->ab", (2, None, None), (None, None, 5), backend="torch")) == (
        "aij,ijb->ab  (2,i,j) (i,j,5)  float64 on torch; figures are for i = j = 256\n"
        "  %2 = reshape %0 (2,i*j)  view\n"
        "  %3 = reshape %1 (i*j,5)  view\n"
        "  %4 = matmul %2 %3        655 k multiply-adds\n"
        "  result %4                (2,5) float64"
    )


def test_a_plan_and_an_expression_take_arrays_of_any_sizes_and_check_those_that_they_know():
    planned, call = (make("ij,jk->ik", (None, 3), (3, None)) for make in (plan, einsumx.expression))
    for rows, cols in ((2, 5), (7, 1), (0, 2)):
        lhs, rhs = np.random.default_rng(0).random((rows, 3)), np.random.default_rng(1).random((3, cols))
        np.testing.assert_allclose(planned(lhs, rhs), lhs @ rhs)
        np.testing.assert_allclose(call(lhs, rhs), lhs @ rhs)
    with pytest.raises(SizeError, match="operand 0 has shape"):
        planned(np.ones((2, 4)), np.ones((4, 2)))
    with pytest.raises(SizeError, match="was made for"):
        call(np.ones((2, 4)), np.ones((4, 2)))


def test_plans_with_unknown_sizes_are_compared_hashed_and_pickled():
    planned = plan("ij,jk->ik", (None, 3), (3, None))
    assert pickle.loads(pickle.dumps(planned)) == planned
    assert plan("ij,jk->ik", (None, 3), (3, None)) == planned
    assert planned != plan("ij,jk->ik", (TYPICAL, 3), (3, TYPICAL))


def test_what_needs_known_sizes_says_so():
    planned = plan("ij,jk->ik", (None, 3), (3, 4))
    with pytest.raises(SizeError, match="a plan is stored for known sizes"):
        planned.to_json()
    with pytest.raises(SizeError, match="a plan is written as code for known sizes"):
        planned.source()
    with pytest.raises(SizeError, match="memory_limit= needs all sizes"):
        plan("ij,jk->ik", (None, 3), (3, 4), memory_limit=1000)


# -- running --------------------------------------------------------------------------------------------------------


class Blind(Numpy):
    """NumPy that knows no size before a plan runs."""


@pytest.mark.parametrize(
    ("equation", "shapes", "says"),
    [
        (
            "aij,jib->ab",
            [(2, 3, 4), (3, 4, 5)],
            r"label '.' has another size in operand \d \(axis \d\) than in operand",
        ),
        ("ij,jk->ik", [(2, 3), (1, 4)], r"label 'j' has another size in operand 1 \(axis 0\) than in operand 0"),
        ("ijij->ij", [(2, 3, 3, 2)], r"label '.' has another size in operand 0 \(axis \d\) than in operand 0"),
    ],
)
def test_unequal_sizes_of_a_label_are_an_error(equation, shapes, says):
    operands = tuple(Operand((UNKNOWN,) * len(shape), "float64") for shape in shapes)
    prepared = runnable(contraction(Request(equation, ()), Blind(), operands, ""), Blind(), has_unknown=True)
    with pytest.raises(SizeError, match=says):
        prepared.run(*map(np.ones, shapes))


def test_a_size_that_turns_out_to_differ_from_a_known_one_is_an_error():
    operands = Operand((2, UNKNOWN), "float64"), Operand((3, 4), "float64")
    prepared = runnable(contraction(Request("ij,jk->ik", ()), Blind(), operands, ""), Blind(), has_unknown=True)
    np.testing.assert_array_equal(prepared.run(np.ones((2, 3)), np.ones((3, 4))), np.full((2, 4), 3.0))
    with pytest.raises(SizeError, match=r"operand 0 has another size than 3 \(axis 1\)"):
        prepared.run(np.ones((2, 1)), np.ones((3, 4)))


def test_the_path_assumes_typical_sizes():
    assert (
        plan("ab,bc,cd->ad", (None, 2), (2, None), (None, 3)).path
        == plan("ab,bc,cd->ad", (TYPICAL, 2), (2, TYPICAL), (TYPICAL, 3)).path
    )


def test_a_constant_has_its_sizes():
    planned = plan("ij,jk->ik", (None, 3), (3, 4))
    call = run_of_any_size(planned, Blind(), {1: np.ones((3, 4))})
    np.testing.assert_array_equal(call(np.ones((5, 3))), np.full((5, 4), 3.0))
