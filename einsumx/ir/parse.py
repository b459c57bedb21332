"""``parse``: read an equation, as text, sublists or names, into labels of the operands and the output."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import chain
from itertools import count as counting
from typing import Any, TypeAlias

from einsumx.errors import REFUSALS, EquationError, SublistError, caret, counted, excerpt, shown
from einsumx.ir.records import record
from einsumx.scalars import as_python

Label: TypeAlias = Hashable
"""A character in text form, any hashable in sublists; ``Ellipsis`` stands for any number of axes."""

_FIRST = "\u00c0"
"""Every character from this one on is a label, letter or not."""


@record
class Equation:
    """The labels of an equation, before any shape is known.

    Attributes:
        text: the equation in text form with an explicit output; sublist labels are written as letters.
        inputs: the labels of each operand, with an ``Ellipsis`` if the equation has one.
        output: the labels of the result, in the same form.
    """

    text: str
    inputs: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]

    @property
    def named(self) -> str:
        """The equation for messages: in the user's names, if each label is one, otherwise the text.

        >>> parse_sublists([["row", "k"], ["k"]], ["row"]).named
        'row k, k -> row'
        """
        labels = {label for term in self.inputs for label in term if label is not ...}
        if not _are_names(labels) or all(len(str(label)) == 1 for label in labels):
            return self.text

        def written(term: tuple[Label, ...]) -> str:
            return " ".join(["..." if label is ... else str(label) for label in term])

        return f"{', '.join(map(written, self.inputs))} -> {written(self.output)}".rstrip()


def symbol(index: int) -> str:
    """The character for label number ``index``: a-z, A-Z, then those from U+00C0 on, without the surrogates.

    >>> symbol(0), symbol(26), symbol(52), symbol(75)
    ('a', 'A', 'À', '×')

    Raises:
        EquationError: there are no more characters.
    """
    if index < 26:
        return chr(ord("a") + index)
    if index < 52:
        return chr(ord("A") + index - 26)
    point = ord(_FIRST) + index - 52
    point += 0x800 * (point >= 0xD800)  # surrogates end at 0xDFFF
    if point > sys.maxunicode:
        raise EquationError(f"an equation has at most {index} labels, as there are no more characters")
    return chr(point)


def diagonal_equation(rank: int, axis1: int, axis2: int) -> str:
    """The equation of the diagonal of two axes, which becomes the last axis.

    >>> diagonal_equation(4, 0, 2)
    'abad->bda'
    """
    labels = list(map(symbol, range(rank)))
    labels[axis2] = labels[axis1]
    kept = [label for label in labels if label != labels[axis1]]
    return f"{''.join(labels)}->{''.join(kept)}{labels[axis1]}"


SYMBOLS = (*map(symbol, range(52)), *map(chr, range(ord(_FIRST), ord(_FIRST) + 972)))
"""The characters of the first labels."""


def parse_text(text: str, count: int) -> Equation:
    """Read an equation such as ``"ij,jk->ik"`` for ``count`` operands.

    Raises:
        EquationError: with a caret under the error.

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
        hint = misread(text)
        if count == 1:
            hint = hint or "; each array is an operand of its own: einsum(equation, *arrays)"
        elif any(len(subscript.split()) > 1 for subscript in left.split(",")):
            hint = hint or "; commas separate subscripts, and blanks mean nothing"
        raise EquationError(
            f"the equation has {counted(len(inputs), 'subscript')} but {counted(count, 'operand')} "
            f"{'was' if count == 1 else 'were'} given{hint}\n  {excerpt(text)}"
        )
    output = _read_subscript(text, right_start, right) if arrow else implicit_output(inputs)
    if arrow:
        _check_output(text, right_start, right, inputs, output)
    return Equation(_text(inputs, output), tuple(inputs), output)


def parse_sublists(inputs: Sequence[Sequence[Label]], output: Sequence[Label] | None) -> Equation:
    """Read the form ``einsum(a, [0, 1], b, [1, 2], [0, 2])``; labels are any hashables.

    Raises:
        SublistError: a sublist is not a list of labels, or a label is not hashable.
        EquationError: a second ellipsis, or an invalid output.

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
                raise EquationError(f"label {shown(label)} appears twice in the output sublist {shown(list(result))}")
            if label not in known and label is not ...:
                raise EquationError(
                    f"label {shown(label)} of the output sublist {shown(list(result))} appears in no operand's sublist"
                )
    letters = _letters(dict.fromkeys(label for term in terms for label in term if label is not ...))
    text = _text(
        [tuple(letters[label] for label in term) for term in terms],
        tuple(letters[label] for label in result),
    )
    return Equation(text, tuple(terms), result)


def _letters(labels: Mapping[Label, None]) -> dict[Label, str]:
    """The text for each label: one of its own letters if all labels are names, otherwise the symbols in turn.

    >>> _letters(dict.fromkeys(["batch", "bias", "b", "B"]))
    {Ellipsis: '...', 'b': 'b', 'B': 'B', 'bias': 'i', 'batch': 'a'}
    """
    letters: dict[Label, str] = {...: "..."}
    if not _are_names(labels):
        return letters | {label: symbol(number) for number, label in enumerate(labels)}
    taken: set[str] = set()
    for name in sorted(map(str, labels), key=len):
        own = [letter for letter in name if letter.isalpha()]
        letters[name] = next(letter for letter in chain(own, map(symbol, counting())) if letter not in taken)
        taken.add(letters[name])
    return letters


def _are_names(labels: Iterable[Label]) -> bool:
    return all(isinstance(label, str) and label.isidentifier() for label in labels)


def parse_names(text: str, count: int) -> tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...]]:
    """Read names, as in ``einsum(x, w, "batch d, d out -> batch out")``, into the sublists of ``count`` operands.

    Names are separated by blanks, as in einops; ``->`` is required.

    Raises:
        EquationError: with a caret under the error.

    >>> parse_names("batch d, d out -> batch out", 2)
    ((('batch', 'd'), ('d', 'out')), ('batch', 'out'))
    """
    left, _, _, right_start = _split_arrow(text)
    inputs: list[tuple[Label, ...]] = []
    start = 0
    for subscript in left.split(","):
        inputs.append(_read_names(text, start, start + len(subscript)))
        start += len(subscript) + 1
    hint = ""
    if all(len(term) == 1 for term in inputs):
        hint = f"; blanks separate names, and an equation of letters comes first: einsum({shown(text)}, ...)"
    if len(inputs) != count:
        raise EquationError(
            f"the names are those of {counted(len(inputs), 'operand')}, but {counted(count, 'operand')} "
            f"{'was' if count == 1 else 'were'} given{hint}\n  {excerpt(text)}"
        )
    output = _read_names(text, right_start, len(text))
    known = {label for term in inputs for label in term}
    for place, word in enumerate(_WORD.finditer(text, right_start)):
        label = output[place]
        if label in output[:place]:
            raise EquationError(
                f"name {shown(label)} appears twice in the output{hint}\n{caret(text, word.start(), len(word[0]))}"
            )
        if label is not ... and label not in known:
            raise EquationError(
                f"name {shown(label)} of the output appears in no "
                f"operand{hint}\n{caret(text, word.start(), len(word[0]))}"
            )
    return tuple(inputs), output


_WORD = re.compile(r"\S+")


def _read_names(text: str, start: int, end: int) -> tuple[Label, ...]:
    """The names between two places of ``text``."""
    labels: list[Label] = []
    for word in _WORD.finditer(text, start, end):
        label = ... if word[0] == "..." else word[0]
        if label is ... and ... in labels:
            raise EquationError(f"a second ellipsis in one operand\n{caret(text, word.start(), 3)}")
        if label is not ... and not word[0].isidentifier():
            raise EquationError(
                f"{shown(word[0])} is not a name: a text after the operands has names, such as 'batch', with blanks "
                f"between them, and no brackets or numbers\n{caret(text, word.start(), len(word[0]))}"
            )
        labels.append(label)
    return tuple(labels)


def implicit_output(inputs: Sequence[tuple[Label, ...]]) -> tuple[Label, ...]:
    """The output of an equation without ``->``: the ellipsis, then the labels that appear once, sorted.

    Labels that cannot be compared stay in order of appearance.
    """
    times = Counter(label for term in inputs for label in term)
    once: list[Any] = [label for label in times if times[label] == 1 and label is not ...]
    with suppress(*REFUSALS):  # labels without an order
        once = sorted(once)
    return (..., *once) if ... in times else tuple(once)


_MEANT = {"→": "->", "⟶": "->", "⇒": "->", "…": "...", "×": ",", "，": ",", "、": ",", "；": ",", "－": "-"}
"""Labels that look like syntax, and that syntax."""


def misread(text: str) -> str:
    """A hint at a likely mistake in an equation, to end an error message; often empty.

    >>> misread("ij,jk→ik")
    "; '→' is a label, as every character from U+00C0 on is: write '->'"
    """
    labels = {letter for letter in text if letter >= _FIRST} if not text.isascii() else set()
    looks = [letter for letter in text if letter in _MEANT]
    if looks and labels <= set(_MEANT):
        return f"; {looks[0]!r} is a label, as every character from U+00C0 on is: write {_MEANT[looks[0]]!r}"
    words = re.search(r"(?<![A-Za-z])[A-Za-z]{3,}[ \t]+[A-Za-z]{3,}", text)
    if words is None:
        return ""
    first, second = words[0].split()
    return (
        "; blanks mean nothing, and each letter is a label: a text of names comes after the operands, "
        f"einsum(a, ..., '{first} {second}, ... -> ...')"
    )


def _split_arrow(text: str) -> tuple[str, bool, str, int]:
    """The parts before and after ``->``, whether there is one, and where the second part starts."""
    left, arrow, right = text.partition("->")
    if text.count("-") + text.count(">") > len(arrow):
        arrows = (len(left), len(left) + 1) if arrow else ()
        place = next(place for place, letter in enumerate(text) if letter in "->" and place not in arrows)
        stray = f"{text[place]!r} that is not part of '->'"
        wrong = "a second '->'" if text.startswith("->", place) else stray
        raise EquationError(f"the equation has {wrong}\n{caret(text, place)}")
    if "," in right:
        place = text.index(",", len(left))
        raise EquationError(f"the output has a comma, but there is only one result\n{caret(text, place)}")
    return left, bool(arrow), right, len(left) + len(arrow)


_IN_LISTS = "numbers and names are labels in lists, einsum(a, ['row', 1], b, [1, 'column'])"

_INSTEAD = {
    **dict.fromkeys(";|*+&/", "commas separate subscripts"),
    **dict.fromkeys("=~:", "'->' stands before the output's"),
    **dict.fromkeys("()[]{}<", "subscripts stand without brackets"),
    **dict.fromkeys("'\"`", "an equation has no quotes in it"),
}
"""Advice about a character that is not a label."""


def _read_subscript(text: str, start: int, subscript: str) -> tuple[Label, ...]:
    """The labels of the subscript at ``start`` in the equation ``text``."""
    if subscript.isalpha():
        return tuple(subscript)
    labels: list[Label] = []
    place = 0
    while place < len(subscript):
        letter = subscript[place]
        if letter >= _FIRST or letter.isalpha():
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
                f"{shown(letter)} is not a label: labels are letters; "
                f"{_INSTEAD.get(letter, _IN_LISTS)}\n{caret(text, start + place)}"
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
        if label is ... or (times == 1 and label in known):
            continue
        place = start + subscript.index(str(label))
        if times > 1:
            second = start + subscript.index(str(label), place - start + 1)
            raise EquationError(
                f"label {shown(label)} appears twice in the output{misread(text)}\n{caret(text, second)}"
            )
        raise EquationError(
            f"label {shown(label)} of the output appears in no operand's subscript{misread(text)}\n{caret(text, place)}"
        )


def _read_sublist(labels: Sequence[Label], where: str) -> tuple[Label, ...]:
    shape = getattr(labels, "shape", None)  # that of an operand in the place of a missing sublist
    if type(labels) not in (list, tuple) and (
        isinstance(labels, str | bytes | AbstractSet | Mapping)
        or not hasattr(labels, "__iter__")
        or (shape is not None and len(shape) != 1)
    ):
        value = shown(labels) if shape is None else f"an array of shape {shown(tuple(shape))}"
        raise SublistError(
            f"the sublist {where} must be a list or tuple of labels, not {value}; an equation as text comes first, "
            "einsum('ij,jk->ik', a, b), or last with names and '->', einsum(a, b, 'row k, k column -> row column'); "
            "operands and sublists alternate, einsum(a, [0, 1], b, [1, 2], [0, 2])"
        )
    term = tuple(map(as_python, labels))
    if not _SIMPLE.issuperset(map(type, term)):
        for label in term:
            _check_label(label, where)
    if term.count(...) > 1:
        raise EquationError(f"a second ellipsis in the sublist {where}: {shown(list(term))}")
    return term


_SIMPLE = frozenset([int, str, type(...)])
"""The types of labels that need no check."""


def _check_label(label: Label, where: str) -> None:
    """Raise SublistError unless a label is hashable and equal to itself."""
    try:
        hash(label)
    except REFUSALS:  # of a class of the user's
        raise SublistError(
            f"label {shown(label)} in the sublist {where} is not hashable; use a number, a text or a tuple"
        ) from None
    try:
        is_itself = as_python(label == label) is True  # nan is not, and for tensors it is a tensor
    except REFUSALS:
        is_itself = False
    if not is_itself:
        raise SublistError(
            f"label {shown(label)} in the sublist {where} is not equal to itself; use a number, a text or a tuple"
        )


def _text(inputs: Sequence[tuple[Label, ...]], output: tuple[Label, ...]) -> str:
    def written(term: tuple[Label, ...]) -> str:
        return "".join(["..." if label is ... else str(label) for label in term])

    return f"{','.join(map(written, inputs))}->{written(output)}"
