"""Arrays that are read and written by slices alone, and count how much; limits; and processes that keep them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

import numpy as np

import einsumx

EQUATION = "ij,jk->ik"
LIMIT = 24_000

CASES: dict[str, list[tuple[int, ...]]] = {
    "ij,jk->ik": [(40, 30), (30, 50)],
    "ij,jk->ki": [(64, 1), (33, 20)],
    "ab,bc,cd->ad": [(30, 20), (20, 40), (40, 10)],
    "ij,ij->": [(30, 41), (30, 41)],
    "ij->i": [(1, 60)],
    "iij->ji": [(12, 12, 9)],
    "bind,bjnd->bnij": [(3, 10, 2, 8), (3, 12, 2, 8)],
    "...i,ij->...j": [(5, 4, 6), (6, 7)],
    "i,j->ij": [(30,), (31,)],
    "ij,jk->ik (empty)": [(4, 0), (0, 3)],
}
"""Contractions and the shapes of their operands; the same equation once more has a remark after it."""


class Stored:
    """What is read and written by slices, and counts."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype, self.boxes = array, array.shape, array.dtype, []

    def __getitem__(self, box: Any) -> Any:
        self.boxes.append(box)
        return self.array[box].copy()

    def __setitem__(self, box: Any, value: Any) -> None:
        self.boxes.append(box)
        self.array[box] = value

    @property
    def read_bytes(self) -> int:
        return sum(self.array[box].nbytes for box in self.boxes)


class Acting(Stored):
    """What is stored, and does something when a part of it is read."""

    def __init__(self, array: Any, act: Callable[[Any], object]) -> None:
        super().__init__(array)
        self.act = act

    def __getitem__(self, box: Any) -> Any:
        if all(part.stop for part in box):  # empty parts are read to see that it can be read
            self.act(box)
        return super().__getitem__(box)


def operands(dtype: str = "float32") -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 70)).astype(dtype), rng.standard_normal((70, 80)).astype(dtype)


def stored() -> tuple[Stored, Stored]:
    """The operands, to be read by slices."""
    a, b = operands()
    return Stored(a), Stored(b)


def smallest(call: Callable[[int], object]) -> int:
    """The limit that the error of ``call`` names under a limit of one byte; 1 if that is enough."""
    try:
        call(1)
    except einsumx.MemoryLimitError as error:
        return error.smallest
    return 1


def process_pool(workers: int, initializer: Callable[..., object] | None = None, *given: Any) -> ProcessPoolExecutor:
    """A pool of processes that begin fast: where the system can, what they import is imported once for all of them."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["numpy", "pytest", "einsumx.streaming.worker"])
        return ProcessPoolExecutor(workers, context, initializer, given)
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer, given)


class Returned(Executor):
    """Gives tasks to a pool, and keeps what they return."""

    def __init__(self, pool: Executor) -> None:
        self.pool, self.values = pool, []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future = self.pool.submit(fn, *args, **kwargs)
        future.add_done_callback(self.keep)
        return future

    def keep(self, future: Any) -> None:
        if not future.cancelled() and future.exception() is None:
            self.values.append(future.result())
