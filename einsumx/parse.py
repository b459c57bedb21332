"""``parse``: an equation as text or sublists becomes labels per operand and for the output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from einsumx.errors import EquationError, SublistError, caret

__all__ = ["Equation", "Label", "parse_sublists", "parse_text", "symbol"]

Label: TypeAlias = Hashable
"""A letter in text form, any hashable in sublists; ``Ellipsis`` stands for any number of axes."""


@dataclass(frozen=True, slots=True)
class Equation:
    """What an equation says, before any shape is known.

    Attributes:
        text: the equation in text form with an explicit output, sublist labels written as letters.
        inputs: the labels of each operand; an ``Ellipsis`` stands where the equation has one.
        output: the labels of the result, likewise.
    """

    text: str
    inputs: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]


def symbol(index: int) -> str:
    """The letter for label number ``index``: a-z, A-Z, then other alphabets.

    >>> symbol(0), symbol(26), symbol(52)
    ('a', 'A', 'À')
    """
    if index < 26:
        return chr(ord("a") + index)
    if index < 52:
        return chr(ord("A") + index - 26)
    return _more_letters()[index - 52]


@lru_cache(maxsize=1)
def _more_letters() -> str:
    points = [*range(192, 0xD800), *range(0xE000, 0x30000)]
    return "".join(letter for letter in map(chr, points) if letter.isalpha())


def parse_text(text: str, count: int) -> Equation:
    """Read an equation such as ``"ij,jk->ik"`` for ``count`` operands.

    Raises:
        EquationError: with a caret under the faulty place.

    >>> parse_text("i j, ...j", 2)
    Equation(text='ij,...j->...i', inputs=(('i', 'j'), (Ellipsis, 'j')), output=(Ellipsis, 'i'))
    """
    left, arrow, right, right_start = _split_arrow(text)
    inputs: list[tuple[Label, ...]] = []
    start = 0
    for subscript in left.split(","):
        inputs.append(_read_subscript(text, start, subscript))
        start += len(subscript) + 1
    if len(inputs) != count:
        raise EquationError(
            f"the equation has {_count(len(inputs), 'subscript')} but {_count(count, 'operand')} "
            f"{'was' if count == 1 else 'were'} given\n  {text}"
        )
    output = _read_subscript(text, right_start, right) if arrow else implicit_output(inputs)
    if arrow:
        _check_output(text, right_start, right, inputs, output)
    return Equation(_text(inputs, output), tuple(inputs), output)


def parse_sublists(inputs: Sequence[Sequence[Label]], output: Sequence[Label] | None) -> Equation:
    """Read the form ``einsum(a, [0, 1], b, [1, 2], [0, 2])``; labels are any hashables.

    Raises:
        SublistError: no list of labels, or an unhashable label.
        EquationError: a second ellipsis, or a faulty output.

    >>> parse_sublists([[0, "row"], ["row", 2]], [2, 0]).text
    'ab,bc->ca'
    """
    terms = [_read_sublist(labels, f"of operand {k}") for k, labels in enumerate(inputs)]
    known = {label for term in terms for label in term}
    if output is None:
        result = implicit_output(terms)
    else:
        result = _read_sublist(output, "of the output")
        for label, times in Counter(result).items():
            if times > 1:
                raise EquationError(f"label {label!r} stands twice in the output sublist {list(output)!r}")
            if label not in known and label is not ...:
                raise EquationError(
                    f"label {label!r} of the output sublist {list(output)!r} stands in no operand's sublist"
                )
    letters: dict[Label, str] = {...: "..."}
    for label in (label for term in terms for label in term):
        if label not in letters:
            letters[label] = symbol(len(letters) - 1)
    text = _text(
        [tuple(letters[label] for label in term) for term in terms],
        tuple(letters[label] for label in result),
    )
    return Equation(text, tuple(terms), result)


def implicit_output(inputs: Sequence[tuple[Label, ...]]) -> tuple[Label, ...]:
    """The output that an equation without ``->`` means: the ellipsis, then labels that appear once, sorted.

    Labels that cannot be compared with one another keep the order of their appearance.
    """
    times = Counter(label for term in inputs for label in term)
    once: list[Any] = [label for label in times if times[label] == 1 and label is not ...]
    with suppress(TypeError):
        once.sort()
    return (..., *once) if ... in times else tuple(once)


def _split_arrow(text: str) -> tuple[str, bool, str, int]:
    """The parts before and after ``->``, whether there is one, and where the second part starts."""
    left, arrow, right = text.partition("->")
    for place, letter in enumerate(text):
        in_arrow = bool(arrow) and place in (len(left), len(left) + 1)
        if letter in "->" and not in_arrow:
            wrong = "a second '->'" if arrow and place > len(left) else f"{letter!r} that is not part of '->'"
            raise EquationError(f"the equation has {wrong}\n{caret(text, place)}")
    if "," in right:
        place = text.index(",", len(left))
        raise EquationError(f"the output has a comma, but there is one result\n{caret(text, place)}")
    return left, bool(arrow), right, len(left) + len(arrow)


def _read_subscript(text: str, start: int, subscript: str) -> tuple[Label, ...]:
    """The labels of one subscript, which stands at ``start`` in the equation ``text``."""
    labels: list[Label] = []
    place = 0
    while place < len(subscript):
        letter = subscript[place]
        if letter.isalpha():
            labels.append(letter)
        elif subscript.startswith("...", place):
            if ... in labels:
                raise EquationError(f"a second ellipsis in one subscript\n{caret(text, start + place, 3)}")
            labels.append(...)
            place += 2
        elif letter == ".":
            raise EquationError(f"'.' that is not part of '...'\n{caret(text, start + place)}")
        elif not letter.isspace():
            raise EquationError(
                f"{letter!r} is no label: labels are letters; more than letters can name are given as sublists\n"
                f"{caret(text, start + place)}"
            )
        place += 1
    return tuple(labels)


def _check_output(
    text: str,
    start: int,
    subscript: str,
    inputs: Sequence[tuple[Label, ...]],
    output: tuple[Label, ...],
) -> None:
    known = {label for term in inputs for label in term}
    for label, times in Counter(output).items():
        if label is ...:
            continue
        place = start + subscript.index(str(label))
        if times > 1:
            second = start + subscript.index(str(label), place - start + 1)
            raise EquationError(f"label {label!r} stands twice in the output\n{caret(text, second)}")
        if label not in known:
            raise EquationError(f"label {label!r} of the output stands in no operand's subscript\n{caret(text, place)}")


def _read_sublist(labels: Sequence[Label], where: str) -> tuple[Label, ...]:
    shape = getattr(labels, "shape", None)  # an operand that stands where a sublist is missing has one
    if (
        isinstance(labels, str | bytes | AbstractSet | Mapping)
        or not hasattr(labels, "__iter__")
        or (shape is not None and len(shape) != 1)
    ):
        found = repr(labels) if shape is None else f"an array of shape {tuple(shape)}"
        raise SublistError(
            f"the sublist {where} must be a list or tuple of labels, not {found}; an equation as text comes first, "
            "einsum('ij,jk->ik', a, b); operands and sublists alternate, einsum(a, [0, 1], b, [1, 2], [0, 2])"
        )
    term = tuple(labels)
    for label in term:
        try:
            hash(label)
        except TypeError:
            raise SublistError(f"label {label!r} in the sublist {where} is not hashable") from None
    if term.count(...) > 1:
        raise EquationError(f"a second ellipsis in the sublist {where}: {list(term)!r}")
    return term


def _text(inputs: Sequence[tuple[Label, ...]], output: tuple[Label, ...]) -> str:
    def written(term: tuple[Label, ...]) -> str:
        return "".join("..." if label is ... else str(label) for label in term)

    return f"{','.join(map(written, inputs))}->{written(output)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
