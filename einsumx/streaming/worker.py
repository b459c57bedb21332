"""Computes pieces in the worker processes of an executor, writes them, and keeps values that later pieces need."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.adapters.typing import Array
from einsumx.blocked.boxes import Box
from einsumx.errors import EinsumxError
from einsumx.host.threads import sharing
from einsumx.streaming.blocks import Blocks, compute
from einsumx.streaming.readers import sources
from einsumx.streaming.shared_operands import Opened, Zarr
from einsumx.streaming.tasks import Job, Part, Piece, part_of
from einsumx.streaming.worker_writes import PermittedFiles
from einsumx.streaming.writers import write

IDLE = 10.0
"""Seconds for which a process keeps values that further pieces of the same contraction may need."""


class _PieceRunner:
    """Computes pieces of one contraction in one thread, and keeps the values that several of them need."""

    def __init__(self, job: Job) -> None:
        if job.version != version("einsumx"):
            raise EinsumxError(
                f"a worker has einsumx {version('einsumx')}, but its caller has {job.version}; use the same version of "
                "einsumx everywhere"
            )
        self._program = job.program
        self._adapter, self._device, self._workers = get_backend(job.program.backend), job.program.device, job.workers
        shared = {number: operand for number, operand in enumerate(job.operands) if operand is not None}
        self._is_slow_to_open = any(isinstance(operand, Opened | Zarr) for operand in shared.values())
        opened, _ = sources([operand.open() for operand in shared.values()], self._adapter, self._device)
        self._sources = dict(zip(shared, opened))
        self._sent: Mapping[Part, Any] = {}
        self._blocks = Blocks.computing(job.program, self._adapter)
        self._output: tuple[bytes, Any] | None = None  # with the token of its permit

    @property
    def keeps(self) -> bool:
        """Whether it has anything that a later piece may need."""
        return self._blocks.keeps or self._output is not None or self._is_slow_to_open

    def compute(self, piece: Piece, sent: Mapping[Part, Any], files: PermittedFiles | None) -> Any:
        """A piece as a NumPy array; None if it was written through ``files``."""
        self._sent = sent
        with sharing(self._workers, self._adapter.name):
            block = compute(self._blocks.value(piece.index, piece.start, piece.stop), self._read)
        self._sent = {}
        value = self._program.algebra.mapped(self._adapter.to_numpy, block)
        return None if files is not None and self._write(files, self._program.grid.part(piece.index), value) else value

    def _write(self, files: PermittedFiles, box: Box, values: Any) -> bool:
        """Write a block; return whether this process can and may do so."""
        with files.permitted() as is_permitted:
            if not is_permitted:
                return False
            if self._output is None or self._output[0] != files.token:
                self._output = files.token, files.open()
            out = self._output[1]
            if out is None:
                return False
            write(out, box, values)
        return True

    def _read(self, number: int, box: Box) -> Array:
        if number not in self._sources:
            return self._adapter.from_numpy(self._sent[part_of(number, box)], self._device)
        return self._sources[number].read(box)


class _RunnerCache:
    """Holds one runner, until it has not been used for a while."""

    def __init__(self) -> None:
        self._held: tuple[str, _PieceRunner] | None = None
        self._timer = threading.Timer(0, self._clear)

    def take(self, token: str) -> _PieceRunner | None:
        """The runner of that contraction if it is held; any other is dropped."""
        self._timer.cancel()
        held, self._held = self._held, None
        return held[1] if held is not None and held[0] == token else None

    def put(self, token: str, runner: _PieceRunner) -> None:
        """Hold a runner for the next piece."""
        self._held = token, runner
        self._timer = threading.Timer(IDLE, self._clear)
        self._timer.daemon = True
        self._timer.start()

    def _clear(self) -> None:
        self._held = None  # a runner that was put here meanwhile is only made again


class _ThreadState(threading.local):
    """A cache for each thread of a worker process."""

    def __init__(self) -> None:
        self.cache = _RunnerCache()


_state = _ThreadState()


def compute_piece(
    job: Job, piece: Piece, files: PermittedFiles | None = None, parts: Sequence[Part] = (), arrays: Sequence[Any] = ()
) -> Any:
    """Compute a piece in a worker process, from operands that it opens, or from blocks that are sent with it.

    Returns:
        The piece as a NumPy array; None if it is a block that was written through ``files``.
    """
    cache = _state.cache
    runner = cache.take(job.token) or _PieceRunner(job)
    value = runner.compute(piece, dict(zip(parts, arrays)), files)
    if runner.keeps:
        cache.put(job.token, runner)
    return value
