"""What TensorFlow has kernels for, and how to sum and multiply where it has none for the axes, without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import prod

Axes = tuple[int, ...]

MOST_SLICED = 8
"""The most axes that TensorFlow slices."""

_MOST_BROADCAST = 5
"""The most axes of a product with broadcasting, after adjacent axes that broadcast alike have been merged."""

_MOST_SUMMED = 3
"""The most axes of an array that TensorFlow sums without transposing it, after adjacent axes have been merged."""


def sum_passes(axes: Axes, shape: Axes) -> tuple[Axes, ...]:
    """The axes to sum in each pass; all sums but the last keep their axes, with size 1.

    >>> sum_passes((0, 2), (5, 6, 7))
    ((0, 2),)
    >>> sum_passes((0, 2), (5, 6, 7, 8))
    ((2,), (0, 2))
    """
    places = [axis for axis, size in enumerate(shape) if size != 1]
    runs = [(summed, tuple(run)) for summed, run in groupby(places, lambda axis: axis in axes)]
    if len(runs) <= _MOST_SUMMED:
        return (axes,)
    first, *others = sorted([run for summed, run in runs if summed], key=lambda run: -prod(shape[axis] for axis in run))
    *between, last = others
    ones = tuple([axis for axis in axes if axis not in last])
    return (first, *between, tuple(sorted((*last, *ones))))


def is_wide_broadcast(left: Axes, right: Axes) -> bool:
    """Whether a product of arrays of these shapes broadcasts in more groups of axes than TensorFlow does.

    >>> is_wide_broadcast((2, 1, 2, 1), (1, 2, 1, 2)), is_wide_broadcast((2, 1) * 3, (1, 2) * 3)
    (False, True)
    """
    return len([*groupby(_kinds(left, right))]) > _MOST_BROADCAST


@dataclass(frozen=True)
class Groups:
    """A product whose axes are those of both sides, then of the left, then of the right one.

    Attributes:
        counts: the numbers of axes of these groups.
        order: the axes of such a product, out of those of the operands; of a transpose of both operands.
        left, right: the shapes of the operands with one axis for each of the three groups.
        shape: of the product, with all axes.
        back: of the transpose that puts the product in order.
    """

    counts: Axes
    order: Axes
    left: Axes
    right: Axes
    shape: Axes
    back: Axes


def grouped(left: Axes, right: Axes) -> Groups:
    """How to multiply two arrays with three groups of axes; the one with fewer axes gets axes of size 1 in front.

    >>> grouped((2, 1, 4), (1, 3, 4))
    Groups(counts=(1, 1, 1), order=(2, 0, 1), left=(4, 2, 1), right=(4, 1, 3), shape=(4, 2, 3), back=(1, 2, 0))
    """
    left, right = _padded(left, right)
    kinds = _kinds(left, right)
    places = [[axis for axis, each in enumerate(kinds) if each == name] for name in ("both", "left", "right")]
    order = tuple([axis for group in places for axis in group])
    both, of_left, of_right = [tuple(max(left[axis], right[axis]) for axis in group) for group in places]
    return Groups(
        tuple(map(len, places)),
        order,
        (prod(both), prod(of_left), 1),
        (prod(both), 1, prod(of_right)),
        (*both, *of_left, *of_right),
        tuple([order.index(axis) for axis in range(len(order))]),
    )


def _kinds(left: Axes, right: Axes) -> list[str]:
    """Which side has each axis; axes of size 1 go with the one before."""
    kinds: list[str] = []
    for one, other in zip(*_padded(left, right)):
        if one == other == 1:
            kinds.append(kinds[-1] if kinds else "both")
        else:
            kinds.append("both" if one == other else "right" if one == 1 else "left")
    return kinds


def _padded(*shapes: Axes) -> list[Axes]:
    """The shapes with axes of size 1 in front, up to one rank."""
    rank = max(map(len, shapes))
    return [(*[1] * (rank - len(shape)), *shape) for shape in shapes]
