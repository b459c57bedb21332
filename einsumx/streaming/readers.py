"""Where a blocked contraction reads its operands: arrays on the device, on the host, and in files."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import backend_of, get_backend, is_builtin, is_stored, owner
from einsumx.adapters.staging import Ring
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError
from einsumx.ir.program import Operand
from einsumx.runtime.maps import mapping
from einsumx.runtime.prepare import arrays_of, one_device
from einsumx.runtime.stored import host_array, stored_operand
from einsumx.streaming.walk import Box

__all__ = ["Source", "framework_of", "is_host_array", "sources"]


_FROM_FILES = 1e9
"""Bytes a second at which a dataset of HDF5 or of Zarr is read and decoded, about."""


class Source:
    """One operand, read block by block.

    Attributes:
        operand: its shape, dtype and layout, as the planner sees them.
        lies_there: whether blocks of it are views on the device.
        read_rate: bytes a second at which it is read; None for the rate of a copy.
        can_expect: whether to tell it what is read soon is of use.
        stored: what it is read from, a memory map or anything that is read by slices; None for an array in memory.
    """

    operand: Operand
    lies_there: bool
    read_rate: float | None = None
    can_expect: bool = False
    stored: Any = None

    def read(self, box: Box) -> Array:
        """The part of it that lies in ``box``, on the device."""
        raise NotImplementedError

    def read_bytes(self, box: Box) -> int:
        """The memory that the block of ``box`` takes; none where it is a view."""
        return 0 if self.lies_there else prod(part.stop - part.start for part in box) * itemsize(self.operand.dtype)

    def on_host(self) -> Any:
        """All of it as a NumPy array, or as what gives NumPy arrays by slices; copied where NumPy lacks its dtype.

        Raises:
            BackendError: it lies in another memory than the host's.
        """
        raise NotImplementedError

    def host_block(self, box: Box) -> Any:
        """The part of it that lies in ``box``, as a NumPy array with the same values."""
        raise NotImplementedError

    def expect(self, box: Box) -> None:
        """Hear that ``box`` is read soon: where blocks are views of a mapped file, the system is told to load it."""

    def close(self) -> None:
        """Let go what reading takes besides the blocks; it may be read again all the same."""


class _OnDevice(Source):
    """An array of the framework, where it is computed."""

    def __init__(self, array: Array, adapter: Adapter) -> None:
        self._array, self._adapter = array, adapter
        self.operand = adapter.operand(adapter.signature(array))
        self.lies_there = adapter.cpu.strided

    def read(self, box: Box) -> Array:
        return self._adapter.part(self._array, box)

    def on_host(self) -> Any:
        device = self._adapter.device(self._array)
        if not _is_host(device):
            raise BackendError(f"an operand on {device} reaches no other process; pass an executor of threads")
        return self._numpys(self._array)

    def host_block(self, box: Box) -> Any:
        return self._numpys(self._adapter.part(self._array, box))

    def _numpys(self, array: Array) -> Any:
        try:
            return self._adapter.to_numpy(array)
        except TypeError:
            # NumPy may have no such dtype: in the one that its sums are accumulated in, it has the same values.
            wide = dict(self._adapter.cpu.widen).get(self.operand.dtype)
            if wide is None:
                raise
            return self._adapter.to_numpy(self._adapter.cast(array, wide))


class _Mapped(_OnDevice):
    """A file that is mapped to memory, which the framework reads where it lies."""

    can_expect = True

    def __init__(self, array: Array, adapter: Adapter, mapped: Any) -> None:
        super().__init__(array, adapter)
        self.stored = mapped

    def on_host(self) -> Any:
        return self.stored

    def host_block(self, box: Box) -> Any:
        return self.stored[box]

    def expect(self, box: Box) -> None:
        _will_need(self.stored[box])


class _Copied(_OnDevice):
    """An array of the framework whose blocks are copied to be contiguous, so that it does not matter how it lies."""

    def __init__(self, array: Array, adapter: Adapter) -> None:
        super().__init__(array, adapter)
        self.operand = replace(self.operand, strides=None)
        self.lies_there = False

    def read(self, box: Box) -> Array:
        return self._adapter.copy(super().read(box))


class _Elsewhere(_OnDevice):
    """An array of the framework on another device than that on which it is computed."""

    def __init__(self, array: Array, adapter: Adapter, device: str) -> None:
        super().__init__(array, adapter)
        self._device = device
        self.operand = replace(self.operand, strides=None)
        self.lies_there = False

    def read(self, box: Box) -> Array:
        return self._adapter.move(super().read(box), self._device)


class _OnHost(Source):
    """Anything that gives NumPy arrays by slices, of which blocks are brought to the device."""

    def __init__(self, array: Any, operand: Operand, adapter: Adapter, device: str, ring: Ring | None) -> None:
        self._array, self._adapter, self._device, self._ring = array, adapter, device, ring
        self.operand = operand
        self.lies_there = False
        self.read_rate = _FROM_FILES if is_stored(array) else None
        in_memory = isinstance(array, _OfAnother) or (is_host_array(array) and mapping(array) is None)
        self.stored = None if in_memory else array

    def host_block(self, box: Box) -> Any:
        return host_array(self._array[box])

    def read(self, box: Box) -> Array:
        block = host_array(self._array[box])
        return self._ring(block) if self._ring is not None else self._adapter.from_numpy(block, self._device)

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()

    def on_host(self) -> Any:
        return self._array.whole() if isinstance(self._array, _OfAnother) else self._array


class _OfAnother:
    """An array of another framework in the host's memory, which gives NumPy arrays by slices."""

    def __init__(self, array: Array, owner: Adapter) -> None:
        self._array, self._owner = array, owner
        self.shape, self.dtype = tuple(array.shape), owner.dtype_name(array.dtype)

    def __getitem__(self, box: Box) -> Any:
        return self._owner.to_numpy(self._array[box])

    def whole(self) -> Any:
        """All of it."""
        return self._owner.to_numpy(self._array)


def is_host_array(array: Any) -> bool:
    """Whether it is a NumPy array, a memory map among them, or a scalar of NumPy's."""
    found = owner(array)
    return found is not None and found.name == "numpy"


def framework_of(given: Sequence[Any], wanted: Adapter | None) -> tuple[Adapter, list[Any]]:
    """The framework that computes, and the operands: its own as plain arrays, the others as they came.

    It is ``wanted``; else that of the arrays, where NumPy's count as stored beside those of another; else NumPy.

    Raises:
        BackendError: the operands belong to two frameworks besides NumPy, or to none.
    """
    if wanted is None:
        kinds = [_kind_that_computes(number, array) for number, array in enumerate(given)]
        wanted = backend_of(tuple(kinds))[0] or get_backend("numpy")
    own = [number for number, array in enumerate(given) if is_builtin(type(array)) or owner(array) is wanted]
    operands = list(given)
    if own:
        _, plain = arrays_of([given[number] for number in own], wanted, own)
        for number, array in zip(own, plain):
            operands[number] = array
    return wanted, operands


def _kind_that_computes(number: int, array: Any) -> type:
    """The type of an operand whose framework is to compute; that of a list where it leaves this to others."""
    try:
        return list if is_stored(array) or is_host_array(array) else type(array)
    except BackendError as error:
        raise BackendError(f"operand {number}: {error}") from error


def sources(
    arrays: Sequence[Any], adapter: Adapter, device: str, *, as_copies: bool = False
) -> tuple[list[Source], str]:
    """How each operand is read, and where it is computed.

    Args:
        arrays: as :func:`framework_of` gives them.
        adapter: of the framework that computes.
        device: where it computes; empty where the framework's arrays lie.
        as_copies: whether blocks of the framework's own arrays are copied even where these lie on the device.

    Raises:
        BackendError: an operand cannot be read; the error names it.
    """
    if not device:
        own = [array for array in arrays if owner(array) is adapter]
        device = one_device(adapter, map(adapter.signature, own))
    ring = adapter.ring(device)
    found = [_source(number, array, adapter, device, ring) for number, array in enumerate(arrays)]
    for number, array in enumerate(arrays):
        if found[number].lies_there and owner(array) is adapter and (as_copies or adapter.is_lazy(array)):
            found[number] = _Copied(array, adapter)
    return found, device


def _source(number: int, array: Any, adapter: Adapter, device: str, ring: Ring | None) -> Source:
    theirs = owner(array)
    if theirs is None:
        return _OnHost(array, stored_operand(number, array, adapter), adapter, device, ring)
    if theirs is not adapter and theirs.needs_gradient(array):
        raise BackendError(f"operand {number} asks for a gradient, which is lost where {adapter.name} computes")
    if theirs is adapter:
        where = adapter.device(array)
        if not device or where == device:
            is_mapped = theirs.name == "numpy" and mapping(array) is not None
            return _Mapped(array, adapter, array) if is_mapped else _OnDevice(array, adapter)
        if ring is None or not _is_host(where) or not _is_numpys(array, adapter):
            return _Elsewhere(array, adapter, device)
    elif theirs.name == "numpy":
        array = theirs.plain(array)
        shared = adapter.in_place(array) if _is_host(device) else None
        if shared is not None:
            is_mapped = mapping(array) is not None
            return _Mapped(shared, adapter, array) if is_mapped else _OnDevice(shared, adapter)
        return _OnHost(array, stored_operand(number, array, adapter), adapter, device, ring)
    if not _is_host(theirs.device(array)):
        raise BackendError(
            f"operand {number} lies on {theirs.device(array)}, but {adapter.name} computes on {device or 'the host'}; "
            "move it there or to the host first"
        )
    stored = _OfAnother(array, theirs)
    return _OnHost(stored, stored_operand(number, stored, adapter), adapter, device, ring)


def _is_numpys(array: Array, adapter: Adapter) -> bool:
    """Whether NumPy has the dtype of an array on the host."""
    try:
        adapter.to_numpy(array[(slice(0, 0),) * len(array.shape)])
    except TypeError:
        return False
    return True


def _is_host(device: str) -> bool:
    return device.partition(":")[0] in ("", "cpu")


# -- files that are mapped to memory ------------------------------------------------------------------------------


_MANY = 4096
"""Runs of bytes beyond which a block is not announced: the calls would take longer than they save."""

_PIECE = 4 << 20
"""Bytes of a file that are announced at once, unless their first page and their last are in memory."""


def _will_need(block: Any) -> None:
    """Ask the system to load the pages of a mapped file that a block lies in, without waiting for them."""
    axes = sorted(zip(map(abs, block.strides), block.shape), reverse=True)
    run = block.itemsize
    while axes and axes[-1][0] == run:
        run *= axes.pop()[1]
    calls = _calls()
    if calls is None or not block.size or prod(size for _, size in axes) > _MANY:
        return
    lowest = block.__array_interface__["data"][0]
    lowest += sum(stride * (size - 1) for stride, size in zip(block.strides, block.shape) if stride < 0)
    for place in product(*(range(size) for _, size in axes)):
        start = lowest + sum(stride * number for (stride, _), number in zip(axes, place))
        for piece in range(start, start + run, _PIECE):
            _load(calls, piece, min(piece + _PIECE, start + run))


def _load(calls: Any, start: int, stop: int) -> None:
    """Announce the pages from one address to another."""
    first, last = (address - address % mmap.PAGESIZE for address in (start, stop - 1))
    is_there = ctypes.c_ubyte()
    for page in (first, last):
        failed = calls.mincore(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), ctypes.byref(is_there))
        if failed or not is_there.value & 1:
            calls.madvise(ctypes.c_void_p(first), ctypes.c_size_t(stop - first), mmap.MADV_WILLNEED)
            return


@lru_cache(maxsize=1)
def _calls() -> Any:
    """The system's own functions, during which other threads go on; None where there are none."""
    if not hasattr(mmap, "MADV_WILLNEED"):
        return None
    found = ctypes.CDLL(None)
    return found if hasattr(found, "madvise") and hasattr(found, "mincore") else None
