"""What a label may be, in text and in lists; and that none is taken for another, or for one of einsumx's own."""

import random
import sys
from decimal import Decimal
from html import unescape
from itertools import product

import numpy as np
import pytest
from source_einsum import contraction

import einsumx
from einsumx import EquationError, SizeError, SublistError, einsum, plan
from einsumx.errors import caret, excerpt, shown, visible
from einsumx.ir.bind import bind, label_names
from einsumx.ir.parse import misread, parse_sublists, parse_text, symbol

a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)

HOSTILE = {
    "no letter": "×",
    "a blank": "\u3000",
    "a blank of no width": "\u200b",
    "the end of a line": "\u2028",
    "a mark that combines": "\u0301",
    "a turn to the left": "\u202e",
    "a letter that shows nothing": "\u3164",
    "a surrogate": "\ud800",
    "for private use": "\ue000",
    "no character": "\uffff",
    "the last one": "\U0010ffff",
    "an emoji": "🙂",
}


# -- in text ------------------------------------------------------------------------------------------------------


def test_every_symbol_of_opt_einsum_is_a_label():
    get_symbol = pytest.importorskip("opt_einsum").get_symbol
    last = sys.maxunicode + 1 - 2048
    for numbers in (range(60_000), range(60_000, last, 101), range(last - 100, last)):
        term = tuple(map(get_symbol, numbers))
        assert parse_text("".join(term), 1).inputs == (term,)


def test_our_own_symbols_are_distinct_and_are_read():
    numbers = [*range(3000), *random.Random(0).sample(range(3000, 1_000_000), 1000), 55_000, 55_155, 55_156, 1_110_000]
    letters = [symbol(number) for number in numbers]
    assert len(set(letters)) == len(set(numbers))
    assert parse_text("".join(letters), 1).inputs == (tuple(letters),)
    assert not any("\ud800" <= letter <= "\udfff" for letter in letters)
    with pytest.raises(EquationError, match=r"at most \d+ labels"):
        symbol(1_200_000)


@pytest.mark.parametrize("letter", ["1", "_", "!", "\x00", "\x7f", "\xb7", "\xb2", "\xbf"])
def test_what_comes_before_u00c0_and_is_no_letter_is_none(letter):
    with pytest.raises(EquationError, match="is not a label"):
        parse_text(f"i{letter}", 1)


def test_letters_before_u00c0_are_labels_blanks_are_blanks_and_nothing_is_normalized():
    assert parse_text("µªº", 1).inputs == (("µ", "ª", "º"),)
    assert parse_text("i\t\n\v\f\r\x1c \x85\xa0j", 1).inputs == (("i", "j"),)
    composed, decomposed = "\u00e9", "e\u0301"
    assert parse_text(f"{composed}{decomposed}", 1).inputs == ((composed, "e", "\u0301"),)
    assert einsum("\u212b\u00c5->\u00c5\u212b", a).shape == (3, 2)  # two that look alike


@pytest.mark.parametrize("label", HOSTILE.values(), ids=HOSTILE)
def test_labels_that_nobody_sees_are_taken_stored_and_shown_escaped(label):
    np.testing.assert_array_equal(einsum(f"i{label},{label}k->ki", a, b), (a @ b).T)
    with pytest.raises(SizeError) as raised:
        einsum(f"i{label},{label}k->ki", a, a)
    found = plan(f"i{label},{label}k,kj->ij", (20, 30), (30, 40), (40, 20))
    assert einsumx.Plan.from_json(found.to_json()) == found
    blocked = plan(f"i{label},{label}k->ki", (200, 300), (300, 400), memory_limit="700 kB", stored=True)
    assert label in "".join(blocked.cuts)
    texts = [str(raised.value), str(found), str(blocked), found.source()]
    drawn = [found.draw().svg, found.draw().html, blocked.draw().html]
    for text in [*texts, *drawn]:
        text.encode()
        assert (label in text) == (visible(label) == label)
        assert visible(label) in unescape(text)
    assert str(raised.value).startswith(f"label '{visible(label)}' has size 3")
    arrays = np.ones((20, 30)), np.ones((30, 40)), np.ones((40, 20))
    np.testing.assert_allclose(contraction(found.source(), "numpy")(*arrays), np.linalg.multi_dot(arrays))


def test_frameworks_are_given_letters_that_they_take():
    tensors = np.ones((3, 4, 5), "int8"), np.ones((3, 4, 6), "int8")
    found = plan("×→…,×→🙂->…🙂×", *tensors, optimize=False)
    assert all(op.equation.isascii() for op in found.ops if hasattr(op, "equation"))
    np.testing.assert_array_equal(einsum("×→…,×→🙂->…🙂×", *tensors), np.einsum("abc,abd->cda", *tensors))


# -- in lists -----------------------------------------------------------------------------------------------------


def test_no_label_is_equal_to_an_axis_of_an_ellipsis():
    candidates = [(..., 0), "(..., 0)", "EllipsisAxis(place=0)", 0, "...", ("...", 0), None, True]
    for label in candidates:
        sized = bind(parse_sublists([[..., label]], [label, ...]), [(2, 3)])
        assert (sized.inputs, sized.output) == (((0, 1),), (1, 0)), label


@pytest.mark.parametrize(
    "labels",
    [[True, False], [1.0, 0.0], [np.int64(1), np.int8(0)], [np.bool_(True), np.bool_(False)], [1 + 0j, 0j]],
    ids=repr,
)
def test_labels_that_are_equal_are_one_label_and_are_named_as_they_were_given(labels):
    einsumx.cache_clear()
    for order in ([[1, 0], labels], [labels, [1, 0]]):
        for one, other in order:
            np.testing.assert_array_equal(einsum(a, [one, other], [other, one]), a.T)
        with pytest.raises(SizeError) as raised:
            einsum(a, labels, a, [labels[1], 7])
        plain = [label.item() if isinstance(label, np.generic) else label for label in labels]
        assert str(raised.value).startswith(f"label {plain[1]!r} has size 3")


def test_labels_that_numpy_compares_in_its_own_way_do_not_meet_wrongly_in_a_cache():
    zeros = [Decimal(0), np.int64(0), np.longdouble(0), np.timedelta64(0, "s"), 0]
    calls = [einsum, lambda *lists: plan(*lists)(a), lambda *lists: einsum(*lists, memory_limit="1 MB")]
    for call, first, second in product(calls, zeros, zeros):
        einsumx.cache_clear()
        for zero in (first, second):
            np.testing.assert_array_equal(call(a, [zero, 1], [1, zero]), a.T)
    np.testing.assert_array_equal(einsum(a, [Decimal(0), 1], [1, np.int64(0)]), a.T)


class Alike:
    """A label that is taken for any other by its hash, and says nothing of use about equality."""

    def __init__(self, answer):
        self.answer = answer

    def __hash__(self):
        return 1

    def __eq__(self, other):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    __lt__ = __eq__


class NoHash:
    def __hash__(self):
        raise RuntimeError("no hash")


class NoRepr:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    "label",
    [float("nan"), np.datetime64("NaT", "s"), Alike(np.ones(3)), Alike(RuntimeError("no")), Alike(False)],
    ids=["nan", "no time", "equal to an array", "not to be compared", "equal to nothing"],
)
def test_labels_that_are_not_equal_to_themselves_are_refused(label):
    with pytest.raises(SublistError, match="in the sublist of operand 0 is not equal to itself"):
        einsum(a, [label, "j"])


def test_labels_without_a_hash_are_refused_whatever_their_error_and_tensors_that_are_equal_to_themselves_alone():
    with pytest.raises(SublistError, match=r"NoHash.* in the sublist of operand 0 is not hashable"):
        einsum(a, [NoHash(), 1])
    torch = pytest.importorskip("torch")
    with pytest.raises(SublistError, match=r"label tensor\(0\) in the sublist of operand 0 is not equal to itself"):
        einsum(a, [torch.tensor(0), torch.tensor(1)], b, [torch.tensor(1), torch.tensor(2)])


def test_labels_that_cannot_be_shown_are_named_by_their_class():
    label = NoRepr()
    with pytest.raises(SizeError, match="label <NoRepr> has size 2"):
        einsum(np.ones(2), [label], np.ones(3), [label])


def test_labels_without_an_order_keep_that_of_their_appearance():
    assert parse_sublists([["z", 1], [1, "a", 0]], None).output == ("z", "a", 0)
    assert parse_sublists([[5, 2, 9, 1, 7, None, 0]], None).output == (5, 2, 9, 1, 7, None, 0)
    first, second = (type("Label", (), {"__lt__": lambda *_: np.ones(3)})() for _ in range(2))
    assert parse_sublists([[second, first]], None).output == (second, first)


# -- long ones ----------------------------------------------------------------------------------------------------

MANY = 20_000
LONG = {
    "letters": "ij" * MANY,
    "letters that nobody sees": "\u202e" * MANY,
    "a wrong end": "i" * MANY + "!",
    "commas": "," * MANY,
    "words": "batch dim " * MANY,
    "an output of many labels": "ij->" + "".join(map(chr, range(0x4E00, 0x4E00 + 20_000))),
    "a dash at the end": "i" * MANY + "-",
}


@pytest.mark.parametrize("equation", LONG.values(), ids=LONG)
def test_a_long_equation_is_not_echoed_whole(equation):
    with pytest.raises((EquationError, SizeError)) as raised:
        einsum(equation, a)
    assert len(str(raised.value)) < 2500  # at most ten characters for one that is escaped


@pytest.mark.parametrize(
    "call",
    [
        lambda text: einsum("ij->ji", a, dtype=text),
        lambda text: einsum("ij->ji", a, order=text),
        lambda text: einsum("ij->ji", a, optimize=text),
        lambda text: einsum("ij->ji", a, backend=text),
        lambda text: einsum("ij->ji", a, memory_limit=text),
        lambda text: einsum(a, [text, 1], [text, 2]),
        lambda text: einsum(a, list(range(len(text))), [0]),
        lambda text: einsum(a, [0, 1], [0] * len(text)),
        lambda text: einsum("i,i,i->", a[0], a[0], a[0], optimize=[tuple(range(len(text)))]),
        lambda text: plan("ij", (-1,) * len(text)),
        lambda text: plan("ij", (2, 2)).draw().save(text),
        einsumx.patch,
    ],
)
def test_long_values_of_other_kinds_are_not_echoed_whole(call):
    with pytest.raises((einsumx.EinsumxError, ValueError, TypeError)) as raised:
        call("x" * MANY)
    assert len(str(raised.value)) < 1000


def test_a_caret_stands_under_its_place_in_an_equation_that_is_shortened():
    shown_text, below = caret("a" * 500 + "!" + "b" * 500, 500).split("\n")
    assert shown_text[below.index("^")] == "!"
    assert shown_text.startswith("  [...] aaa")
    assert shown_text.endswith("bbb [...]")
    assert caret("i\n\u202e!", 3) == "  i\\n\\u202e!\n" + " " * 11 + "^"


def test_what_is_short_is_shown_whole():
    assert excerpt("ij,jk->ik") == "ij,jk->ik"
    assert shown(["ij", 7]) == "['ij', 7]"
    assert len(shown(["ij"] * 10_000)) == len(excerpt("ij" * 10_000)) == 207
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert shown(nested) == "<list>"


def test_no_hint_is_given_for_what_may_be_meant():
    assert misread("i j, j k -> i k ") == ""
    assert misread("×À") == ""  # a network may have them as labels


def test_names_of_many_labels_and_of_axes_of_an_ellipsis_are_distinct():
    text = "".join(symbol(number) for number in range(2000))
    names = label_names(bind(parse_text(f"...{text}->...", 1), [(1,) * 2050]))
    assert len(set(names)) == 2050
