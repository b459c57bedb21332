"""Asks the system to load pages of mapped files before they are read, and gives them back behind."""

from __future__ import annotations

import ctypes
import mmap
from itertools import product
from math import prod
from typing import Any

from einsumx.storage.maps import addresses, mapping

__all__ = ["give_back", "will_need"]

_MANY = 4096
"""Contiguous runs of bytes beyond which a block is not announced: the calls would take longer than they save."""

_PIECE = 4 << 20
"""Bytes of a file that are announced at once, unless their first and last page are in memory."""


def will_need(block: Any) -> None:
    """Let the system load the pages of a block of a mapped file in the background."""
    axes = sorted(zip(map(abs, block.strides), block.shape), reverse=True)
    run = block.itemsize
    while axes and axes[-1][0] == run:
        run *= axes.pop()[1]
    calls = _LIBRARY
    if calls is None or not block.size or prod(size for _, size in axes) > _MANY:
        return
    lowest, _ = addresses(block)
    for index in product(*(range(size) for _, size in axes)):
        start = lowest + sum(stride * number for (stride, _), number in zip(axes, index))
        for piece in range(start, start + run, _PIECE):
            _load(calls, piece, min(piece + _PIECE, start + run))


def give_back(array: Any, box: tuple[slice, ...]) -> None:
    """Let a part of an array count as memory of this process no longer, if it is mapped from a file.

    The system keeps its pages, those that were written to as well, as long as it has room. Between the rows of the
    part, other pages are given back too: reading them again finds them where they are.
    """
    calls, mapped = _LIBRARY, mapping(array)
    if calls is None or mapped is None or mapped.mode == "c":  # whose pages have changes that the file has not
        return
    part = (*box, ...)  # without the ellipsis, an array without axes becomes a number, which has memory of its own
    first, stop = addresses(array[part])
    first -= first % mmap.PAGESIZE
    calls.madvise(ctypes.c_void_p(first), ctypes.c_size_t(stop - first), mmap.MADV_DONTNEED)


def _load(calls: Any, start: int, stop: int) -> None:
    first, last = (address - address % mmap.PAGESIZE for address in (start, stop - 1))
    residency = ctypes.c_ubyte()
    for page in (first, last):
        failed = calls.mincore(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), ctypes.byref(residency))
        if failed or not residency.value & 1:
            calls.madvise(ctypes.c_void_p(first), ctypes.c_size_t(stop - first), mmap.MADV_WILLNEED)
            return


def _system_calls() -> Any:
    """The C library, whose calls release the GIL; None if it lacks madvise or mincore."""
    if not hasattr(mmap, "MADV_WILLNEED"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "madvise") and hasattr(library, "mincore") else None


_LIBRARY: Any = _system_calls()
