"""How operands reach the workers of an executor: as the files that they lie in, which each worker opens for itself."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Protocol, TypeAlias
from weakref import finalize

from einsumx.adapters.registry import get_backend
from einsumx.errors import BackendError, shown
from einsumx.runtime import files
from einsumx.runtime.maps import mapping
from einsumx.runtime.memory import free_host_bytes
from einsumx.streaming.array_files import is_dataset, reserve
from einsumx.streaming.readers import Source

__all__ = ["Lender", "Lent", "file_of"]


Folder: TypeAlias = "finalize[[], Lender]"
"""Removes a folder when it is called, when its lender is gone, or when the process ends."""


class Lent(Protocol):
    """An operand as it is sent to a worker."""

    def open(self) -> Any:
        """It again, as something that is read by slices."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A NumPy array that is mapped from a file.

    Attributes:
        path: of the file.
        dtype: NumPy's text for it, the order of bytes included.
        shape, strides: in elements and in bytes.
        offset: where in the file its first element is.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def open(self, *, writable: bool = False) -> Any:
        """The array in its file; what is written to one that is not ``writable`` stays in this process."""
        np = get_backend("numpy").xp
        if not re.fullmatch(r"[<>|=][biufcV]\d{1,3}", self.dtype):
            raise BackendError(f"a worker cannot read dtype {shown(self.dtype)} from a file")
        try:
            with files.open_regular(self.path, writable=writable) as file:
                # An operand is not opened read-only, as frameworks warn of such arrays; nobody writes to it.
                access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY
                buffer = mmap.mmap(file.fileno(), 0, access=access)
        except FileNotFoundError as error:
            raise BackendError(
                f"a worker does not find {self.path}, where an operand lies; one that is on another machine needs "
                "operands in files of a folder that all machines see, or TMPDIR= set to such a folder"
            ) from error
        except ValueError as error:
            raise BackendError(f"a worker cannot read an operand from {self.path}: {error}") from error
        return np.ndarray(self.shape, self.dtype, buffer, self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset in a file of HDF5."""

    path: str
    name: str

    def open(self) -> Any:
        if Path(self.path).exists() and not Path(self.path).is_file():  # a pipe is waited for without end
            raise BackendError(f"a worker cannot read an operand from {self.path}: it is not a regular file")
        import h5py

        return h5py.File(self.path, "r")[self.name]


@dataclass(frozen=True, slots=True)
class Pickled:
    """Something that reads from where it is stored, such as an array of Zarr, and that travels by itself."""

    array: Any

    def open(self) -> Any:
        return self.array


def file_of(array: Any) -> Lent | None:
    """How an array is opened where it is stored; None where it lies in memory.

    >>> import numpy as np
    >>> file_of(np.zeros(3)) is None
    True
    """
    np = get_backend("numpy").xp
    if not isinstance(array, np.ndarray):
        if is_dataset(array):
            return Dataset(array.file.filename, array.name)
        return Pickled(array)
    root = mapping(array)
    # What is written to a copy-on-write map is not in its file; a map without a name has none.
    if root is None or root.mode == "c" or root.filename is None:
        return None
    offset = root.offset + _address(array) - _address(root)
    return Mapped(str(root.filename), array.dtype.str, array.shape, array.strides, offset)


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_folders: set[Folder] = set()
"""What removes the folders of files that are lent."""


def _leave_to_the_caller() -> None:
    """In the child of a fork: folders are removed by the caller alone."""
    while _folders:
        _folders.pop().detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_caller)


class Lender:
    """Lends operands to processes: those in memory are written to a file each, once, until :meth:`close`.

    For workers on this machine, where the system has files that are nowhere but in memory (Linux), it is one of
    these: it is gone when this process ends, however it ends. Else it is a file in a temporary folder, and remains
    there if the process is killed.

    Args:
        local: whether all workers run on this machine.
    """

    def __init__(self, local: bool) -> None:
        self._local = local
        self._memory: list[int] = []
        self._folders: list[Folder] = []
        self._spilled: dict[tuple[Any, ...], Mapped] = {}

    def lend(self, source: Source) -> Lent:
        """An operand, as something to send."""
        array = source.on_host()
        return file_of(array) or self._spill(array)

    def _spill(self, array: Any) -> Mapped:
        """A file in which ``array`` lies as it does in memory, but without gaps."""
        key = (_address(array), array.shape, array.strides, array.dtype.str)
        if key in self._spilled:
            return self._spilled[key]
        np = get_backend("numpy").xp
        size = prod(length for length, stride in zip(array.shape, array.strides) if stride) * array.itemsize
        path = self._file(size)
        axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        packed = array[tuple(slice(None) if stride else slice(0, 1) for stride in array.strides)].transpose(axes)
        if packed.size:
            target = np.memmap(path, array.dtype, "w+", shape=packed.shape or (1,))
            reserve(target, "an operand that workers read from a temporary file")
            target[...] = packed
        else:
            Path(path).write_bytes(b"\0")  # nothing is mapped from an empty file
        strides = dict(zip(axes, _packed_strides(packed.shape, array.itemsize)))
        laid = tuple(strides[axis] if stride else 0 for axis, stride in enumerate(array.strides))
        self._spilled[key] = Mapped(path, array.dtype.str, array.shape, laid, 0)
        return self._spilled[key]

    def _file(self, size: int) -> str:
        """The path of a new file that is going to have ``size`` bytes: in memory, where there is room to spare."""
        free = free_host_bytes() if self._local and hasattr(os, "memfd_create") else None
        if free is not None and free > 2 * size:
            self._memory.append(files.keep(os.memfd_create("einsumx")))
            return f"/proc/{os.getpid()}/fd/{self._memory[-1]}"
        path = mkdtemp(prefix=f"einsumx-{os.getpid()}-")
        self._folders.append(finalize(self, partial(rmtree, path, ignore_errors=True)))
        _folders.add(self._folders[-1])
        return str(Path(path, "operand"))

    def close(self) -> None:
        """Remove what was written. Workers that have it open go on reading."""
        while self._memory:
            files.close(self._memory.pop())
        while self._folders:
            folder = self._folders.pop()
            _folders.discard(folder)
            folder()


def _packed_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    strides = []
    for size in reversed(shape):
        strides.append(itemsize)
        itemsize *= size
    return tuple(reversed(strides))
