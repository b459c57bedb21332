"""Time contractions with and without a memory limit, with operands and results in files and in HDF5.

The contractions are the example of opt_einsum_torch, whose inputs are four times the limit, square products whose three
matrices are three times the limit, a chain and a batch of products. The files are in a temporary folder, and in the
system's page cache while they are timed, so the difference is the cost of the blocks. "peak" is the plan's figure,
"counted" is NumPy's; "capped" runs in a process whose address space ends at the limit. opt_einsum_torch is timed too if
there is CUDA. Results are checked against each other; nothing is asserted about times.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import tracemalloc
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table
from show import console

import einsumx
from einsumx.ir.text import duration, quantity

try:
    import h5py
except ImportError:
    h5py = None


SLACK = 64 << 20
"""Bytes for the stacks of threads, the allocator's arenas, and late imports."""


@dataclass(frozen=True, slots=True)
class StoredContraction:
    """A contraction, how its operands and result are stored, and the limit as a share of their bytes."""

    name: str
    equation: str
    shapes: tuple[tuple[int, ...], ...]
    kept: str
    share: float


def contractions(scale: float) -> Iterator[StoredContraction]:
    """All contractions; ``scale`` multiplies the bytes of their inputs."""
    i = max(round(100 * scale), 1)
    ancestor = ((1000, 3, 1024), (i, 1000, 3), (i, 1000, 3, 1024), (i, 1000, 3, 1024), (i, 1024, 9, 9))
    for kept in ("files", "HDF5"):
        yield StoredContraction("ancestor", "jrl,ijr,ijrk,ijrl,ikmn->imn", ancestor, kept, 1 / 4)
    n = round(6000 * scale**0.5)
    for kept in ("files", "HDF5"):
        yield StoredContraction("square product", "ij,jk->ik", ((n, n),) * 2, kept, 1 / 3)
    yield StoredContraction("chain", "ij,jk,kl->il", ((n, n),) * 3, "HDF5", 1 / 4)
    batch = max(round(400 * scale), 1)
    yield StoredContraction("batch", "bij,bjk->bik", ((batch, 400, 500), (batch, 500, 300)), "HDF5", 1 / 4)


def main() -> None:
    """Measure and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the inputs' bytes (default: 1, up to 2.5 GB)")
    parser.add_argument("--rounds", type=int, default=3, help="repeats of each contraction (default: 3)")
    parser.add_argument(
        "--filter", default="", metavar="TEXT", help="only contractions whose name or storage contains TEXT"
    )
    parser.add_argument("--folder", type=Path, help="the parent of the temporary folder")
    options = parser.parse_args()
    table = Table(box=SIMPLE, pad_edge=False)
    for name in (
        "case",
        "kept in",
        "inputs",
        "limit",
        "peak",
        "counted",
        "blocks",
        "no limit",
        "limited",
        "ratio",
        "capped",
        *(["opt_einsum_torch"] if has_ancestor() else []),
    ):
        table.add_column(name, justify="left" if name in ("case", "kept in") else "right")
    for case in contractions(options.scale):
        if options.filter in f"{case.name} {case.kept}" and (h5py or case.kept != "HDF5"):
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                table.add_row(*measured(case, Path(folder), options.rounds))
    console.print(table)
    if not has_ancestor():
        console.print("opt_einsum_torch is missing: it needs CUDA.")


def measured(case: StoredContraction, folder: Path, rounds: int) -> list[str]:
    """A row of the table."""
    operands = [operand(case, folder / f"operand{number}", shape) for number, shape in enumerate(case.shapes)]
    inputs = sum(4 * prod(shape) for shape in case.shapes)
    shape = einsumx.plan(case.equation, *case.shapes).shape
    limit = int(case.share * (inputs + 4 * prod(shape)))
    first, second = (empty(case, folder / f"result{number}", shape) for number in range(2))

    def unlimited() -> Any:
        whole = [array[...] for array in operands]  # reads HDF5, and takes memory maps as they are
        if case.kept != "HDF5":
            return einsumx.einsum(case.equation, *whole, out=first)
        first[...] = einsumx.einsum(case.equation, *whole)
        return first

    def limited() -> Any:
        return einsumx.einsum(case.equation, *operands, out=second, memory_limit=limit)

    plan = einsumx.plan(case.equation, *operands, memory_limit=limit, out=second)
    seconds: dict[Callable[[], Any], list[float]] = {unlimited: [], limited: []}
    expected = unlimited()[...]
    tracemalloc.start()
    limited()
    counted = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = second[...]
    difference = np.abs(expected - result).max() / np.abs(expected).max()
    if not difference < 1e-3:
        raise SystemExit(f"{case.name}: the results differ by {difference:.1e} of the largest element")
    del expected, result
    for _ in range(rounds):
        for function, times in seconds.items():
            start = perf_counter()
            function()
            times.append(perf_counter() - start)
    whole, parts = median(seconds[unlimited]), median(seconds[limited])
    return [
        case.name,
        case.kept,
        quantity(inputs, "B"),
        quantity(limit, "B"),
        quantity(plan.peak_bytes, "B"),
        quantity(counted, "B"),
        str(prod(plan.blocking.counts)),
        duration(whole),
        duration(parts),
        f"{parts / whole:.2f}",
        capped(case, folder, limit),
        *([ancestor(case, operands, limit, rounds)] if has_ancestor() else []),
    ]


def empty(case: StoredContraction, path: Path, shape: tuple[int, ...]) -> Any:
    """A new array in a file."""
    match case.kept:
        case "files":
            return np.memmap(path, np.float32, "w+", shape=shape)
        case "HDF5":
            return h5py.File(path, "w").create_dataset("array", shape, np.float32)
    raise ValueError(f"there is no storage {case.kept!r}")


def operand(case: StoredContraction, path: Path, shape: tuple[int, ...]) -> Any:
    """An array of random numbers in a file."""
    array = empty(case, path, shape)
    rng = np.random.default_rng(prod(shape))
    for place in range(shape[0]):
        array[place] = rng.random(shape[1:], np.float32) - 0.5
    array.flush() if case.kept == "files" else array.file.flush()
    return array


def capped(case: StoredContraction, folder: Path, limit: int) -> str:
    """The time in a new process with a capped address space."""
    spawn = multiprocessing.get_context("spawn")
    answers, answer = spawn.Pipe(duplex=False)
    child = spawn.Process(target=run_capped, args=(case, folder, limit, answer))
    child.start()
    answer.close()
    try:
        return str(answers.recv())
    except EOFError:
        return "failed"
    finally:
        child.join()


def run_capped(case: StoredContraction, folder: Path, limit: int, answer: Any) -> None:
    """Cap the address space at its present size plus the limit, run, and send the time taken."""
    operands = [opened(case, folder / f"operand{number}", shape) for number, shape in enumerate(case.shapes)]
    result = empty(case, folder / "capped", einsumx.plan(case.equation, *case.shapes).shape)
    square = np.ones((1000, 1000), np.float32)
    einsumx.einsum("ij,jk->ik", square, square, memory_limit=10**8)  # imports, threads, and the BLAS's own buffers
    del square
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    cap = pages * resource.getpagesize() + limit + SLACK
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    start = perf_counter()
    try:
        einsumx.einsum(case.equation, *operands, out=result, memory_limit=limit)
    except MemoryError as error:
        answer.send(type(error).__name__)
    else:
        answer.send(duration(perf_counter() - start))


def opened(case: StoredContraction, path: Path, shape: tuple[int, ...]) -> Any:
    """A stored operand, opened for reading."""
    if case.kept == "HDF5":
        return h5py.File(path, "r", locking=False)["array"]
    return np.memmap(path, np.float32, "r", shape=shape)


def has_ancestor() -> bool:
    """Whether opt_einsum_torch can run; it needs CUDA."""
    if not all(map(find_spec, ("torch", "opt_einsum_torch"))):
        return False
    return bool(import_module("torch").cuda.is_available())


def ancestor(case: StoredContraction, operands: list[Any], limit: int, rounds: int) -> str:
    """The time of opt_einsum_torch under the same limit."""
    torch, planner_of = import_module("torch"), import_module("opt_einsum_torch").EinsumPlanner
    planner = planner_of(torch.device("cuda:0"), cuda_mem_limit=limit)
    times = []
    try:
        for _ in range(rounds + 1):
            start = perf_counter()
            planner.einsum(case.equation, *operands)
            torch.cuda.synchronize()
            times.append(perf_counter() - start)
    except (ValueError, RuntimeError, MemoryError) as error:
        return f"{type(error).__name__}"
    return duration(median(times[1:]))


if __name__ == "__main__":
    main()
