"""Chunks along one axis, as tuples of sizes: where they are cut, and how they are split, merged and aligned."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil
from typing import TypeAlias

__all__ = ["Chunks", "is_split_of", "largest", "merged", "of_size", "pieces", "refined", "split"]

Chunks: TypeAlias = tuple[int, ...]


def largest(chunks: Chunks) -> int:
    """The size of the largest chunk; at least 1.

    >>> largest((2, 3)), largest((0,))
    (3, 1)
    """
    return max(*chunks, 1)


def refined(chunkings: Iterable[Chunks]) -> Chunks:
    """The chunks that end wherever one of several chunkings has an end; empty chunks are dropped.

    >>> refined([(2, 4), (3, 0, 3)]), refined([(0,)])
    ((2, 1, 3), (0,))
    """
    ends = sorted({0}.union(*map(accumulate, chunkings)))
    return tuple([end - start for start, end in pairwise(ends)]) or (0,)


def is_split_of(fine: Chunks, coarse: Chunks) -> bool:
    """Whether each chunk of ``fine`` lies within one of ``coarse``.

    >>> is_split_of((1, 1, 2), (2, 2)), is_split_of((2, 2), (1, 3))
    (True, False)
    """
    return set(accumulate(coarse)) <= set(accumulate(fine))


@lru_cache(maxsize=1024)
def pieces(old: Chunks, new: Chunks) -> tuple[int, int]:
    """The number of pieces that new chunks are made of, and how many of them are not a whole old chunk.

    >>> pieces((3, 3), (2, 4)), pieces((2, 2), (4,))
    ((3, 2), (2, 0))
    """
    ends = list(accumulate(old))
    whole = set(pairwise([0, *ends]))
    parts = list(pairwise(sorted({0, *ends, *accumulate(new)}))) or [(0, 0)]
    return len(parts), sum(part not in whole for part in parts)


def merged(chunks: Chunks) -> Chunks:
    """Each two neighbours as one chunk.

    >>> merged((1, 2, 3, 4, 5))
    (3, 7, 5)
    """
    return tuple([sum(chunks[start : start + 2]) for start in range(0, len(chunks), 2)])


def of_size(size: int, most: int) -> Chunks:
    """Chunks of one size, and a smaller one at the end if there is a remainder.

    >>> of_size(7, 3), of_size(0, 3)
    ((3, 3, 1), (0,))
    """
    return (most,) * (size // most) + ((size % most,) if size % most else ()) or (0,)


def split(chunks: Chunks, most: int) -> Chunks:
    """Each chunk in parts of nearly equal sizes, at most ``most``.

    >>> split((7, 2), 3)
    (2, 2, 3, 2)
    """
    return tuple([part for chunk in chunks for part in _parts(chunk, most)])


def _parts(chunk: int, most: int) -> list[int]:
    count = max(ceil(chunk / most), 1)
    return [chunk * (part + 1) // count - chunk * part // count for part in range(count)]
