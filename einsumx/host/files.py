"""Files: atomic writes, bounded reads of regular files, locks, and descriptors that a forked child closes."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from errno import EACCES, EDEADLK
from typing import TYPE_CHECKING, BinaryIO

from einsumx.imports import imported

if TYPE_CHECKING:
    from pathlib import Path


def descriptor_of(path: str | Path, flags: int) -> int:
    """Open a regular file; a pipe or device could block forever.

    Args:
        path: the file's.
        flags: for ``os.open``. Binary mode and close-on-exec are added.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not a regular file.
    """
    if not os.path.exists(path) or os.path.isfile(path):
        for name in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY"):
            flags |= getattr(os, name, 0)
        descriptor = os.open(path, flags, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # false if it was replaced meanwhile
            return descriptor
        os.close(descriptor)
    raise ValueError(f"{path} is not a regular file")


def open_regular(path: str | Path, *, writable: bool = False) -> BinaryIO:
    """Open a regular file for reading, and for writing too if ``writable``; :func:`descriptor_of` raises."""
    descriptor = descriptor_of(path, os.O_RDWR if writable else os.O_RDONLY)
    return os.fdopen(descriptor, "r+b" if writable else "rb")


def read_text(path: Path, most: int) -> str:
    """The text of a regular file of at most ``most`` bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a regular file, is larger, or is not UTF-8.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path} has more than {most} bytes")
    return content.decode("utf-8")


def system_text(path: str | Path, most: int = -1) -> str | None:
    """The first ``most`` letters, or all, of a file in which the system tells of itself; None if it has no such file.

    A TimeoutError is an OSError too, but comes from a signal handler, and passes through.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except TimeoutError:
        raise
    except OSError:
        return None


def status_of(path: str | os.PathLike[str] | int) -> os.stat_result | None:
    """The status of a file or of a descriptor; None if there is no such file. A TimeoutError passes through."""
    try:
        return os.stat(path)
    except TimeoutError:
        raise
    except OSError:
        return None


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, so that nobody reads half of it.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def has_memory_files() -> bool:
    """Whether the system has files in memory alone, which other processes open by their names in ``/proc``."""
    return hasattr(os, "memfd_create") and os.path.isdir(f"/proc/{os.getpid()}/fd")


_LOCKED_BYTE = (1 << 31) - 2
"""The byte that is locked on Windows, where nobody else can read a locked one: beyond all that is in a file."""


def locked(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if someone else holds the lock.

    If the system or the file system does not support locks, this returns True.
    """
    try:
        fcntl = imported("fcntl")
    except ImportError:
        return _locked_on_windows(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except TimeoutError:
        raise
    except OSError:
        pass
    return True


def _locked_on_windows(descriptor: int) -> bool:
    try:
        msvcrt = imported("msvcrt")
    except ImportError:
        return True
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        return error.errno not in (EACCES, EDEADLK)
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
    return True


_own: set[int] = set()
"""Open descriptors that belong to this process and not to forked children."""


def keep(descriptor: int) -> int:
    """Mark a descriptor to be closed in forked children, so that its lock ends with this process."""
    _own.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Close a kept descriptor. In a forked child nothing is kept, and the number may be another file's.

    The lock is released explicitly, in case a child that was just forked has not closed its copy yet.
    """
    if descriptor in _own:
        _own.discard(descriptor)
        with suppress(ImportError, OSError):
            fcntl = imported("fcntl")
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _forget() -> None:
    while _own:
        with suppress(OSError):
            os.close(_own.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
