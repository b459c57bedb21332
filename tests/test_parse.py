"""Equations as text and as sublists, read into labels."""

import pytest

from einsumx.errors import EquationError, SublistError, caret
from einsumx.ir.parse import parse_sublists, parse_text, symbol


@pytest.mark.parametrize(
    ("text", "inputs", "output"),
    [
        ("ij,jk->ik", ["ij", "jk"], "ik"),
        ("ij,jk", ["ij", "jk"], "ik"),
        ("ba", ["ba"], "ab"),
        ("Ba", ["Ba"], "Ba"),
        ("ii", ["ii"], ""),
        ("->", [""], ""),
        ("", [""], ""),
        (",", ["", ""], ""),
        (",a,->a", ["", "a", ""], "a"),
        (" i\tj , j k\n-> i k ", ["ij", "jk"], "ik"),
        ("βα", ["βα"], "αβ"),
        ("i->", ["i"], ""),
    ],
)
def test_text_is_read_into_labels(text, inputs, output):
    equation = parse_text(text, len(inputs))
    assert equation.inputs == tuple(map(tuple, inputs))
    assert equation.output == tuple(output)
    assert equation.text == f"{','.join(inputs)}->{output}"


@pytest.mark.parametrize(
    ("text", "inputs", "output"),
    [
        ("...", [(...,)], (...,)),
        ("...ij->i", [(..., "i", "j")], ("i",)),
        ("b...a", [("b", ..., "a")], (..., "a", "b")),
        ("i...,i", [("i", ...), ("i",)], (...,)),
        ("i->...i", [("i",)], (..., "i")),
    ],
)
def test_ellipsis_is_a_label_of_its_own(text, inputs, output):
    equation = parse_text(text, len(inputs))
    assert equation.inputs == tuple(inputs)
    assert equation.output == output


def test_parsed_text_is_read_back_as_the_same_equation():
    for text, count in (("b...a,...c", 2), (" j i", 1), ("i...->...", 1), ("xy,yz,zx", 3)):
        equation = parse_text(text, count)
        assert parse_text(equation.text, count) == equation


@pytest.mark.parametrize(
    ("text", "place", "length"),
    [
        ("ij,j!->i", 4, 1),
        ("i2", 1, 1),
        ("a_b", 1, 1),
        ("i.j", 1, 1),
        ("i..", 1, 1),
        ("i....", 4, 1),
        ("...i...", 4, 3),
        ("ij-ji", 2, 1),
        ("ij>ji", 2, 1),
        ("ij->-ji", 4, 1),
        ("ij->ji->i", 6, 1),
        ("ij->ji>", 6, 1),
        ("i->i,i", 4, 1),
        ("ij-> i  i", 8, 1),
        ("ij->i k", 6, 1),
    ],
)
def test_caret_stands_under_the_fault(text, place, length):
    with pytest.raises(EquationError) as raised:
        parse_text(text, 1 + text.partition("->")[0].count(","))
    assert str(raised.value).endswith("\n" + caret(text, place, length))


@pytest.mark.parametrize("text", ["i..j", "a.", ".a", ". . ."])
def test_stray_dots_are_errors(text):
    with pytest.raises(EquationError, match=r"not part of '\.\.\.'"):
        parse_text(text, 1)


def test_number_of_subscripts_must_be_that_of_operands():
    with pytest.raises(EquationError, match="2 subscripts but 3 operands were given"):
        parse_text("i,j", 3)
    with pytest.raises(EquationError, match="1 subscript but 0 operands were given"):
        parse_text("", 0)


def test_sublists_are_written_as_letters_in_order_of_appearance():
    equation = parse_sublists([["row", 7], [7, (0, 1)]], [(0, 1), "row"])
    assert equation.inputs == (("row", 7), (7, (0, 1)))
    assert equation.output == ((0, 1), "row")
    assert equation.text == "ab,bc->ca"


def test_implicit_output_of_sublists_is_sorted_by_the_labels_themselves():
    assert parse_sublists([[30, 4], [4, 26]], None).output == (26, 30)
    assert parse_sublists([["z", "b"]], None).output == ("b", "z")
    assert parse_sublists([[5, ..., 1]], None).output == (..., 1, 5)


def test_implicit_output_of_labels_without_an_order_is_that_of_appearance():
    assert parse_sublists([["z", 1], [1, "a", 0]], None).output == ("z", "a", 0)


def test_equal_labels_are_one_label():
    assert parse_sublists([[1, 1.0]], None).output == ()


@pytest.mark.parametrize("labels", ["ij", b"ij", 3, None, {0, 1}, frozenset({0}), {0: 1}], ids=repr)
def test_what_is_no_list_of_labels_is_an_error(labels):
    with pytest.raises(SublistError, match="the sublist of operand 1 must be a list or tuple"):
        parse_sublists([[0], labels], None)


def test_an_operand_where_its_sublist_is_missing_is_told_by_its_shape():
    array = type("Array", (list,), {"shape": (3, 4)})
    with pytest.raises(SublistError, match=r"sublist of the output must be .*, not an array of shape \(3, 4\);"):
        parse_sublists([[0, 1]], array())


def test_faulty_sublists_are_errors():
    with pytest.raises(SublistError, match=r"label \[1\] in the sublist of operand 0 is not hashable"):
        parse_sublists([[0, [1]]], None)
    with pytest.raises(EquationError, match="a second ellipsis in the sublist of operand 0"):
        parse_sublists([[..., 0, ...]], None)
    with pytest.raises(EquationError, match="label 0 stands twice in the output sublist"):
        parse_sublists([[0, 1]], [0, 0])
    with pytest.raises(EquationError, match=r"label 'x' of the output sublist .* stands in no operand"):
        parse_sublists([[0, 1]], [0, "x"])


def test_symbols_are_distinct_characters():
    letters = [symbol(index) for index in range(3000)]
    assert len(set(letters)) == 3000
    assert "".join(letters[:54]) == "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZÀÁ"


def test_sublists_of_thousands_of_labels_are_read():
    equation = parse_sublists([[k, k + 1] for k in range(3000)], None)
    assert equation.output == (0, 3000)
    assert parse_text(equation.text, 3000).text == equation.text
