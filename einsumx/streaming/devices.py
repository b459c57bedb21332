"""Blocks on several devices of one machine: each has a thread that computes, and one that reads ahead of it.

A device gets its next piece when one of its pieces is done, so that a slower one computes less. Where a block of the
result is computed in parts these are added up in one order, and a device that is ahead waits for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.blocked.program import BlockedProgram
from einsumx.errors import shown
from einsumx.runtime.request import Progress
from einsumx.streaming.prefetch import Reader
from einsumx.streaming.readers import Source
from einsumx.streaming.scheduler import Scheduler, Values, Workload
from einsumx.streaming.tasks import Piece, pieces_for, terms_of
from einsumx.streaming.walk import Blocks, Box, Place, Read, compute, contracting

__all__ = ["Devices", "find_devices"]

_DEPTH = 2
"""Pieces that a device has at once: one that it computes, and one that is read, or whose value is being fetched."""


def find_devices(adapter: Adapter, names: Sequence[str]) -> tuple[str, ...]:
    """The devices that a user named, by the names that the framework gives them.

    Raises:
        ValueError: one is named twice.
        BackendError: there is none of that name.
    """
    found: dict[str, str] = {}
    for name in names:
        device = adapter.find_device(name)
        if device in found:
            raise ValueError(
                f"devices= has {shown(found[device])} and {shown(name)}, which are one device of {adapter.name}"
            )
        found[device] = name
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Devices:
    """Several devices, and how each of them reads the operands.

    Attributes:
        names: of the devices; parts of blocks are added up, and a fresh result is, on the first.
        sources: for each device, those of all operands.
    """

    names: tuple[str, ...]
    sources: tuple[Sequence[Source], ...]

    @property
    def together(self) -> int:
        """How many blocks share what the result leaves of one device's memory limit."""
        return 1

    @property
    def pieces(self) -> int:
        """Into how many pieces a contraction is to be cut at least, so that all devices are busy to its end."""
        return 2 * _DEPTH * len(self.names)

    @property
    def waiting(self) -> int:
        """How many values of blocks a device holds at most besides what it computes.

        These are its last one; and on the first device, one that arrives from another, and one that parts are added to.
        """
        return 3

    def operands(self) -> list[Source]:
        """A source of each operand that takes memory where any does: what all devices are planned by."""
        return [next((source for source in of if not source.lies_there), of[0]) for of in zip(*self.sources)]

    def values(self, work: Workload, left: Mapping[int, Place], progress: Progress) -> Values:
        """The blocks at the places that are left, by their numbers, as they come, each on the device that computed it.

        Raises:
            BlockError: a device could not compute a piece.
        """
        return _DeviceScheduler(self, work).values(left, progress)


class _DeviceScheduler(Scheduler):
    """In the hands of several devices."""

    def __init__(self, devices: Devices, work: Workload) -> None:
        super().__init__(None, len(devices.names), work)
        self._lanes = [
            _Lane(work.plan, work.adapter, name, sources, self._stopped.is_set)
            for name, sources in zip(devices.names, devices.sources)
        ]
        self._on: dict[int, _Lane] = {}

    @property
    def window(self) -> int:
        return _DEPTH * self.workers

    def pieces(self, left: Mapping[int, Place]) -> list[Piece]:
        return pieces_for(self.window, self.plan, left)

    def submit(self, piece: Piece) -> Future[Any]:
        lane = self._on[piece.number] = min(self._lanes, key=list(self._on.values()).count)
        return lane.submit(piece)

    def received(self, piece: Piece, value: Any) -> Array:
        del self._on[piece.number]
        is_whole = piece.start == 0 and piece.stop == terms_of(self.plan)
        return value if is_whole else self.adapter.move(value, self.plan.device)

    def close(self, running: Sequence[Future[Any]]) -> None:
        super().close(running)
        with ExitStack() as stack:
            for lane in self._lanes:
                stack.callback(lane.close)


class _Lane:
    """A device at work on the pieces that it is given, in their order."""

    def __init__(
        self,
        plan: BlockedProgram,
        adapter: Adapter,
        device: str,
        sources: Sequence[Source],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._adapter, self._is_stopped = adapter, is_stopped
        self._blocks = Blocks(plan, contracting(plan, adapter), adapter.add)
        self._ahead = Blocks.outline(plan)
        self._coming: SimpleQueue[Piece | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._open = ExitStack()
        reader = Reader(sources, self._reads(), plan.blocking.read_ahead, adapter.carried)
        self._read = self._open.enter_context(reader)
        self._open.callback(self._coming.put, None)
        self._thread = self._open.enter_context(futures.ThreadPoolExecutor(1, f"einsumx-{device}"))

    def submit(self, piece: Piece) -> Future[Any]:
        """Have a piece computed after those before it; its operands are read as soon as there is memory for them."""
        self._coming.put(piece)
        return self._thread.submit(self._adapter.carried(self._compute), piece)

    def close(self) -> None:
        """Wait for the threads' end: for that of the computing, then of the reading for it."""
        self._open.close()

    def _reads(self) -> Iterator[Read]:
        while (piece := self._coming.get()) is not None:
            yield from self._ahead.value(piece.place, piece.start, piece.stop)

    def _compute(self, piece: Piece) -> Array:
        if self._error is not None:  # nobody reads for what comes after
            raise self._error
        try:
            value = compute(self._blocks.value(piece.place, piece.start, piece.stop), self._bring)
            self._adapter.synchronize(value)
        except BaseException as error:
            self._error = error
            raise
        return value

    def _bring(self, number: int, box: Box) -> Array:
        if self._is_stopped():
            raise CancelledError
        return self._read(number, box)
