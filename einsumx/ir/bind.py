"""``bind``: number the labels of an equation and find their sizes in the operands' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from operator import index
from typing import Any

from einsumx.errors import SizeError, excerpt, shown
from einsumx.ir.parse import Equation, Label, parse_text, symbol

__all__ = ["EllipsisAxis", "SizedEquation", "bind", "known_sizes", "label_names"]


@dataclass(frozen=True, slots=True)
class EllipsisAxis:
    """The label of one axis of an ellipsis, which equals no label of a user.

    Attributes:
        place: its position among the axes of the longest ellipsis, from the left.
    """

    place: int


@dataclass(frozen=True, slots=True)
class SizedEquation:
    """An equation whose labels are numbers with sizes; the axes of an ellipsis have labels too.

    Attributes:
        text: that of :class:`~einsumx.ir.parse.Equation`.
        inputs: label numbers of each operand, one for each axis.
        output: label numbers of the result.
        sizes: the size of each label. An operand's axis of size 1 broadcasts to it.
        shapes: the operands' shapes.
    """

    text: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.sizes[label] for label in self.output)

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
                f"has shape {tuple(shape)}, where the size of axis {axis} is not known; contractions are planned by "
                "sizes, so compute the array first, or declare its shape"
            ) from None
    return tuple(sizes)


def bind(equation: Equation, shapes: Sequence[tuple[int, ...]]) -> SizedEquation:
    """Number the labels in order of appearance and find their sizes.

    Raises:
        SizeError: a rank does not fit its subscript, or a label has two sizes.

    >>> from einsumx.ir.parse import parse_text
    >>> sized = bind(parse_text("...i,ij->...j", 2), [(7, 2), (2, 3)])
    >>> sized.inputs, sized.output, sized.sizes
    (((0, 1), (1, 2)), (0, 2), (7, 2, 3))
    """
    spans = [
        _ellipsis_span(equation, operand, term, shape)
        for operand, (term, shape) in enumerate(zip(equation.inputs, shapes))
    ]
    span = max(spans, default=0)
    numbers: dict[Label, int] = {}

    def number(label: Label) -> int:
        return numbers.setdefault(label, len(numbers))

    def expanded(term: tuple[Label, ...], axes: int) -> tuple[int, ...]:
        # Ellipsis axes are aligned at the right, as in broadcasting.
        labels: list[int] = []
        for label in term:
            if label is ...:
                labels.extend(number(EllipsisAxis(k)) for k in range(span - axes, span))
            else:
                labels.append(number(label))
        return tuple(labels)

    inputs = tuple(expanded(term, axes) for term, axes in zip(equation.inputs, spans))
    output = expanded(equation.output, span)
    names = {index: label for label, index in numbers.items()}
    sizes = _sizes(equation, inputs, shapes, names)
    return SizedEquation(equation.text, inputs, output, sizes, tuple(shapes))


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


def _ellipsis_span(equation: Equation, operand: int, term: tuple[Label, ...], shape: tuple[int, ...]) -> int:
    """The number of axes of one operand's ellipsis."""
    named = len(term) - (... in term)
    if len(shape) < named or (len(shape) > named and ... not in term):
        axes = "1 axis" if len(shape) == 1 else f"{len(shape)} axes"
        wants = f"{named} label{'' if named == 1 else 's'}" + (" and an ellipsis" if ... in term else "")
        raise SizeError(
            f"operand {operand} has {axes}, shape {shown(shape)}, but its subscript has {wants}\n"
            f"  {excerpt(equation.text)}"
        )
    return len(shape) - named if ... in term else 0


def _sizes(
    equation: Equation,
    inputs: tuple[tuple[int, ...], ...],
    shapes: Sequence[tuple[int, ...]],
    names: dict[int, Label],
) -> tuple[int, ...]:
    sizes = [1] * len(names)
    seen: dict[int, tuple[int, int]] = {}  # the operand and axis that a label's size comes from
    for operand, (term, shape) in enumerate(zip(inputs, shapes)):
        first: dict[int, int] = {}
        for axis, (label, size) in enumerate(zip(term, shape)):
            if label in first and shape[first[label]] != size:
                raise SizeError(
                    f"{_named(names[label])} has size {shape[first[label]]} (axis {first[label]}) and size {size} "
                    f"(axis {axis}) in operand {operand}; a diagonal needs equal sizes\n  {excerpt(equation.text)}"
                )
            first[label] = axis
            if size == 1:
                continue
            if label in seen and sizes[label] != size:
                other, other_axis = seen[label]
                raise SizeError(
                    f"{_named(names[label])} has size {sizes[label]} in operand {other} (axis {other_axis}) "
                    f"but size {size} in operand {operand} (axis {axis})\n  {excerpt(equation.text)}"
                )
            sizes[label] = size
            seen.setdefault(label, (operand, axis))
    return tuple(sizes)


def _named(label: Label) -> str:
    return f"ellipsis axis {label.place}" if isinstance(label, EllipsisAxis) else f"label {shown(label)}"
