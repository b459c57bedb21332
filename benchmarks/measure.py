"""Time a problem on a framework: check all results, then time the contenders in interleaved rounds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from math import prod, sqrt
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from contenders import EINSUMX, HAND_WRITTEN, Framework
from problems import Problem, multiply_adds, operands

import einsumx
from einsumx.ir.text import quantity
from einsumx.plans import plan_cost
from einsumx.runtime.threads import core_count

__all__ = ["PreparedProblem", "Row", "copy_rate", "gemm_rate", "measure", "prepare", "timed", "why_skipped", "wrong"]

SLICE = 2e-4
"""Seconds for which a fast call is repeated between two readings of the clock."""

LOOP_LIMIT = 5e8
"""Loops with more multiply-adds are skipped; they take from a second to hours."""

LOOPS = ("np.einsum", "einsumt", "mx.np.einsum")
"""Contenders that run any contraction as a single loop over all labels."""

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class PreparedProblem:
    """A problem with its operands and expected results as NumPy arrays; with gradients, a result per operand."""

    problem: Problem
    operands: list[Any]
    expected: list[Any]


@dataclass(frozen=True, slots=True)
class Row:
    """The times of a problem on a framework.

    Attributes:
        framework: the name of the framework.
        problem: the problem.
        seconds: the median time of a call for each contender with a right result.
        notes: for each other contender, why it has no time.
        multiply_adds: along einsumx's path, including those of gradients.
        copied: bytes that einsumx's plan copies, without those of gradients.
        floor: the roofline in seconds: the multiply-adds at the rate of a large matrix product, or the operands and the
            result at the rate of a large copy, whichever takes longer.
    """

    framework: str
    problem: Problem
    seconds: dict[str, float]
    notes: dict[str, str]
    multiply_adds: int
    copied: int
    floor: float

    @property
    def peer(self) -> str | None:
        """The fastest contender except einsumx and the hand-written line."""
        peers = {name: time for name, time in self.seconds.items() if name not in (EINSUMX, HAND_WRITTEN)}
        return min(peers, key=lambda name: peers[name], default=None)

    @property
    def ratio(self) -> float | None:
        """The best peer's time over einsumx's."""
        return self._over_einsumx(self.peer)

    @property
    def by_hand(self) -> float | None:
        """The hand-written line's time over einsumx's."""
        return self._over_einsumx(HAND_WRITTEN)

    def _over_einsumx(self, name: str | None) -> float | None:
        return self.seconds[name] / self.seconds[EINSUMX] if name in self.seconds and EINSUMX in self.seconds else None

    @property
    def of_roofline(self) -> float | None:
        """The roofline over einsumx's time; more than 1 if caches help."""
        return self.floor / self.seconds[EINSUMX] if EINSUMX in self.seconds else None


def prepare(problem: Problem) -> PreparedProblem:
    """Operands, and the result of NumPy's einsum in wide arithmetic, pair by pair."""
    arrays = operands(problem)
    wide = {"b": "bool", "i": "int64", "f": "float64", "c": "complex128"}[np.dtype(problem.dtype).kind]
    inputs = [array.astype(wide) for array in arrays]

    def einsum(terms: Sequence[str], output: str, arrays: Sequence[Any]) -> Any:
        return np.einsum(f"{','.join(terms)}->{output}", *arrays, optimize=("greedy", _NO_LIMIT))

    left, _, output = problem.equation.partition("->")
    terms = left.split(",")
    if not problem.gradient:
        return PreparedProblem(problem, arrays, [einsum(terms, output, inputs)])
    # The gradient of an operand is a contraction of the other operands with the gradient of the result.
    swapped = [[output if other == place else term for other, term in enumerate(terms)] for place in range(len(terms))]
    others = [[*inputs[:place], inputs[-1], *inputs[place + 1 : -1]] for place in range(len(terms))]
    return PreparedProblem(problem, arrays, [einsum(*each) for each in zip(swapped, terms, others)])


def measure(framework: Framework, prepared: PreparedProblem, seconds: float) -> Row | None:
    """Check every contender's result, then time those that are right; None if the framework lacks such arrays.

    Args:
        framework: a framework after ``start()``.
        prepared: a problem that the framework takes.
        seconds: the time for all rounds; each contender that is not far behind gets at least 3 rounds.
    """
    problem = prepared.problem
    try:
        arrays = framework.arrays(problem, prepared.operands)
    except einsumx.BackendError:
        return None
    calls: dict[str, Callable[[], Any]] = {}
    times: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    for name, function in framework.functions(problem).items():
        notes[name] = why_skipped(name, problem)
        if notes[name]:
            continue
        try:
            call = framework.call(function, problem, arrays)
            start = perf_counter()
            result = call()
            times[name] = [perf_counter() - start]
            notes[name] = wrong(framework.values(result), prepared)
        except Exception as error:  # noqa: BLE001  any exception of a contender is a result to report
            notes[name] = f"raised {type(error).__name__}: {error}".partition("\n")[0]
        if not notes[name]:
            calls[name] = call
    medians = _rounds(calls, times, seconds)
    plan = einsumx.plan(problem.equation, *arrays[: len(problem.shapes)])
    work = multiply_adds(problem, plan.path) * (1 + len(problem.shapes) * problem.gradient)
    return Row(
        framework.name,
        problem,
        medians,
        {name: note for name, note in notes.items() if note},
        work,
        plan_cost(plan).copied,
        max(work / gemm_rate(problem.dtype), _moved(prepared) / copy_rate()),
    )


def _rounds(calls: dict[str, Callable[[], Any]], times: dict[str, list[float]], seconds: float) -> dict[str, float]:
    """The median time of each call. Calls whose first times are far behind take no part in the rounds."""
    for name, call in calls.items():
        while len(times[name]) < 3 and sum(times[name]) < seconds / 4:  # the first call planned and compiled
            times[name].append(timed(call, 1))
    best = {name: min(times[name]) for name in calls}
    limit = max(4 * min(best.values(), default=0.0), 1e-3)
    racing = [name for name in calls if best[name] < limit or name == EINSUMX]
    counts = {name: max(1, int(SLICE / best[name])) for name in racing}
    times.update((name, []) for name in racing)
    shuffle = Random(0).shuffle
    gc.collect()
    gc.disable()
    end = perf_counter() + seconds
    done = 0
    while racing and (done < 3 or perf_counter() < end):
        shuffle(racing)  # so that no call always follows the same other one
        for name in racing:
            times[name].append(timed(calls[name], counts[name]))
        done += 1
    gc.enable()
    return {name: median(times[name]) for name in calls}


def timed(call: Callable[[], Any], count: int) -> float:
    """Seconds of a call, on average over ``count`` of them."""
    loop = repeat(None, count)
    start = perf_counter()
    for _ in loop:
        call()
    return (perf_counter() - start) / count


def why_skipped(name: str, problem: Problem, limit: float = LOOP_LIMIT) -> str:
    """Why a contender is skipped; empty if it is not. ``limit`` is for the multiply-adds of a loop."""
    everything = tuple(range(len(problem.shapes)))
    path: Sequence[Sequence[int]] = [everything] if name in LOOPS else []
    if name == "np.einsum(optimize)" and len(everything) > 2:
        empty = [np.broadcast_to(np.float32(0), shape) for shape in problem.shapes]
        path = np.einsum_path(problem.equation, *empty, optimize=True)[0][1:]
        path = path if max(map(len, path)) > 2 else []
    work = multiply_adds(problem, path)
    return f"skipped: {quantity(work)} multiply-adds in a loop" if work > limit else ""


def wrong(results: Sequence[Any], prepared: PreparedProblem) -> str:
    """What is wrong with a result; empty if it is right."""
    dtype = np.dtype(prepared.problem.dtype)
    terms = prod(prepared.problem.sizes.values()) // max(prod(prepared.problem.shape), 1)
    # Sums are accumulated in float32 or wider; float16 results are rounded once more.
    eps = float(np.finfo("float64" if dtype == "float64" else "float32").eps)
    tolerance = 20 * eps * sqrt(min(terms, 1e7)) + (1e-2 if dtype == "float16" else 0)
    for values, expected in zip(results, prepared.expected):
        if np.shape(values) != expected.shape:
            return f"wrong: shape {np.shape(values)}"
        if dtype.kind in "bi":
            # Some frameworks sum small integers in wide ones: they are right if the wrapped values are.
            right = np.array_equal(values if dtype == "bool" else np.asarray(values, dtype), expected.astype(dtype))
        else:
            right = np.allclose(values, expected, tolerance, tolerance * float(np.abs(expected).max(initial=0)))
        if not right:
            return "wrong: other values"
    return ""


# -- rates of the machine ---------------------------------------------------------------------------------------


def _moved(prepared: PreparedProblem) -> int:
    """Bytes that must be read or written. Expanded axes count once; gradients read and write more."""
    terms = prepared.problem.equation.partition("->")[0].split(",")
    inputs = 0
    for term, array in zip(terms, prepared.operands):
        read = {label: size for label, size, stride in zip(term, array.shape, array.strides) if stride}
        inputs += prod(read.values()) * array.itemsize
    output = prod(prepared.problem.shape) * np.dtype(prepared.problem.dtype).itemsize
    return 3 * inputs + 2 * output if prepared.problem.gradient else inputs + output


@lru_cache
def gemm_rate(dtype: str) -> float:
    """Multiply-adds per second in NumPy's product of two large matrices; that of float32 if BLAS lacks the dtype."""
    if dtype not in ("float32", "float64", "complex64"):
        return gemm_rate("float32")
    matrix = np.ones((1200, 1200), dtype)
    result = np.empty_like(matrix)
    best: float = min(timed(lambda: np.matmul(matrix, matrix, out=result), 1) for _ in range(8))
    return 1200**3 / best


@lru_cache
def copy_rate() -> float:
    """Bytes read and written per second by a large copy on all cores."""
    cores = core_count()
    source, target = np.ones((2, cores, 1 << 24), np.float32)
    with ThreadPoolExecutor(cores) as pool:
        best: float = min(timed(lambda: list(pool.map(np.copyto, target, source)), 1) for _ in range(8))
    return 2.0 * source.nbytes / best
