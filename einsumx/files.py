"""Files that are written in one step, and read if they are files of a size that can be."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_regular", "read_text", "write_text"]


def open_regular(path: str | Path) -> BinaryIO:
    """A regular file, open to be read; a pipe or a device, which could be waited for without end, is none.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


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
