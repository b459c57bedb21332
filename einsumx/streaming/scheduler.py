"""Runs one contraction on an executor: a bounded number of pieces at a time, which are added up in a fixed order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import blocks_of
from einsumx.blocked.boxes import BlockIndex, Box
from einsumx.blocked.program import BlockedProgram
from einsumx.errors import BackendError, BlockError, counted, excerpt
from einsumx.host.threads import sharing
from einsumx.runtime.limits import Progress
from einsumx.streaming.blocks import Blocks, compute
from einsumx.streaming.progress import Reported
from einsumx.streaming.readers import Source
from einsumx.streaming.tasks import Piece, pieces_for
from einsumx.streaming.writers import Target

Values: TypeAlias = Generator[tuple[int, Array], None, None]
"""Blocks of a result by their numbers; None for a block that its worker has written."""

RETRIES = 2
"""How often a piece is given to another worker after its worker died."""


class Concurrency(NamedTuple):
    """How a pool of workers or devices affects the plan.

    Attributes:
        together: how many blocks share the limit of a process or device, without the part that the result takes.
        pieces: the least number of pieces to cut the contraction into, so that all workers are busy to the end.
        waiting: how many values of blocks are held besides those that share the limit.
    """

    together: int = 1
    pieces: int = 1
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """A contraction with its operands and its result; ``room`` is the part of the limit that the result leaves."""

    program: BlockedProgram
    adapter: Adapter
    sources: Sequence[Source]
    target: Target
    room: int


class Scheduler:
    """Runs a contraction in threads of the caller's process; subclasses adapt it to others."""

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        self.executor, self.workers = executor, workers
        self.work, self.program, self.adapter = work, work.program, work.adapter
        self._stopped = threading.Event()
        self._walks: dict[int, Blocks] = {}  # by thread

    def values(self, left: Mapping[int, BlockIndex], progress: Progress) -> Values:
        """Compute the blocks that are left; yield each with its number.

        Raises:
            BlockError: a worker could not compute a piece.
        """
        pieces = self.pieces(left)
        in_parts = any(piece.start for piece in pieces)
        waiting = [*pieces]  # a heap, as it is sorted
        running: dict[Future[Any], Piece] = {}
        ready: dict[int, Array] = {}
        lost: Counter[int] = Counter()
        added, algebra = 0, self.program.algebra
        total: Array = None
        try:
            with Reported(progress, lambda: len(pieces)) as step:
                while waiting or running:
                    while waiting and (len(running) + len(ready) < self.window or not running):
                        piece = heappop(waiting)
                        running[self._submitted(piece, lost)] = piece
                    ready.update(self._finished(running, waiting, lost))
                    while ready and (added in ready or not in_parts):
                        piece = pieces[added if in_parts else next(iter(ready))]
                        value = self.received(piece, ready.pop(piece.number))
                        if piece.start:
                            total = algebra.added(self.adapter, total, value)
                            # The value may be in memory of another thread's stream.
                            algebra.mapped(self.adapter.synchronize, total)
                        else:
                            total = value
                        del value
                        added += 1
                        if piece.stop == self.program.blocking.terms:
                            with nullcontext() if total is None else self.writing():
                                yield piece.block, total
                            total = None
                        step()
        finally:
            self.close(list(running))

    def _submitted(self, piece: Piece, lost: Counter[int]) -> Future[Any]:
        """Submit a piece; an executor that takes no more work may be replaced."""
        while True:
            try:
                return self.submit(piece)
            except TimeoutError:  # of a signal handler
                raise
            except (BackendError, OSError, RuntimeError) as error:  # _lose raises it unless the piece is retried
                self._lose(piece, error, lost)

    def _finished(self, running: dict[Future[Any], Piece], waiting: list[Piece], lost: Counter[int]) -> dict[int, Any]:
        """Wait for pieces; return the values of those that were computed, by number, and put the others back."""
        values = {}
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            piece = running.pop(future)
            error = CancelledError() if future.cancelled() else future.exception()
            if error is None:
                values[piece.number] = future.result()
            elif isinstance(error, Exception):
                self._lose(piece, error, lost)
                heappush(waiting, piece)
            else:
                raise error  # such as KeyboardInterrupt
        return values

    def _lose(self, piece: Piece, error: Exception, lost: Counter[int]) -> None:
        """Count a piece that was not computed.

        Raises:
            BlockError: the piece is not to be retried.
        """
        lost[piece.number] += 1
        if lost[piece.number] <= RETRIES and self.can_retry(piece, error):
            return
        box = self.program.grid.part(piece.index)
        ranges = ", ".join(f"{axis.start}:{axis.stop}" for axis in box)
        block = f"block [{ranges}] of the result of {excerpt(self.program.equation)}"
        if isinstance(error, BrokenExecutor):
            raise BlockError(
                f"{block} could not be computed: workers of the executor died {counted(lost[piece.number], 'time')} "
                "while they computed it; if the system ended them for lack of memory, use fewer workers or a smaller "
                "memory_limit="
            ) from error
        raise BlockError(f"{block} could not be computed: {type(error).__name__}: {error}") from error

    # -- what differs between executors -----------------------------------------------------------------------

    @property
    def window(self) -> int:
        """How many pieces may be in flight or wait to be added up."""
        return self.workers

    def pieces(self, left: Mapping[int, BlockIndex]) -> list[Piece]:
        """All pieces, in the order of addition."""
        return pieces_for(self.workers, self.program, left)

    def submit(self, piece: Piece) -> Future[Any]:
        """Give a piece to a worker."""
        future: Future[Any] = self.executor.submit(blocks_of(self.adapter).carried(self._compute), piece)
        return future

    def _compute(self, piece: Piece) -> Array:
        thread = threading.get_ident()
        if thread not in self._walks:
            self._walks[thread] = Blocks.computing(self.program, self.adapter)
        with sharing(self.workers, self.adapter.name):
            return compute(self._walks[thread].value(piece.index, piece.start, piece.stop), self._read)

    def _read(self, number: int, box: Box) -> Array:
        if self._stopped.is_set():
            raise CancelledError
        return self.work.sources[number].read(box)

    def received(self, piece: Piece, value: Any) -> Array:
        """A worker's value as an array of the framework; None if the worker has written it."""
        return value

    def writing(self) -> AbstractContextManager[None]:
        """A context in which the caller may write a block although workers write others."""
        return nullcontext()

    def can_retry(self, piece: Piece, error: Exception) -> bool:
        """Whether another worker may compute a piece after an error; makes sure that there is one."""
        return False

    def close(self, running: Sequence[Future[Any]]) -> None:
        """Stop the futures that are still running, and release everything."""
        self._stopped.set()
        for future in running:
            future.cancel()
        wait(running)
        self._walks.clear()
        for source in self.work.sources:
            source.close()
