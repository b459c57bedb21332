"""The loops of a framework's own einsum, from the order of labels in memory alone.

They are those of NumPy's iterator, which sorts axes by strides and merges axes that are neighbours in all arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Generic, TypeVar

_Label = TypeVar("_Label")


class Loops(Generic[_Label]):
    """The loops around the innermost one. Labels that are neighbours in all arrays are one loop.

    Args:
        order: labels from the outermost loop to the innermost.
        arrays: the labels of the operands and of the result, which is the last, in memory order.

    Attributes:
        outer: their labels.
        filled: those around the two innermost loops if only one of these sums: NumPy's iterator then fills its buffers
            for each element of them. Otherwise empty, as it fills them rarely.
        count: how many loops these are.
        is_packed: all arrays are packed along the innermost one.

    >>> loops = Loops("abcd", ["abd", "bcd", "ac"])
    >>> loops.outer, loops.filled, loops.count, loops.is_packed
    ('abc', 'ab', 3, True)
    """

    __slots__ = ("count", "filled", "is_packed", "outer")

    def __init__(self, order: Sequence[_Label], arrays: Sequence[Sequence[_Label]]) -> None:
        ends = [
            place
            for place in range(1, len(order))
            if not all(_are_one(array, order[place - 1], order[place]) for array in arrays)
        ]
        end = ends[-1] if ends else 0
        kept = arrays[-1]
        is_one_sum = end > 0 and (order[end - 1] in kept) != (order[end] in kept)
        self.count = len(ends)
        self.outer = order[:end]
        self.filled = order[: ends[-2] if is_one_sum and len(ends) > 1 else 0]
        self.is_packed = all(order[-1] not in array or array[-1] == order[-1] for array in arrays if array)


def natural_order(operands: Sequence[Sequence[_Label]], result: Sequence[_Label]) -> tuple[list[_Label], list[_Label]]:
    """The order of the result's labels for which the loops follow the operands, and these loops.

    Args:
        operands: the labels of each of two in memory order; those that one of them lacks are kept.
        result: the labels of the result, in the order that is preferred where the operands allow any.

    >>> natural_order(["ac", "abc"], "cb")
    (['b', 'c'], ['a', 'b', 'c'])
    """
    order = _loop_order(operands, result)
    return [label for label in order if label in result], order


def outer_loops(operands: Sequence[Sequence[_Label]], result: Sequence[_Label]) -> Loops[_Label]:
    """The loops around the innermost one.

    Args:
        operands: the labels of each in memory order.
        result: those of the result.

    >>> [outer_loops(*arrays).outer for arrays in ((["ac", "abc"], "bc"), (["abc", "a"], "bc"), (["ab", "ba"], "a"))]
    [['a', 'b'], ['a'], ['a']]
    """
    arrays = [*operands, result]
    return Loops(_loop_order(arrays, result), arrays)


def _loop_order(arrays: Sequence[Sequence[_Label]], preferred: Sequence[_Label]) -> list[_Label]:
    """Labels from the outermost loop to the innermost: an insertion sort from the last label to the first.

    A label goes inside of another if all arrays with both have it inside. The labels of ``preferred`` come first.
    """
    places = [dict(zip(array, range(len(array)))) for array in arrays]
    order: list[_Label] = []  # from the innermost
    for label in reversed(dict.fromkeys(chain(preferred, *arrays))):
        own = [(place, place[label]) for place in places if label in place]
        at = len(order)
        for index in range(at - 1, -1, -1):
            is_inside = is_outside = False
            for place, mine in own:
                other = place.get(order[index], mine)
                is_inside = is_inside or mine > other
                is_outside = is_outside or mine < other
            if is_outside:
                break
            if is_inside:
                at = index
        order.insert(at, label)
    return order[::-1]


def _are_one(array: Sequence[_Label], outer: _Label, inner: _Label) -> bool:
    """Whether two labels are neighbours in an array, or it lacks both."""
    if outer not in array or inner not in array:
        return outer not in array and inner not in array
    return array.index(inner) == array.index(outer) + 1
