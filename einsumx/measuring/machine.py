"""Whether other work on the machine disturbs a measurement.

On Linux, /proc/stat counts the processor time that other programs and a hypervisor take, in ticks of 10 ms. On other
systems, the load average before the measurement has to do. Repeats of a call that differ are the only sign of a
neighbour on the same physical core, or of a host that lowers the clock: see :func:`scatter`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import NamedTuple

from einsumx.errors import counted
from einsumx.host.files import system_text
from einsumx.host.threads import core_count

_OTHERS = 0.1
"""The share of the processor time that other programs and the hypervisor may take."""

_ERRATIC = 1.25
"""The largest :func:`scatter` of a measurement that is trusted."""

_LOAD = 0.75
"""Runnable programs per core without a warning; the installation just before leaves some behind."""


def scatter(times: Sequence[float]) -> float:
    """The median over the least of the times of one call in one steady state; 1 if there is no more than one.

    >>> scatter([2.0, 3.0, 9.0])
    1.5
    """
    return median(times) / min(times) if len(times) > 1 and min(times) > 0 else 1.0


@dataclass(slots=True)
class Watch:
    """What disturbed a measurement.

    Attributes:
        reasons: a sentence on each disturbance, complete after the ``with`` block; empty if the machine was quiet.
    """

    reasons: list[str] = field(default_factory=list)
    _scatters: list[float] = field(default_factory=list)

    def repeats(self, times: Sequence[float]) -> None:
        """Tell the watch the times of one call in one steady state. Call it inside the ``with`` block."""
        self._scatters.append(scatter(times))

    def erratic(self) -> list[str]:
        """A sentence if the repeats of at least half of the calls differ too much."""
        erratic = sum(each > _ERRATIC for each in self._scatters)
        if not erratic or 2 * erratic < len(self._scatters):
            return []
        which = f" in {erratic} of {len(self._scatters)} calls" if len(self._scatters) > 1 else ""
        return [f"the usual time of a call was more than {_ERRATIC} times its least{which}"]


@contextmanager
def watched() -> Iterator[Watch]:
    """A watch over the ``with`` block, which measures for 0.1 s or longer: in less, ticks say little.

    >>> with watched() as watch:
    ...     watch.repeats([1.0, 2.0, 2.1])
    >>> watch.erratic()
    ['the usual time of a call was more than 1.25 times its least']
    """
    watch = Watch()
    load, before = _load(), _cpu_times_now()
    yield watch
    after = _cpu_times_now()
    if before is not None and after is not None:
        watch.reasons += disturbances(before, after)
    elif load > _LOAD * core_count():
        watch.reasons.append(f"the load average was {load:.1f} on {counted(core_count(), 'core')} before")
    watch.reasons = watch.reasons or watch.erratic()


class CpuTimes(NamedTuple):
    """Processor time since the system started, in seconds, over the cores that this process may use.

    Attributes:
        total: all of it, idle time included.
        others: outside of this process, in other programs and in the hypervisor.
        inexact: how much less of it may be counted, as every core may be on the way to a tick.
    """

    total: float
    others: float
    inexact: float


def disturbances(before: CpuTimes, after: CpuTimes) -> list[str]:
    """A sentence if others took so much of the processor between two moments that it disturbs."""
    total, others = after.total - before.total, after.others - before.others
    if others < _OTHERS * total + after.inexact:
        return []
    return [f"other programs or virtual machines used {others / total:.0%} of the processor"]


def cpu_times(stat: str, cores: Collection[int], tick: float, own: float) -> CpuTimes | None:
    r"""The times of some cores in a text with the format of /proc/stat; None if it has none, as in some sandboxes.

    Args:
        stat: the text.
        cores: the numbers of the cores.
        tick: seconds per unit of the text.
        own: processor time of this process, in seconds.

    >>> cpu_times("cpu  9 9 9 9\ncpu0 100 50 50 700 20 0 0 80 0 0", {0}, 0.25, 20.0)
    CpuTimes(total=250.0, others=50.0, inexact=0.25)
    """
    total = idle = 0
    for line in stat.splitlines():
        name, *counts = line.split()
        if name.removeprefix("cpu").isdecimal() and int(name.removeprefix("cpu")) in cores:
            # user nice system idle iowait irq softirq steal; guests' time, which follows, is part of user and nice
            ticks = list(map(int, counts[:8]))
            total += sum(ticks)
            idle += sum(ticks[3:5])
    return CpuTimes(total * tick, (total - idle) * tick - own, tick * len(cores)) if total else None


def _cpu_times_now() -> CpuTimes | None:
    stat = system_text("/proc/stat")
    if stat is not None:
        with suppress(ValueError, AttributeError):
            return cpu_times(stat, os.sched_getaffinity(0), 1 / os.sysconf("SC_CLK_TCK"), process_time())
    return None


def _load() -> float:
    """The load average of the last minute; 0 if the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
