"""How much memory of the machine is free, and amounts of memory as text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from einsumx.errors import EinsumxError
from einsumx.host.files import system_text
from einsumx.imports import imported

_ROOT = "/"


class _Files(NamedTuple):
    """The files in which one version of control groups reports memory.

    Attributes:
        mount: the mount point of the hierarchy.
        limit, used: files of a group with one number of bytes each.
        cached: the lines of ``memory.stat`` that count pages of files.
    """

    mount: str
    limit: str
    used: str
    cached: tuple[str, str]


_FIRST = _Files(
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)
_SECOND = _Files("sys/fs/cgroup", "memory.max", "memory.current", ("active_file", "inactive_file"))


def free_host_bytes() -> int | None:
    """Bytes of host memory that this process can still allocate; None if the system does not say.

    This is the minimum of the machine's available memory, the rest of each control group that contains the process,
    and the rest of its address space (``ulimit -v``).
    """
    limits = [left for left in (_available(), *_left_in_groups(), _left_in_space()) if left is not None]
    return max(min(limits), 0) if limits else None


_TOLD = (
    "out of memory",
    "oom when allocating",
    "resource exhausted",
    "resource_exhausted",
    "[malloc]",
    "alloc_failed",
    "fail to alloc",
    "failed to allocate",
    "tried to allocate",
    "unable to allocate",
    "memory allocation failed",
)
"""Parts of the messages, in lower case, by which libraries say that memory ran out, on the host or on a device."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the host or a device ran out of memory.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory.")), is_out_of_memory(RuntimeError("sizes differ"))
    (True, False)
    """
    if isinstance(error, EinsumxError):
        return False
    if isinstance(error, MemoryError):
        return True
    # TensorFlow's error is not a RuntimeError.
    may_tell = isinstance(error, RuntimeError) or type(error).__name__ == "ResourceExhaustedError"
    return may_tell and any(text in str(error).lower() for text in _TOLD)


def _available() -> int | None:
    text = system_text(f"{_ROOT}proc/meminfo")
    if text is None:
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return None
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("MemAvailable:")), None)


def _left_in_groups() -> Iterator[int]:
    """The bytes left in the process's control group and in each group around it that has a limit."""
    for line in (system_text(f"{_ROOT}proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        files = _FIRST if controllers else _SECOND
        names = [name for name in path.split("/") if name]  # in a container, the path may be outside the mount
        for count in range(len(names), -1, -1):
            left = _left_in_group("/".join([f"{_ROOT}{files.mount}", *names[:count]]), files)
            if left is not None:
                yield left


def _left_in_group(folder: str, files: _Files) -> int | None:
    limit, used = (system_text(f"{folder}/{name}") for name in (files.limit, files.used))
    if limit is None or used is None or not limit.strip().isdecimal():  # no such group, or no limit
        return None
    counts = dict(line.split() for line in (system_text(f"{folder}/memory.stat") or "").splitlines())
    # The system reclaims pages of files when a group reaches its limit.
    return int(limit) - int(used) + sum(int(counts.get(name, 0)) for name in files.cached)


def _left_in_space() -> int | None:
    try:
        resource = imported("resource")
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    text = system_text(f"{_ROOT}proc/self/statm")
    return None if text is None else int(limit - int(text.split()[0]) * resource.getpagesize())


# -- amounts --------------------------------------------------------------------------------------------------------

UNLIMITED = sys.maxsize
"""Larger limits, infinity among them, count as this many bytes, more than any machine has."""

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{binary}b": (1024 if binary else 1000) ** power
    for power, prefix in enumerate("kmgtp", 1)
    for binary in ("i", "")
}


def bytes_in(text: str) -> int | None:
    """The bytes in a text such as ``"8GiB"``; None if it is no amount of memory.

    >>> bytes_in("8GiB"), bytes_in("0"), bytes_in("8 apples")
    (8589934592, 0, None)
    """
    parts = re.fullmatch(r"\s*(\d{1,30})(?:\.(\d{0,30}))?\s*([a-zA-Z]{0,3})\s*", text)
    if parts is None or parts[3].lower() not in _UNITS:
        return None
    decimals = parts[2] or ""
    nbytes: int = int(parts[1] + decimals) * _UNITS[parts[3].lower()] // 10 ** len(decimals)
    return min(nbytes, UNLIMITED)
