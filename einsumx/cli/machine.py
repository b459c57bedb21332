"""Whether other work on the machine disturbs a measurement.

On Linux, /proc/stat counts the processor time of other programs and the time that a hypervisor took away. On other
systems, the load average before the measurement has to do.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from einsumx.runtime.threads import core_count

__all__ = ["CpuTimes", "contention", "cpu_times", "load_warning", "watched"]

_OTHERS, _STOLEN = 0.1, 0.05
"""Shares of the processor time that other programs and the hypervisor may take without a warning."""

_LOAD = 0.75
"""Runnable programs per core without a warning; the installation just before leaves some behind."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Processor time since the system started, in seconds, over the cores that this process may use.

    Attributes:
        total: all of it, idle time included.
        busy: spent in programs, this one included.
        stolen: taken away by the hypervisor.
        own: spent in this process.
    """

    total: float
    busy: float
    stolen: float
    own: float


@contextmanager
def watched() -> Iterator[list[str]]:
    """A list that holds, after the ``with`` block, a sentence on each thing that disturbed the block."""
    warnings: list[str] = []
    before = _now()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    yield warnings
    after = _now()
    if before and after:
        warnings += contention(before, after)
    else:
        warnings += load_warning(load, core_count())


def contention(before: CpuTimes, after: CpuTimes) -> list[str]:
    """What other programs and the hypervisor took between two readings, if it is enough to disturb."""
    total = after.total - before.total
    if total <= 0:
        return []
    stolen = (after.stolen - before.stolen) / total
    others = ((after.busy - before.busy) - (after.own - before.own)) / total
    warnings = []
    if others >= _OTHERS:
        warnings.append(f"other programs used {others:.0%} of the processor")
    if stolen >= _STOLEN:
        warnings.append(f"the hypervisor took away {stolen:.0%} of the processor")
    return warnings


def load_warning(load: float, cores: int) -> list[str]:
    """A warning if the load average leaves no room for a measurement."""
    return [f"the load average was {load:.1f} on {cores} cores before"] if load > _LOAD * cores else []


def cpu_times(stat: str, cores: Collection[int], tick: float, own: float) -> CpuTimes | None:
    r"""The times of some cores in a text with the format of /proc/stat.

    Args:
        stat: the text.
        cores: the numbers of the cores.
        tick: seconds per unit of the text.
        own: processor time of this process, in seconds.

    >>> cpu_times("cpu  9 9 9 9\ncpu0 100 50 50 700 20 0 0 80 0 0", {0}, 0.01, 1.5)
    CpuTimes(total=10.0, busy=2.0, stolen=0.8, own=1.5)
    """
    total = idle = stolen = 0
    for line in stat.splitlines():
        name, *counts = line.split()
        if name.removeprefix("cpu").isdecimal() and int(name.removeprefix("cpu")) in cores:
            # user nice system idle iowait irq softirq steal; guests' time, which follows, is part of user and nice
            ticks = list(map(int, counts[:8]))
            total += sum(ticks)
            idle += sum(ticks[3:5])
            stolen += sum(ticks[7:])
    if not total:  # some sandboxes count nothing
        return None
    return CpuTimes(total * tick, (total - idle - stolen) * tick, stolen * tick, own)


def _now() -> CpuTimes | None:
    """The times now; None on systems that do not count them."""
    with suppress(OSError, ValueError, AttributeError):
        stat, cores = Path("/proc/stat").read_text(encoding="ascii"), os.sched_getaffinity(0)
        return cpu_times(stat, cores, 1 / os.sysconf("SC_CLK_TCK"), process_time())
    return None
