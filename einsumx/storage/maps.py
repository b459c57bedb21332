"""Memory maps: the file that a NumPy array is mapped from, the range of bytes, and pages that are given back."""

from __future__ import annotations

import mmap
import os
import sys
from array import array as python_array
from collections.abc import Callable
from typing import Any, NamedTuple

from einsumx.adapters.registry import get_backend
from einsumx.host.files import status_of


def mapping(array: Any) -> Any:
    """The ``numpy.memmap`` that a NumPy array is a view of, or None."""
    memmap = get_backend("numpy").xp.memmap
    while array is not None and not (isinstance(array, memmap) and isinstance(array.base, mmap.mmap)):
        array = getattr(array, "base", None)
    return array


def bytes_of_file(mapped: Any, array: Any) -> tuple[int, int]:
    """The first byte and the end of a view of a map, in the map's file."""
    origin = mapped.__array_interface__["data"][0] - mapped.offset
    first, stop = addresses(array)
    return first - origin, stop - origin


def addresses(array: Any) -> tuple[int, int]:
    """The first byte and the end of a NumPy array in memory."""
    first = last = array.__array_interface__["data"][0]
    for stride, size in zip(array.strides, array.shape):
        first += min(stride * (size - 1), 0)
        last += max(stride * (size - 1), 0)
    return first, last + array.itemsize if array.size else first


def mapped_at(address: int) -> tuple[str, int, int] | None:
    """The device, inode and byte of the file that is mapped at an address; None if the system does not say.

    The inode is 0 for memory without a file.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                places, _, offset, device, inode, *_ = line.split(None, 5)
                start, stop = (int(place, 16) for place in places.split("-"))
                if start <= address < stop:
                    return device, int(inode), int(offset, 16) + address - start
    except TimeoutError:  # of a signal handler
        raise
    except (OSError, ValueError):
        pass
    return None


class Region(NamedTuple):
    """The bytes of a file that an array is mapped from; all of any file if the system does not say.

    Attributes:
        device: the file's; "" if unknown.
        inode: the file's; None if unknown.
        start: the first byte.
        stop: the end.
    """

    device: str = ""
    inode: int | None = None
    start: int = 0
    stop: int = sys.maxsize

    def may_overlap(self, other: Region) -> bool:
        """Whether two arrays may be mapped from the same bytes."""
        return (
            (self.inode == other.inode or None in (self.inode, other.inode))
            and (self.device == other.device or "" in (self.device, other.device))
            and (self.start < other.stop and other.start < self.stop)
        )


def share_file(first: Any, second: Any) -> bool:
    """Whether two NumPy arrays may be mapped from overlapping bytes of a file, or of shared memory."""
    return _may_overlap(region(first), lambda: region(second))


def share_file_at(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """The same for two ranges of addresses."""
    return _may_overlap(region_at(*first), lambda: region_at(*second))


def _may_overlap(first: Region | None, find_second: Callable[[], Region | None]) -> bool:
    second = None if first is None else find_second()
    return first is not None and second is not None and first.may_overlap(second)


def owns_memory(array: Any) -> bool:
    """Whether NumPy allocated the memory of an array, or of the array that it is a view of; if so it is no map."""
    while is_array(array.base):
        array = array.base
    return bool(array.flags.owndata)


def region(array: Any) -> Region | None:
    """What a NumPy array is mapped from; None without a file."""
    if owns_memory(array) or not array.size:
        return None
    found = region_at(*addresses(array))
    if found != Region():
        return found
    if _is_allocated(array):
        return None
    mapped = mapping(array)
    return found if mapped is None else Region("", _inode_of_map(mapped), *bytes_of_file(mapped, array))


def region_at(start: int, stop: int) -> Region | None:
    """What is mapped at addresses; None without a file, and all of any file if the system does not say."""
    place = mapped_at(start)
    if place is None:
        return Region()
    device, inode, offset = place
    return Region(device, inode, offset, offset + stop - start) if inode else None


def _is_allocated(array: Any) -> bool:
    """Whether Python allocated the memory of an array, which then is no map."""
    while is_array(array) or isinstance(array, memoryview):
        array = array.obj if isinstance(array, memoryview) else array.base
    return isinstance(array, bytes | bytearray | python_array)


_DESCRIPTORS = 4096
"""So many of a process's open files are looked through."""


def _inode_of_map(mapped: Any) -> int | None:
    """The inode of the file with the name of a ``numpy.memmap``; None if the map is perhaps of another one.

    Windows renames no mapped file. Elsewhere a map keeps its file open.
    """
    status = None if mapped.filename is None else status_of(mapped.filename)
    if status is None:
        return None
    opened = map(status_of, range(_DESCRIPTORS))
    is_open = os.name == "nt" or any(each is not None and os.path.samestat(each, status) for each in opened)
    return status.st_ino if is_open else None


def inode_of(path: str | os.PathLike[str]) -> int | None:
    """The inode of a file; None if it does not exist."""
    status = status_of(path)
    return None if status is None else status.st_ino


def is_array(array: Any) -> bool:
    """Whether it is a NumPy array."""
    return isinstance(array, get_backend("numpy").xp.ndarray)


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
