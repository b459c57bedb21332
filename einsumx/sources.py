"""Where a blocked contraction reads its operands and writes its result: arrays on the device, on the host, in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from einsumx.adapter import Adapter, Array
from einsumx.blocked import Box
from einsumx.errors import BackendError, EinsumxError
from einsumx.plan import Operand
from einsumx.registry import get_backend, is_builtin, serving

__all__ = ["Source", "Stored", "host_array", "is_stored", "sources"]


@runtime_checkable
class Stored(Protocol):
    """What is read and written by slices: a dataset of HDF5, an array of Zarr, or anything of the kind."""

    shape: tuple[int, ...]
    dtype: Any

    def __getitem__(self, box: Any, /) -> Any: ...


class Source:
    """One operand, read block by block.

    Attributes:
        operand: its shape, dtype and layout, as the planner sees them.
        lies_there: whether blocks of it are views on the device.
    """

    operand: Operand
    lies_there: bool

    def read(self, box: Box) -> Array:
        """The part of it that lies in ``box``, on the device."""
        raise NotImplementedError


class _OnDevice(Source):
    """An array of the framework, where it is computed."""

    def __init__(self, array: Array, adapter: Adapter) -> None:
        self._array = array
        self.operand = adapter.operand(adapter.signature(array))
        self.lies_there = adapter.cpu.strided

    def read(self, box: Box) -> Array:
        return self._array[box]


class _OnHost(Source):
    """Anything that gives NumPy arrays by slices, of which blocks are brought to the device."""

    def __init__(self, array: Any, adapter: Adapter, device: str) -> None:
        self._array, self._adapter, self._device = array, adapter, device
        numpy = get_backend("numpy")
        self.operand = Operand(tuple(array.shape), numpy.dtype_name(numpy.xp.dtype(array.dtype)))
        self.lies_there = False

    def read(self, box: Box) -> Array:
        return self._adapter.from_numpy(host_array(self._array[box]), self._device)


def host_array(array: Any) -> Any:
    """A block as a NumPy array of its own kind: in C order, of no subclass."""
    return get_backend("numpy").xp.ascontiguousarray(array) if array.ndim else get_backend("numpy").xp.asarray(array)


def is_stored(array: Any) -> bool:
    """Whether it is no framework's array, but is read by slices."""
    if is_builtin(type(array)) or not isinstance(array, Stored):
        return False
    try:
        serving(type(array))
    except BackendError:
        return True
    return False


def sources(arrays: Sequence[Any], adapter: Adapter, device: str) -> list[Source]:
    """How each operand is read.

    Args:
        arrays: plain arrays of the framework, NumPy arrays, or stored ones.
        adapter: of the framework that computes.
        device: where it computes; empty where the framework's arrays lie.

    Raises:
        BackendError: an operand lies on another device than the others.
    """
    found: list[Source] = []
    for number, array in enumerate(arrays):
        kind: type = type(array)
        try:
            owner = serving(kind)
        except EinsumxError:
            found.append(_OnHost(array, adapter, device))
            continue
        if owner is adapter and (not device or adapter.device(array) == device):
            found.append(_OnDevice(array, adapter))
        elif owner.device(array) == "cpu":
            found.append(_OnHost(array if owner.name == "numpy" else _Reader(array, owner), adapter, device))
        else:
            raise BackendError(f"operand {number} lies on {owner.device(array)}, which blocks are not brought from")
    return found


class _Reader:
    """An array of another framework in the host's memory, which gives NumPy arrays."""

    def __init__(self, array: Array, owner: Adapter) -> None:
        self._array, self._owner = array, owner
        self.shape, self.dtype = tuple(array.shape), owner.dtype_name(array.dtype)

    def __getitem__(self, box: Box) -> Any:
        return self._owner.to_numpy(self._array[box])
