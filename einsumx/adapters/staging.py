"""Copies blocks from the host to a CUDA device through a few pinned buffers, while the device computes."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from math import prod
from typing import Any, Protocol

from einsumx.adapters.typing import Array
from einsumx.imports import imported

_BYTES = 8 << 20
"""The size of a buffer: large enough that copying it outweighs the launch, small enough to pin in milliseconds."""

_BUFFERS = 3
"""One buffer being filled, one being copied, and the next one."""


class Event(Protocol):
    """A position in the queue of a device."""

    def synchronize(self) -> None:
        """Wait until the device has reached it."""


@lru_cache(maxsize=64)
def copy_stream(make: Callable[..., Any], *device: Any) -> Any:
    """The stream for copies to a device: always the same one, because freed memory stays with its stream."""
    return make(*device)


class Uploads(Protocol):
    """The framework's part of a ring, for one device: memory, and copies on a separate stream."""

    def register(self, address: int, nbytes: int) -> None:
        """Pin memory of the host."""

    def unregister(self, address: int) -> None:
        """Unpin it."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An uninitialized array in memory of the copy stream."""

    def copy(self, target: Array, start: int, piece: Any) -> Event:
        """Queue a copy of a pinned NumPy array of bytes to ``target``, from byte ``start`` on."""


class Ring:
    """Copies NumPy arrays to a device through buffers that it pins when it needs them, until :meth:`close`.

    A call returns when the copy is complete, so no other stream has to wait for it. It gains time only in a separate
    thread, such as the one that reads blocks ahead. Do not free the array before all work that uses it is done,
    because the copy stream then reuses its memory.

    The buffers are host memory; a limit on device memory does not count them.

    Args:
        uploads: the framework's part.
        fill: copies the second NumPy array into the first, as the backend of NumPy does on all threads.
        nbytes: bytes of a buffer.
        count: the most buffers.
    """

    def __init__(
        self, uploads: Uploads, fill: Callable[[Any, Any], None], nbytes: int = _BYTES, count: int = _BUFFERS
    ) -> None:
        self._uploads, self._fill, self._nbytes, self._count = uploads, fill, nbytes, count
        self._lock = threading.Lock()
        self._buffers: list[Any] = []
        self._events: list[Event | None] = []  # recorded after the last copy from each buffer
        self._next = 0

    def __call__(self, array: Any) -> Array:
        """Copy a NumPy array to the device."""
        event: Event | None = None
        with self._lock:
            target = self._uploads.empty(array.shape, str(array.dtype.name))
            start = 0
            for box in _pieces(array.shape, self._nbytes // array.itemsize):
                part = array[box]
                number = self._free_buffer()
                piece = self._buffers[number][: part.nbytes]
                self._fill(piece.view(array.dtype).reshape(part.shape), part)
                self._events[number] = event = self._uploads.copy(target, start, piece)
                start += part.nbytes
        if event is not None:
            event.synchronize()
        return target

    def _free_buffer(self) -> int:
        """The number of a buffer that no copy reads any more."""
        if len(self._buffers) < self._count:
            buffer = imported("numpy").frombuffer(mmap.mmap(-1, self._nbytes), "uint8")
            self._uploads.register(buffer.ctypes.data, self._nbytes)
            self._buffers.append(buffer)
            self._events.append(None)
            return len(self._buffers) - 1
        number, self._next = self._next, (self._next + 1) % self._count
        event = self._events[number]
        if event is not None:
            event.synchronize()
        return number

    def close(self) -> None:
        """Unpin and free the buffers when no copy reads them any more."""
        with self._lock, ExitStack() as stack:
            while self._buffers:
                buffer, event = self._buffers.pop(), self._events.pop()
                stack.callback(self._uploads.unregister, buffer.ctypes.data)
                if event is not None:
                    stack.callback(event.synchronize)
            self._next = 0


def _pieces(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Boxes of at most ``most`` elements that make up an array, each contiguous in C order, in that order.

    >>> [tuple((axis.start, axis.stop) for axis in box) for box in _pieces((2, 3), 2)]
    [((0, 1), (0, 2)), ((0, 1), (2, 3)), ((1, 2), (0, 2)), ((1, 2), (2, 3))]
    """
    if not prod(shape):
        return
    if not shape:
        yield ()
        return
    size, inner = shape[0], prod(shape[1:])
    step = max(most // inner, 1)
    for start in range(0, size, step):
        box = slice(start, min(start + step, size))
        if inner <= most:
            yield (box,)
        else:
            yield from ((box, *rest) for rest in _pieces(shape[1:], most))
