"""Reads the operands of a blocked contraction: arrays on the device or the host, and files; some blocks ahead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import blocks_of, needs_gradient
from einsumx.adapters.registry import backend_of, get_backend, is_builtin, is_stored, owner
from einsumx.adapters.staging import Ring
from einsumx.blocked.boxes import Box, box_size
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError
from einsumx.host.threads import started
from einsumx.ir.operand import Operand
from einsumx.runtime.conversion import arrays_of, one_device
from einsumx.runtime.served import is_served
from einsumx.runtime.stored import stored_operand
from einsumx.storage.maps import give_back, mapping
from einsumx.storage.reopened import ReopenedArray
from einsumx.storage.stores import is_remote
from einsumx.streaming.blocks import Read
from einsumx.streaming.pieces import read

_FROM_FILES, _FROM_NETWORK = 1e9, 1e8
"""Approximate bytes a second at which an HDF5 or Zarr dataset is read and decoded, from files or from a URL."""

_TO_DEVICE = 12e9
"""Approximate bytes a second from the host's memory to a device over PCI Express 3 with 16 lanes."""


class Source:
    """One operand, read block by block.

    Attributes:
        operand: its shape, dtype and layout for the planner.
        in_place: whether blocks of it are views on the device.
        read_rate: bytes a second at which it is read; None for the rate of a copy.
        at_once: bytes of chunks that are read in one call from a stored array; 0 for one chunk.
        gives_back: whether pages of a mapped file are given back to the system behind the reader.
        is_result: whether the result is a view of the block that is read, so that the user has its memory.
        stored: the memory map or the stored array that it is read from; None for an array in memory.
        reopened: the array as the user passed it, if each worker opens it by a function.
    """

    operand: Operand
    in_place: bool
    read_rate: float | None = None
    at_once: int = 0
    gives_back: bool = False
    is_result: bool = False
    stored: Any = None
    reopened: ReopenedArray | None = None

    def read(self, box: Box) -> Array:
        """A block on the device."""
        raise NotImplementedError

    def nbytes(self, box: Box) -> int:
        """The size of a block in bytes."""
        return box_size(box) * itemsize(self.operand.dtype)

    def on_host(self) -> Any:
        """All of it as a NumPy array or an array that is read by slices; cast if NumPy lacks its dtype.

        Raises:
            BackendError: it is not in the host's memory.
        """
        raise NotImplementedError

    def host_block(self, box: Box) -> Any:
        """A block as a NumPy array with the same values."""
        raise NotImplementedError

    def close(self) -> None:
        """Release buffers; it can be read again afterwards."""


class InPlace(Source):
    """An array of the framework on the device that computes."""

    def __init__(self, array: Array, adapter: Adapter, operand: Operand | None = None) -> None:
        assert adapter.blocks is not None  # others were refused when the contraction was planned
        self._array, self._adapter, self._part = array, adapter, adapter.blocks.part
        self.operand = operand or adapter.operand(adapter.signature(array))
        self.in_place = adapter.cpu.arrays == "strided"

    def read(self, box: Box) -> Array:
        return self._part(self._array, box)

    def on_host(self) -> Any:
        device = self._adapter.device(self._array)
        if not is_host(device):
            raise BackendError(f"an operand on {device} cannot be sent to another process; pass an executor of threads")
        return self._to_numpy(self._array)

    def host_block(self, box: Box) -> Any:
        return self._to_numpy(self._part(self._array, box))

    def _to_numpy(self, array: Array) -> Any:
        try:
            return self._adapter.to_numpy(array)
        except TypeError:
            # NumPy lacks the dtype; the wider one in which its sums are accumulated has all its values.
            wide = dict(self._adapter.cpu.widen).get(self.operand.dtype)
            if wide is None:
                raise
            return self._adapter.to_numpy(self._adapter.cast(array, wide))


class _Mapped(InPlace):
    """An array on a memory-mapped file, which the framework reads in place."""

    def __init__(self, array: Array, adapter: Adapter, mapped: Any) -> None:
        super().__init__(array, adapter)
        self.stored = mapped
        self._last: Box | None = None

    def read(self, box: Box) -> Array:
        if box != self._last:
            self.close()
            self._last = box
        return super().read(box)

    def close(self) -> None:
        last, self._last = self._last, None
        if last is not None and self.gives_back:
            give_back(self.stored, last)

    def on_host(self) -> Any:
        return self.stored

    def host_block(self, box: Box) -> Any:
        return self.stored[box]


class _Copied(InPlace):
    """An array of the framework whose blocks are copied or moved to the device, so that its layout does not matter."""

    def __init__(self, array: Array, adapter: Adapter, copy: Callable[[Array], Array]) -> None:
        super().__init__(array, adapter)
        self._copy = copy
        self.operand = replace(self.operand, strides=None)
        self.in_place = False

    def read(self, box: Box) -> Array:
        block = self._copy(super().read(box))
        self._adapter.synchronize(block)  # another thread may compute with it
        return block


class _OnHost(Source):
    """An array whose slices are NumPy arrays, of which blocks are moved to the device."""

    in_place = False

    def __init__(self, number: int, array: Any, adapter: Adapter, device: str, ring: Ring | None) -> None:
        self._array, self._adapter, self._device, self._ring = array, adapter, device, ring
        self.operand = stored_operand(number, array, adapter)
        if is_stored(array):
            self.read_rate = _FROM_NETWORK if is_remote(array) else _FROM_FILES
        elif not is_host(device):
            self.read_rate = _TO_DEVICE
        in_memory = isinstance(array, _ForeignArray) or (is_host_array(array) and mapping(array) is None)
        self.stored = None if in_memory else array

    def host_block(self, box: Box) -> Any:
        return read(self._array, box, self.at_once)

    def read(self, box: Box) -> Array:
        block = self.host_block(box)
        # The memory of the ring belongs to its stream, whose next copy would not wait for the user's work on a result.
        if self._ring is not None and not self.is_result:
            return self._ring(block)
        return self._adapter.from_numpy(block, self._device)

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()

    def on_host(self) -> Any:
        return self._array.on_host() if isinstance(self._array, _ForeignArray) else self._array


class _ForeignArray:
    """An array of another framework in the host's memory, whose slices are NumPy arrays."""

    def __init__(self, array: Array, owner: Adapter) -> None:
        self._array, self._owner = array, owner
        self.shape, self.dtype = tuple(array.shape), owner.dtype_name(array.dtype)

    def __getitem__(self, box: Box) -> Any:
        return self._owner.to_numpy(self._array[box])

    def on_host(self) -> Any:
        return self._owner.to_numpy(self._array)


def is_host_array(array: Any) -> bool:
    """Whether it is a NumPy array, including memory maps, or a NumPy scalar."""
    framework = owner(array)
    return framework is not None and framework.name == "numpy"


def is_host(device: str) -> bool:
    """Whether arrays on a device are in the host's memory."""
    return device.partition(":")[0] in ("", "cpu")


def framework_of(operands: Sequence[Any], requested: Adapter | None) -> tuple[Adapter, list[Any]]:
    """The framework that computes, and the operands, of which those of the framework become plain arrays.

    It is ``requested``, or that of the arrays, where NumPy's count as stored next to another framework's, or NumPy.

    Raises:
        BackendError: the operands belong to two frameworks besides NumPy, or to none.
    """
    adapter = requested
    if adapter is None:
        kinds = [_kind_that_computes(number, array) for number, array in enumerate(operands)]
        adapter = backend_of(tuple(kinds))[0] or get_backend("numpy")
    kinds = list(map(type, operands))
    own = [number for number, kind in enumerate(kinds) if is_builtin(kind) or is_served(adapter, kind)]
    arrays = list(operands)
    if own:
        adapter, plain = arrays_of([operands[number] for number in own], adapter, own)
        for number, array in zip(own, plain):
            arrays[number] = array
    return adapter, arrays


def is_traced(adapter: Adapter, arrays: Sequence[Any]) -> bool:
    """Whether the framework traces operations on these arrays now, and can write loops for them."""
    own = [array for array in arrays if owner(array) is adapter]
    return adapter.loops is not None and adapter.loops.is_traced(own)


def _kind_that_computes(number: int, array: Any) -> type:
    """The type of an operand, whose framework may compute; ``list`` if the operand leaves this to others."""
    try:
        return list if is_stored(array) or is_host_array(array) else type(array)
    except BackendError as error:
        raise BackendError(f"operand {number}: {error}") from error


def sources(
    arrays: Sequence[Any], adapter: Adapter, device: str, *, as_copies: bool = False
) -> tuple[list[Source], str]:
    """A source for each operand, and the device that computes: ``device``, or if empty that of the framework's arrays.

    With ``as_copies``, blocks of the framework's own arrays are copied even if they are already on the device.

    Raises:
        BackendError: an operand cannot be read; the error names it.
    """
    if not device:
        own = [array for array in arrays if owner(array) is adapter]
        device = one_device(adapter, map(adapter.signature, own))
    ring = blocks_of(adapter).ring(device)
    return [_source(number, array, adapter, device, ring, as_copies) for number, array in enumerate(arrays)], device


def _source(number: int, array: Any, adapter: Adapter, device: str, ring: Ring | None, as_copies: bool) -> Source:
    if isinstance(array, ReopenedArray):
        inner, numpy = array.array, get_backend("numpy")
        plain = numpy.plain(inner) if is_host_array(inner) else inner
        source = _source(number, plain, adapter, device, ring, as_copies)
        source.reopened = array
        return source
    framework = owner(array)
    if framework is adapter:
        current = adapter.device(array)
        if not device or current == device:
            if adapter.cpu.strided and (as_copies or blocks_of(adapter).is_lazy(array)):
                return _Copied(array, adapter, adapter.copy)
            return _in_place(array, adapter, array if adapter.name == "numpy" else None)
        if ring is None or not is_host(current) or not _numpy_has_dtype(array, adapter):
            return _Copied(array, adapter, lambda block: blocks_of(adapter).move(block, device))
    if framework is None:
        return _OnHost(number, array, adapter, device, ring)
    if framework is not adapter and needs_gradient(framework, array):
        raise BackendError(
            f"operand {number} requires a gradient, which {adapter.name} would lose; detach it, or omit backend="
        )
    if framework.name == "numpy":
        array = framework.plain(array)
        shared = blocks_of(adapter).in_place(array) if is_host(device) else None
        return _OnHost(number, array, adapter, device, ring) if shared is None else _in_place(shared, adapter, array)
    current = framework.device(array)
    if not is_host(current):
        raise BackendError(
            f"operand {number} is on {current}, but {adapter.name} computes on {device or 'the host'}; move it there, "
            "or to the host"
        )
    return _OnHost(number, _ForeignArray(array, framework), adapter, device, ring)


def _in_place(array: Array, adapter: Adapter, host: Any) -> Source:
    """An array that is read in place; ``host`` is the NumPy array that has its memory, if any."""
    is_mapped = host is not None and mapping(host) is not None
    return _Mapped(array, adapter, host) if is_mapped else InPlace(array, adapter)


def _numpy_has_dtype(array: Array, adapter: Adapter) -> bool:
    try:
        adapter.to_numpy(array[(slice(0, 0),) * len(array.shape)])
    except TypeError:
        return False
    return True


class Reader:
    """Reads blocks in an order that is known in advance; a context manager that leaves no thread behind.

    Args:
        sources: one for each operand.
        reads: the blocks that will be requested, in order.
        ahead: bytes of blocks that may be read before they are requested; 0 for none.
        adapter: of the framework whose functions the thread calls; None if it needs no preparation for that.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        reads: Iterator[Read],
        ahead: int,
        adapter: Adapter | None = None,
    ) -> None:
        self._sources, self._reads, self._ahead, self._adapter = sources, reads, ahead, adapter
        self._carried_bring = self._bring
        self._ready: deque[tuple[Array, int, BaseException | None]] = deque()
        self._bytes = 0  # of blocks that were read, or are being read, and have not been requested
        self._is_waiting = self._closed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Callable[[int, Box], Array]:
        if self._ahead:
            self._changed = threading.Condition()
            if self._adapter is not None:
                self._carried_bring = blocks_of(self._adapter).carried(self._bring)
            thread = threading.Thread(target=self._run, name="einsumx-reader", daemon=True)
            self._thread = thread if started(thread) else None  # else nothing is read ahead
        return self.read

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            with self._changed:
                self._closed = True
                self._ready.clear()
                self._changed.notify_all()
            self._thread.join()
        for source in self._sources:
            source.close()

    def read(self, number: int, box: Box) -> Array:
        """A block of operand ``number``; raises the thread's errors."""
        source = self._sources[number]
        if self._thread is None or source.in_place:
            return source.read(box)
        with self._changed:
            self._is_waiting = not self._ready
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ready)
            self._is_waiting = False
            block, size, error = self._ready.popleft()
            self._bytes -= size
            self._changed.notify_all()
        if error is not None:
            raise error
        return block

    def _run(self) -> None:
        try:
            for number, box in self._reads:
                source = self._sources[number]
                if not source.in_place and not self._carried_bring(source, box):
                    return
        except BaseException as error:  # noqa: BLE001  # raised when the next block is requested
            with self._changed:
                self._ready.append((None, 0, error))
                self._changed.notify_all()

    def _bring(self, source: Source, box: Box) -> bool:
        """Read one block, as soon as there is room; return whether to go on."""
        size = source.nbytes(box)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(size))
            if self._closed:
                return False
            self._bytes += size
        block = source.read(box)
        with self._changed:
            if not self._closed:
                self._ready.append((block, size, None))
                self._changed.notify_all()
            return not self._closed

    def _has_room(self, size: int) -> bool:
        """Whether the thread may read a block of ``size`` bytes; a block that is waited for is not ahead."""
        return self._bytes + size <= self._ahead or (self._is_waiting and not self._bytes)
