"""Stored operands, such as datasets in files: their shape and dtype, and reading them whole."""

from __future__ import annotations

from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import get_backend
from einsumx.errors import REFUSALS, BackendError, SizeError
from einsumx.ir.bind import known_sizes
from einsumx.ir.operand import Operand


def stored_operand(number: int, array: Any, adapter: Adapter) -> Operand:
    """Shape and dtype of a stored operand. An empty slice is read to check that it can be read.

    Raises:
        BackendError: it cannot be read by slices, or NumPy does not support its dtype.
        SizeError: a size of its shape is unknown.
        OSError: its file cannot be read.
    """
    numpy = get_backend("numpy")
    name = f"operand {number} ({type_name(type(array))})"
    if array.shape is None:  # as h5py has it
        raise BackendError(f"{name} is an empty dataset without a shape; store an array of shape (0,) instead")
    try:
        shape = known_sizes(array.shape)
        dtype = numpy.dtype_name(array.dtype)
        adapter.dtype(dtype)
    except SizeError as error:
        raise SizeError(f"{name} {error}") from None
    except (BackendError, TypeError, ValueError) as error:
        raise BackendError(f"{name} cannot be read: {error}") from error
    try:
        empty = numpy.xp.asarray(array[(slice(0, 0),) * len(shape)])
    except REFUSALS as error:
        raise BackendError(f"{name} cannot be read by slices ({error!r}); convert it to an array first") from error
    if empty.ndim != len(shape) or numpy.dtype_name(empty.dtype) != dtype:
        raise BackendError(f"slices of {name} are not arrays of the same rank and dtype; convert it to an array first")
    return Operand(shape, dtype)


def read_whole(number: int, array: Any) -> Any:
    """Stored operand ``number`` as a NumPy array; :func:`stored_operand` and :func:`host_array` raise."""
    described = stored_operand(number, array, get_backend("numpy"))
    return host_array(array[tuple(slice(0, size) for size in described.shape)])


def unread(number: int, array: Any) -> Any:
    """An uninitialized NumPy array with a stored operand's shape and dtype; :func:`stored_operand` raises."""
    described = stored_operand(number, array, get_backend("numpy"))
    return get_backend("numpy").xp.empty(described.shape, described.dtype)


def host_array(block: Any) -> Any:
    """A slice of a stored operand as a plain NumPy array in the machine's byte order.

    Raises:
        BackendError: elements are masked, which einsum would ignore.
    """
    np = get_backend("numpy").xp
    if isinstance(block, np.ma.MaskedArray) and block.mask.any():
        raise BackendError("a block has masked elements, which einsum would count; fill them first, as by x.filled(0)")
    array = np.asarray(block)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
