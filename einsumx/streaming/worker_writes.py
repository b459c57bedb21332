"""Lets workers in other processes write blocks of a result to its files, as long as the caller permits it.

Workers on the caller's machine write to memory maps, and to Zarr arrays in local files or object stores. A permit is a
memfd of the caller. It ends with the caller, however that ends; when the contraction is over or fails, the caller
withdraws it after the writes in progress. So a late worker never writes to files that have been reused since. Without
memfds and ``/proc`` (outside Linux), and for all other results, blocks go through the caller. This includes HDF5: a
file that is open for writing in the caller cannot be written to by other processes, because HDF5 keeps parts of it in
each one's memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from einsumx.blocked.program import BlockedProgram
from einsumx.host import files
from einsumx.imports import imported
from einsumx.storage.array_files import grain, mapped_file
from einsumx.storage.stores import folder_of, is_object_store, writes_at_once
from einsumx.streaming.shared_operands import Mapped, Zarr, file_of, zarr_of


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """The files of a result.

    Attributes:
        array: opens it for writing.
        file: the path, device number and inode of one of its files; None in an object store.
        disjoint: whether blocks never share a part of a file that is written at once, so that several can be written
            at the same time.
    """

    array: Mapped | Zarr
    file: tuple[str, int, int] | None
    disjoint: bool


def result_files(out: Any, program: BlockedProgram) -> ResultFiles | None:
    """The files of a result, if other processes can write blocks of it; else None."""
    status = mapped_file(out)
    if status is not None:
        array = file_of(out)
        assert isinstance(array, Mapped)
        return ResultFiles(array, (array.path, status.st_dev, status.st_ino), disjoint=True)
    if is_object_store(out):
        return ResultFiles(zarr_of(out), None, disjoint=True) if _is_disjoint(program, grain(out)) else None
    folder = folder_of(out)
    if folder is None or not out.size:
        return None
    metadata = next((path for path in (folder / "zarr.json", folder / ".zarray") if path.is_file()), None)
    disjoint = _is_disjoint(program, grain(out))
    if metadata is None or not (disjoint or writes_at_once(out)):
        return None
    status = metadata.stat()
    return ResultFiles(zarr_of(out), (str(metadata), status.st_dev, status.st_ino), disjoint)


def _is_disjoint(program: BlockedProgram, chunk: Sequence[int]) -> bool:
    """Whether no chunk has elements of two blocks."""
    cuts = [program.grid.ranges[label] for label in program.blocking.root.output]
    return all(cut.start % size == 0 for cut_axis, size in zip(cuts, chunk) for cut in cut_axis)


@dataclass(frozen=True, slots=True)
class PermittedFiles:
    """The files of a result with the permit to write them, as workers receive them."""

    files: ResultFiles
    permit: str
    token: bytes

    def open(self) -> Any:
        """The result, open for writing; None if this process does not see the same file."""
        array = self.files.array
        try:
            if self.files.file is not None:
                path, device, inode = self.files.file
                status = Path(path).stat()
                if (status.st_dev, status.st_ino) != (device, inode):
                    return None
            return array.open(writable=True) if isinstance(array, Mapped) else array.open()
        except OSError:
            return None

    @contextmanager
    def permitted(self) -> Iterator[bool]:
        """Whether this process may write now; the caller cannot withdraw the permit inside this context."""
        try:
            descriptor = files.descriptor_of(self.permit, os.O_RDONLY)
        except (OSError, ValueError):  # another machine, or the caller has ended and the descriptor is a pipe by now
            yield False
            return
        try:
            with _locked(descriptor, alone=not self.files.disjoint):
                yield os.pread(descriptor, len(self.token), 0) == self.token
        finally:
            os.close(descriptor)


@contextmanager
def _locked(descriptor: int, *, alone: bool) -> Iterator[None]:
    """Hold the lock of a permit, exclusively or shared."""
    fcntl = imported("fcntl")
    fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough if a forked child has the descriptor, too


class WritePermit:
    """Lets the workers of one contraction write to its result, until it is withdrawn."""

    def __init__(self) -> None:
        self._token = uuid4().hex.encode()
        self._descriptor = files.keep(os.memfd_create("einsumx-permit"))
        os.write(self._descriptor, self._token)

    def for_files(self, to: ResultFiles) -> PermittedFiles:
        """The files of a result with this permit, to be sent to workers."""
        return PermittedFiles(to, f"/proc/{os.getpid()}/fd/{self._descriptor}", self._token)

    def alone(self) -> AbstractContextManager[None]:
        """A context in which no worker writes, so that the caller may write to chunks that blocks share."""
        return _locked(self._descriptor, alone=True)

    def withdraw(self) -> None:
        """Wait for the blocks that are being written, and let workers begin no others."""
        fcntl = imported("fcntl")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        finally:
            os.ftruncate(self._descriptor, 0)
            files.close(self._descriptor)
