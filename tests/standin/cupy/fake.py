"""Streams that run late, memory that is reused, and counts, for the fake of CuPy."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

NAMES: dict[str, Any] = json.loads(Path(__file__).with_name("names.json").read_text())
DEVICES = 2
CARD = 1 << 30
"""Bytes of memory of each device."""
ROUNDING = 512
"""Bytes in which CuPy's pool gives out memory (cupy/cuda/memory.pyx)."""

lock = threading.RLock()

hooks: list[Any] = []
"""Those that are told what the pools give out and take back."""


@dataclass
class Counts:
    """What was queued since :func:`counted` began.

    Attributes:
        kernels: kernels and copies.
        moved: bytes that they read and write.
        silent: the copies that CuPy makes by itself in products and reshapes: name and bytes.
        uploaded, fetched: bytes that were copied from the host and to it, each time waiting for the stream.
        peak: the most bytes of arrays at once.
    """

    kernels: int = 0
    moved: int = 0
    silent: list[tuple[str, int]] = field(default_factory=list)
    uploaded: int = 0
    fetched: int = 0
    peak: int = 0


counts = Counts()


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts of what runs inside; ``peak`` is above what there was."""
    global counts  # noqa: PLW0603  # other modules read it as fake.counts
    before, counts = counts, Counts()
    used = sum(pool.used for pool in _pools.values())
    try:
        yield counts
    finally:
        counts.peak = max(counts.peak - used, 0)
        counts = before


# -- devices and streams --------------------------------------------------------------------------------------------


class _Local(threading.local):
    def __init__(self) -> None:
        self.devices = [0]
        self.streams: dict[int, list[Queue]] = {}


local = _Local()


def device() -> int:
    """The current device."""
    return local.devices[-1]


class Queue:
    """The work of one stream, which runs when somebody waits for it."""

    def __init__(self, device: int, is_null: bool = False, is_blocking: bool = True) -> None:
        self.device, self.is_null, self.is_blocking = device, is_null, is_blocking
        self._work: deque[tuple[Callable[[], None], list[tuple[Queue, int]]]] = deque()
        self.done = 0
        with lock:
            _queues[device].append(self)

    @property
    def end(self) -> int:
        """The number of jobs that were queued."""
        return self.done + len(self._work)

    def add(self, job: Callable[[], None], after: Sequence[tuple[Queue, int]] = ()) -> None:
        with lock:
            # The null stream and streams that are not non-blocking wait for each other.
            others = [queue for queue in _queues[self.device] if queue is not self and queue.is_blocking]
            waits = [(queue, queue.end) for queue in others if self.is_blocking and (self.is_null or queue.is_null)]
            self._work.append((job, [*waits, *after]))

    def run(self, end: int | None = None) -> None:
        """Do the work up to a job."""
        with lock:
            end = self.end if end is None else end
            while self.done < end:
                job, waits = self._work.popleft()
                self.done += 1
                for queue, place in waits:
                    queue.run(place)
                with np.errstate(all="ignore"):
                    job()


_queues: dict[int, list[Queue]] = defaultdict(list)
null_queues = [Queue(number, is_null=True) for number in range(DEVICES)]


def queue(number: int | None = None) -> Queue:
    """The current stream of a device, by default the current device."""
    number = device() if number is None else number
    entered = local.streams.get(number)
    return entered[-1] if entered else null_queues[number]


def launch(job: Callable[[], None], nbytes: int) -> None:
    """Queue a kernel that moves so many bytes on the current stream."""
    with lock:
        counts.kernels += 1
        counts.moved += nbytes
        queue().add(job)


def synchronize_all() -> None:
    """Do all work of all streams."""
    for number in range(DEVICES):
        for each in list(_queues[number]):
            each.run()


# -- memory ---------------------------------------------------------------------------------------------------------


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory.OutOfMemoryError."""


class _Pool:
    """The memory of one device; what was freed is kept for its stream."""

    def __init__(self) -> None:
        self.used = self.kept = 0
        self.free: dict[tuple[int, int], list[Any]] = defaultdict(list)

    def allocate(self, nbytes: int, owner: Queue) -> Any:
        size = -(-max(nbytes, 1) // ROUNDING) * ROUNDING
        with lock:
            reusable = self.free[id(owner), size]
            if reusable:
                buffer = reusable.pop()
                self.kept -= size
            else:
                if self.used + self.kept + size > CARD:
                    self.clear()
                if self.used + size > CARD:
                    raise OutOfMemoryError(f"Out of memory allocating {size} bytes (fake)")
                buffer = np.full(size, 0xFF, np.uint8)
            self.used += size
            for hook in hooks:
                hook.malloc_postprocess(mem_size=size)
            counts.peak = max(counts.peak, sum(pool.used for pool in _pools.values()))
            return buffer

    def release(self, buffer: Any, owner: Queue) -> None:
        with lock:
            self.used -= buffer.nbytes
            for hook in hooks:
                hook.free_postprocess(mem_size=buffer.nbytes)
            self.kept += buffer.nbytes
            self.free[id(owner), buffer.nbytes].append(buffer)

    def clear(self) -> None:
        self.free.clear()
        self.kept = 0


_pools = {number: _Pool() for number in range(DEVICES)}


class Memory:
    """Memory of the current device and stream, which goes back to them when nothing refers to it."""

    def __init__(self, nbytes: int) -> None:
        self.device, self.queue = device(), queue()
        self.buffer = _pools[self.device].allocate(nbytes, self.queue)

    def __del__(self) -> None:
        if hasattr(self, "buffer"):
            _pools[self.device].release(self.buffer, self.queue)


def pool(number: int) -> _Pool:
    return _pools[number]
