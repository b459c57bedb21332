"""Parts of arrays, and where the blocks of a contraction are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, TypeAlias

from einsumx.blocked.cost import Blocking, largest_blocks
from einsumx.blocked.stages import Labels
from einsumx.ir.layout import ranges

Box: TypeAlias = tuple[slice, ...]
"""A part of an array: a range of each axis."""

BlockIndex: TypeAlias = dict[int, int]
"""The number of the current block of each cut label."""


def box_size(box: Iterable[slice]) -> int:
    """The number of elements in a box."""
    return prod(axis.stop - axis.start for axis in box)


def inside(part: Box, box: Box) -> Box:
    """The place of a part in its box."""
    return tuple([slice(ours.start - whole.start, ours.stop - whole.start) for ours, whole in zip(part, box)])


def difference(box: Box, other: Box) -> Iterator[Box]:
    """Boxes that make up the part of ``box`` that is outside of ``other``, a box of the same array.

    >>> list(difference((slice(0, 4), slice(0, 4)), (slice(2, 9), slice(1, 9))))
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 4, None), slice(0, 1, None))]
    """
    if any(ours.stop <= theirs.start or theirs.stop <= ours.start for ours, theirs in zip(box, other)):
        yield box
        return
    rest = list(box)
    for axis, (ours, theirs) in enumerate(zip(box, other)):
        start, stop = max(ours.start, theirs.start), min(ours.stop, theirs.stop)
        for outside in (slice(ours.start, start), slice(stop, ours.stop)):
            if outside.start < outside.stop:
                yield (*rest[:axis], outside, *rest[axis + 1 :])
        rest[axis] = slice(start, stop)


class Grid:
    """Where the blocks of a contraction are.

    Args:
        sizes: of all labels.
        blocking: how they are cut.

    Attributes:
        ranges: the blocks of each label.
        largest: the sizes of the largest blocks.
    """

    def __init__(self, sizes: Sequence[int], blocking: Blocking) -> None:
        self._sizes, self._blocking = tuple(sizes), blocking
        self.ranges: list[list[slice]] = [ranges(size, count) for size, count in zip(sizes, blocking.counts)]
        self.largest: tuple[int, ...] = largest_blocks(sizes, blocking.counts)
        root = blocking.root
        # Each cut axis of the result, in the order of the loops, and where its blocks start.
        self._starts = [(root.output.index(each), [block.start for block in self.ranges[each]]) for each in root.nest]

    indices: list[BlockIndex]
    """The blocks of the result, in the best order of computation."""
    boxes: list[Box]
    """The part of the result that each of them is."""

    def __getattr__(self, name: str) -> Any:
        """An attribute that is computed when it is first asked for.

        It is no cached_property, which has a lock before Python 3.12, and the child of a fork may find it locked.
        """
        if name == "indices":
            self.indices = list(self.steps(self._blocking.root.nest))
        elif name == "boxes":
            self.boxes = list(map(self.part, self.indices))
        else:
            raise AttributeError(name)
        return self.__dict__[name]

    def part(self, index: BlockIndex) -> Box:
        """The part of the result that a block of it is."""
        return self.box(self._blocking.root.output, index)

    def steps(self, loops: Labels) -> Iterator[BlockIndex]:
        """The blocks that some loops go through, the innermost first."""
        return (dict(zip(loops, numbers)) for numbers in product(*[range(len(self.ranges[label])) for label in loops]))

    def box(self, labels: Labels, index: BlockIndex, shape: Sequence[int] | None = None) -> Box:
        """The part of an array in these blocks; axes of size 1 that broadcast are whole."""
        sizes, box = self._sizes, []
        for axis, label in enumerate(labels):
            size = sizes[label] if shape is None else shape[axis]
            is_cut = label in index and size == sizes[label]
            box.append(self.ranges[label][index[label]] if is_cut else slice(0, size))
        return tuple(box)

    def find(self, box: Box) -> int:
        """The number of the block of the result in which a box starts."""
        number = 0
        for axis, starts in self._starts:
            number = number * len(starts) + bisect_right(starts, box[axis].start) - 1
        return number

    def block_sizes(self, index: BlockIndex) -> tuple[int, ...]:
        """The sizes of all labels in these blocks; those of the largest blocks for labels that it has none of."""
        if not index:
            return self.largest
        sizes = list(self.largest)
        for label, number in index.items():
            block = self.ranges[label][number]
            sizes[label] = block.stop - block.start
        return tuple(sizes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Grid, (self._sizes, self._blocking)
