"""Time contractions of Dask arrays on a small cluster: einsumx against Dask's einsum, tensordot and matmul.

Every contender has a cluster of its own: two worker processes with 500 MB each, for 6 GB of random operands. The table
shows the time, the tasks in the graph, the most memory that one worker had, and how many workers ran out of it. With
``--kill``, one worker is killed after some seconds, and its work is done again. Each sum of a result is checked against
that of the first contender; nothing is asserted about times.
"""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from importlib import import_module
from math import isclose
from threading import Event, Thread
from time import perf_counter
from typing import Any, NamedTuple

from rich.box import SIMPLE
from rich.table import Table
from show import console

import einsumx
from einsumx.ir.text import duration, quantity

dask: Any = import_module("dask")
da: Any = import_module("dask.array")
distributed: Any = import_module("distributed")
psutil: Any = import_module("psutil")

Contender = Callable[..., Any]


class Problem(NamedTuple):
    """A contraction, its contenders, and what is computed of the result, which would not fit the workers' memory."""

    equation: str
    operands: Callable[[float], tuple[Any, ...]]
    others: dict[str, Contender]
    outcome: Callable[[Any], Any]


def random(*shape: int, chunks: tuple[int, ...]) -> Any:
    """A Dask array of random numbers, the same in every cluster."""
    return da.random.default_rng(0).random(shape, chunks=chunks)


def gram(gigabytes: float) -> tuple[Any, ...]:
    """A tall matrix, twice."""
    matrix = random(int(gigabytes * 125_000), 1000, chunks=(2500, 1000))
    return matrix, matrix


def batch(gigabytes: float) -> tuple[Any, ...]:
    """Two batches of square matrices."""
    count = int(gigabytes * 510)
    return tuple(random(count, 350, 350, chunks=(20, 350, 350)) for _ in range(2))


def chain(gigabytes: float) -> tuple[Any, ...]:
    """A tall matrix and two small ones, whose chunks do not align."""
    rows = int(gigabytes * 125_000)
    return (
        random(rows, 1000, chunks=(6000, 400)),
        random(1000, 400, chunks=(300, 300)),
        random(400, 100, chunks=(150, 100)),
    )


PROBLEMS = {
    "gram": Problem(
        "ki,kj->ij",
        gram,
        {"da.tensordot": lambda x, y: da.tensordot(x, y, axes=(0, 0)), "da.matmul": lambda x, y: da.matmul(x.T, y)},
        lambda result: result,
    ),
    "batch": Problem("bij,bjk->bik", batch, {"da.matmul": da.matmul}, lambda result: result.sum(axis=0)),
    "misaligned chain": Problem(
        "ij,jk,kl->il",
        chain,
        {
            "da.tensordot": lambda x, y, z: da.tensordot(da.tensordot(x, y, axes=1), z, axes=1),
            "da.matmul": lambda x, y, z: da.matmul(da.matmul(x, y), z),
        },
        lambda result: result.sum(axis=0),
    ),
}


def main() -> None:
    """Measure and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="one of them (default: all)")
    parser.add_argument("--contender", action="append", help="one of them, such as einsumx (default: all)")
    parser.add_argument("--gigabytes", type=float, default=6, help="of operands (default: 6)")
    parser.add_argument("--memory", default="500 MB", help="of each worker (default: 500 MB)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--kill", type=float, metavar="SECONDS", help="kill a worker after so many seconds")
    parser.add_argument("--timeout", type=float, default=900, help="a contender fails after so many seconds (900)")
    options = parser.parse_args()
    table = Table("problem", "contender", "time", "tasks", "peak", "out of memory", box=SIMPLE, pad_edge=False)
    for name in options.problem or PROBLEMS:
        expected: float | None = None
        for contender, function in contenders(PROBLEMS[name]).items():
            if options.contender and contender not in options.contender:
                continue
            run = measured(PROBLEMS[name], function, options)
            if run.checksum is not None and expected is None:
                expected = run.checksum
            is_right = run.checksum is None or isclose(run.checksum, expected or 0.0, rel_tol=1e-9)
            seconds = "failed" if run.checksum is None else duration(run.seconds) if is_right else "WRONG"
            peak = f"{quantity(run.peak, 'B')}"
            table.add_row(name, contender, seconds, str(run.tasks), peak, str(run.lost))
            console.print(f"{name}, {contender}: {seconds}", style="dim")
    console.print(table)


def contenders(problem: Problem) -> dict[str, Contender]:
    """The functions that compute a problem, by name."""
    equation = problem.equation
    return {
        "einsumx": lambda *operands: einsumx.einsum(equation, *operands),
        "da.einsum": lambda *operands: da.einsum(equation, *operands),
        "da.einsum, optimize=True": lambda *operands: da.einsum(equation, *operands, optimize=True),
        **problem.others,
    }


class Run(NamedTuple):
    """A contraction on a cluster of its own.

    Attributes:
        checksum: the sum of what was computed; None if it failed.
        seconds: from the call to the result.
        tasks: in the graph, after Dask optimized it.
        peak: the most bytes of one worker process.
        lost: how many workers ended that nobody killed: those that ran out of memory.
    """

    checksum: float | None
    seconds: float
    tasks: int
    peak: int
    lost: int


def measured(problem: Problem, function: Contender, options: Any) -> Run:
    """Compute a problem in a fresh cluster."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        distributed.LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            memory_limit=options.memory,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(warm)
        watch = Watch(cluster, options.kill)
        checksum: float | None
        start = perf_counter()
        lazy = problem.outcome(function(*problem.operands(options.gigabytes)))
        try:
            checksum = float(client.compute(lazy).result(timeout=options.timeout).sum())
        except (distributed.KilledWorker, TimeoutError, MemoryError):
            checksum = None
        seconds = perf_counter() - start
        watch.stop()
        return Run(checksum, seconds, len(dask.optimize(lazy)[0].__dask_graph__()), watch.peak, watch.lost)


def warm() -> None:
    """Load what a first contraction loads, on a worker."""
    einsumx.einsum("ij,jk->ik", da.ones((2, 2)), da.ones((2, 2))).compute(scheduler="sync")


class Watch:
    """Watches the workers' memory in a thread, and kills one of them if that is wanted.

    Args:
        cluster: the cluster.
        kill: after how many seconds a worker is killed; None to kill none.
    """

    def __init__(self, cluster: Any, kill: float | None) -> None:
        self.peak = 0
        self._cluster, self._kill = cluster, kill
        self._pids: set[int] = set(self._alive())
        self._count = len(self._pids)
        self._killed = 0
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Workers that ended without being killed here."""
        return len(self._pids) - self._count - self._killed

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _alive(self) -> list[int]:
        nannies = list(self._cluster.workers.values())
        return [nanny.process.pid for nanny in nannies if nanny.process is not None and nanny.process.pid]

    def _watch(self) -> None:
        start = perf_counter()
        while not self._ended.wait(0.05):
            alive = self._alive()
            self._pids.update(alive)
            for pid in alive:
                try:
                    self.peak = max(self.peak, psutil.Process(pid).memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            if self._kill is not None and not self._killed and alive and perf_counter() - start > self._kill:
                os.kill(alive[0], signal.SIGKILL)
                self._killed = 1


if __name__ == "__main__":
    main()
