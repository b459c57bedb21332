"""Memory layouts: strides in elements, which axes merge, the layout class of an operand, and how an axis is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import TypeAlias


def broadcast(lhs: Sequence[int], rhs: Sequence[int]) -> tuple[int, ...]:
    """The shape that two shapes of equal rank broadcast to.

    >>> broadcast((4, 1, 3), (1, 0, 3))
    (4, 0, 3)
    """
    return tuple(right if left == 1 else left for left, right in zip(lhs, rhs))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a C-contiguous array.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an array is C-contiguous.

    >>> is_contiguous((2, 3), (6, 2)), is_contiguous((2, 1), (1, 7))
    (False, True)
    """
    span = 1
    for axis in range(len(shape) - 1, -1, -1):
        size = shape[axis]
        if size != 1:
            if strides[axis] != span:
                return False
            span *= size
    return True


def merged_stride(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of axes read as a single axis, or None if they do not merge without a copy.

    Axes of size 1 always merge. The stride of no axes, or of a single element, is 1.

    >>> merged_stride((2, 3), (12, 4)), merged_stride((3, 2), (4, 12))
    (4, None)
    """
    inner: int | None = None
    span = 0
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size == 1:
            continue
        if inner is None:
            inner = stride
        elif stride != span:
            return None
        span = stride * size
    return 1 if inner is None else inner


def memory_order(strides: Sequence[int]) -> tuple[int, ...]:
    """Axes from the outermost in memory to the innermost; equal strides keep their order.

    >>> memory_order((1, 12, 4))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another one.

    >>> inverse((1, 2, 0))
    (2, 0, 1)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


Pattern: TypeAlias = tuple[tuple[int, int], ...]
"""For each axis from the innermost in memory to the outermost: the axis, and its step. The step is 1 if the axis starts
where the axes inside it end, 2 if there is a gap, negative if the stride is, and 0 if that is 0. Empty for C order."""


def layout_pattern(shape: Sequence[int], strides: Sequence[int] | None) -> Pattern | None:
    """The layout of an array without its sizes; None if elements of two axes overlap, as in a sliding window.

    >>> layout_pattern((4, 5), (700, 1)), layout_pattern((4, 5), (1, 4)), layout_pattern((4, 5), None)
    (((1, 1), (0, 2)), ((0, 1), (1, 1)), ())
    >>> layout_pattern((4, 5), (1, 1))
    """
    pattern = () if strides is None else pattern_of(shape, strides)
    return None if OVERLAPS in [abs(step) for _, step in pattern] else pattern


OVERLAPS = 3
"""The step of an axis whose stride is smaller than the axes inside it, in :func:`pattern_of`."""


def pattern_of(shape: Sequence[int], strides: Sequence[int]) -> Pattern:
    """The layout of an array without its sizes, in which elements of axes may overlap.

    >>> pattern_of((4, 5), (1, 1))
    ((1, 1), (0, 3))
    """
    pattern = []
    span = 1
    for axis in reversed(memory_order(strides)):
        size, stride = shape[axis], strides[axis]
        step = 1
        if size != 1:
            if stride == 0:
                step = 0
            elif abs(stride) < span:
                step, span = OVERLAPS, span + abs(stride) * (size - 1)
            else:
                step = 1 if abs(stride) == span else 2
                span = abs(stride) * size
                step = step if stride > 0 else -step
        pattern.append((axis, step))
    return tuple(pattern)


def pattern_strides(pattern: Pattern, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of this pattern with the smallest gaps; None if they are those of a C-contiguous array.

    >>> pattern_strides(((1, 1), (0, 2)), (4, 5)), pattern_strides(((1, 1), (0, 1)), (4, 5))
    ((6, 1), None)
    """
    if not pattern:
        return None
    result = [0] * len(shape)
    span = 1
    for axis, step in pattern:
        size = shape[axis]
        if size == 1:
            result[axis] = span
        elif step:
            stride = span + 1 if step in (2, -2) else span
            result[axis] = stride if step > 0 else -stride
            span = stride * size
    strides = tuple(result)
    return None if strides == contiguous(shape) else strides


def layout_class(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Strides that represent all layouts with the same plan; None for C-contiguous.

    A class is the order of the axes in memory, which neighbours merge, whether the innermost axis has unit stride, and
    which strides are zero or negative. The sizes of gaps do not matter, so that slices of differently padded arrays
    share a plan.

    >>> layout_class((4, 5), (5, 1)), layout_class((4, 5), (700, 1)), layout_class((4, 5), (33, 1))
    (None, (6, 1), (6, 1))
    """
    if 0 in shape or is_contiguous(shape, strides):
        return None
    pattern = layout_pattern(shape, strides)
    return tuple(strides) if pattern is None else pattern_strides(pattern, shape)


def reshaped(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """The strides after a reshape that is a view, or None if it must copy.

    >>> reshaped((4, 6), (6, 1), (2, 2, 6)), reshaped((4, 6), (1, 4), (24,))
    ((12, 6, 1), None)
    """
    if 0 in shape or 0 in target:
        return contiguous(target)
    result: list[int] = []
    axis = 0
    axes = [(size, stride) for size, stride in zip(shape, strides) if size != 1]
    new = 0
    while new < len(target):
        if target[new] == 1:
            result.append(result[-1] if result else 1)
            new += 1
            continue
        # The shortest run of old axes and the shortest run of new ones with the same number of elements.
        old_end, new_end = axis + 1, new + 1
        if axis >= len(axes):
            return None
        old_count, new_count = axes[axis][0], target[new]
        while old_count != new_count:
            if old_count < new_count:
                if old_end >= len(axes):
                    return None
                old_count *= axes[old_end][0]
                old_end += 1
            else:
                if new_end >= len(target):
                    return None
                new_count *= target[new_end]
                new_end += 1
        stride = merged_stride(*zip(*axes[axis:old_end]))
        if stride is None:
            return None
        tail: list[int] = []
        for size in reversed(target[new:new_end]):
            tail.append(stride)
            stride *= size
        result.extend(reversed(tail))
        axis, new = old_end, new_end
    return tuple(result) if axis == len(axes) else None


def cut(axes: Sequence[int], continues: Callable[[tuple[int, ...], int], bool]) -> list[tuple[int, ...]]:
    """``axes`` as runs; an axis that ``continues`` a run extends it.

    >>> cut((1, 2, 4, 5), lambda run, axis: axis == run[-1] + 1)
    [(1, 2), (4, 5)]
    """
    runs: list[tuple[int, ...]] = []
    for axis in axes:
        if runs and continues(runs[-1], axis):
            runs[-1] = (*runs[-1], axis)
        else:
            runs.append((axis,))
    return runs


def merged_runs(source: Sequence[int], target: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The axes before a transpose from one order to another, as runs of those that stay neighbours, and its axes.

    >>> merged_runs((0, 1, 2, 3), (2, 3, 0, 1))
    (((0, 1), (2, 3)), (1, 0))
    """
    follower = dict(pairwise(source))
    runs = cut(target, lambda run, axis: follower.get(run[-1]) == axis)
    before = sorted(runs, key=lambda run: source.index(run[0]))
    return tuple(before), tuple(map(before.index, runs))


def merged_transpose(
    source: Sequence[int], target: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape before a transpose from one order of axes to another, and its axes, when neighbours are merged.

    Axes that stay neighbours become one. Those of size 1 are left out.

    >>> merged_transpose((0, 1, 2, 3), (2, 3, 0, 1), (4, 5, 6, 7))
    ((20, 42), (1, 0))
    """
    runs, axes = merged_runs(*[[axis for axis in order if sizes[axis] != 1] for order in (source, target)])
    return tuple([prod([sizes[axis] for axis in run]) for run in runs]), axes


def ranges(size: int, count: int) -> list[slice]:
    """``count`` ranges of an axis whose sizes differ by at most one, or fewer if the axis is shorter.

    >>> ranges(7, 3), ranges(1, 3)
    ([slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)], [slice(0, 1, None)])
    """
    count = max(1, min(count, size))
    ends = [size * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]
