"""One pool of threads for the whole process, with BLAS held to one thread while the pool works.

BLAS libraries split small and thin products badly, and their threads go on spinning after a product, so that a pool
beside them would fight for the cores. One pool that splits everything is faster, as long as BLAS itself stays serial.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from einsumx.runtime.caches import cache_clear

__all__ = ["core_count", "get_num_threads", "run", "set_num_threads", "sharing"]

Job: TypeAlias = Callable[[], object]

_ENVIRONMENT = ("EINSUMX_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_inside = threading.local()
"""``_inside.job`` is set in a thread that executes a job, where further jobs run one after another; ``_inside.most`` is
how many threads :func:`run` may use in a thread that works beside others."""


# -- how many -----------------------------------------------------------------------------------------------


def get_num_threads() -> int:
    """How many threads einsumx uses on the CPU, the caller's own among them.

    It is what :func:`set_num_threads` set; else the environment's ``EINSUMX_NUM_THREADS``, ``OMP_NUM_THREADS``,
    ``OPENBLAS_NUM_THREADS`` or ``MKL_NUM_THREADS``, the first that is there; else the number of cores that this
    process may use. PyTorch, JAX and MXNet have threads of their own, which this does not touch.

    Raises:
        ValueError: ``EINSUMX_NUM_THREADS`` is no positive integer.
    """
    return _pool.threads or _default()


def set_num_threads(number: int) -> None:
    """Use ``number`` threads from now on, the caller's own among them; 1 leaves all work to the caller.

    How work is cut depends on it, and so do the last bits of floating-point sums. Plans that were made ready for
    another number are forgotten; a compiled :class:`~einsumx.Expression` keeps cutting its work as before.

    Raises:
        ValueError: it is not positive.
        TypeError: it is no integer.

    >>> import einsumx
    >>> before = einsumx.get_num_threads()
    >>> einsumx.set_num_threads(3)
    >>> einsumx.get_num_threads()
    3
    >>> einsumx.set_num_threads(before)
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"the number of threads is an integer, not {number!r}")
    if number < 1:
        raise ValueError(f"the number of threads is at least 1, not {number}")
    if number != get_num_threads():
        cache_clear()
    _pool.threads = int(number)


@lru_cache(maxsize=1)
def _default() -> int:
    for name in _ENVIRONMENT:
        number = _from_environment(name)
        if number is not None:
            return number
    return _cores()


def _from_environment(name: str) -> int | None:
    """A positive integer; OpenMP's may be a list, one number for each level of nesting."""
    text = os.environ.get(name, "").partition(",")[0].strip()
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text and name == _ENVIRONMENT[0]:
        raise ValueError(f"{name} is {text!r}, not a positive integer")
    return None


def core_count() -> int:
    """How many processor cores this process may use, as the system counts them."""
    return len(_cpus())


def _cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _cores() -> int:
    """The cores that this process may use; two CPUs that share a core count once, as they share its arithmetic."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cpus = _cpus()
    try:
        return len({Path(siblings.format(cpu)).read_text() for cpu in cpus})
    except OSError:
        return len(cpus)


# -- BLAS ---------------------------------------------------------------------------------------------------


class _Library:
    """One BLAS library: its number of threads, and whether each thread that calls it has a number of its own."""

    def __init__(self, controller: Any) -> None:
        layer = getattr(controller, "threading_layer", "")
        self.is_serial = layer == "disabled"
        self.is_per_thread = layer == "openmp"
        own = controller.internal_api == "openblas" and not self.is_per_thread
        self.get: Callable[[], int] = (own and _of_openblas(controller, "get")) or controller.get_num_threads
        self.set: Callable[[int], object] = (own and _of_openblas(controller, "set")) or controller.set_num_threads


def _of_openblas(controller: Any, verb: str) -> Any:
    """OpenBLAS's own function: threadpoolctl's listens to one thread alone, and a hold may end in another."""
    names = (f"{start}openblas_{verb}_num_threads{end}" for start in ("", "scipy_") for end in ("", "64_", "_64"))
    return next((getattr(controller.dynlib, name) for name in names if hasattr(controller.dynlib, name)), None)


class _Blas:
    """The BLAS libraries of the process, held to few threads, mostly to one, for as long as anyone asks for it.

    Args:
        libraries: all that there are.
        usual: how many threads they use of themselves. Less than that at a hold is a limit that someone set.
    """

    def __init__(self, libraries: Iterable[_Library], usual: int) -> None:
        found = [library for library in libraries if not library.is_serial]
        self._shared = [library for library in found if not library.is_per_thread]
        self._own = [library for library in found if library.is_per_thread]
        self._usual = usual
        self._lock = threading.Lock()
        self._holders: list[int] = []  # the most threads that each of them allows
        self._saved: list[int] = []

    def hold(self, most: int = 1) -> _Hold:
        """Let BLAS use up to ``most`` threads, or as few as another holder does."""
        with self._lock:
            if not self._holders:
                self._saved = [library.get() for library in self._shared]
            before = self._allowed()
            self._holders.append(most)
            _change(self._shared, before, self._allowed())
            lowest = min(self._saved, default=self._usual)
        own = _limit(self._own, most)
        return _Hold(min(lowest, *own) if own else lowest, self._usual, most, own)

    def release(self, hold: _Hold) -> None:
        """Undo one hold, in its thread; the last one puts back what was before the first."""
        _change(self._own, [min(hold.most, number) for number in hold.own], hold.own)
        with self._lock:
            before = self._allowed()
            self._holders.remove(hold.most)
            _change(self._shared, before, self._allowed())

    def _allowed(self) -> list[int]:
        """How many threads the holders leave to each library."""
        return [min([number, *self._holders]) for number in self._saved]

    def settle_worker(self) -> None:
        """In a thread of the pool: one thread, for good, in libraries that have a number for each thread."""
        for library in self._own:
            library.set(1)

    def restore(self) -> None:
        """Put back what was before any hold, in a child process that has none of the holders."""
        _change(self._shared, self._allowed(), self._saved)


class _Hold(NamedTuple):
    """What one hold of BLAS found.

    Attributes:
        found: the least number of threads that a library was set to.
        usual: what they are set to where nobody limits them.
        most: how many threads it leaves to them.
        own: the numbers of the libraries that have one for each thread.
    """

    found: int
    usual: int
    most: int
    own: list[int]


def _limit(libraries: Sequence[_Library], most: int) -> list[int]:
    """Set libraries to at most so many threads; what they were set to."""
    before = [library.get() for library in libraries]
    _change(libraries, before, [min(most, number) for number in before])
    return before


def _change(libraries: Sequence[_Library], before: Sequence[int], after: Sequence[int]) -> None:
    for library, old, new in zip(libraries, before, after):
        if old != new:
            library.set(new)


@lru_cache(maxsize=1)
def _blas() -> _Blas:
    with _pool.lock:  # or threads that come here first at the same time would hold two of them
        return _found_blas()


@lru_cache(maxsize=1)
def _found_blas() -> _Blas:
    import numpy  # noqa: F401  # brings the BLAS that is looked for
    from threadpoolctl import ThreadpoolController

    # A library built for fewer threads than there are CPUs looks limited, and is followed.
    asked = [number for number in map(_from_environment, _ENVIRONMENT[1:]) if number is not None]
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return _Blas(map(_Library, found), min([*asked, len(_cpus())]))


@lru_cache(maxsize=16)
def _openmp(backend: str) -> list[_Library]:  # noqa: ARG001  # what is loaded depends on it
    """The OpenMP libraries of a process that has imported a backend: PyTorch's threads are theirs."""
    from threadpoolctl import ThreadpoolController

    return [_Library(found) for found in ThreadpoolController().select(user_api="openmp").lib_controllers]


# -- the pool -----------------------------------------------------------------------------------------------


class _Call:
    """The jobs of one call of :func:`run`, taken by whichever thread comes first."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = deque(jobs)
        self._left = len(jobs)
        self._lock = threading.Lock()
        self._ended = threading.Lock()
        self._ended.acquire()
        self._errors: list[BaseException] = []

    def work(self) -> None:
        """Execute jobs until none is left to take."""
        take = self._jobs.popleft
        _inside.job = True
        try:
            while True:
                try:
                    job = take()
                except IndexError:
                    return
                try:
                    job()
                except BaseException as error:  # noqa: BLE001  # it is raised in the thread of the caller
                    self._errors.append(error)
                with self._lock:
                    self._left -= 1
                    if not self._left:
                        self._ended.release()
        finally:
            _inside.job = False

    def wait(self) -> None:
        """Wait until every job has ended; raise the first error."""
        self._ended.acquire()
        if self._errors:
            try:
                raise self._errors[0]
            finally:
                self._errors.clear()


class _Pool:
    """Daemon threads that wait for calls to help with, as many as were ever asked for.

    ``threads`` is how many are to work on a call; 0 where nobody said.
    """

    def __init__(self) -> None:
        self.threads = 0
        self.forget_workers()

    def forget_workers(self) -> None:
        """Start anew, in a process that has none of the threads."""
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._workers = 0
        self.lock = threading.Lock()

    def run(self, jobs: Sequence[Job], helpers: int) -> None:
        """Execute ``jobs`` in the caller and in up to ``helpers`` threads beside it."""
        if helpers > self._workers:
            self._grow(helpers)
        call = _Call(jobs)
        for _ in range(helpers):
            self._calls.put(call)
        call.work()
        call.wait()

    def _grow(self, workers: int) -> None:
        with self.lock:
            while self._workers < workers:
                name = f"einsumx-{self._workers + 1}"
                try:
                    threading.Thread(target=self._serve, name=name, daemon=True).start()
                except RuntimeError:  # no more threads are to be had, or the interpreter ends: those there are suffice
                    return
                self._workers += 1

    def _serve(self) -> None:
        import numpy

        # Unlike ufuncs, numpy.einsum says nothing of infinities and nan; error states are each thread's own.
        numpy.seterr(all="ignore")
        _blas().settle_worker()
        next_call = self._calls.get
        while True:
            next_call().work()


_pool = _Pool()


def run(jobs: Sequence[Job]) -> None:
    """Execute jobs on all threads, in no order, with BLAS held to one thread; back when all have ended.

    Inside a job, and where only one thread is to be used, they run one after another in the caller. No more threads
    are used than BLAS was limited to from outside, as by threadpoolctl.

    Args:
        jobs: functions without arguments. They must not wait for one another.

    Raises:
        the first error of a job, after all have ended.

    >>> found = []
    >>> run([lambda: found.append(1), lambda: found.append(2)])
    >>> sorted(found)
    [1, 2]
    """
    if not jobs or getattr(_inside, "job", False):
        for job in jobs:
            job()
        return
    blas = _blas()
    hold = blas.hold()
    try:
        threads = min(get_num_threads(), len(jobs), getattr(_inside, "most", len(jobs)))
        _pool.run(jobs, (threads if hold.found >= hold.usual else min(threads, hold.found)) - 1)
    finally:
        blas.release(hold)


@contextmanager
def sharing(workers: int, backend: str = "numpy") -> Iterator[None]:
    """In this thread, use the share of the threads that is left to one of ``workers`` that work at the same time.

    It holds for einsumx's own threads, for those of BLAS libraries and for those of OpenMP, of which PyTorch makes
    use; not for those of JAX, and of MXNet, which are of the whole process. How einsumx cuts work does not change.

    Args:
        workers: how many there are.
        backend: the name of the one that computes.

    >>> with sharing(1000):
    ...     run([lambda: None, lambda: None])
    """
    share = max(1, get_num_threads() // workers)
    openmp = _openmp(backend)
    blas = _blas()
    before, hold = _limit(openmp, share), blas.hold(share)
    _inside.most = share
    try:
        yield
    finally:
        del _inside.most
        blas.release(hold)
        _change(openmp, [min(share, number) for number in before], before)


def _after_fork() -> None:
    """The child of a fork has none of the workers, and locks may be held that nobody will release."""
    _pool.forget_workers()
    if _blas.cache_info().currsize:
        _blas().restore()
        _blas.cache_clear()
        _found_blas.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
