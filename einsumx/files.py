"""Files that are written in one step."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_text"]


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
