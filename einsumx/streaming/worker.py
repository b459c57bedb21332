"""What the workers of an executor do in processes of their own: compute pieces, write them, keep what others need."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.adapters.typing import Array
from einsumx.dtypes import itemsize
from einsumx.runtime.threads import sharing
from einsumx.streaming.permits import Outlet
from einsumx.streaming.readers import sources
from einsumx.streaming.task_checks import check_job, check_piece
from einsumx.streaming.tasks import Job, Part, Piece, part_of
from einsumx.streaming.walk import Blocks, Box, compute, contracting
from einsumx.streaming.writers import write

__all__ = ["compute_piece"]

IDLE = 10.0
"""Seconds for which a process keeps values that further pieces of the same contraction may need."""

ANNOUNCED = 16 << 20
"""Bytes of a block from which on the system is told that its pages are needed, and loads them all at once."""


class _PieceRunner:
    """Where a worker's thread computes pieces of one contraction, and keeps the values that several of them need."""

    def __init__(self, job: Job) -> None:
        check_job(job)
        self._plan = job.plan
        self._adapter, self._device, self._workers = get_backend(job.plan.backend), job.plan.device, job.workers
        lent = {number: item for number, item in enumerate(job.lent) if item is not None}
        found, _ = sources([item.open() for item in lent.values()], self._adapter, self._device)
        self._opened = dict(zip(lent, found))
        self._brought: Mapping[Part, Any] = {}
        self._blocks = Blocks(job.plan, contracting(job.plan, self._adapter), self._adapter.add)
        self._written: tuple[bytes, Any] | None = None

    @property
    def keeps(self) -> bool:
        """Whether there is something that a further piece may need."""
        return self._blocks.keeps or self._written is not None

    def compute(self, piece: Piece, brought: Mapping[Part, Any], outlet: Outlet | None) -> Any:
        """A piece, as a NumPy array; None if it was written where it belongs."""
        check_piece(self._plan, piece)
        self._brought = brought
        with sharing(self._workers, self._adapter.name):
            value = compute(self._blocks.value(piece.place, piece.start, piece.stop), self._read)
        self._brought = {}
        found = self._adapter.to_numpy(value)
        return None if outlet is not None and self._write(outlet, self._blocks.box(piece.place), found) else found

    def _write(self, outlet: Outlet, box: Box, values: Any) -> bool:
        """Write a block where it belongs; whether this process can and may do so."""
        with outlet.permitted() as is_permitted:
            if not is_permitted:
                return False
            if self._written is None or self._written[0] != outlet.token:
                self._written = outlet.token, outlet.open()
            out = self._written[1]
            if out is None:
                return False
            write(out, box, values)
        return True

    def _read(self, number: int, box: Box) -> Array:
        if number in self._opened:
            source = self._opened[number]
            if prod(part.stop - part.start for part in box) * itemsize(source.operand.dtype) >= ANNOUNCED:
                source.expect(box)
            return source.read(box)
        return self._adapter.from_numpy(self._brought[part_of(number, box)], self._device)


class _Shelf:
    """Has room for one bench, which is let go when nobody has asked for it for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[str, _PieceRunner] | None = None
        self._timer = threading.Timer(0, self._clear)

    def take(self, token: str) -> _PieceRunner | None:
        """The bench of that contraction, if it is still here; any other is let go."""
        self._timer.cancel()
        with self._lock:
            held, self._held = self._held, None
        return held[1] if held is not None and held[0] == token else None

    def put(self, token: str, runner: _PieceRunner) -> None:
        """Keep a bench for the next piece."""
        with self._lock:
            self._held = token, runner
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


def compute_piece(
    job: Job, piece: Piece, outlet: Outlet | None = None, parts: Sequence[Part] = (), arrays: Sequence[Any] = ()
) -> Any:
    """Compute a piece in a worker's process, from operands that it opens, or from blocks that come with it.

    Returns:
        The piece as a NumPy array; None if it is a block that was written where it belongs, through ``outlet``.
    """
    shelf = _shelves.own
    runner = shelf.take(job.token) or _PieceRunner(job)
    value = runner.compute(piece, dict(zip(parts, arrays)), outlet)
    if runner.keeps:
        shelf.put(job.token, runner)
    return value
