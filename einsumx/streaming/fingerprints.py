"""Digests of arrays, by which a run that goes on knows its operands and its finished blocks again."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.dtypes import itemsize
from einsumx.streaming.array_files import all_files, backing, timed_files
from einsumx.streaming.readers import Source
from einsumx.streaming.walk import Box

__all__ = ["digest", "fingerprint", "parts_of_box"]

PART = 1 << 16
"""Bytes that are read at once where nothing else says how many may be."""

WHOLE = 64 << 20
"""Bytes up to which an operand in a file is read whole for its digest, whatever its files' times tell."""

SAMPLES = 256
"""How many samples are read of a larger one."""

_MOST_FILES = 100_000
"""Files of one array beyond which their times are not looked at."""


def digest(parts: Iterable[Any]) -> str:
    """A digest of the values of NumPy arrays, one after the other: 32 hexadecimal digits.

    >>> import numpy as np
    >>> digest([np.arange(6)]) == digest([np.arange(4), np.arange(4, 6)]) != digest([np.arange(5)])
    True
    """
    np = get_backend("numpy").xp
    found = blake2b(digest_size=16)
    for part in parts:
        if part.dtype.hasobject:
            found.update(pickle.dumps(part.tolist()))
        else:
            found.update(np.ascontiguousarray(part).reshape(-1).view("u1"))
    return found.hexdigest()


def parts_of_box(box: Box, size: int, most: int) -> Iterator[Box]:
    """``box`` in parts of at most ``most`` bytes, or of one element of ``size`` bytes, in C order.

    >>> [tuple((axis.start, axis.stop) for axis in part) for part in parts_of_box((slice(1, 3), slice(0, 5)), 8, 24)]
    [((1, 2), (0, 3)), ((1, 2), (3, 5)), ((2, 3), (0, 3)), ((2, 3), (3, 5))]
    """
    axis = len(box)
    while axis and size * (box[axis - 1].stop - box[axis - 1].start) <= most:
        axis -= 1
        size *= box[axis].stop - box[axis].start
    if not axis:
        yield box
        return
    step, cut = max(most // size, 1), box[axis - 1]
    for outer in product(*(range(part.start, part.stop) for part in box[: axis - 1])):
        for start in range(cut.start, cut.stop, step):
            single = [slice(number, number + 1) for number in outer]
            yield (*single, slice(start, min(start + step, cut.stop)), *box[axis:])


def fingerprint(source: Source, out: Any, most: int, was: Any = None) -> dict[str, Any]:
    """What an operand is known by: its shape, its dtype, a digest of its values, and its files' times.

    It is read whole, unless it is larger than 64 MiB and its files' times tell whether it changed. Then samples are
    read, and the number, size and time of modification of each file are looked at.

    Args:
        source: of the operand.
        out: where the result goes.
        most: bytes that reading may take.
        was: what the operand was known by before. One that was read whole is again, to be compared.
    """
    shape, size = source.operand.shape, itemsize(source.operand.dtype)
    strides = source.operand.strides or (None,) * len(shape)
    box = tuple(slice(0, min(length, 1) if stride == 0 else length) for length, stride in zip(shape, strides))
    known: dict[str, Any] = {"shape": list(shape), "dtype": source.operand.dtype}
    whole = size * prod(part.stop for part in box)
    was_whole = isinstance(was, dict) and was.get("files") == ""
    is_large = source.stored is not None and whole > WHOLE
    files = _stamp(source.stored, out) if is_large and not was_whole else ""
    boxes = _samples(box, size) if files else parts_of_box(box, size, min(most // 4, 16 << 20))
    known["digest"] = digest(map(source.host_block, boxes)) if whole else ""
    known["files"] = files
    return known


def _samples(box: Box, size: int) -> Iterator[Box]:
    """Small parts of a box, spread evenly over it from its first element to its last."""
    shape = [part.stop for part in box]
    extent, left = [1] * len(shape), PART // 16 // size
    for axis in reversed(range(len(shape))):
        extent[axis] = min(shape[axis], max(left, 1))
        left //= extent[axis]
    last = prod(shape) - 1
    for number in range(SAMPLES):
        at, place = last * number // (SAMPLES - 1), []
        for length in reversed(shape):
            at, index = divmod(at, length)
            place.append(index)
        starts = [min(start, length - part) for start, length, part in zip(reversed(place), shape, extent)]
        yield tuple(slice(start, start + part) for start, part in zip(starts, extent))


def _stamp(array: Any, out: Any) -> str:
    """A digest of which files an array is in and of when they were written; empty where that says nothing of it."""
    paths = timed_files(array)
    if not paths or any(_is_same(path, ours) for path in paths for ours in backing(out)):
        return ""
    found = blake2b(digest_size=16)
    for number, path in enumerate(all_files(paths)):
        if number == _MOST_FILES or path.is_dir():
            return ""
        try:
            status = path.stat()
        except OSError:
            continue
        found.update(f"{_name(path)} {status.st_ino} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _is_same(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.samefile(other)


def _name(path: Path) -> str:
    return path.name.encode("utf-8", "backslashreplace").decode()
