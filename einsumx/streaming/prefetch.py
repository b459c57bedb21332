"""Blocks of operands are read ahead of the computation, in a thread, as far as memory allows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from einsumx.adapters.typing import Array
from einsumx.streaming.readers import Source
from einsumx.streaming.walk import Box, Read

__all__ = ["Reader"]


class Reader:
    """Reads blocks in an order that is known beforehand; a context, which leaves no thread behind.

    Args:
        sources: the operands.
        reads: what is going to be asked for, in this order; None where all of it is asked for at once.
        ahead: bytes of blocks that may be read before they are asked for; 0 for none.
        carried: what makes a function of the framework's ready to be called in another thread.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        reads: Iterator[Read] | None,
        ahead: int,
        carried: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    ) -> None:
        self._sources, self._reads, self._ahead = sources, reads, ahead
        self._carried_bring = carried(self._bring)
        self._changed = threading.Condition()
        self._ready: deque[tuple[Array, int, BaseException | None]] = deque()
        self._bytes = 0  # of what is read, and of what is being read, before it was asked for
        self._asked = self._seen = 0  # reads that the computation and that the thread came to
        self._is_waiting = self._closed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Callable[[int, Box], Array]:
        if self._reads is not None and (self._ahead or any(source.can_expect for source in self._sources)):
            thread = threading.Thread(target=self._run, args=(self._reads,), name="einsumx-reader", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads are to be had, or the interpreter ends: nothing is read ahead
                return self.read
            self._thread = thread
        return self.read

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for source in self._sources:
            source.close()

    def read(self, number: int, box: Box) -> Array:
        """The part of operand ``number`` that lies in ``box``; the thread's errors come from here."""
        source = self._sources[number]
        with self._changed:
            self._asked += 1
            is_ahead = self._thread is not None and self._is_read_ahead(source)
            self._is_waiting = is_ahead and not self._ready
            self._changed.notify_all()
            if is_ahead:
                self._changed.wait_for(lambda: self._ready)
                self._is_waiting = False
                block, size, error = self._ready.popleft()
                self._bytes -= size
                self._changed.notify_all()
                if error is not None:
                    raise error
                return block
        return source.read(box)

    def _is_read_ahead(self, source: Source) -> bool:
        return self._ahead > 0 and not source.lies_there

    def _run(self, reads: Iterator[Read]) -> None:
        """What the thread does; its errors are raised where the next block is asked for."""
        try:
            for number, box in reads:
                if not self._carried_bring(self._sources[number], box):
                    return
        except BaseException as error:  # noqa: BLE001
            with self._changed:
                self._ready.append((None, 0, error))
                self._changed.notify_all()

    def _bring(self, source: Source, box: Box) -> bool:
        """Read one block, or announce it, as soon as there is room; whether there is someone to bring it to."""
        is_read = self._is_read_ahead(source)
        size = source.read_bytes(box) if is_read else 0
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(size))
            if self._closed:
                return False
            self._bytes += size
            self._seen += 1
        if not is_read:
            source.expect(box)
            return True
        block = source.read(box)
        with self._changed:
            if not self._closed:
                self._ready.append((block, size, None))
                self._changed.notify_all()
            return not self._closed

    def _has_room(self, size: int) -> bool:
        """Whether the thread may go on, to a block of so many bytes; one that is waited for is not ahead."""
        if self._is_waiting and not self._bytes:
            return True
        return self._bytes + size <= self._ahead and self._seen - self._asked < 2 * len(self._sources)
