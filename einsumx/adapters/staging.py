"""Blocks on their way from the host to a CUDA device: through a few pinned buffers, beside what is computed there."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from math import prod
from typing import Any, Protocol

from einsumx.adapters.typing import Array
from einsumx.dtypes import name_of

__all__ = ["Event", "Ring", "Uploads"]

_BYTES = 8 << 20
"""Of a buffer: a copy of so many takes far longer than to ask for it, and pinning them takes milliseconds."""

_BUFFERS = 3
"""One that is being filled, one that is being copied, and one that is next."""


class Event(Protocol):
    """A place in what is queued on a device."""

    def synchronize(self) -> None:
        """Wait until the device has come there."""


class Uploads(Protocol):
    """What a ring asks of a framework: memory, and copies on a stream that is for them alone, on one device."""

    def register(self, address: int, nbytes: int) -> None:
        """Pin memory of the host."""

    def unregister(self, address: int) -> None:
        """Let it go."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An array in memory that only the stream of copies has used, and whoever has waited for it."""

    def copy(self, target: Array, start: int, piece: Any) -> Event:
        """Queue a copy of a pinned piece, a NumPy array of bytes, to the bytes of ``target`` from ``start`` on."""


class Ring:
    """Brings NumPy arrays to a device, through buffers that are pinned when they are needed, until :meth:`close`.

    An array is given back when it is there: whoever uses it need not wait for another stream. So there is something to
    gain only where it is called in a thread of its own, as it is where blocks are read ahead. What it has given must
    not be let go before what was queued to use it is done, as its memory is then written to again.

    The buffers are memory of the host, and so no part of what a limit counts on the device.

    Args:
        uploads: what the framework does.
        nbytes: of a buffer.
        count: of buffers, at most.
    """

    def __init__(self, uploads: Uploads, nbytes: int = _BYTES, count: int = _BUFFERS) -> None:
        self._uploads, self._nbytes, self._count = uploads, nbytes, count
        self._lock = threading.Lock()
        self._buffers: list[Any] = []
        self._events: list[Event | None] = []  # after the last copy out of each buffer
        self._next = 0

    def __call__(self, array: Any) -> Array:
        """A NumPy array, on the device."""
        copyto = import_module("numpy").copyto
        event: Event | None = None
        with self._lock:
            target = self._uploads.empty(array.shape, name_of(array.dtype))
            start = 0
            for box in _pieces(array.shape, self._nbytes // array.itemsize):
                part = array[box]
                at = self._free()
                piece = self._buffers[at][: part.nbytes]
                copyto(piece.view(array.dtype).reshape(part.shape), part)
                self._events[at] = event = self._uploads.copy(target, start, piece)
                start += part.nbytes
        if event is not None:
            event.synchronize()
        return target

    def _free(self) -> int:
        """The number of a buffer that nothing is copied from any more."""
        if len(self._buffers) < self._count:
            buffer = import_module("numpy").frombuffer(mmap.mmap(-1, self._nbytes), "uint8")
            self._uploads.register(buffer.ctypes.data, self._nbytes)
            self._buffers.append(buffer)
            self._events.append(None)
            return len(self._buffers) - 1
        at, self._next = self._next, (self._next + 1) % self._count
        event = self._events[at]
        if event is not None:
            event.synchronize()
        return at

    def close(self) -> None:
        """Let the buffers go, when nothing is copied from them any more."""
        with self._lock, ExitStack() as stack:
            while self._buffers:
                buffer, event = self._buffers.pop(), self._events.pop()
                stack.callback(self._uploads.unregister, buffer.ctypes.data)
                if event is not None:
                    stack.callback(event.synchronize)
            self._next = 0


def _pieces(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """The parts of an array of so many elements at most, each in one run in C order, one after the other.

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
