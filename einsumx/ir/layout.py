"""Memory layouts: strides in elements, which axes merge, and the layout class of an operand."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["broadcast", "contiguous", "layout_class", "memory_order", "merged_stride", "reshaped"]


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


def layout_class(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Strides that represent all layouts with the same plan; None for C-contiguous.

    A class is the order of the axes in memory, which neighbours merge, whether the innermost axis has unit stride, and
    which strides are zero or negative. The sizes of gaps do not matter, so that slices of differently padded arrays
    share a plan.

    >>> layout_class((4, 5), (5, 1)), layout_class((4, 5), (700, 1)), layout_class((4, 5), (33, 1))
    (None, (6, 1), (6, 1))
    """
    if 0 in shape:
        return None
    result = [0] * len(shape)
    span, actual_span = 1, 1
    for axis in reversed(memory_order(strides)):
        size, stride = shape[axis], strides[axis]
        if size == 1:
            result[axis] = span
            continue
        if stride == 0:
            continue
        if abs(stride) < actual_span:  # axes overlap, as in a sliding window: a class of its own
            return tuple(strides)
        gap = abs(stride) != actual_span
        step = span + 1 if gap else span
        result[axis] = step if stride > 0 else -step
        span, actual_span = step * size, abs(stride) * size
    representative = tuple(result)
    return None if representative == contiguous(shape) else representative


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
