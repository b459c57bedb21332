"""Files that are written in one step, read if they are regular and of a bounded size, locked, or let go in a fork."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

__all__ = ["close", "descriptor_of", "keep", "locked", "open_regular", "read_text", "write_text"]


def descriptor_of(path: str | Path, flags: int) -> int:
    """The descriptor of a regular file; no pipe or device is opened, which could be waited for without end.

    Args:
        path: of the file.
        flags: of ``os.open``; the descriptor is not inherited in any case, and its bytes are not translated.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no regular file.
    """
    if not Path(path).exists() or Path(path).is_file():
        for name in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY"):
            flags |= getattr(os, name, 0)
        descriptor = os.open(path, flags, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # else it was replaced meanwhile
            return descriptor
        os.close(descriptor)
    raise ValueError(f"{path} is not a regular file")


def open_regular(path: str | Path, *, writable: bool = False) -> BinaryIO:
    """A regular file, open to be read.

    Args:
        path: of the file.
        writable: whether it is to be written to as well.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no regular file.
    """
    descriptor = descriptor_of(path, os.O_RDWR if writable else os.O_RDONLY)
    return os.fdopen(descriptor, "r+b" if writable else "rb")


def read_text(path: Path, most: int) -> str:
    """The text of a regular file of at most so many bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, is larger, or is not UTF-8.
    """
    with open_regular(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise ValueError(f"{path} has more than {most} bytes")
    return found.decode("utf-8")


def write_text(path: Path, text: str) -> None:
    """Write a file in one step, so that nobody reads half of it.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def locked(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if somebody else has locked it.

    Where the system, or the file system, has no locks, every file counts as locked.
    """
    try:
        fcntl = import_module("fcntl")
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


_own: set[int] = set()
"""Open descriptors that stand for this process alone."""


def keep(descriptor: int) -> int:
    """Have a descriptor closed in the child of a fork, as what it stands for ends with this process."""
    _own.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Close what is kept; the child of a fork has no such thing, and may have another file of that number.

    Its lock ends here, also where the child of a fork that has just begun did not get to close it yet.
    """
    if descriptor in _own:
        _own.discard(descriptor)
        with suppress(ImportError, OSError):
            fcntl = import_module("fcntl")
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _forget() -> None:
    while _own:
        with suppress(OSError):
            os.close(_own.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
