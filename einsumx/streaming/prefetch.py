"""Reads blocks of operands ahead of the computation, in a thread, as far as memory allows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from einsumx.adapters.typing import Array
from einsumx.host.threads import started
from einsumx.streaming.blocks import Box, Read
from einsumx.streaming.readers import Source

__all__ = ["Reader"]


class Reader:
    """Reads blocks in an order that is known in advance; a context manager that leaves no thread behind.

    Args:
        sources: one for each operand.
        reads: the blocks that will be requested, in order.
        ahead: bytes of blocks that may be read before they are requested; 0 for none.
        carried: prepares a function of the framework to be called in another thread.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        reads: Iterator[Read],
        ahead: int,
        carried: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    ) -> None:
        self._sources, self._reads, self._ahead = sources, reads, ahead
        self._carried_bring = carried(self._bring)
        self._changed = threading.Condition()
        self._ready: deque[tuple[Array, int, BaseException | None]] = deque()
        self._bytes = 0  # of blocks that were read, or are being read, and have not been requested
        self._is_waiting = self._closed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Callable[[int, Box], Array]:
        if self._ahead:
            thread = threading.Thread(target=self._run, name="einsumx-reader", daemon=True)
            self._thread = thread if started(thread) else None  # else nothing is read ahead
        return self.read

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for source in self._sources:
            source.close()

    def read(self, number: int, box: Box) -> Array:
        """A block of operand ``number``; raises the thread's errors."""
        source = self._sources[number]
        if self._thread is None or source.in_place:
            return source.read(box)
        with self._changed:
            self._is_waiting = not self._ready
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ready)
            self._is_waiting = False
            block, size, error = self._ready.popleft()
            self._bytes -= size
            self._changed.notify_all()
        if error is not None:
            raise error
        return block

    def _run(self) -> None:
        try:
            for number, box in self._reads:
                source = self._sources[number]
                if not source.in_place and not self._carried_bring(source, box):
                    return
        except BaseException as error:  # noqa: BLE001  # raised when the next block is requested
            with self._changed:
                self._ready.append((None, 0, error))
                self._changed.notify_all()

    def _bring(self, source: Source, box: Box) -> bool:
        """Read one block, as soon as there is room; return whether to go on."""
        size = source.nbytes(box)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(size))
            if self._closed:
                return False
            self._bytes += size
        block = source.read(box)
        with self._changed:
            if not self._closed:
                self._ready.append((block, size, None))
                self._changed.notify_all()
            return not self._closed

    def _has_room(self, size: int) -> bool:
        """Whether the thread may read a block of ``size`` bytes; a block that is waited for is not ahead."""
        return self._bytes + size <= self._ahead or (self._is_waiting and not self._bytes)
