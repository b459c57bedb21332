"""Files that are written in one step, read if they are regular and of a bounded size, locked, or let go in a fork."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

__all__ = ["forget_after_fork", "locked", "open_regular", "read_text", "write_text"]


def open_regular(path: str | Path, *, writable: bool = False) -> BinaryIO:
    """A regular file, open to be read, or to be written to as well; a pipe or a device, which could be waited for without end, is none.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no regular file.
    """
    flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= os.O_RDWR if writable else os.O_RDONLY
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is not a regular file")
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


forget_after_fork: set[int] = set()
"""Open descriptors that are closed in the child of a fork, as what they stand for ends with this process alone."""


def _forget() -> None:
    while forget_after_fork:
        with suppress(OSError):
            os.close(forget_after_fork.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
