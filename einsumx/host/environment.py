"""The environment variables that set einsumx up, and the file of what was measured, whose place they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar
from warnings import warn

from einsumx.errors import shown

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
        warn(f"{name} is {shown(text)}, not {meant}, and is ignored", RuntimeWarning, stacklevel=2)
    return value


def switch(name: str) -> bool | None:
    """The value of an environment variable that is 0 or 1; None as for :func:`variable`."""
    return variable(name, {"0": False, "1": True}.get, "0 or 1")


def cache_folder() -> str:
    """The folder of what was measured: ``EINSUMX_CACHE``, or one where the platform has its caches.

    Raises:
        RuntimeError: that is nowhere, because the user has no home.
    """
    configured = os.environ.get("EINSUMX_CACHE")
    if configured:
        return configured
    match sys.platform:
        case "win32":
            caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
        case "darwin":
            caches = "~/Library/Caches"
        case _:
            caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    # A first call runs this, and is not to import pathlib.
    caches = os.path.expanduser(caches)  # noqa: PTH111
    if not os.path.isabs(caches):  # noqa: PTH117
        raise RuntimeError("the home folder of the user is not known; set EINSUMX_CACHE to a folder")
    return os.path.join(caches, "einsumx")  # noqa: PTH118


def store_path() -> str:
    """The file of what was measured, which need not exist; :func:`cache_folder` raises.

    The number is the version of its tables. Versions of einsumx with other tables have files of their own.
    """
    return os.path.join(cache_folder(), "measured-1.sqlite3")  # noqa: PTH118


def has_store() -> bool:
    """Whether something may be stored; much faster than importing what reads it. A new or failed file is empty."""
    try:
        return os.path.getsize(store_path()) > 0  # noqa: PTH202
    except TimeoutError:  # of a signal handler
        raise
    except (OSError, RuntimeError):
        return False
