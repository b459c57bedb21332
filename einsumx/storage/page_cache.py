"""Gives pages of mapped files back to the system behind the reader and the writer."""

from __future__ import annotations

import mmap
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.storage.maps import addresses, mapping

__all__ = ["give_back"]


def give_back(array: Any, box: tuple[slice, ...]) -> None:
    """Let a part of an array count as memory of this process no longer, if it is mapped from a file.

    The system keeps its pages, those that were written to as well, as long as it has room. Between the rows of the
    part, other pages are given back too: reading them again finds them where they are.
    """
    mapped = mapping(array)
    if mapped is None or mapped.mode == "c":  # whose pages have changes that the file has not
        return
    part = (*box, ...)  # without the ellipsis, an array without axes becomes a number, which has memory of its own
    first, stop = addresses(array[part])
    if stop == first or not hasattr(mmap, "MADV_DONTNEED"):
        return
    origin, _ = addresses(get_backend("numpy").xp.frombuffer(mapped.base, "u1"))
    start = first - origin - (first - origin) % mmap.PAGESIZE
    mapped.base.madvise(mmap.MADV_DONTNEED, start, stop - origin - start)
