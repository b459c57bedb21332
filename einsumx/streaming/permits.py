"""How workers in other processes write blocks of a result to its files themselves, while their caller permits it.

Memory maps and arrays of Zarr in local files are written so, by workers on the caller's machine. A permit is a file
that is nowhere but in the caller's memory: it ends with the caller, however that ends, and where the contraction is
over or was given up, it is withdrawn when the last block is written that is being written. So a worker that is late
never writes into what has become of the files since. Where there is none (such files are Linux's), and for all other
results, blocks go through the caller. That includes HDF5: a file that the caller has open for writing cannot be
written to by other processes, as HDF5 keeps parts of it in the memory of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import ranges
from einsumx.runtime import files
from einsumx.streaming.array_files import folder_of, grain, mapped_file
from einsumx.streaming.shared_operands import Lent, Mapped, Pickled, file_of

__all__ = ["Outlet", "Permit", "Place", "place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a result lies in files.

    Attributes:
        lent: opens it for writing.
        file: one of its files, and which one that is: the numbers of its device and of itself.
        apart: whether no two blocks have a part of a file that is written at once, so that they may be written at the
            same time.
    """

    lent: Lent
    file: tuple[str, int, int]
    apart: bool


def place(out: Any, plan: BlockedProgram) -> Place | None:
    """Where a result lies, if other processes can write blocks of it; else None."""
    status = mapped_file(out)
    if status is not None:
        lent = file_of(out)
        assert isinstance(lent, Mapped)
        return Place(lent, (lent.path, status.st_dev, status.st_ino), apart=True)
    folder = folder_of(out)
    if folder is None or not out.size:
        return None
    names = [name for name in ("zarr.json", ".zarray") if (folder / name).is_file()]
    apart = _is_apart(plan, grain(out))
    if not names or not (apart or _writes_at_once(out)):
        return None
    status = (folder / names[0]).stat()
    return Place(Pickled(out), (str(folder / names[0]), status.st_dev, status.st_ino), apart)


def _is_apart(plan: BlockedProgram, chunk: Sequence[int]) -> bool:
    """Whether no chunk has elements of two blocks."""
    sizes, counts = plan.equation.sizes, plan.blocking.counts
    cuts = [ranges(sizes[label], counts[label]) for label in plan.blocking.root.output]
    return all(cut.start % size == 0 for cut_axis, size in zip(cuts, chunk) for cut in cut_axis)


def _writes_at_once(array: Any) -> bool:
    """Whether a chunk is replaced in one step, so that the death of a worker loses nothing of a neighbour's."""
    kind = type(array.store)
    return kind.__name__ != "LocalStore" or hasattr(import_module(kind.__module__), "_atomic_write")


@dataclass(frozen=True, slots=True)
class Outlet:
    """A place, and the permit to write there, as workers get it."""

    place: Place
    permit: str
    token: bytes

    def open(self) -> Any:
        """The result, to write to; None where this process does not see the same file."""
        path, device, inode = self.place.file
        lent = self.place.lent
        try:
            status = Path(path).stat()
            if (status.st_dev, status.st_ino) != (device, inode):
                return None
            return lent.open(writable=True) if isinstance(lent, Mapped) else lent.open()
        except OSError:
            return None

    @contextmanager
    def permitted(self) -> Iterator[bool]:
        """Whether the caller has the result written here; it waits with the end of that as long as this lasts."""
        descriptor = _opened(self.permit)
        if descriptor is None:
            yield False
            return
        try:
            with _locked(descriptor, alone=not self.place.apart):
                yield os.pread(descriptor, len(self.token), 0) == self.token
        finally:
            os.close(descriptor)


@contextmanager
def _locked(descriptor: int, *, alone: bool) -> Iterator[None]:
    """While nobody else has a permit locked, or, not ``alone``, nobody else has it locked alone."""
    fcntl = import_module("fcntl")
    fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # the child of a fork may have the descriptor, too


def _opened(permit: str) -> int | None:
    """The permit; None on another machine, or where the caller has ended."""
    try:
        return files.descriptor_of(permit, os.O_RDONLY)
    except (OSError, ValueError):  # the number of its descriptor may be that of a pipe by now
        return None


class Permit:
    """Lets the workers of one contraction write to its result, until it is withdrawn."""

    def __init__(self) -> None:
        self._token = uuid4().hex.encode()
        self._descriptor = files.keep(os.memfd_create("einsumx-permit"))
        os.write(self._descriptor, self._token)

    @staticmethod
    def is_possible() -> bool:
        """Whether the system has what it takes."""
        return hasattr(os, "memfd_create") and Path(f"/proc/{os.getpid()}/fd").is_dir()

    def outlet(self, to: Place) -> Outlet:
        """What workers get."""
        return Outlet(to, f"/proc/{os.getpid()}/fd/{self._descriptor}", self._token)

    def alone(self) -> AbstractContextManager[None]:
        """While this lasts no worker writes, so that the caller may write to what it shares with their blocks."""
        return _locked(self._descriptor, alone=True)

    def withdraw(self) -> None:
        """Wait for the blocks that are being written, and see that no worker begins with another one."""
        fcntl = import_module("fcntl")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        finally:
            os.ftruncate(self._descriptor, 0)
            files.close(self._descriptor)
