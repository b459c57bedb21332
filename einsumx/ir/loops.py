"""The loops of a framework's own einsum, from the order of labels in memory alone.

They are those of NumPy's iterator, which sorts axes by strides and merges axes that are neighbours in all arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

__all__ = ["natural_loops", "outer_loops"]

_Label = TypeVar("_Label")


def natural_loops(
    operands: Sequence[Sequence[_Label]], result: Sequence[_Label]
) -> tuple[list[_Label], list[_Label], bool]:
    """The order of the result's labels for which the loops follow the operands, and :func:`outer_loops` for it.

    Args:
        operands: the labels of each of two in memory order; those that one of them lacks are kept.
        result: the labels of the result, in the order that is preferred where the operands allow any.

    >>> natural_loops(["ac", "abc"], "cb")
    (['b', 'c'], ['a', 'b'], True)
    """
    order = _loop_order(operands, result)
    natural = [label for label in order if label in result]
    return natural, *_outer(order, [*operands, natural])


def outer_loops(operands: Sequence[Sequence[_Label]], result: Sequence[_Label]) -> tuple[list[_Label], bool]:
    """The labels outside of the innermost loop, and whether all arrays are packed along that loop.

    Args:
        operands: the labels of each in memory order.
        result: those of the result.

    >>> outer_loops(["ac", "abc"], "bc"), outer_loops(["abc", "a"], "bc"), outer_loops(["ab", "ba"], "a")
    ((['a', 'b'], True), (['a'], True), (['a'], False))
    """
    arrays = [*operands, result]
    return _outer(_loop_order(arrays, result), arrays)


def _outer(order: list[_Label], arrays: Sequence[Sequence[_Label]]) -> tuple[list[_Label], bool]:
    """As :func:`outer_loops`, for loops in this order."""
    if not order:
        return [], True
    first, is_packed = len(order) - 1, True
    innermost = order[first]
    for array in arrays:
        is_packed = is_packed and (innermost not in array or array[-1] == innermost)
    while first and all(_are_one(array, order[first - 1], order[first]) for array in arrays):
        first -= 1
    return order[:first], is_packed


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
