"""Operands for the workers of an executor: files and stores that each worker opens for itself."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Protocol
from weakref import finalize

from einsumx.adapters.registry import get_backend
from einsumx.errors import BackendError, shown
from einsumx.host import files
from einsumx.host.free_memory import free_host_bytes
from einsumx.imports import imported
from einsumx.ir.layout import contiguous
from einsumx.storage.array_files import is_dataset, reserve
from einsumx.storage.maps import mapping
from einsumx.storage.reopened import ReopenedArray, opener_name
from einsumx.storage.stores import is_of, location_of, place_of
from einsumx.streaming.readers import Source


class SharedOperand(Protocol):
    """An operand in the form in which it is sent to a worker."""

    def open(self) -> Any:
        """The operand, as an array that is read by slices."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A NumPy array in a file that workers map to memory.

    Attributes:
        path: of the file.
        dtype: NumPy's typestring, which includes the byte order; the name of one that another package defines.
        shape, strides: in elements and in bytes.
        offset: the position of its first element in the file.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def open(self, *, writable: bool = False) -> Any:
        """The array in its file; unless it is ``writable``, writes stay private to this process."""
        numpy = get_backend("numpy")
        if not re.fullmatch(r"[<>|=][biufcV]\d{1,3}|bfloat16", self.dtype):
            raise BackendError(
                f"a worker cannot read dtype {shown(self.dtype)} from a file; convert the operand to numbers or bools"
            )
        try:
            with files.open_regular(self.path, writable=writable) as file:
                # Copy-on-write instead of read-only, as frameworks warn about read-only arrays.
                access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY
                buffer = mmap.mmap(file.fileno(), 0, access=access)
        except FileNotFoundError as error:
            raise BackendError(
                f"a worker does not find {self.path}, the file of an operand; a worker on another machine needs "
                "operands in a folder that all machines share, or TMPDIR= set to such a folder, or opened_by()"
            ) from error
        except ValueError as error:
            raise BackendError(f"a worker cannot read an operand from {self.path}: {error}") from error
        return numpy.xp.ndarray(self.shape, numpy.dtype(self.dtype), buffer, self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset in an HDF5 file."""

    path: str
    name: str

    def open(self) -> Any:
        if Path(self.path).exists() and not Path(self.path).is_file():  # opening a pipe could block for ever
            raise BackendError(f"a worker cannot read an operand from {self.path}: it is not a regular file")
        return imported("h5py").File(self.path, "r")[self.name]


@dataclass(frozen=True, slots=True)
class Opened:
    """An array that each worker opens by a function of the user's."""

    opening: partial[Any]
    description: str

    def open(self) -> Any:
        array = ReopenedArray(self.opening)
        _check_same(opener_name(self.opening), _described(array.array), self.description)
        return array


@dataclass(frozen=True, slots=True)
class Zarr:
    """A Zarr array, which is pickled with its metadata and opens its store by itself."""

    array: Any

    def open(self) -> Any:
        """The array, if the store has it here; where it has none, Zarr would read fill values."""
        array, place = self.array, place_of(self.array)
        try:
            stored = imported("zarr").open_array(array.store, path=array.path, mode="r")
        except FileNotFoundError as error:
            raise BackendError(
                f"a worker finds no Zarr array in {place}; a worker on another machine needs a store that all "
                "machines reach, or opened_by()"
            ) from error
        _check_same(place, _described(stored), _described(array))
        return array


def _described(array: Any) -> str:
    """The shape, the dtype, and the strides, if there are any, of an array that was opened."""
    strides = getattr(array, "strides", None)
    return f"shape {tuple(array.shape)}, dtype {array.dtype}" + (f" and strides {strides}" if strides else "")


def _check_same(by: str, here: str, caller: str) -> None:
    """Check that a worker opened an array like the caller's."""
    if here != caller:
        raise BackendError(
            f"a worker opened {by} and found {here}, but the caller found {caller}; open the same array everywhere"
        )


def zarr_of(array: Any) -> Zarr:
    """A Zarr array as workers open it.

    Raises:
        BackendError: it is in memory of this process, which others cannot open.
    """
    location = location_of(array)
    if location is not None and location.protocol == "memory":
        raise BackendError(
            f"the Zarr array {place_of(array)} is in the memory of this process, and workers cannot open it; store it "
            "in files, pass its values as a NumPy array, or pass an executor of threads"
        )
    return Zarr(array)


@dataclass(frozen=True, slots=True)
class Pickled:
    """An array of any other kind that reads from its own storage and can be pickled."""

    array: Any

    def open(self) -> Any:
        return self.array


def file_of(array: Any) -> SharedOperand | None:
    """An array in the file that stores it; None for an array in memory.

    >>> import numpy as np
    >>> file_of(np.zeros(3)) is None
    True
    """
    np = get_backend("numpy").xp
    if isinstance(array, ReopenedArray):
        return Opened(array.opening, _described(array.array))
    if not isinstance(array, np.ndarray):
        if is_dataset(array):
            return Dataset(array.file.filename, array.name)
        return zarr_of(array) if is_of(array, "zarr") else Pickled(array)
    root = mapping(array)
    # The file of a copy-on-write map lacks what was written to the map; a map without a name cannot be reopened.
    if root is None or root.mode == "c" or root.filename is None:
        return None
    offset = root.offset + _address(array) - _address(root)
    return Mapped(str(root.filename), _typestring(array.dtype), array.shape, array.strides, offset)


def shared_file(source: Source) -> SharedOperand | None:
    """An operand as workers open it from where it is stored; None for an array in memory."""
    return file_of(source.on_host() if source.reopened is None else source.reopened)


def _typestring(dtype: Any) -> str:
    """A dtype for :class:`Mapped`."""
    return dtype.name if dtype.isbuiltin == 2 else dtype.str  # type: ignore[no-any-return]


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _remove(folder: str, owner: int) -> None:
    """Remove a folder, unless this process is a forked child of its owner."""
    if os.getpid() == owner:
        rmtree(folder, ignore_errors=True)


class SharedOperands:
    """Shares operands with worker processes until :meth:`close`; each array in memory is written to a file once.

    If all workers are on this machine and memory is ample, the file is a memfd (Linux), which disappears with this
    process, however it ends. Otherwise it is in a temporary folder, and stays there if the process is killed.
    """

    def __init__(self, local: bool) -> None:
        self._local = local
        self._memory_files: list[int] = []
        self._folders: list[Callable[[], object]] = []  # each removes one, at the latest when the process exits
        self._written: dict[tuple[Any, ...], Mapped] = {}

    def share(self, source: Source) -> SharedOperand:
        """An operand in a form that can be sent to workers."""
        return shared_file(source) or self._write(source.on_host())

    def _write(self, array: Any) -> Mapped:
        """A file with the elements of ``array``, in its layout but without gaps and without broadcast axes."""
        key = (_address(array), array.shape, array.strides, array.dtype.str)
        if key in self._written:
            return self._written[key]
        np = get_backend("numpy").xp
        size = prod(length for length, stride in zip(array.shape, array.strides) if stride) * array.itemsize
        path = self._new_file(size)
        axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        packed = array[tuple(slice(None) if stride else slice(0, 1) for stride in array.strides)].transpose(axes)
        if packed.size:
            target = np.memmap(path, array.dtype, "w+", shape=packed.shape or (1,))
            reserve(target, "an operand that workers read from a temporary file")
            target[...] = packed
        else:
            Path(path).write_bytes(b"\0")  # an empty file cannot be mapped
        packed_strides = dict(zip(axes, contiguous(packed.shape)))
        strides = tuple(
            packed_strides[axis] * array.itemsize if stride else 0 for axis, stride in enumerate(array.strides)
        )
        self._written[key] = Mapped(path, _typestring(array.dtype), array.shape, strides, 0)
        return self._written[key]

    def _new_file(self, size: int) -> str:
        """The path of a new file for ``size`` bytes: in memory if that is ample, else in a temporary folder."""
        free = free_host_bytes() if self._local and files.has_memory_files() else None
        if free is not None and free > 2 * size:
            self._memory_files.append(files.keep(os.memfd_create("einsumx")))
            return f"/proc/{os.getpid()}/fd/{self._memory_files[-1]}"
        path = mkdtemp(prefix=f"einsumx-{os.getpid()}-")
        self._folders.append(finalize(self, _remove, path, os.getpid()))
        return str(Path(path, "operand"))

    def close(self) -> None:
        """Remove the files; workers that have them open can go on reading."""
        while self._memory_files:
            files.close(self._memory_files.pop())
        while self._folders:
            self._folders.pop()()
