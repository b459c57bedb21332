"""Equations as text and as sublists, read into labels and bound to shapes."""

import pytest

from einsumx.errors import EquationError, SizeError, SublistError, caret
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_sublists, parse_text, symbol


@pytest.mark.parametrize(
    ("text", "inputs", "output"),
    [
        ("ij,jk->ik", [("i", "j"), ("j", "k")], ("i", "k")),
        ("ij,jk", [("i", "j"), ("j", "k")], ("i", "k")),
        ("Ba", [("B", "a")], ("B", "a")),
        ("ii", [("i", "i")], ()),
        ("", [()], ()),
        (",a,->a", [(), ("a",), ()], ("a",)),
        (" i\tj , j k\n-> i k ", [("i", "j"), ("j", "k")], ("i", "k")),
        ("βα", [("β", "α")], ("α", "β")),
        ("i->", [("i",)], ()),
        ("...", [(...,)], (...,)),
        ("...ij->i", [(..., "i", "j")], ("i",)),
        ("b...a", [("b", ..., "a")], (..., "a", "b")),
        ("i...,i", [("i", ...), ("i",)], (...,)),
        ("i->...i", [("i",)], (..., "i")),
    ],
)
def test_text_is_read_into_labels_and_written_with_its_output(text, inputs, output):
    equation = parse_text(text, len(inputs))
    assert (equation.inputs, equation.output) == (tuple(inputs), output)
    terms = ["".join("..." if label is ... else label for label in term) for term in (*inputs, output)]
    assert equation.text == f"{','.join(terms[:-1])}->{terms[-1]}"
    assert parse_text(equation.text, len(inputs)) == equation


@pytest.mark.parametrize(
    ("text", "place", "length"),
    [
        ("ij,j!->i", 4, 1),
        ("i..", 1, 1),
        ("i....", 4, 1),
        ("...i...", 4, 3),
        ("ij->-ji", 4, 1),
        ("ij->ji->i", 6, 1),
        ("ij->ji>", 6, 1),
        ("ij-> i  i", 8, 1),
        ("ij->i k", 6, 1),
    ],
)
def test_caret_stands_under_the_fault(text, place, length):
    with pytest.raises(EquationError) as raised:
        parse_text(text, 1 + text.partition("->")[0].count(","))
    assert str(raised.value).endswith("\n" + caret(text, place, length))


def test_a_dash_after_the_arrow_is_no_second_arrow():
    with pytest.raises(EquationError, match="'-' that is not part of '->'"):
        parse_text("ij->i-j", 1)


def test_sublists_are_written_as_letters_in_order_of_appearance():
    equation = parse_sublists([["row", 7], [7, (0, 1)]], [(0, 1), "row"])
    assert equation.inputs == (("row", 7), (7, (0, 1)))
    assert equation.output == ((0, 1), "row")
    assert equation.text == "ab,bc->ca"


def test_implicit_output_of_sublists_is_sorted_by_the_labels_themselves():
    assert parse_sublists([[30, 4], [4, 26]], None).output == (26, 30)
    assert parse_sublists([["z", "b"]], None).output == ("b", "z")
    assert parse_sublists([[5, ..., 1]], None).output == (..., 1, 5)
    assert parse_sublists([[1, 1.0]], None).output == ()


@pytest.mark.parametrize("labels", [b"ij", None, frozenset({0}), {0: 1}], ids=repr)
def test_what_is_no_list_of_labels_is_an_error(labels):
    with pytest.raises(SublistError, match="the sublist of operand 1 must be a list or tuple"):
        parse_sublists([[0], labels], None)


def test_sublists_of_thousands_of_labels_are_read():
    equation = parse_sublists([[k, k + 1] for k in range(3000)], None)
    assert equation.output == (0, 3000)
    assert parse_text(equation.text, 3000).text == equation.text
    assert "".join(map(symbol, range(54))) == "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZÀÁ"


# -- shapes -------------------------------------------------------------------------------------------------------


def test_labels_are_numbered_in_order_of_appearance_and_ellipsis_axes_line_up_at_the_right():
    sized = bind(parse_text("...ki,...ij->...jk", 2), [(6, 1, 2, 3), (5, 3, 4)])
    assert sized.inputs == ((0, 1, 2, 3), (1, 3, 4))
    assert sized.output == (0, 1, 4, 2)
    assert sized.sizes == (6, 5, 2, 3, 4)
    assert sized.shape == (6, 5, 4, 2)


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
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
        bind(parse_text(text, len(shapes)), shapes)
    assert str(raised.value) == message


def test_sublist_labels_are_named_as_they_were_given():
    with pytest.raises(SizeError, match=r"label \('bond', 3\) has size 2 in operand 0"):
        bind(parse_sublists([[("bond", 3)], [("bond", 3)]], None), [(2,), (3,)])
