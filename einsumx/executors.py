"""Blocks on an executor: on threads, on processes here or elsewhere, or on the workers of a Dask cluster.

A piece is a block of the result, or, where these are too few for the workers, some of the terms that such a block is
the sum of. Pieces are added up in one order, so that the same call gives the same bits whoever comes first.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product
from math import prod
from typing import Any, TypeAlias
from uuid import uuid4

from einsumx.adapter import Adapter, Array
from einsumx.blocked import BlockedPlan, Blocks, Box, Place, compute, contracting
from einsumx.blocking import ranges
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, BlockError
from einsumx.lending import Lender, Lent, file_of
from einsumx.progress import Progress, reported
from einsumx.registry import get_backend
from einsumx.sources import Source, host_array, sources
from einsumx.threads import sharing

__all__ = ["Crew", "Hands", "Piece", "Values"]

Values: TypeAlias = Generator[tuple[int, Array], None, None]
"""Blocks of a result by their numbers."""

RETRIES = 2
"""How often a piece is given to another worker, after the one that had it died."""

IDLE = 10.0
"""Seconds for which a process keeps values that further pieces of the same contraction may need."""


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """What one task computes.

    Attributes:
        number: its place in the order of addition.
        block: the number of the block of the result that it belongs to.
        place: where that is.
        start, stop: from which of the terms that the block is the sum of it adds up, and before which.
    """

    number: int
    block: int
    place: Place
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Job:
    """What all pieces of one contraction share, as workers in other processes get it.

    Attributes:
        token: names the contraction.
        plan: how it is cut.
        lent: the operands; None for those of which a piece brings the blocks.
        workers: how many compute at the same time, and share the cores.
    """

    token: str
    plan: BlockedPlan
    lent: tuple[Lent | None, ...]
    workers: int


Part: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""An operand's number and the box of a block; slices are no keys before Python 3.12."""


def part_of(number: int, box: Box) -> Part:
    """What a block is known by."""
    return number, tuple((axis.start, axis.stop) for axis in box)


# -- in a worker ------------------------------------------------------------------------------------------------


class _Bench:
    """Where a worker's thread computes pieces of one contraction, and keeps the values that several of them need."""

    def __init__(self, job: Job) -> None:
        self._adapter, self._device, self._workers = get_backend(job.plan.backend), job.plan.device, job.workers
        lent = {number: item for number, item in enumerate(job.lent) if item is not None}
        found, _ = sources([item.open() for item in lent.values()], self._adapter, self._device)
        self._opened = dict(zip(lent, found))
        self._brought: Mapping[Part, Any] = {}
        self._blocks = Blocks(job.plan, contracting(job.plan, self._adapter), self._adapter.add)

    @property
    def keeps(self) -> bool:
        """Whether there are values that a further piece may need."""
        return self._blocks.keeps

    def compute(self, piece: Piece, brought: Mapping[Part, Any]) -> Any:
        """A piece, as a NumPy array."""
        self._brought = brought
        with sharing(self._workers, self._adapter.name):
            value = compute(self._blocks.value(piece.place, piece.start, piece.stop), self._read)
        self._brought = {}
        return self._adapter.to_numpy(value)

    def _read(self, number: int, box: Box) -> Array:
        if number in self._opened:
            return self._opened[number].read(box)
        return self._adapter.from_numpy(self._brought[part_of(number, box)], self._device)


class _Shelf:
    """Has room for one bench, which is let go when nobody has asked for it for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[str, _Bench] | None = None
        self._timer = threading.Timer(0, self._clear)

    def take(self, token: str) -> _Bench | None:
        """The bench of that contraction, if it is still here; any other is let go."""
        self._timer.cancel()
        with self._lock:
            held, self._held = self._held, None
        return held[1] if held is not None and held[0] == token else None

    def put(self, token: str, bench: _Bench) -> None:
        """Keep a bench for the next piece."""
        with self._lock:
            self._held = token, bench
        self._timer = threading.Timer(IDLE, self._clear)
        self._timer.daemon = True
        self._timer.start()

    def _clear(self) -> None:
        with self._lock:
            self._held = None


class _Shelves(threading.local):
    """A shelf for each thread of a worker."""

    def __init__(self) -> None:
        self.own = _Shelf()


_shelves = _Shelves()


def compute_piece(job: Job, piece: Piece, parts: Sequence[Part] = (), arrays: Sequence[Any] = ()) -> Any:
    """Compute a piece in a worker's process, from operands that it opens, or from blocks that come with it."""
    shelf = _shelves.own
    bench = shelf.take(job.token) or _Bench(job)
    value = bench.compute(piece, dict(zip(parts, arrays)))
    if bench.keeps:
        shelf.put(job.token, bench)
    return value


# -- in the caller ----------------------------------------------------------------------------------------------


class Hands:
    """One contraction in the hands of an executor: here, of the threads of the caller's own process.

    Args:
        executor: that computes the pieces.
        workers: how many it has.
        plan: of the contraction.
        adapter: of the framework that computes.
        operands: how each is read.
    """

    def __init__(
        self, executor: Any, workers: int, plan: BlockedPlan, adapter: Adapter, operands: Sequence[Source]
    ) -> None:
        self.executor, self.workers = executor, workers
        self.plan, self.adapter, self.operands = plan, adapter, operands
        self._stopped = threading.Event()
        self._benches: dict[int, Blocks] = {}

    def values(self, left: Mapping[int, Place], progress: Progress) -> Values:
        """The blocks at the places that are left, by their numbers."""
        pieces = self.pieces(left)
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
                    running[self._given(piece)] = piece
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                while done:
                    future = done.pop()
                    piece = running.pop(future)
                    try:
                        ready[piece.number] = future.result()
                    except Exception as error:
                        lost[piece.number] += 1
                        if lost[piece.number] > RETRIES or not self.goes_on(piece, error):
                            raise self._failure(piece, error) from error
                        heappush(waiting, piece)
                    del future
                while ready and (added in ready or not in_parts):
                    piece = pieces[added if in_parts else next(iter(ready))]
                    value = self.received(piece, ready.pop(piece.number))
                    total = self.adapter.add(total, value) if piece.start else value
                    del value
                    added += 1
                    step()
                    if piece.stop == self.terms:
                        yield piece.block, total
                        total = None

    @contextmanager
    def _closing(self, running: Mapping[Future[Any], Piece]) -> Iterator[None]:
        """However it ends, nothing runs on or stays behind."""
        try:
            yield
        finally:
            self.close(list(running))

    def _given(self, piece: Piece) -> Future[Any]:
        try:
            return self.submit(piece)
        except BrokenExecutor as error:
            raise self._failure(piece, error) from error

    def _failure(self, piece: Piece, error: Exception) -> BlockError:
        box = Blocks(self.plan, lambda *_: None, lambda *_: None).box(piece.place)
        where = ", ".join(f"{axis.start}:{axis.stop}" for axis in box)
        what = f"block [{where}] of the result of {self.plan.equation.text}"
        if isinstance(error, BrokenExecutor):
            return BlockError(
                f"the executor lost a worker, and takes no more work, before {what} was computed; make a new one, and "
                "call again"
            )
        return BlockError(f"{what} could not be computed: {type(error).__name__}: {error}")

    # -- how a contraction is cut into pieces -----------------------------------------------------------------

    @property
    def terms(self) -> int:
        """How many terms each block of the result is the sum of."""
        return prod(self.plan.blocking.counts[label] for label in self.plan.blocking.root.loops)

    def cut(self, left: Mapping[int, Place], parts: int) -> list[Piece]:
        """The pieces of the blocks that are left, each block in so many parts."""
        every = enumerate(product(left.items(), ranges(self.terms, parts)))
        return [Piece(number, block, place, run.start, run.stop) for number, ((block, place), run) in every]

    def pieces(self, left: Mapping[int, Place]) -> list[Piece]:
        """All pieces, in the order in which they are added up; blocks are cut where they are few for the workers."""
        return self.cut(left, min(self.terms, -(-2 * self.workers // max(len(left), 1))))

    # -- what differs between executors -----------------------------------------------------------------------

    @property
    def window(self) -> int:
        """How many pieces may be in flight, or wait to be added up, at once."""
        return self.workers

    def submit(self, piece: Piece) -> Future[Any]:
        """Give a piece to a worker."""
        future: Future[Any] = self.executor.submit(self._compute, piece)
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
        return self.operands[number].read(box)

    def received(self, piece: Piece, value: Any) -> Array:
        """What a worker gave back, as an array of the framework."""
        return value

    def goes_on(self, piece: Piece, error: Exception) -> bool:
        """Whether a piece that its worker did not finish can be given to another one."""
        return False

    def close(self, running: Sequence[Future[Any]]) -> None:
        """Stop what is still running, and leave nothing behind."""
        self._stopped.set()
        for future in running:
            future.cancel()
        wait(running)
        self._benches.clear()
        for source in self.operands:
            source.close()


class _RemoteHands(Hands):
    """In the hands of processes that share no memory with the caller."""

    local = False
    """Whether they all run on this machine."""

    def __init__(
        self, executor: Any, workers: int, plan: BlockedPlan, adapter: Adapter, operands: Sequence[Source]
    ) -> None:
        super().__init__(executor, workers, plan, adapter, operands)
        if get_backend(adapter.name) is not adapter:
            raise BackendError(
                f"other processes do not know which {adapter.name} is meant; pass an executor of threads"
            )
        self._lender = Lender(self.local)
        try:
            self.job = Job(uuid4().hex, plan, tuple(map(self.lend, operands)), workers)
        except BaseException:
            self._lender.close()
            raise

    @property
    def window(self) -> int:
        root, counts = self.plan.blocking.root, self.plan.blocking.counts
        sizes = self.plan.equation.sizes
        block = prod(-(-sizes[label] // counts[label]) for label in root.output) * itemsize(self.plan.compute_dtype)
        left = self.plan.limit - prod(self.plan.shape) * itemsize(self.plan.dtype)
        # As it arrives, a value is there twice: as bytes and as an array.
        return max(1, min(2 * self.workers, left // max(2 * block, 1)))

    def lend(self, source: Source) -> Lent | None:
        """How an operand is sent."""
        return self._lender.lend(source)

    def submit(self, piece: Piece) -> Future[Any]:
        future: Future[Any] = self.executor.submit(compute_piece, self.job, piece)
        return future

    def received(self, piece: Piece, value: Any) -> Array:
        return self.adapter.from_numpy(value if value.flags.writeable else value.copy(), self.plan.device)

    def goes_on(self, piece: Piece, error: Exception) -> bool:
        return isinstance(error, BrokenExecutor)

    def close(self, running: Sequence[Future[Any]]) -> None:
        for future in running:
            future.cancel()
        self._lender.close()


class _LocalHands(_RemoteHands):
    """In the hands of a pool of processes on this machine."""

    local = True

    def goes_on(self, piece: Piece, error: Exception) -> bool:
        if isinstance(error, BrokenExecutor) and _package(self.executor) == "loky":
            import loky

            # A pool that lost a worker takes no more work; loky puts another in its place.
            self.executor = loky.get_reusable_executor(max_workers=self.workers, reuse=True)
        return super().goes_on(piece, error)


class _DaskHands(_RemoteHands):
    """In the hands of a Dask cluster, which holds the blocks of operands that lie in the caller's memory."""

    def __init__(
        self, executor: Any, workers: int, plan: BlockedPlan, adapter: Adapter, operands: Sequence[Source]
    ) -> None:
        super().__init__(executor, workers, plan, adapter, operands)
        self._scattered: dict[Part, Any] = {}
        self._parts: list[list[Part]] = []
        self._uses: Counter[Part] = Counter()

    def lend(self, source: Source) -> Lent | None:
        return file_of(source.on_host())

    def pieces(self, left: Mapping[int, Place]) -> list[Piece]:
        pieces = super().pieces(left)
        parts = len(pieces) // max(len(left), 1)
        # A worker has all blocks of a piece at once, beside what it computes.
        room = self.plan.limit - self.plan.blocking.peak_bytes
        while pieces and parts < self.terms and sum(map(self._nbytes, self._brought(pieces[-1]))) > room:
            parts = min(2 * parts, self.terms)
            pieces = self.cut(left, parts)
        self._parts = [self._brought(piece) for piece in pieces]
        self._uses = Counter(part for parts in self._parts for part in parts)
        return pieces

    def _brought(self, piece: Piece) -> list[Part]:
        """The blocks that a piece has to bring."""
        steps = Blocks(self.plan, lambda *_: None, lambda *_: None).value(piece.place, piece.start, piece.stop)
        needed = dict.fromkeys(part_of(number, box) for number, box in steps)
        return [part for part in needed if self.job.lent[part[0]] is None]

    def _nbytes(self, part: Part) -> int:
        number, box = part
        return prod(stop - start for start, stop in box) * itemsize(self.operands[number].operand.dtype)

    def submit(self, piece: Piece) -> Future[Any]:
        parts = self._parts[piece.number]
        held = [self._held(part) for part in parts]
        future: Future[Any] = self.executor.submit(compute_piece, self.job, piece, parts, held, pure=False)
        return future

    def _held(self, part: Part) -> Any:
        """A block on the cluster, sent there once as long as no worker that has it is lost."""
        held = self._scattered.get(part)
        if held is None or held.status in ("cancelled", "lost", "error"):
            number, box = part
            block = host_array(self.operands[number].on_host()[tuple(slice(*axis) for axis in box)])
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


class Crew:
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
    """

    def __init__(self, executor: Executor) -> None:
        if not isinstance(executor, Executor):
            raise TypeError(f"executor= is an Executor of concurrent.futures or of its kind, not {executor!r}")
        self._executor = executor
        threads = 1  # of a worker's process
        if _package(executor) == "distributed":
            self._hands: type[Hands] = _DaskHands
            client: Any = executor
            nthreads = client._client.nthreads().values()
            self.workers, threads = max(sum(nthreads), 1), max(nthreads, default=1)
        else:
            found = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)
            self.workers = int(found or os.cpu_count() or 1)
            if isinstance(executor, ThreadPoolExecutor):
                self._hands, threads = Hands, self.workers
            else:
                is_local = isinstance(executor, ProcessPoolExecutor) or _package(executor) == "loky"
                self._hands = _LocalHands if is_local else _RemoteHands
        # Beside the blocks that are being computed there is the one that parts are added to, or that arrives.
        self.together = 1 + threads
        self.pieces = 2 * self.workers
        self.waiting = 0

    def values(
        self,
        plan: BlockedPlan,
        adapter: Adapter,
        operands: Sequence[Source],
        left: Mapping[int, Place],
        progress: Progress,
    ) -> Values:
        """The blocks at the places that are left, by their numbers, as they come.

        Raises:
            BlockError: a worker could not compute a piece.
        """
        return self._hands(self._executor, self.workers, plan, adapter, operands).values(left, progress)
