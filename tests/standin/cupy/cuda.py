"""Devices, streams, events and pinned memory of the fake of CuPy."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupy import fake


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime.CUDARuntimeError."""


_ATTRIBUTES = {
    "MultiProcessorCount": 80,
    "ClockRate": 1_530_000,
    "MemoryClockRate": 877_000,
    "GlobalMemoryBusWidth": 4096,
}
"""Of a V100."""


class Device:
    """A device as a context."""

    def __init__(self, number: int | None = None) -> None:
        self.id = fake.device() if number is None else int(number)
        if not 0 <= self.id < fake.DEVICES:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

    @property
    def attributes(self) -> dict[str, int]:
        return dict(_ATTRIBUTES)

    @property
    def compute_capability(self) -> str:
        return "70"

    def __enter__(self) -> Any:
        fake.local.devices = [*fake.local.devices, self.id]
        return self

    def __exit__(self, *_: object) -> None:
        fake.local.devices = fake.local.devices[:-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def synchronize(self) -> None:
        for queue in list(fake._queues[self.id]):
            queue.run()


class Event:
    """A place in a stream."""

    def __init__(self, queue: fake.Queue | None = None) -> None:
        self._queue = queue
        self._end = 0 if queue is None else queue.end

    def synchronize(self) -> None:
        if self._queue is not None:
            self._queue.run(self._end)

    @property
    def done(self) -> bool:
        return self._queue is None or self._queue.done >= self._end


class Stream:
    """A stream of the current device."""

    def __init__(self, *, non_blocking: bool = False) -> None:
        self.device_id = fake.device()
        self._own = fake.Queue(self.device_id, is_blocking=not non_blocking)

    @classmethod
    def _of(cls, queue: fake.Queue) -> Stream:
        stream = cls.__new__(cls)
        stream.device_id, stream._own = queue.device, queue
        return stream

    def __enter__(self) -> Any:
        if self.device_id != fake.device():
            raise RuntimeError("This stream belongs to another device than the current one")
        fake.local.streams.setdefault(self.device_id, []).append(self._own)
        return self

    def __exit__(self, *_: object) -> None:
        fake.local.streams[self.device_id].pop()

    def record(self) -> Event:
        return Event(self._own)

    def wait_event(self, event: Event) -> None:
        if event._queue is not None:
            self._own.add(lambda: None, [(event._queue, event._end)])

    def synchronize(self) -> None:
        self._own.run()


def get_current_stream(device_id: int = -1) -> Stream:
    return Stream._of(fake.queue(None if device_id == -1 else device_id))


class MemoryPointer:
    """An address in an array."""

    def __init__(self, memory: fake.Memory, offset: int) -> None:
        self._memory, self._offset = memory, offset
        self.device_id = memory.device

    @property
    def ptr(self) -> int:
        return int(self._memory.buffer.ctypes.data) + self._offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self._memory, self._offset + offset)

    def copy_from_host_async(self, mem: int, size: int, stream: Stream) -> None:
        """Queue a copy of pinned memory, which is read when the copy runs."""
        if not any(start <= mem and mem + size <= start + length for start, length in _pinned.items()):
            raise CUDARuntimeError("the fake copies asynchronously from pinned memory only")
        if stream.device_id != fake.device():
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: the stream is of another device")
        target = self._memory.buffer[self._offset : self._offset + size]
        fake.counts.kernels += 1
        stream._own.add(lambda: np.copyto(target, np.frombuffer((ctypes.c_char * size).from_address(mem), np.uint8)))


class MemoryPool:
    """The pool of the current device."""

    def free_bytes(self) -> int:
        return fake.pool(fake.device()).kept

    def used_bytes(self) -> int:
        return fake.pool(fake.device()).used

    def free_all_blocks(self) -> None:
        fake.pool(fake.device()).clear()


class MemoryHook:
    """A context in which its methods are told of memory."""

    def __enter__(self) -> Any:
        fake.hooks.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        fake.hooks.remove(self)


_pinned: dict[int, int] = {}


def _register(ptr: int, size: int, flags: int) -> None:
    if any(start < ptr + size and ptr < start + length for start, length in _pinned.items()):
        raise CUDARuntimeError("cudaErrorHostMemoryAlreadyRegistered: part or all of the range is pinned already")
    _pinned[ptr] = size


def _unregister(ptr: int) -> None:
    if _pinned.pop(ptr, None) is None:
        raise CUDARuntimeError("cudaErrorHostMemoryNotRegistered: pointer does not correspond to a pinned region")


def _memory() -> tuple[int, int]:
    pool = fake.pool(fake.device())
    return fake.CARD - pool.used - pool.kept, fake.CARD


def _properties(number: int) -> dict[str, Any]:
    return {
        "name": f"fake of a GPU, number {Device(number).id}".encode(),
        "totalGlobalMem": fake.CARD,
    }


runtime = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    getDevice=fake.device,
    getDeviceCount=lambda: fake.DEVICES,
    getDeviceProperties=_properties,
    is_hip=False,
    hostRegister=_register,
    hostUnregister=_unregister,
    memGetInfo=_memory,
)
memory = SimpleNamespace(OutOfMemoryError=fake.OutOfMemoryError)
