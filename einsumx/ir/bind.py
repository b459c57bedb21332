"""``bind``: number the labels of an equation and find their sizes in the operands' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from operator import index
from typing import Any, NamedTuple, NoReturn

from einsumx.errors import SizeError, counted, excerpt, shown
from einsumx.ir.parse import SYMBOLS, Equation, Label, parse_text, symbol
from einsumx.ir.records import record
from einsumx.ir.sizes import UNKNOWN, Unknown


@record
class EllipsisAxis:
    """The label of one axis of an ellipsis, which equals no label of a user.

    Attributes:
        place: its position among the axes of the longest ellipsis, from the left.
    """

    place: int


class SizedEquation(NamedTuple):
    """An equation whose labels are numbers with sizes; the axes of an ellipsis have labels too.

    Attributes:
        text, named: those of :class:`~einsumx.ir.parse.Equation`.
        inputs: label numbers of each operand, one for each axis.
        output: label numbers of the result.
        sizes: the size of each label. An operand's axis of size 1 broadcasts to it.
        shapes: the operands' shapes. An axis of unknown size has the size of its label.
    """

    text: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    named: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(map(self.sizes.__getitem__, self.output))

    @property
    def is_rearrangement(self) -> bool:
        """Whether nothing is multiplied, and only axes of size 1 are summed."""
        summed = set(self.inputs[0]).difference(self.output)
        return len(self.inputs) == 1 and all(self.sizes[label] == 1 for label in summed)

    def carried(self, operand: int) -> tuple[int, ...]:
        """The labels of an operand's axes, without those of size 1 that broadcast."""
        axes = zip(self.inputs[operand], self.shapes[operand])
        return tuple([label for label, size in axes if size == self.sizes[label]])


def known_sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """The sizes of an array whose shape may be symbolic.

    Raises:
        SizeError: a size is unknown; the message continues the name of the array.

    >>> known_sizes((2, 3))
    (2, 3)
    """
    sizes = []
    for axis, size in enumerate(shape):
        try:
            sizes.append(index(size))
        except TypeError:
            raise SizeError(
                f"has shape {tuple(shape)}, where the size of axis {axis} is not known, and einsumx plans by sizes; "
                "compute the array first, or declare its shape"
            ) from None
    return tuple(sizes)


def planned_sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """The shape of an array for its signature: sizes that are no numbers, such as None or symbols, are unknown.

    >>> planned_sizes((2, None))
    (2, ?)
    """
    return tuple([_known_or_not(size) for size in shape])


def _known_or_not(size: Any) -> int:
    try:
        return size if type(size) is int else index(size)
    except TypeError:
        return UNKNOWN


def bind(equation: Equation, shapes: Sequence[tuple[int, ...]]) -> SizedEquation:
    """Number the labels in order of appearance and find their sizes.

    An axis of unknown size has the size of its label in other operands, if that is known. It does not broadcast: a
    label has an unknown size if all axes with it are of unknown size or of size 1. These sizes are named after labels.

    Raises:
        SizeError: a rank does not fit its subscript, or a label has two sizes.

    >>> from einsumx.ir.parse import parse_text
    >>> sized = bind(parse_text("...i,ij->...j", 2), [(7, 2), (2, 3)])
    >>> sized.inputs, sized.output, sized.sizes
    (((0, 1), (1, 2)), (0, 2), (7, 2, 3))
    >>> bind(parse_text("ij,jk->ik", 2), [(UNKNOWN, UNKNOWN), (2, UNKNOWN)]).shapes
    ((i, 2), (2, k))
    """
    found = numbered(equation, tuple([len(shape) for shape in shapes]))
    if found.inputs and Unknown in map(type, chain.from_iterable(shapes)):
        ones = (1,) * len(found.labels)
        shapes = _unified(SizedEquation(equation.text, found.inputs, found.output, ones, tuple(shapes)))
    sized = with_shapes(found, tuple(shapes))
    if sized is None:
        _raise_size_error(equation, shapes)
    return sized


class NumberedEquation(NamedTuple):
    """An equation whose labels are numbers, for operands of known ranks.

    Attributes:
        text, named: those of :class:`~einsumx.ir.parse.Equation`.
        inputs: label numbers of each operand; there are no operands if a rank does not fit.
        output: label numbers of the result.
        labels: the label of each number.
    """

    text: str
    named: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    labels: tuple[Label, ...]


def with_shapes(equation: NumberedEquation, shapes: tuple[tuple[int, ...], ...]) -> SizedEquation | None:
    """The equation with the sizes in the operands' shapes; None if they do not fit."""
    text, named, inputs, output, labels = equation
    sizes = _sizes(inputs, shapes, len(labels)) if inputs else None
    return None if sizes is None else SizedEquation(text, inputs, output, sizes, shapes, named)


_OTHER = NumberedEquation("", "", (), (), ())
"""An equation that is not of the plain form, or does not fit the ranks."""


def listed(inputs: Sequence[Sequence[Any]], output: Sequence[Any] | None) -> NumberedEquation:
    """The numbered equation of sublists of integers with an output; one without operands for others.

    >>> listed([(7, 3), (3, 9)], (9, 7)).text
    'ab,bc->ca'
    """
    numbers = dict(zip(dict.fromkeys(chain(*inputs)), count()))
    if output is None or set(map(type, chain(numbers, output))) != {int} or len(numbers) > len(SYMBOLS):
        return _OTHER
    if len(set(output)) < len(output) or not numbers.keys() >= set(output):
        return _OTHER
    number = numbers.__getitem__
    terms = tuple([tuple(map(number, labels)) for labels in inputs])
    letters = ["".join(map(SYMBOLS.__getitem__, labels)) for labels in terms]
    result = tuple(map(number, output))
    text = f"{','.join(letters)}->{''.join(map(SYMBOLS.__getitem__, result))}"
    return NumberedEquation(text, text, terms, result, tuple(numbers))


_LETTERS = "".join(SYMBOLS[:52])


def in_order(text: str) -> str:
    """An equation of ASCII letters and an output, with letters from a on in order of appearance; empty for others.

    >>> in_order("ij,kj->ik"), in_order("ij,kj")
    ('ab,cb->ac', '')
    """
    left, arrow, right = text.partition("->")
    letters = "".join(dict.fromkeys(left)).replace(",", "")
    if not (arrow and letters.isalpha() and text.isascii() and set(letters).issuperset(right)):
        return ""
    return text.translate(str.maketrans(letters, _LETTERS[: len(letters)]))


def lettered(text: str) -> NumberedEquation:
    """The numbered equation of ASCII letters; one without operands for others.

    >>> lettered("ij,kj->ik").inputs, lettered("ba").text
    (((0, 1), (2, 1)), 'ba->ab')
    """
    # Loops and few functions: a first call finds each function that it enters outside of the processor's caches.
    left, arrow, right = text.partition("->")
    numbers: dict[str, int] = {}
    inputs = []
    for term in left.split(","):
        labels = []
        for letter in term:
            if letter not in numbers:
                numbers[letter] = len(numbers)
            labels.append(numbers[letter])
        inputs.append(tuple(labels))
    if not arrow:
        right = "".join(sorted([letter for letter in numbers if left.count(letter) == 1]))
        text = f"{left}->{right}"
    output = []
    for letter in right:
        if letter not in numbers or numbers[letter] in output:
            return _OTHER
        output.append(numbers[letter])
    if not (text.isascii() and "".join(numbers).isalpha()):
        return _OTHER
    return NumberedEquation(text, text, tuple(inputs), tuple(output), tuple(numbers))


def numbered(equation: Equation, ranks: tuple[int, ...]) -> NumberedEquation:
    """Number the labels of an equation, and of the axes of its ellipsis, in order of appearance.

    >>> from einsumx.ir.parse import parse_text
    >>> numbered(parse_text("...i,ij->...j", 2), (2, 2)).labels
    (EllipsisAxis(place=0), 'i', 'j')
    """
    spans = [_ellipsis_span(term, rank) for term, rank in zip(equation.inputs, ranks)]
    if None in spans:
        return _OTHER
    span = max(filter(None, spans), default=0)
    numbers: dict[Label, int] = {}

    def expanded(term: tuple[Label, ...], axes: int | None) -> tuple[int, ...]:
        # Ellipsis axes are aligned at the right, as in broadcasting.
        labels: list[Label] = []
        for label in term:
            labels += [label] if label is not ... else map(EllipsisAxis, range(span - (axes or 0), span))
        return tuple([numbers.setdefault(label, len(numbers)) for label in labels])

    inputs = tuple([expanded(term, axes) for term, axes in zip(equation.inputs, spans)])
    output = expanded(equation.output, span)
    return NumberedEquation(equation.text, equation.named, inputs, output, tuple(numbers))


def _ellipsis_span(term: tuple[Label, ...], rank: int) -> int | None:
    """The number of axes of one operand's ellipsis; None if the rank does not fit the subscript."""
    span = rank - len(term)
    if ... in term:
        span += 1
        return span if span >= 0 else None
    return 0 if span == 0 else None


def _sizes(
    inputs: tuple[tuple[int, ...], ...], shapes: Sequence[tuple[int, ...]], count: int
) -> tuple[int, ...] | None:
    """The size of each label, None if they do not fit; a size of 1 broadcasts, except along a diagonal."""
    sizes = [1] * count
    for labels, shape in zip(inputs, shapes):
        if len(labels) != len(shape):
            return None
        for label, size in zip(labels, shape):
            if size != 1:
                if sizes[label] != size and sizes[label] != 1:
                    return None
                sizes[label] = size
        if len(set(labels)) < len(labels):
            own = dict(zip(labels, shape))
            if any(own[label] != size for label, size in zip(labels, shape)):
                return None
    return tuple(sizes)


def _unified(equation: SizedEquation) -> tuple[tuple[int, ...], ...]:
    """The shapes with each unknown size replaced by that of its label, or by its name."""
    sizes: list[int] = [Unknown(name) for name in label_names(equation)]
    for labels, shape in zip(equation.inputs, equation.shapes):
        for label, size in zip(labels, shape):
            if isinstance(sizes[label], Unknown) and not isinstance(size, Unknown) and size != 1:
                sizes[label] = size
    shapes = []
    for labels, shape in zip(equation.inputs, equation.shapes):
        # Both axes of a diagonal have one size, even if that is 1.
        own = {label: size for label, size in zip(labels, shape) if not isinstance(size, Unknown)}
        shapes.append(tuple([
            own.get(label, sizes[label]) if isinstance(size, Unknown) else size for label, size in zip(labels, shape)
        ]))  # fmt: skip
    return tuple(shapes)


def label_names(equation: SizedEquation) -> tuple[str, ...]:
    """The letter of each label in the equation; axes of an ellipsis get unused letters.

    >>> from einsumx.ir.parse import parse_text
    >>> label_names(bind(parse_text("...i,ij->...j", 2), [(7, 2), (2, 3)]))
    ('a', 'i', 'j')
    """
    written = parse_text(equation.text, len(equation.inputs))
    names: dict[int, str] = {}
    for term, labels in zip((*written.inputs, written.output), (*equation.inputs, equation.output)):
        own = list(labels)
        if ... in term:
            at = term.index(...)
            del own[at : at + len(labels) - len(term) + 1]
        names.update(zip(own, (str(label) for label in term if label is not ...)))
    taken = set(names.values())
    free = (letter for letter in map(symbol, count()) if letter not in taken)
    return tuple([names[label] if label in names else next(free) for label in range(len(equation.sizes))])


def _raise_size_error(equation: Equation, shapes: Sequence[tuple[int, ...]]) -> NoReturn:
    for operand, (term, shape) in enumerate(zip(equation.inputs, shapes)):
        _check_rank(equation, operand, term, shape)
    _, _, inputs, _, labels = numbered(equation, tuple([len(shape) for shape in shapes]))
    sizes = [1] * len(labels)
    seen: dict[int, tuple[int, int]] = {}  # the operand and axis that a label's size comes from
    for operand, (numbers, shape) in enumerate(zip(inputs, shapes)):
        first: dict[int, int] = {}
        for axis, (number, size) in enumerate(zip(numbers, shape)):
            if number in first and shape[first[number]] != size:
                raise SizeError(
                    f"{_named(labels[number])} has size {shape[first[number]]} (axis {first[number]}) and size {size} "
                    f"(axis {axis}) in operand {operand}; a diagonal needs equal sizes\n  {excerpt(equation.named)}"
                )
            first[number] = axis
            if size == 1:
                continue
            if number in seen and sizes[number] != size:
                other, other_axis = seen[number]
                raise SizeError(
                    f"{_named(labels[number])} has size {sizes[number]} in operand {other} (axis {other_axis}) "
                    f"but size {size} in operand {operand} (axis {axis})\n  {excerpt(equation.named)}"
                )
            sizes[number] = size
            seen.setdefault(number, (operand, axis))
    raise AssertionError(equation.text)


def _check_rank(equation: Equation, operand: int, term: tuple[Label, ...], shape: tuple[int, ...]) -> None:
    """Raise SizeError if an operand's rank does not fit its subscript."""
    if _ellipsis_span(term, len(shape)) is None:
        named = len(term) - (... in term)
        axes = counted(len(shape), "axis", "axes")
        wants = counted(named, "label") + (" and an ellipsis" if ... in term else "")
        is_row = len(term) == 1 and isinstance(term[0], str) and 1 < len(term[0]) == len(shape)
        hint = f"; {shown(term[0])} is one label" if is_row else ""
        raise SizeError(
            f"operand {operand} has {axes}, shape {shown(shape)}, but its subscript has {wants}{hint}\n"
            f"  {excerpt(equation.named)}"
        )


def _named(label: Label) -> str:
    return f"ellipsis axis {label.place}" if isinstance(label, EllipsisAxis) else f"label {shown(label)}"
