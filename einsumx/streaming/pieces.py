"""Reads and writes blocks of stored arrays in chunks, so that their libraries take a bounded amount of memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.blocked.boxes import Box, box_size, inside
from einsumx.runtime.stored import host_array
from einsumx.storage.array_files import grain, is_dataset
from einsumx.storage.reopened import opened_here

_SMALL = 1 << 16
"""Bytes of chunks that are read in one call, where one chunk is smaller."""

_DATASET = 1 << 22
"""Bytes that are read from an HDF5 dataset in one call, which describes all of their chunks before it reads any."""

_FAST = 10
"""How many chunks in one call are as fast as all of them; Zarr decodes so many at a time."""

_TAKEN = 7
"""How often a library takes the bytes of the chunks that it reads or writes in one call, and of one chunk besides.

Chunks are encoded, decoded and copied in several threads, whose heaps keep what was freed. Zarr 3.1 and HDF5 2.0 take
no more by the kernel's count.
"""

_SHARE = 0.125
"""The part of a limit that libraries may take to read more than one chunk at a time."""

_HEAPS = 3 << 20
"""Bytes that the heaps of a library's threads, and its objects, take besides."""

_FEW = 1 << 20
"""Bytes of chunks that do not count, as the objects of Python do not."""


def bytes_at_once(arrays: Sequence[Any], limit: int) -> int:
    """How many bytes of chunks are read or written in one call, as far as that takes a small part of a limit."""
    chunk = max(map(_chunk_bytes, arrays), default=0)
    most = int(_SHARE * limit - chunk) // _TAKEN
    return max(min(most, _FAST * chunk), 0)


def library_bytes(arrays: Sequence[Any], at_once: int) -> int:
    """The bytes that libraries take for some stored arrays, of which they read or write ``at_once`` in one call.

    HDF5 reads one chunk at a time, and has a cache of chunks for each dataset.
    """
    caches = working = 0
    for array in {id(array): array for array in map(opened_here, arrays)}.values():
        chunk = _chunk_bytes(array)
        if not chunk:
            continue
        whole = prod(array.shape) * _item_bytes(array)
        if is_dataset(array):
            cache = array.id.get_access_plist().get_chunk_cache()[1]
            caches += min(cache, whole) if chunk <= cache else 0
            piece = chunk
        else:
            piece = max(chunk, at_once)
        working = max(working, chunk + _TAKEN * min(piece, whole))
    return caches + working + _HEAPS if caches + working > _FEW else 0


def read(array: Any, box: Box, at_once: int = 0) -> Any:
    """A block of a stored array as a NumPy array, in calls that read ``at_once`` bytes of chunks, or one chunk."""
    if not grain(array) or not box_size(box):
        return host_array(array[box])
    block = _new([part.stop - part.start for part in box], array.dtype)
    for piece in _pieces(array, box, at_once):
        if is_dataset(array):
            array.read_direct(block, piece, inside(piece, box))
        else:
            block[inside(piece, box)] = host_array(array[piece])
    return block


def write(array: Any, box: Box, values: Any, at_once: int = 0) -> None:
    """Write a NumPy array to a block of a stored array, whose dtype it is cast to, as :func:`read` reads it."""
    xp = get_backend("numpy").xp
    for piece in _pieces(array, box, at_once):
        with xp.errstate(all="ignore"):
            array[piece] = xp.asarray(values[inside(piece, box)], dtype=array.dtype)


def _pieces(array: Any, box: Box, at_once: int) -> Iterator[Box]:
    """The parts of a block that are read or written in one call."""
    chunk = grain(array)
    if not chunk or not box_size(box):
        yield box
        return
    most = _DATASET if is_dataset(array) else max(at_once, _SMALL)
    size, steps = _item_bytes(array), list(chunk)
    for axis in reversed(range(len(box))):
        steps[axis] *= max(most // (prod(steps) * size), 1)
        if steps[axis] < box[axis].stop - box[axis].start:
            break
    yield from product(*map(_cut, box, steps))


def _cut(part: slice, step: int) -> list[slice]:
    """A range, cut at the multiples of a step."""
    places = [part.start, *range((part.start // step + 1) * step, part.stop, step), part.stop]
    return [slice(start, stop) for start, stop in pairwise(places)]


def _chunk_bytes(array: Any) -> int:
    """The bytes of a chunk, or of the chunks that are read in one call at least; 0 for an array without chunks."""
    array = opened_here(array)
    chunk = grain(array)
    if not chunk:
        return 0
    size = _item_bytes(array)
    whole: int = prod(array.shape) * size
    return min(max(prod(chunk) * size, _SMALL), whole)


def _item_bytes(array: Any) -> int:
    size: int = get_backend("numpy").xp.dtype(array.dtype).itemsize
    return size


def _new(shape: Sequence[int], dtype: Any) -> Any:
    """A NumPy array on pages of its own, which the system has back once it is freed; a heap would keep some of them."""
    xp = get_backend("numpy").xp
    dtype = xp.dtype(dtype).newbyteorder("=")
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return xp.empty(shape, dtype)
    pages = mmap.mmap(-1, prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return xp.frombuffer(pages, dtype).reshape(shape)
