"""The environment variables that set einsumx up."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar
from warnings import warn

from einsumx.errors import shown

__all__ = ["switch", "variable"]

T = TypeVar("T")

_told: set[tuple[str, str]] = set()


def variable(name: str, read: Callable[[str], T | None], meant: str) -> T | None:
    """The value of an environment variable; None if it is not set or empty.

    A value that means nothing counts as not set, and is told once, by a RuntimeWarning.

    Args:
        name: the variable's.
        read: from its text to its value; None for a text that means nothing.
        meant: the values that it may have, for the warning.

    >>> variable("EINSUMX_EXAMPLE", {"a": 1, "b": 2}.get, "a or b") is None
    True
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    value = read(text)
    if value is None and (name, text) not in _told:
        _told.add((name, text))
        warn(f"{name} is {shown(text)}, not {meant}, and counts as not set", RuntimeWarning, stacklevel=2)
    return value


def switch(name: str) -> bool | None:
    """The value of an environment variable that is 0 or 1; None as for :func:`variable`."""
    return variable(name, {"0": False, "1": True}.get, "0 or 1")
