"""Memory maps: which file a NumPy array is mapped from, and from which byte of it to which."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from einsumx.adapters.registry import get_backend

__all__ = ["bytes_of_file", "inode_of", "is_array", "mapped_at", "mapping", "owns_memory", "region", "share_file"]


def mapping(array: Any) -> Any:
    """The memory map that a NumPy array is a view of, as NumPy made it; None where it is of none."""
    memmap = get_backend("numpy").xp.memmap
    found = array
    while found is not None and not (isinstance(found, memmap) and isinstance(found.base, mmap.mmap)):
        found = getattr(found, "base", None)
    return found


def bytes_of_file(mapped: Any, array: Any) -> tuple[int, int]:
    """From which byte to which byte of its file a part of a map reaches."""
    origin = mapped.__array_interface__["data"][0] - mapped.offset
    first, stop = addresses(array)
    return first - origin, stop - origin


def addresses(array: Any) -> tuple[int, int]:
    """From which byte to which byte of memory a NumPy array reaches."""
    first = last = array.__array_interface__["data"][0]
    for stride, size in zip(array.strides, array.shape):
        first += min(stride * (size - 1), 0)
        last += max(stride * (size - 1), 0)
    return first, last + array.itemsize if array.size else first


def mapped_at(address: int) -> tuple[str, int, int] | None:
    """The device and the number of the file that is mapped at an address, and the byte of it that is there.

    The number is 0 where memory is of the process alone, and None comes back where the system does not tell.
    """
    try:
        with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                places, _, offset, device, inode, *_ = line.split(None, 5)
                start, stop = (int(place, 16) for place in places.split("-"))
                if start <= address < stop:
                    return device, int(inode), int(offset, 16) + address - start
    except (OSError, ValueError):
        pass
    return None


def share_file(first: Any, second: Any) -> bool:
    """Whether two NumPy arrays are mapped from the same bytes of a file, or of shared memory."""
    ours = region(first)
    theirs = region(second) if ours is not None else None
    if ours is None or theirs is None:
        return False
    (file, start, stop), (other, begin, end) = ours, theirs
    return file == other and start < end and begin < stop


def owns_memory(array: Any) -> bool:
    """Whether NumPy allocated the memory of an array, or of the array that it is a view of: it is no map then."""
    while is_array(array.base):
        array = array.base
    return bool(array.flags.owndata)


def region(array: Any) -> tuple[tuple[str, int], int, int] | None:
    """Which file a NumPy array is mapped from, and from which byte to which; None where it is from none."""
    if owns_memory(array) or not array.size:
        return None
    start, stop = addresses(array)
    found = mapped_at(start)
    if found is not None:
        device, inode, offset = found
        return ((device, inode), offset, offset + stop - start) if inode else None
    mapped = mapping(array)
    if mapped is None or mapped.filename is None:
        return None
    return ("", inode_of(mapped.filename)), *bytes_of_file(mapped, array)


def inode_of(path: str | Path) -> int:
    """The number of a file; 0 where there is none of that name."""
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def is_array(array: Any) -> bool:
    """Whether it is a NumPy array."""
    return isinstance(array, get_backend("numpy").xp.ndarray)
