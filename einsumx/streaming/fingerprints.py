"""Digests by which a resumed run recognises its operands and its finished blocks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.blocked.boxes import Box
from einsumx.dtypes import itemsize
from einsumx.host.files import status_of
from einsumx.storage.array_files import all_files, backing, timed_files
from einsumx.streaming.readers import Source

PART = 1 << 16
"""Bytes that are read at once unless the caller allows more."""

WHOLE = 64 << 20
"""Bytes up to which an operand in a file is read completely for its digest, whatever its modification times."""

SAMPLES = 256
"""How many samples of a larger operand are read."""

_MOST_FILES = 100_000
"""Files of one array beyond which their times are not used."""


def digest(parts: Iterable[Any]) -> str:
    """A digest of the values of consecutive NumPy arrays: 32 hexadecimal digits.

    >>> import numpy as np
    >>> digest([np.arange(6)]) == digest([np.arange(4), np.arange(4, 6)]) != digest([np.arange(5)])
    True
    """
    np = get_backend("numpy").xp
    hasher = blake2b(digest_size=16)
    for part in parts:
        if part.dtype.hasobject:
            hasher.update(pickle.dumps(part.tolist()))
        else:
            hasher.update(np.ascontiguousarray(part).reshape(-1).view("u1"))
    return hasher.hexdigest()


def parts_of_box(box: Box, size: int, most: int) -> Iterator[Box]:
    """Cut ``box`` into parts of at most ``most`` bytes, or of one element of ``size`` bytes, in C order.

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
    """The fingerprint of an operand: shape, dtype, a digest of its values, and one of its files' status.

    The digest covers all values, unless the operand is larger than 64 MiB and its files' modification times tell
    whether it changed. Then it covers samples, and the status has the inode, size and time of each file.

    Args:
        source: the operand.
        out: the array that the result is written to.
        most: bytes that reading may take.
        was: an earlier fingerprint; if that covers all values, the new one does too, so that they can be compared.
    """
    shape, size = source.operand.shape, itemsize(source.operand.dtype)
    strides = source.operand.strides or (None,) * len(shape)
    box = tuple(slice(0, min(length, 1) if stride == 0 else length) for length, stride in zip(shape, strides))
    whole = size * prod(part.stop for part in box)
    was_whole = isinstance(was, dict) and was.get("files") == ""
    is_large = source.stored is not None and whole > WHOLE
    files = _stamp(source.stored, out) if is_large and not was_whole else ""
    boxes = _samples(box, size) if files else parts_of_box(box, size, min(most // 4, 16 << 20))
    values = digest(map(source.host_block, boxes)) if whole else ""
    return {"shape": list(shape), "dtype": source.operand.dtype, "digest": values, "files": files}


def _samples(box: Box, size: int) -> Iterator[Box]:
    """Small parts of a box, evenly spaced from its first element to its last."""
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
    """A digest of the names, sizes and times of an array's files; empty if they do not tell whether it changed."""
    paths = timed_files(array)
    if not paths or any(_is_same(path, ours) for path in paths for ours in backing(out)):
        return ""
    hasher = blake2b(digest_size=16)
    for number, path in enumerate(all_files(paths)):
        if number == _MOST_FILES or path.is_dir():
            return ""
        status = status_of(path)
        if status is None:
            continue
        name = path.name.encode("utf-8", "backslashreplace").decode()
        hasher.update(f"{name} {status.st_ino} {status.st_size} {status.st_mtime_ns}\n".encode())
    return hasher.hexdigest()


def _is_same(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.samefile(other)
