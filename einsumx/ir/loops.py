"""The loops of a framework's own einsum, from the order of labels in memory alone.

They are those of NumPy's iterator, which sorts axes by strides and merges axes that are neighbours in all arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

__all__ = ["natural_order", "outer_loops"]

_Label = TypeVar("_Label")


def natural_order(operands: Sequence[Sequence[_Label]], result: Sequence[_Label]) -> list[_Label]:
    """The order of the result's labels for which the loops follow the operands.

    Args:
        operands: the labels of each in memory order.
        result: the labels of the result, in the order that is preferred where the operands allow any.

    >>> "".join(natural_order(["ac", "abc"], "cb"))
    'bc'
    """
    return [label for label in _loop_order(operands, _all_labels(operands, result)) if label in result]


def outer_loops(operands: Sequence[Sequence[_Label]], result: Sequence[_Label]) -> tuple[list[_Label], bool]:
    """The labels outside of the innermost loop, and whether all arrays are packed along that loop.

    Args:
        operands: the labels of each in memory order.
        result: those of the result.

    >>> outer_loops(["ac", "abc"], "bc"), outer_loops(["abc", "a"], "bc"), outer_loops(["ab", "ba"], "a")
    ((['a', 'b'], True), (['a'], True), (['a'], False))
    """
    arrays = [*operands, result]
    order = _loop_order(arrays, _all_labels(operands, result))
    inner = order[-1:]
    while len(inner) < len(order) and all(_are_one(array, order[-len(inner) - 1], inner[0]) for array in arrays):
        inner.insert(0, order[-len(inner) - 1])
    is_packed = all(array[-1] == inner[-1] for array in arrays if inner and inner[-1] in array)
    return order[: len(order) - len(inner)], is_packed


def _all_labels(operands: Sequence[Sequence[_Label]], result: Sequence[_Label]) -> list[_Label]:
    """The labels of the result, then those that are summed."""
    return list(dict.fromkeys(chain(result, *operands)))


def _loop_order(arrays: Sequence[Sequence[_Label]], labels: Sequence[_Label]) -> list[_Label]:
    """Labels from the outermost loop to the innermost: an insertion sort from the last label to the first.

    A label goes inside of another if all arrays with both have it inside.
    """
    order: list[_Label] = []  # from the innermost
    for label in reversed(labels):
        at = len(order)
        for index in range(len(order) - 1, -1, -1):
            other, is_inside, is_outside = order[index], False, False
            for array in arrays:
                if label in array and other in array:
                    is_inside = is_inside or array.index(label) > array.index(other)
                    is_outside = is_outside or array.index(label) < array.index(other)
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
