"""Equations as text and as sublists, read into labels; each form of an equation, the suite judges."""

import pytest

from einsumx.errors import EquationError, caret
from einsumx.ir.parse import parse_sublists, parse_text, symbol


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


def test_implicit_output_of_sublists_is_sorted_by_the_labels_themselves():
    assert parse_sublists([[30, 4], [4, 26]], None).output == (26, 30)
    assert parse_sublists([["z", "b"]], None).output == ("b", "z")
    assert parse_sublists([[5, ..., 1]], None).output == (..., 1, 5)
    assert parse_sublists([[1, 1.0]], None).output == ()


def test_sublists_of_thousands_of_labels_are_read():
    equation = parse_sublists([[k, k + 1] for k in range(3000)], None)
    assert equation.output == (0, 3000)
    assert parse_text(equation.text, 3000).text == equation.text
    assert "".join(map(symbol, range(54))) == "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZÀÁ"
