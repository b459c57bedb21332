"""A pool of threads for the process. BLAS is limited to one thread while the pool works.

BLAS libraries split small and thin products badly. Their threads also keep spinning after a product and would compete
with the pool for the cores. One pool that splits everything is faster as long as BLAS itself is serial.
"""

from __future__ import annotations

import os
import sys
from _queue import SimpleQueue  # the module queue takes longer to import
from _thread import RLock, _local, allocate_lock
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from time import sleep
from typing import TYPE_CHECKING, Any, TypeAlias

from einsumx.caches import cache_clear
from einsumx.host.environment import variable
from einsumx.imports import LazyModule

if TYPE_CHECKING:
    import threading

    from einsumx.host import blas as libraries
    from einsumx.host import files
    from einsumx.host.blas import Blas, Library
else:
    threading = LazyModule("threading")
    libraries, files = LazyModule("einsumx.host.blas"), LazyModule("einsumx.host.files")

np: Any = LazyModule("numpy")

Job: TypeAlias = Callable[[], object]

_ENVIRONMENT = ("EINSUMX_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_inside = _local()
"""Per thread: ``job`` is true while it executes a job, so that :func:`run` does not nest; ``most`` is the number
of threads that :func:`run` may use inside :func:`sharing`."""


# -- how many -----------------------------------------------------------------------------------------------


def get_num_threads() -> int:
    """How many threads einsumx uses on the CPU, including the caller's.

    This is the number that :func:`set_num_threads` set; else the first of the environment variables
    ``EINSUMX_NUM_THREADS``, ``OMP_NUM_THREADS``, ``OPENBLAS_NUM_THREADS`` and ``MKL_NUM_THREADS`` that is set; else the
    number of cores that this process may use. The threads of PyTorch, JAX and MXNet are their own.

    >>> import einsumx
    >>> einsumx.get_num_threads() >= 1
    True
    """
    if not _pool.threads:
        _pool.threads = _default()
    return _pool.threads


def set_num_threads(number: int) -> None:
    """Use ``number`` threads from now on, including the caller's; 1 means the caller's alone.

    The number decides how work is split, and therefore the last bits of floating-point sums. The caches are cleared if
    it changes; an existing :class:`~einsumx.Expression` keeps splitting its work as before.

    Raises:
        ValueError: the number is not positive.
        TypeError: the number is not an integer.

    >>> import einsumx
    >>> before = einsumx.get_num_threads()
    >>> einsumx.set_num_threads(3)
    >>> einsumx.get_num_threads()
    3
    >>> einsumx.set_num_threads(before)
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"the number of threads must be an integer, not {number!r}")
    if number < 1:
        raise ValueError(f"the number of threads must be at least 1, not {number}")
    if number != get_num_threads():
        cache_clear()
    _pool.threads = int(number)


def _default() -> int:
    for name in _ENVIRONMENT:
        number = _from_environment(name)
        if number is not None:
            return number
    return _cores()


def _from_environment(name: str) -> int | None:
    """A positive integer; others' variables may have other meanings."""
    if name != _ENVIRONMENT[0]:
        return _positive(os.environ.get(name, ""))
    return variable(name, _positive, "a positive integer")


def _positive(text: str) -> int | None:
    """The first number of a list, as OpenMP has one for each level of nesting."""
    first = text.partition(",")[0].strip()
    return int(first) or None if first.isdecimal() and len(first) < 10 else None


def core_count() -> int:
    """How many CPUs this process may use, as the system counts them."""
    return len(_cpus())


def _cpus() -> set[int]:
    """The CPUs of the main thread; the caller's thread may be bound to one of them."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(os.getpid())
    return set(range(os.cpu_count() or 1))


def _cores() -> int:
    """How many physical cores this process may use; CPUs that share a core also share its arithmetic units."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cpus = _cpus()
    texts = {files.system_text(siblings.format(cpu)) for cpu in cpus}
    return len(cpus if None in texts else texts)


# -- BLAS ---------------------------------------------------------------------------------------------------


def _blas() -> Blas:
    blas = _pool.blas
    if blas is None:
        with _pool.lock:  # or threads that come here at the same time would each hold another one
            blas = _pool.blas = _pool.blas or _detected_blas()
    return blas


def _detected_blas() -> Blas:
    np.ndarray  # noqa: B018  # loads its BLAS
    # A library built for fewer threads than there are CPUs looks limited, and the pool follows it.
    configured = [number for number in map(_from_environment, _ENVIRONMENT[1:]) if number is not None]
    return libraries.Blas(libraries.libraries("blas"), min([*configured, len(_cpus())]))


@lru_cache(maxsize=16)
def _openmp(backend: str) -> list[Library]:  # noqa: ARG001  # which libraries are loaded depends on it
    """The OpenMP libraries of a process that has imported a backend; PyTorch's threads are theirs."""
    return libraries.libraries("openmp")


# -- the pool -----------------------------------------------------------------------------------------------


class _Call:
    """The jobs of one call of :func:`run`; whichever thread is free takes the next."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = deque(jobs)
        self._left = len(jobs)
        self._lock = allocate_lock()
        self._ended = allocate_lock()
        self._ended.acquire()
        self._errors: list[BaseException] = []
        self._helpers = 0

    def help(self) -> None:
        """As :meth:`work`, for a thread of the pool."""
        with self._lock:
            self._helpers += 1
        self.work()
        with self._lock:
            self._helpers -= 1

    def drop(self) -> None:
        """Drop the jobs that no thread has begun, and wait for those that the pool's threads have."""
        self._jobs.clear()
        while self._helpers:
            sleep(1e-4)

    def work(self) -> None:
        """Execute jobs until none is left."""
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
                except BaseException as error:  # noqa: BLE001  # the caller's thread raises it
                    self._errors.append(error)
                del job  # it may hold the last views of arrays, and the caller is about to continue
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
    """Daemon threads that wait for calls to help with. They are started when first needed, and never end.

    ``threads`` is the number that the user set, or the default; 0 before it is first needed. ``blas`` is NumPy's.
    """

    def __init__(self) -> None:
        self.threads = 0
        self.blas: Blas | None = None
        self.forget_workers()

    def forget_workers(self) -> None:
        """Start over, in a process without the threads."""
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._workers = 0
        self.lock = RLock()

    def run(self, jobs: Sequence[Job], helpers: int) -> None:
        """Execute ``jobs`` in the caller's thread and in up to ``helpers`` others."""
        if helpers > self._workers:
            self._grow(helpers)
        call = _Call(jobs)
        try:
            for _ in range(helpers):
                self._calls.put(call)
            call.work()
            call.wait()
        except BaseException:  # perhaps a signal handler's, while others write to what the caller is about to use
            call.drop()
            raise

    def _grow(self, workers: int) -> None:
        with self.lock:
            # A thread that starts while the interpreter exits never runs, and Python 3.11 waits for it.
            while self._workers < workers and not sys.is_finalizing():
                name = f"einsumx-{self._workers + 1}"
                if not started(threading.Thread(target=self._serve, name=name, daemon=True)):
                    return
                self._workers += 1

    def _serve(self) -> None:
        # Unlike ufuncs, numpy.einsum does not warn of infinities and nan; the error state is per thread.
        np.seterr(all="ignore")
        _blas().settle_worker()
        next_call, cpus = self._calls.get, _bound(set())
        while True:
            call = next_call()
            cpus = _bound(cpus)
            call.help()
            del call


def started(thread: threading.Thread) -> bool:
    """Start a thread; False if the system has no more threads, or the interpreter is exiting."""
    try:
        thread.start()
    except RuntimeError as error:
        if "new thread" not in str(error):  # of a signal handler
            raise
        return False
    return True


def _bound(cpus: set[int]) -> set[int]:
    """Bind a worker, which is bound to these CPUs, to those of the main thread now; return them.

    A thread starts with the CPUs of the one that starts it, which may be bound to one of them for a while.
    """
    now = _cpus()
    if now != cpus and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, now)
    return now


_pool = _Pool()


def run(jobs: Sequence[Job]) -> None:
    """Execute jobs on all threads, in any order, with BLAS limited to one thread. Returns when all have ended.

    Inside a job they run one after another. If BLAS is limited from outside, for example by threadpoolctl, the same
    limit applies here.

    Args:
        jobs: functions without arguments. They must not wait for one another.

    Raises:
        the first error of a job, after all have ended.

    >>> results = []
    >>> run([lambda: results.append(1), lambda: results.append(2)])
    >>> sorted(results)
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


def alone(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """The result of a function, with BLAS in this thread alone.

    >>> alone(max, 1, 2)
    2
    """
    blas = _blas()
    hold = blas.hold()
    try:
        return function(*arguments, **keywords)
    finally:
        blas.release(hold)


def has_small_kernels() -> bool:
    """Whether BLAS multiplies small matrices of floats without a lock, for which threads would wait."""
    return _blas().has_small_kernels


@contextmanager
def sharing(workers: int, backend: str = "numpy") -> Iterator[None]:
    """Limit this thread to its share of the threads while ``workers`` threads or processes work in parallel.

    The limit applies to einsumx's pool, BLAS and OpenMP, which PyTorch uses; not to JAX and MXNet, whose threads belong
    to the whole process. How einsumx splits work does not change.

    Args:
        workers: how many work in parallel.
        backend: the backend that computes, by name.

    >>> with sharing(1000):
    ...     run([lambda: None, lambda: None])
    """
    share = max(1, get_num_threads() // workers)
    openmp = _openmp(backend)
    blas = _blas()
    before, hold = libraries.limit(openmp, share), blas.hold(share)
    _inside.most = share
    try:
        yield
    finally:
        del _inside.most
        blas.release(hold)
        libraries.change(openmp, [min(share, number) for number in before], before)


def _after_fork() -> None:
    """The child of a fork has none of the workers, and nobody releases locks that were held."""
    _pool.forget_workers()
    if _pool.blas is not None:
        _pool.blas.restore()
        _pool.blas = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
