"""Whether other work on the machine disturbs a measurement.

Three signals, as :func:`watched` reads them:

- On Linux, /proc/stat counts the processor time of other programs and the time that a hypervisor took away, in ticks of
  10 ms. On other systems, the load average before the measurement has to do.
- On Linux, /proc/self/task/*/schedstat counts in nanoseconds how long each thread of this process waited for a core.
  That decides in short measurements, for which ticks are too coarse. Threads of the process may also wait for each
  other; so a wait counts only as far as other programs had the time to cause it.
- Repeats of a call that differ: the only sign of a neighbour on the same physical core, or of a host that lowers the
  clock. See :func:`scatter`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep

from einsumx.runtime.threads import core_count

__all__ = [
    "CpuTimes",
    "Reading",
    "ThreadTimes",
    "Watch",
    "cpu_times",
    "disturbances",
    "load_warning",
    "rest",
    "scatter",
    "thread_times",
    "turn",
    "watched",
]

_OTHERS, _STOLEN = 0.1, 0.05
"""Shares of the processor time that other programs and the hypervisor may take."""

_WAITED = 0.15
"""The share of a thread's work that it may wait for a core because of other programs."""

_ERRATIC = 1.25
"""The largest :func:`scatter` of a measurement that is trusted."""

_LOAD = 0.75
"""Runnable programs per core without a warning; the installation just before leaves some behind."""

_REST, _GLANCE = 0.12, 0.01
"""Seconds after which no thread of a BLAS library spins any more, and between two looks whether one does."""

_SPINS = 0.1
"""The share of a core that a process uses if one of its threads spins."""


# -- repeats ----------------------------------------------------------------------------------------------------


def scatter(times: Sequence[float]) -> float:
    """The median over the least of the times of one call in one steady state; 1 if there is no more than one.

    >>> scatter([2.0, 3.0, 9.0])
    1.5
    """
    return median(times) / min(times) if len(times) > 1 and min(times) > 0 else 1.0


def rest() -> None:
    """Sleep until no thread of this process computes or spins.

    The threads of BLAS libraries spin for about 0.1 s after a product, and slow down what follows.
    """
    end = perf_counter() + _REST
    while perf_counter() < end:
        start, before = perf_counter(), process_time()
        sleep(_GLANCE)
        if process_time() - before < _SPINS * (perf_counter() - start):
            return


def turn(
    call: Callable[[], object],
    seconds: float,
    *,
    least: int = 1,
    most: int = 5000,
    clock: Callable[[], float] = perf_counter,
) -> float:
    """The least time of a call in a steady state of its own.

    It begins with a rest, and with a call that does not count.

    Args:
        call: the call; it returns when the work is done.
        seconds: how long to repeat the call.
        least, most: the smallest and the largest number of repeats.
        clock: returns the time in seconds.
    """
    rest()
    call()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < least or (clock() < end and len(times) < most):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


# -- the watch --------------------------------------------------------------------------------------------------


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
    """A watch over the ``with`` block, which measures for 30 ms or longer.

    Blocks of 0.1 s and more are better: in shorter ones, ticks hardly tell whom a thread waited for, another program or
    another thread of this process, and one endless loop may go unnoticed.

    The thresholds come from two cores of an AMD EPYC in a virtual machine, on which NumPy and PyTorch multiplied
    matrices for 30 ms and for 0.5 s:

    - On the idle machine, the longest wait of a thread was 0.2 % of its time, at most 14 %. Other programs used up to
      3 % of the processor. The scatter was 1.02 to 1.17.
    - Beside one endless loop, or two, the longest wait was 26 to 70 %, and the others' share 30 to 80 %. The scatter
      was 1.01 to 25, as most calls may still find a core: only a high one means something.

    >>> with watched() as watch:
    ...     watch.repeats([1.0, 2.0, 2.1])
    >>> watch.erratic()
    ['the usual time of a call was more than 1.25 times its least']
    """
    watch = Watch()
    before = _now()
    yield watch
    watch.reasons += disturbances(before, _now()) or watch.erratic()


# -- what the system counts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Processor time since the system started, in seconds, over the cores that this process may use.

    Attributes:
        total: all of it, idle time included.
        busy: spent in programs, this one included.
        stolen: taken away by the hypervisor.
        own: spent in this process.
        tick: how exact the others are.
    """

    total: float
    busy: float
    stolen: float
    own: float
    tick: float


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """The seconds that a thread ran, and that it waited for a core although it could have run."""

    ran: float
    waited: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What the system counts at one moment.

    Attributes:
        cpu: None on systems that do not count it.
        threads: those of this process by number; empty on systems that do not count their times.
        load: the load average of the last minute; 0 if the system has none.
        cores: the number of cores that this process may use.
    """

    cpu: CpuTimes | None
    threads: Mapping[int, ThreadTimes]
    load: float
    cores: int


def disturbances(before: Reading, after: Reading) -> list[str]:
    """A sentence on each thing that took so much of the processor between two readings that it disturbs."""
    first, last = before.cpu, after.cpu
    if first is None or last is None:
        return load_warning(before.load, before.cores)
    total = last.total - first.total
    # What is on the way to a tick is not counted yet, on every core.
    inexact = last.tick * after.cores
    stolen = last.stolen - first.stolen
    others = max(0.0, (last.busy - first.busy) - (last.own - first.own))
    reasons = []
    if others >= _OTHERS * total + inexact:
        reasons.append(f"other programs used {others / total:.0%} of the processor")
    if stolen >= _STOLEN * total + inexact:
        reasons.append(f"the hypervisor took away {stolen / total:.0%} of the processor")
    if not reasons:
        reasons += _waits(before.threads, after.threads, others - inexact / 2)
    return reasons


def _waits(before: Mapping[int, ThreadTimes], after: Mapping[int, ThreadTimes], others: float) -> list[str]:
    """A sentence if a thread waited too long while other programs ran for at most ``others`` seconds."""
    none = ThreadTimes(0.0, 0.0)
    ran = {thread: times.ran - before.get(thread, none).ran for thread, times in after.items()}
    waited = {thread: times.waited - before.get(thread, none).waited for thread, times in after.items()}
    work = max((ran[thread] + waited[thread] for thread in after), default=0.0)
    longest = max(waited.values(), default=0.0)
    if not work or min(longest, others) < _WAITED * work:
        return []
    return [f"a thread waited {longest / work:.0%} of its time for a core"]


def load_warning(load: float, cores: int) -> list[str]:
    """A sentence if the load average leaves no room for a measurement."""
    return [f"the load average was {load:.1f} on {cores} cores before"] if load > _LOAD * cores else []


def cpu_times(stat: str, cores: Collection[int], tick: float, own: float) -> CpuTimes | None:
    r"""The times of some cores in a text with the format of /proc/stat.

    Args:
        stat: the text.
        cores: the numbers of the cores.
        tick: seconds per unit of the text.
        own: processor time of this process, in seconds.

    >>> cpu_times("cpu  9 9 9 9\ncpu0 100 50 50 700 20 0 0 80 0 0", {0}, 0.01, 1.5)
    CpuTimes(total=10.0, busy=2.0, stolen=0.8, own=1.5, tick=0.01)
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
    return CpuTimes(total * tick, (total - idle - stolen) * tick, stolen * tick, own, tick)


def thread_times(schedstat: str) -> ThreadTimes:
    """The times in a text with the format of /proc/self/task/*/schedstat.

    >>> thread_times("800000000 250000000 31")
    ThreadTimes(ran=0.8, waited=0.25)
    """
    ran, waited, _ = map(int, schedstat.split())
    return ThreadTimes(ran / 1e9, waited / 1e9)


def _now() -> Reading:
    """What the system counts now."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return Reading(_cpu_times_now(), _thread_times_now(), load, core_count())


def _cpu_times_now() -> CpuTimes | None:
    with suppress(OSError, ValueError, AttributeError):
        stat, cores = Path("/proc/stat").read_text(encoding="ascii"), os.sched_getaffinity(0)
        return cpu_times(stat, cores, 1 / os.sysconf("SC_CLK_TCK"), process_time())
    return None


def _thread_times_now() -> dict[int, ThreadTimes]:
    threads = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended
            threads[int(path.parent.name)] = thread_times(path.read_text(encoding="ascii"))
    return threads
