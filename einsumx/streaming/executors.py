"""Executors that are not of the caller's process: of processes on this machine or elsewhere, or of a Dask cluster.

A block of the result that is computed in one piece is written by its worker, where other processes can write it, and
sent to the caller else. Pieces that are added up go to the caller.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent import futures
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import import_module
from math import prod
from typing import Any
from uuid import uuid4

from einsumx.adapters.registry import get_backend
from einsumx.adapters.typing import Array
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, shown
from einsumx.runtime.request import Progress
from einsumx.runtime.stored import host_array
from einsumx.streaming.permits import Outlet, Permit
from einsumx.streaming.readers import Source, is_host_array
from einsumx.streaming.scheduler import Scheduler, Values, Workload
from einsumx.streaming.shared_operands import Lender, Lent, file_of
from einsumx.streaming.tasks import Job, Part, Piece, block_bytes, cut, parts_of, pieces_for, terms_of
from einsumx.streaming.walk import Place
from einsumx.streaming.worker import compute_piece

__all__ = ["WorkerPool"]


class _RemoteScheduler(Scheduler):
    """In the hands of processes that share no memory with the caller."""

    local = False
    """Whether they all run on this machine."""

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        super().__init__(executor, workers, work)
        if get_backend(self.adapter.name) is not self.adapter:
            raise BackendError(
                f"other processes do not know which {self.adapter.name} is meant; pass an executor of threads"
            )
        self._lender = Lender(self.local)
        try:
            lent = tuple(map(self.lend, work.operands))
        except BaseException:
            self._lender.close()
            raise
        self._permit: Permit | None = None
        self._outlet: Outlet | None = None
        self._is_apart = True
        self.job = Job(uuid4().hex, self.plan, lent, workers)

    def pieces(self, left: Mapping[int, Place]) -> list[Piece]:
        pieces = super().pieces(left)
        self._begin(pieces)
        return pieces

    def _begin(self, pieces: Sequence[Piece]) -> None:
        """Have workers write blocks themselves, if these are computed in one piece each."""
        self._withdraw()
        place = self.work.target.place(self.plan)
        if place is not None and Permit.is_possible() and not any(piece.start for piece in pieces):
            self._permit = Permit()
            self._outlet, self._is_apart = self._permit.outlet(place), place.apart
        self.job = replace(self.job, workers=min(self.workers, self.window))

    def _withdraw(self) -> None:
        permit, self._permit, self._outlet = self._permit, None, None
        if permit is not None:
            permit.withdraw()

    @property
    def window(self) -> int:
        if self._outlet is not None and self.local:  # nothing comes back
            return 2 * self.workers
        # While one of the values arrives, it is there twice: as bytes and as an array.
        held = self.work.room // max(block_bytes(self.plan), 1) - 1
        return max(1, min(2 * self.workers, held))

    def lend(self, source: Source) -> Lent | None:
        """How an operand is sent."""
        return self._lender.lend(source)

    def submit(self, piece: Piece) -> Future[Any]:
        future: Future[Any] = self.executor.submit(compute_piece, self.job, piece, self._outlet)
        return future

    def received(self, piece: Piece, value: Any) -> Array:
        if value is None:
            return None
        self._outlet = None  # a worker that could have written this did not see the files
        return self.adapter.from_numpy(value if value.flags.writeable else value.copy(), self.plan.device)

    def writing(self) -> AbstractContextManager[None]:
        return nullcontext() if self._permit is None or self._is_apart else self._permit.alone()

    def goes_on(self, piece: Piece, error: Exception) -> bool:
        return isinstance(error, BrokenExecutor)

    def close(self, running: Sequence[Future[Any]]) -> None:
        for future in running:
            future.cancel()
        try:
            self._withdraw()
        finally:
            self._lender.close()


class _LocalScheduler(_RemoteScheduler):
    """In the hands of a pool of processes on this machine; one that lost a worker, and takes no more work, is replaced.

    The user's own pool stays as it is: another of its kind takes its place until the contraction ends.
    """

    local = True

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        super().__init__(executor, workers, work)
        self._theirs = executor
        self._had_by: dict[int, Any] = {}

    def submit(self, piece: Piece) -> Future[Any]:
        self._had_by[piece.number] = self.executor
        return super().submit(piece)

    def goes_on(self, piece: Piece, error: Exception) -> bool:
        # All pieces that the pool had are lost with it, but it is replaced once.
        if isinstance(error, BrokenExecutor) and self._had_by[piece.number] is self.executor:
            if self.executor is self._theirs:
                warnings.warn(
                    "a worker of executor= died, and the executor takes no more work; the contraction goes on in "
                    "another one of its kind, which ends with it",
                    RuntimeWarning,
                    stacklevel=9,
                )
            self._leave()
            self.executor = _another(self._theirs, self.workers)
        return super().goes_on(piece, error)

    def _leave(self) -> None:
        """End the executor, where it is not the user's."""
        if self.executor is not self._theirs:
            self.executor.shutdown()

    def close(self, running: Sequence[Future[Any]]) -> None:
        super().close(running)
        self._leave()


def _another(executor: Any, workers: int) -> Executor:
    """A pool of processes that is made as ``executor`` was."""
    made = {"max_workers": workers, "initializer": executor._initializer, "initargs": executor._initargs}
    if _package(executor) == "loky":
        kind: Any = import_module("loky").ProcessPoolExecutor
        found: Executor = kind(**made, context=executor._context, env=executor._env)
        return found
    return futures.ProcessPoolExecutor(**made, mp_context=executor._mp_context)


class _DaskScheduler(_RemoteScheduler):
    """In the hands of a Dask cluster, which holds the blocks of operands that lie in the caller's memory."""

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        super().__init__(executor, workers, work)
        self._scattered: dict[Part, Any] = {}
        self._parts: list[list[Part]] = []
        self._uses: Counter[Part] = Counter()

    def lend(self, source: Source) -> Lent | None:
        return file_of(source.on_host())

    def pieces(self, left: Mapping[int, Place]) -> list[Piece]:
        pieces, terms = pieces_for(self.workers, self.plan, left), terms_of(self.plan)
        parts = len(pieces) // max(len(left), 1)
        # A worker has all blocks of a piece at once, beside what it computes.
        room = self.plan.limit - self.plan.blocking.peak_bytes
        while pieces and parts < terms and sum(map(self._nbytes, self._brought(pieces[-1]))) > room:
            parts = min(2 * parts, terms)
            pieces = cut(self.plan, left, parts)
        self._parts = [self._brought(piece) for piece in pieces]
        self._uses = Counter(part for parts in self._parts for part in parts)
        self._begin(pieces)
        return pieces

    def _brought(self, piece: Piece) -> list[Part]:
        """The blocks that a piece has to bring."""
        return [part for part in parts_of(self.plan, piece) if self.job.lent[part[0]] is None]

    def _nbytes(self, part: Part) -> int:
        number, box = part
        return prod(stop - start for start, stop in box) * itemsize(self.work.operands[number].operand.dtype)

    def submit(self, piece: Piece) -> Future[Any]:
        parts = self._parts[piece.number]
        held = [self._held(part) for part in parts]
        future: Future[Any] = self.executor.submit(
            compute_piece, self.job, piece, self._outlet, parts, held, pure=False
        )
        return future

    def _held(self, part: Part) -> Any:
        """A block on the cluster, sent there once as long as no worker that has it is lost."""
        held = self._scattered.get(part)
        if held is None or held.status in ("cancelled", "lost", "error"):
            number, box = part
            array, place = self.work.operands[number].on_host(), tuple(slice(*axis) for axis in box)
            block = get_backend("numpy").part(array, place) if is_host_array(array) else array[place]
            block = host_array(block)
            held = self._scattered[part] = self.executor._client.scatter(block, hash=False)
        return held

    def received(self, piece: Piece, value: Any) -> Array:
        for part in self._parts[piece.number]:
            self._uses[part] -= 1
            if not self._uses[part]:
                self._scattered.pop(part, None)  # with the last reference to it, the cluster lets it go
        return super().received(piece, value)

    def goes_on(self, piece: Piece, error: Exception) -> bool:
        # The scheduler gives tasks of a lost worker to others, but nobody else has what was sent to that one alone.
        for part in self._parts[piece.number]:
            self._scattered.pop(part, None)
        return isinstance(error, CancelledError)

    def close(self, running: Sequence[Future[Any]]) -> None:
        super().close(running)
        self._scattered.clear()


def _package(executor: Executor) -> str:
    return type(executor).__module__.partition(".")[0]


def _is_shut_down(executor: Any) -> bool:
    """Whether an executor of the standard library, of loky or of Dask was shut down; not where it broke by itself."""
    flags = getattr(executor, "_flags", None)  # of loky
    ended = ((executor, "_shutdown"), (executor, "_shutdown_thread"), (flags, "shutdown"))
    is_broken = getattr(executor, "_broken", False) or getattr(flags, "broken", None)
    return not is_broken and any(getattr(owner, name, False) is True for owner, name in ended)


class WorkerPool:
    """An executor, and how many work for it.

    Args:
        executor: any of the kind of :mod:`concurrent.futures`.

    Attributes:
        workers: how many tasks run at the same time.
        together: how many blocks share what the result leaves of one process's memory limit.
        pieces: into how many pieces a contraction is to be cut at least, so that all workers are busy to its end.
        waiting: how many values of blocks are there besides those that share the limit.

    Raises:
        TypeError: it is no executor.
        ValueError: it was shut down.
    """

    def __init__(self, executor: Executor) -> None:
        if not isinstance(executor, Executor):
            raise TypeError(f"executor= is an Executor of concurrent.futures or of its kind, not {shown(executor)}")
        if _is_shut_down(executor):
            raise ValueError("executor= was shut down and takes no more work; make another one")
        self._executor = executor
        threads = 1  # of a worker's process
        if _package(executor) == "distributed":
            self._hands: type[Scheduler] = _DaskScheduler
            client: Any = executor
            nthreads = client._client.nthreads().values()
            self.workers, threads = max(sum(nthreads), 1), max(nthreads, default=1)
        else:
            found = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)
            self.workers = int(found or os.cpu_count() or 1)
            if isinstance(executor, futures.ThreadPoolExecutor):
                self._hands, threads = Scheduler, self.workers
            else:
                is_local = isinstance(executor, futures.ProcessPoolExecutor) or _package(executor) == "loky"
                self._hands = _LocalScheduler if is_local else _RemoteScheduler
        # Beside the blocks that are being computed there is the one that parts are added to, or that arrives.
        self.together = 1 + threads
        self.pieces = 2 * self.workers
        self.waiting = 0

    def values(self, work: Workload, left: Mapping[int, Place], progress: Progress) -> Values:
        """The blocks at the places that are left, by their numbers, as they come.

        Raises:
            BlockError: a worker could not compute a piece.
        """
        return self._hands(self._executor, self.workers, work).values(left, progress)
