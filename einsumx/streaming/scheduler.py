"""One contraction in the hands of an executor: a bounded number of pieces in flight, added up as they come."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, TypeAlias

from einsumx.adapters.base import Adapter, Array
from einsumx.blocked.program import BlockedProgram
from einsumx.errors import BlockError, excerpt
from einsumx.runtime.request import Progress
from einsumx.runtime.threads import sharing
from einsumx.streaming.progress import reported
from einsumx.streaming.readers import Source
from einsumx.streaming.tasks import Piece, pieces_for, terms_of
from einsumx.streaming.walk import Blocks, Box, Place, compute, contracting
from einsumx.streaming.writers import Target

__all__ = ["Scheduler", "Values", "Workload"]

Values: TypeAlias = Generator[tuple[int, Array], None, None]
"""Blocks of a result by their numbers; None for one that its worker has written where it belongs."""

RETRIES = 2
"""How often a piece is given to another worker, after the one that had it died."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A contraction that an executor is to compute.

    Attributes:
        plan: how it is cut.
        adapter: of the framework that computes.
        operands: how each is read.
        room: bytes of the memory limit that the result leaves to the caller.
        target: where the result goes.
    """

    plan: BlockedProgram
    adapter: Adapter
    operands: Sequence[Source]
    room: int
    target: Target


class Scheduler:
    """A contraction in the hands of threads of the caller's own process; others override what differs.

    Args:
        executor: what pieces are given to.
        workers: how many of them it computes at the same time.
        work: the contraction.
    """

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        self.executor, self.workers = executor, workers
        self.work, self.plan, self.adapter = work, work.plan, work.adapter
        self._stopped = threading.Event()
        self._benches: dict[int, Blocks] = {}

    def values(self, left: Mapping[int, Place], progress: Progress) -> Values:
        """The blocks at the places that are left, by their numbers.

        Raises:
            BlockError: a worker could not compute a piece.
        """
        pieces, terms = self.pieces(left), terms_of(self.plan)
        in_parts = any(piece.start for piece in pieces)
        waiting = [*pieces]  # a heap, as it is sorted
        running: dict[Future[Any], Piece] = {}
        ready: dict[int, Array] = {}
        lost: Counter[int] = Counter()
        added = 0
        total: Array = None
        with self._closing(running), reported(progress, lambda: len(pieces)) as step:
            while waiting or running:
                while waiting and (len(running) + len(ready) < self.window or not running):
                    piece = heappop(waiting)
                    running[self._given(piece, lost)] = piece
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                while done:
                    future = done.pop()
                    piece = running.pop(future)
                    try:
                        ready[piece.number] = future.result()
                    except Exception as error:  # noqa: BLE001  # where no other worker is to try, it is raised there
                        self._lose(piece, error, lost)
                        heappush(waiting, piece)
                    del future
                while ready and (added in ready or not in_parts):
                    piece = pieces[added if in_parts else next(iter(ready))]
                    value = self.received(piece, ready.pop(piece.number))
                    total = self.adapter.add(total, value) if piece.start else value
                    del value
                    added += 1
                    step()
                    if piece.stop == terms:
                        with nullcontext() if total is None else self.writing():
                            yield piece.block, total
                        total = None

    @contextmanager
    def _closing(self, running: Mapping[Future[Any], Piece]) -> Iterator[None]:
        """However it ends, nothing runs on or stays behind."""
        try:
            yield
        finally:
            self.close(list(running))

    def _given(self, piece: Piece, lost: Counter[int]) -> Future[Any]:
        """A piece in the hands of a worker; an executor that takes no more may be replaced."""
        while True:
            try:
                return self.submit(piece)
            except BrokenExecutor as error:
                self._lose(piece, error, lost)

    def _lose(self, piece: Piece, error: Exception, lost: Counter[int]) -> None:
        """Hear that a piece was not computed.

        Raises:
            BlockError: no other worker is to try it.
        """
        lost[piece.number] += 1
        if lost[piece.number] <= RETRIES and self.goes_on(piece, error):
            return
        box = Blocks.outline(self.plan).box(piece.place)
        where = ", ".join(f"{axis.start}:{axis.stop}" for axis in box)
        what = f"block [{where}] of the result of {excerpt(self.plan.equation.text)}"
        if isinstance(error, BrokenExecutor):
            raise BlockError(
                f"{what} could not be computed: workers of the executor died {lost[piece.number]} times while they had "
                "it; where the system ended them for want of memory, use fewer workers or a smaller memory_limit="
            ) from error
        raise BlockError(f"{what} could not be computed: {type(error).__name__}: {error}") from error

    # -- what differs between executors -----------------------------------------------------------------------

    @property
    def window(self) -> int:
        """How many pieces may be in flight, or wait to be added up, at once."""
        return self.workers

    def pieces(self, left: Mapping[int, Place]) -> list[Piece]:
        """All pieces, in the order in which they are added up."""
        return pieces_for(self.workers, self.plan, left)

    def submit(self, piece: Piece) -> Future[Any]:
        """Give a piece to a worker."""
        future: Future[Any] = self.executor.submit(self.adapter.carried(self._compute), piece)
        return future

    def _compute(self, piece: Piece) -> Array:
        mine = threading.get_ident()
        if mine not in self._benches:
            self._benches[mine] = Blocks(self.plan, contracting(self.plan, self.adapter), self.adapter.add)
        with sharing(self.workers, self.adapter.name):
            return compute(self._benches[mine].value(piece.place, piece.start, piece.stop), self._read)

    def _read(self, number: int, box: Box) -> Array:
        if self._stopped.is_set():
            raise CancelledError
        return self.work.operands[number].read(box)

    def received(self, piece: Piece, value: Any) -> Array:
        """What a worker gave back, as an array of the framework; None if it has written that where it belongs."""
        return value

    def writing(self) -> AbstractContextManager[None]:
        """What the caller writes a block in, while workers may be writing others."""
        return nullcontext()

    def goes_on(self, piece: Piece, error: Exception) -> bool:
        """Whether a piece that its worker did not finish can be given to another one, which is then there."""
        return False

    def close(self, running: Sequence[Future[Any]]) -> None:
        """Stop what is still running, and leave nothing behind."""
        self._stopped.set()
        for future in running:
            future.cancel()
        wait(running)
        self._benches.clear()
        for source in self.work.operands:
            source.close()
