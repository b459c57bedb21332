"""Computes blocks on several devices of one machine: each has a thread that computes and one that reads ahead.

A device gets its next piece when it has finished one, so that a slower device computes less. If a block of the result
is computed in parts, these are added up in a fixed order, and a device that is ahead waits for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Event
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import blocks_of
from einsumx.blocked.boxes import BlockIndex, Box
from einsumx.errors import shown
from einsumx.streaming.blocks import Blocks, Read, compute
from einsumx.streaming.readers import Reader, Source
from einsumx.streaming.scheduler import Concurrency, Scheduler, Workload
from einsumx.streaming.tasks import Piece, pieces_for

_DEPTH = 2
"""Pieces that a device has at once: one that it computes, and one that is read or whose value is fetched."""


def find_devices(adapter: Adapter, names: Sequence[str]) -> tuple[str, ...]:
    """The framework's names of the devices that a user named.

    Raises:
        ValueError: one is named twice.
        BackendError: there is none of that name.
    """
    names_of: dict[str, str] = {}
    for name in names:
        device = blocks_of(adapter).find_device(name)
        if device in names_of:
            raise ValueError(
                f"devices= has {shown(names_of[device])} and {shown(name)}, which are one device of {adapter.name}"
            )
        names_of[device] = name
    return tuple(names_of)


@dataclass(frozen=True, slots=True)
class Devices:
    """Several devices, and how each reads the operands.

    Attributes:
        names: of the devices; on the first, parts of blocks are added up, and a fresh result is stored.
        sources: for each device, the sources of all operands.
    """

    names: tuple[str, ...]
    sources: tuple[Sequence[Source], ...]

    @property
    def concurrency(self) -> Concurrency:
        # A device may hold its last value; the first also one that arrives and one that parts are added to.
        return Concurrency(pieces=2 * _DEPTH * len(self.names), waiting=3)

    def operands(self) -> list[Source]:
        """A source of each operand that takes memory if that of any device does, to plan for all devices."""
        return [next((source for source in row if not source.in_place), row[0]) for row in zip(*self.sources)]

    def scheduler(self, work: Workload) -> Scheduler:
        """Runs a contraction; each value stays on the device that computed it."""
        return _DeviceScheduler(self, work)


class _DeviceScheduler(Scheduler):
    """Runs a contraction on several devices."""

    def __init__(self, devices: Devices, work: Workload) -> None:
        super().__init__(None, len(devices.names), work)
        self._lanes = [
            _Lane(work, name, sources, self._stopped) for name, sources in zip(devices.names, devices.sources)
        ]
        self._lane_of: dict[int, _Lane] = {}  # by piece number

    @property
    def window(self) -> int:
        return _DEPTH * self.workers

    def pieces(self, left: Mapping[int, BlockIndex]) -> list[Piece]:
        return pieces_for(self.window, self.program, left)

    def submit(self, piece: Piece) -> Future[Any]:
        lane = self._lane_of[piece.number] = min(self._lanes, key=list(self._lane_of.values()).count)
        return lane.submit(piece)

    def received(self, piece: Piece, value: Any) -> Array:
        del self._lane_of[piece.number]
        is_whole = piece.start == 0 and piece.stop == self.program.blocking.terms
        move = partial(blocks_of(self.adapter).move, device=self.program.device)
        return value if is_whole else self.program.algebra.mapped(move, value)

    def close(self, running: Sequence[Future[Any]]) -> None:
        super().close(running)
        with ExitStack() as stack:
            for lane in self._lanes:
                stack.callback(lane.close)


class _Lane:
    """Computes pieces on one device, in the order of submission."""

    def __init__(self, work: Workload, device: str, sources: Sequence[Source], stopped: Event) -> None:
        program, adapter = work.program, work.adapter
        self._adapter, self._algebra, self._stopped = adapter, program.algebra, stopped
        self._carried = blocks_of(adapter).carried
        self._blocks = Blocks.computing(program, adapter, device=device)
        self._ahead = Blocks.outline(program)
        self._queue: SimpleQueue[Piece | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._open = ExitStack()
        reader = Reader(sources, self._reads(), program.blocking.read_ahead, adapter)
        self._read_block = self._open.enter_context(reader)
        self._open.callback(self._queue.put, None)
        self._thread = self._open.enter_context(futures.ThreadPoolExecutor(1, f"einsumx-{device}"))

    def submit(self, piece: Piece) -> Future[Any]:
        """Queue a piece; its operands are read as soon as there is memory for them."""
        self._queue.put(piece)
        return self._thread.submit(self._carried(self._compute), piece)

    def close(self) -> None:
        """Wait for the end of the computing thread, then of the reading thread."""
        self._open.close()

    def _reads(self) -> Iterator[Read]:
        while (piece := self._queue.get()) is not None:
            yield from self._ahead.value(piece.index, piece.start, piece.stop)

    def _compute(self, piece: Piece) -> Array:
        if self._error is not None:  # the reads of later pieces are out of step
            raise self._error
        try:
            value = compute(self._blocks.value(piece.index, piece.start, piece.stop), self._read)
            self._algebra.mapped(self._adapter.synchronize, value)
        except BaseException as error:
            self._error = error
            raise
        return value

    def _read(self, number: int, box: Box) -> Array:
        if self._stopped.is_set():
            raise CancelledError
        return self._read_block(number, box)
