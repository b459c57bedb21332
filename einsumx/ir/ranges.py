"""How an axis is cut into blocks."""

from __future__ import annotations

from itertools import pairwise

__all__ = ["ranges"]


def ranges(size: int, count: int) -> list[slice]:
    """``count`` ranges of an axis whose sizes differ by at most one, or fewer if the axis is shorter.

    >>> ranges(7, 3), ranges(1, 3)
    ([slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)], [slice(0, 1, None)])
    """
    count = max(1, min(count, size))
    ends = [size * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]
