"""Time a product of matrices in memory maps under a memory limit, in one process and with two worker processes.

Each is timed with and without a journal. The three files are in a temporary folder and take 4 GB at the
default size. A row of each result is checked; nothing is asserted about times.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table
from show import console

import einsumx
from einsumx.ir.text import duration


def main() -> None:
    """Measure and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=18257, help="rows and columns of each matrix (default: 18257)")
    parser.add_argument("--limit", default="500 MB", help="the memory limit (default: 500 MB)")
    parser.add_argument("--rounds", type=int, default=2, help="repeats of each configuration (default: 2)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--folder", type=Path, help="the parent of the temporary folder")
    options = parser.parse_args()
    configurations = [(workers, journal) for workers in (0, options.workers) for journal in (False, True)]
    seconds: dict[tuple[int, bool], list[float]] = {each: [] for each in configurations}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        matrices = [matrix(Path(folder, name), options.size) for name in ("first", "second")]
        for _ in range(options.rounds):
            for workers, journal in configurations:
                with pool(workers) as executor:
                    resume = Path(folder, "journal") if journal else None
                    limit = einsumx.MemoryLimit(options.limit, executor=executor, resume=resume)
                    taken = timed(matrices, Path(folder, "result"), limit)
                seconds[workers, journal].append(taken)
    table = Table("computed by", "journal", "least", "most", box=SIMPLE, pad_edge=False)
    for (workers, journal), times in seconds.items():
        who = f"{workers} worker processes" if workers else "the caller"
        table.add_row(who, "yes" if journal else "no", duration(min(times)), duration(max(times)))
    console.print(table)


@contextmanager
def pool(workers: int) -> Iterator[Executor | None]:
    """Worker processes that have started; None if there are none."""
    if not workers:
        yield None
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as executor:
        list(executor.map(abs, range(4 * workers)))
        yield executor


def matrix(path: Path, size: int) -> Any:
    """A square matrix of random numbers in a memory map."""
    array = np.memmap(path, np.float32, "w+", shape=(size, size))
    rng = np.random.default_rng(len(path.name))
    for row in array:
        row[:] = rng.random(size, np.float32) - 0.5
    array.flush()
    return array


def timed(matrices: list[Any], path: Path, limit: einsumx.MemoryLimit) -> float:
    """The seconds for one product, written to a new file that is removed afterwards."""
    size = len(matrices[0])
    result = np.memmap(path, np.float32, "w+", shape=(size, size))
    os.sync()
    start = perf_counter()
    einsumx.einsum("ij,jk->ik", *matrices, out=result, memory_limit=limit)
    taken = perf_counter() - start
    row = size // 2
    expected = matrices[0][row].astype(np.float64) @ matrices[1]
    difference = np.abs(result[row] - expected).max() / np.abs(expected).max()
    path.unlink()
    if not difference < 1e-3:
        raise SystemExit(f"the results differ by {difference:.1e} of the largest element")
    return taken


if __name__ == "__main__":
    main()
