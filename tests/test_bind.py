"""Equations bound to shapes: label sizes, broadcasting, and what does not fit."""

import pytest

from einsumx.errors import SizeError
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_sublists, parse_text


def bound(text, *shapes):
    return bind(parse_text(text, len(shapes)), shapes)


def test_labels_are_numbered_in_order_of_appearance():
    sized = bound("ki,ij->jk", (2, 3), (3, 4))
    assert sized.inputs == ((0, 1), (1, 2))
    assert sized.output == (2, 0)
    assert sized.sizes == (2, 3, 4)
    assert sized.shape == (4, 2)


@pytest.mark.parametrize(
    ("text", "shapes", "result"),
    [
        ("ij,jk->ik", [(2, 1), (3, 4)], (2, 4)),
        ("ij,ij->ij", [(1, 4), (2, 1)], (2, 4)),
        ("i,i->i", [(0,), (1,)], (0,)),
        ("i,i->i", [(1,), (1,)], (1,)),
        ("...,...->...", [(5, 1), (7,)], (5, 7)),
        ("...i,i...->...", [(3, 2, 4), (4,)], (3, 2)),
        ("i...j->...", [(2, 3)], ()),
        ("a...,...b->...ab", [(2, 5, 1), (6, 3)], (5, 6, 2, 3)),
        ("...i->i", [(2, 3, 4)], (4,)),
        ("->", [()], ()),
        ("ii->i", [(0, 0)], (0,)),
    ],
)
def test_sizes_broadcast(text, shapes, result):
    assert bound(text, *shapes).shape == result


def test_ellipsis_axes_line_up_at_the_right():
    sized = bound("...i,...i->...", (6, 5, 2), (5, 2))
    assert sized.inputs == ((0, 1, 2), (1, 2))
    assert sized.output == (0, 1)


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        (
            "ab,bc->ac",
            [(2, 3), (4, 5)],
            "label 'b' has size 3 in operand 0 (axis 1) but size 4 in operand 1 (axis 0)\n  ab,bc->ac",
        ),
        (
            "a,ab,b->",
            [(1,), (2, 5), (0,)],
            "label 'b' has size 5 in operand 1 (axis 1) but size 0 in operand 2 (axis 0)\n  a,ab,b->",
        ),
        (
            "iji->j",
            [(3, 4, 1)],
            "label 'i' has size 3 (axis 0) and size 1 (axis 2) in operand 0; a diagonal needs equal sizes\n  iji->j",
        ),
        (
            "...i,...->",
            [(2, 3, 4), (5,)],
            "ellipsis axis 1 has size 3 in operand 0 (axis 1) but size 5 in operand 1 (axis 0)\n  ...i,...->",
        ),
        ("ij->", [(2,)], "operand 0 has 1 axis, shape (2,), but its subscript has 2 labels\n  ij->"),
        ("i,j->", [(2,), (2, 3)], "operand 1 has 2 axes, shape (2, 3), but its subscript has 1 label\n  i,j->"),
        (
            "i...j->",
            [(2,)],
            "operand 0 has 1 axis, shape (2,), but its subscript has 2 labels and an ellipsis\n  i...j->",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_operands_axes_and_sizes(text, shapes, message):
    with pytest.raises(SizeError) as raised:
        bound(text, *shapes)
    assert str(raised.value) == message


def test_sublist_labels_are_named_as_they_were_given():
    with pytest.raises(SizeError, match=r"label \('bond', 3\) has size 2 in operand 0"):
        bind(parse_sublists([[("bond", 3)], [("bond", 3)]], None), [(2,), (3,)])
