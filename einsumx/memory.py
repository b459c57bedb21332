"""Memory of the machine: how much of it is free."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["free_host_bytes"]


def free_host_bytes() -> int | None:
    """Bytes of the host's memory that this process can still take; None where the system does not say.

    The smallest of what the machine has available, what is left of the memory of the process's control group, and
    what is left of its address space (``ulimit -v``).
    """
    found = [left for left in (_available(), _left_in_group(), _left_in_space()) if left is not None]
    return max(min(found), 0) if found else None


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _left_in_group() -> int | None:
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            return int(Path(limit).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):  # no such group, or no limit in it
            continue
    return None


def _left_in_space() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return None
    return limit - pages * resource.getpagesize()
