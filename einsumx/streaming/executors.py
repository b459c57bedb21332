"""Runs a contraction on the executor that the user passes: threads, processes here or elsewhere, or a Dask cluster.

A worker writes a block of the result itself, if the block is computed in one piece and other processes can write the
result. Other blocks, and pieces that are added up, are sent to the caller.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent import futures
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from einsumx.adapters.registry import get_backend
from einsumx.adapters.typing import Array
from einsumx.blocked.boxes import BlockIndex
from einsumx.errors import BackendError
from einsumx.host.files import has_memory_files
from einsumx.imports import imported
from einsumx.log import warn
from einsumx.storage.stores import is_of
from einsumx.streaming.pieces import read
from einsumx.streaming.readers import Source
from einsumx.streaming.scheduler import Concurrency, Scheduler, Workload
from einsumx.streaming.shared_operands import SharedOperand, SharedOperands, shared_file
from einsumx.streaming.tasks import Job, Part, Piece, block_bytes, box_of, cut, parts_of, pieces_for
from einsumx.streaming.worker import compute_piece
from einsumx.streaming.worker_writes import PermittedFiles, WritePermit


class _RemoteScheduler(Scheduler):
    """Runs a contraction in processes that share no memory with the caller."""

    local = False
    """Whether they all run on this machine."""

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        super().__init__(executor, workers, work)
        if get_backend(self.adapter.name) is not self.adapter:
            raise BackendError(
                f"other processes do not have the backend {self.adapter.name}, which this process registered; pass an "
                "executor of threads"
            )
        self._shared = SharedOperands(self.local)
        try:
            operands = tuple(map(self.share, work.sources))
        except BaseException:
            self._shared.close()
            raise
        self._permit: WritePermit | None = None
        self._permitted: PermittedFiles | None = None
        self._is_disjoint = True
        self.job = Job(uuid4().hex, self.program, operands, workers, version("einsumx"))

    def pieces(self, left: Mapping[int, BlockIndex]) -> list[Piece]:
        pieces = super().pieces(left)
        self._begin(pieces)
        return pieces

    def _begin(self, pieces: Sequence[Piece]) -> None:
        """Let workers write blocks themselves, if each is computed in one piece."""
        self._withdraw()
        files = self.work.target.files(self.program)
        if files is not None and has_memory_files() and not any(piece.start for piece in pieces):
            self._permit = WritePermit()
            self._permitted, self._is_disjoint = self._permit.for_files(files), files.disjoint
        self.job = replace(self.job, workers=min(self.workers, self.window))

    def _withdraw(self) -> None:
        permit, self._permit, self._permitted = self._permit, None, None
        if permit is not None:
            permit.withdraw()

    @property
    def window(self) -> int:
        if self._permitted is not None and self.local:  # no blocks come back
            return 2 * self.workers
        # A value that arrives is in memory twice: as bytes and as an array.
        held = self.work.room // max(block_bytes(self.program), 1) - 1
        return max(1, min(2 * self.workers, held))

    def share(self, source: Source) -> SharedOperand | None:
        """An operand in the form in which it is sent to workers; None if its blocks are sent with the pieces."""
        return self._shared.share(source)

    def submit(self, piece: Piece) -> Future[Any]:
        future: Future[Any] = self.executor.submit(compute_piece, self.job, piece, self._permitted)
        return future

    def received(self, piece: Piece, value: Any) -> Array:
        if value is None:
            return None
        self._permitted = None  # a worker that should have written this could not open the files
        return self.program.algebra.mapped(self._arrived, value)

    def _arrived(self, array: Any) -> Array:
        return self.adapter.from_numpy(array if array.flags.writeable else array.copy(), self.program.device)

    def writing(self) -> AbstractContextManager[None]:
        return nullcontext() if self._permit is None or self._is_disjoint else self._permit.alone()

    def can_retry(self, piece: Piece, error: Exception) -> bool:
        return isinstance(error, BrokenExecutor)

    def close(self, running: Sequence[Future[Any]]) -> None:
        for future in running:
            future.cancel()
        try:
            self._withdraw()
        finally:
            self._shared.close()


class _LocalScheduler(_RemoteScheduler):
    """Runs a contraction in a pool of processes on this machine, and replaces a pool that has lost a worker.

    The replacement is of the same kind and is shut down when the contraction ends. The user's own pool stays as it is.
    """

    local = True

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        super().__init__(executor, workers, work)
        self._original = executor
        self._submitted_to: dict[int, Any] = {}

    def submit(self, piece: Piece) -> Future[Any]:
        self._submitted_to[piece.number] = self.executor
        return super().submit(piece)

    def can_retry(self, piece: Piece, error: Exception) -> bool:
        # A pool loses all its pieces at once, but is replaced only once.
        if isinstance(error, BrokenExecutor) and self._submitted_to[piece.number] is self.executor:
            if self.executor is self._original:
                warn(
                    "a worker of executor= died, and the executor takes no more work; the contraction continues in a "
                    "new executor of the same kind"
                )
            self._shut_down_replacement()
            self.executor = _another(self._original, self.workers)
        return super().can_retry(piece, error)

    def _shut_down_replacement(self) -> None:
        if self.executor is not self._original:
            self.executor.shutdown()

    def close(self, running: Sequence[Future[Any]]) -> None:
        super().close(running)
        self._shut_down_replacement()


def _another(executor: Any, workers: int) -> Executor:
    """A pool of processes with the same arguments as ``executor``."""
    options = {"max_workers": workers, "initializer": executor._initializer, "initargs": executor._initargs}
    if is_of(executor, "loky"):
        kind: Any = imported("loky").ProcessPoolExecutor
        pool: Executor = kind(**options, context=executor._context, env=executor._env)
        return pool
    return futures.ProcessPoolExecutor(**options, mp_context=executor._mp_context)


class _DaskScheduler(_RemoteScheduler):
    """Runs a contraction on a Dask cluster, which holds blocks of the operands that are in the caller's memory."""

    def __init__(self, executor: Any, workers: int, work: Workload) -> None:
        super().__init__(executor, workers, work)
        self._scattered: dict[Part, Any] = {}
        self._parts: list[list[Part]] = []
        self._uses: Counter[Part] = Counter()

    def share(self, source: Source) -> SharedOperand | None:
        return shared_file(source)

    def pieces(self, left: Mapping[int, BlockIndex]) -> list[Piece]:
        pieces, terms = pieces_for(self.workers, self.program, left), self.program.blocking.terms
        count = len(pieces) // max(len(left), 1)
        # A worker has all blocks of a piece at once, in addition to its own memory.
        room = self.program.limit - self.program.blocking.peak_bytes
        while pieces and count < terms and self._sent_bytes(pieces[-1]) > room:
            count = min(2 * count, terms)
            pieces = cut(self.program, left, count)
        self._parts = [self._sent_parts(piece) for piece in pieces]
        self._uses = Counter(part for parts in self._parts for part in parts)
        self._begin(pieces)
        return pieces

    def _sent_parts(self, piece: Piece) -> list[Part]:
        return [part for part in parts_of(self.program, piece) if self.job.operands[part[0]] is None]

    def _sent_bytes(self, piece: Piece) -> int:
        return sum(self.work.sources[part[0]].nbytes(box_of(part)) for part in self._sent_parts(piece))

    def submit(self, piece: Piece) -> Future[Any]:
        parts = self._parts[piece.number]
        blocks = list(map(self._scatter, parts))
        future: Future[Any] = self.executor.submit(
            compute_piece, self.job, piece, self._permitted, parts, blocks, pure=False
        )
        return future

    def _scatter(self, part: Part) -> Any:
        """The future of a block on the cluster; a block is sent again only if its workers were lost."""
        block = self._scattered.get(part)
        if block is None or block.status in ("cancelled", "lost", "error"):
            values = read(self.work.sources[part[0]].on_host(), box_of(part))
            client = self.executor._client
            try:
                block = self._scattered[part] = client.scatter(values, hash=False)
            except AttributeError as error:
                if client.scheduler is not None:
                    raise
                raise RuntimeError("the cluster was closed") from error
        return block

    def received(self, piece: Piece, value: Any) -> Array:
        for part in self._parts[piece.number]:
            self._uses[part] -= 1
            if not self._uses[part]:
                self._scattered.pop(part, None)  # the cluster releases it with the last reference
        return super().received(piece, value)

    def can_retry(self, piece: Piece, error: Exception) -> bool:
        # Dask reassigns the tasks of a lost worker, but blocks that only that worker had are gone.
        for part in self._parts[piece.number]:
            self._scattered.pop(part, None)
        return isinstance(error, CancelledError)

    def close(self, running: Sequence[Future[Any]]) -> None:
        super().close(running)
        self._scattered.clear()


def _is_shut_down(executor: Any) -> bool:
    """Whether an executor of the standard library, loky or Dask was shut down, and is not just broken."""
    flags = getattr(executor, "_flags", None)  # of loky
    ended = ((executor, "_shutdown"), (executor, "_shutdown_thread"), (flags, "shutdown"))
    is_broken = getattr(executor, "_broken", False) or getattr(flags, "broken", None)
    return not is_broken and any(getattr(owner, name, False) is True for owner, name in ended)


class WorkerPool:
    """An executor, its number of workers, and how they affect the plan.

    Raises:
        ValueError: it was shut down, or its cluster does not answer.
    """

    def __init__(self, executor: Executor) -> None:
        if _is_shut_down(executor):
            raise ValueError("executor= was shut down and takes no more work; make another one")
        self._executor = executor
        self._scheduler: type[Scheduler] = _RemoteScheduler
        workers = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)
        self.workers = int(workers or os.cpu_count() or 1)
        threads = 1  # in each process
        if is_of(executor, "distributed"):
            client: Any = executor
            try:
                nthreads = client._client.nthreads().values()
            except TimeoutError:  # of a signal handler
                raise
            except (AttributeError, OSError, RuntimeError) as error:
                raise ValueError(
                    f"the cluster of executor= does not answer: {error}; connect to another one"
                ) from error
            self.workers, threads = max(sum(nthreads), 1), max(nthreads, default=1)
            self._scheduler = _DaskScheduler
        elif isinstance(executor, futures.ThreadPoolExecutor):
            self._scheduler, threads = Scheduler, self.workers
        elif isinstance(executor, futures.ProcessPoolExecutor) or is_of(executor, "loky"):
            self._scheduler = _LocalScheduler
        # Besides the blocks being computed, one is in memory that parts are added to, or that arrives.
        self.concurrency = Concurrency(together=1 + threads, pieces=2 * self.workers)

    def scheduler(self, work: Workload) -> Scheduler:
        """Runs a contraction."""
        return self._scheduler(self._executor, self.workers, work)
