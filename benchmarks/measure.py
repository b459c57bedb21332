"""Time a problem on a framework: check all results, then time each contender in its own steady state."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from math import prod, sqrt
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from contenders import Framework, Function
from names import EINSUMX, HAND_WRITTEN, MEASURED, OURS, best_peer
from problems import Problem, multiply_adds, operands

import einsumx
from einsumx.host.threads import core_count
from einsumx.ir.text import quantity
from einsumx.measuring.steady import rest
from einsumx.plans import plan_cost

Call: TypeAlias = Callable[[], Any]
Samples: TypeAlias = dict[str, list[float]]
"""Seconds of a call by contender."""

SLICE = 2e-4
"""Seconds for which a fast call is repeated between two readings of the clock."""

ROUNDS, CALLS = 2, 3
"""Rounds at least, and measured calls, or slices of fast calls, in a turn."""

BEHIND = 2.5
"""A contender whose first calls take so many times as long as those of the fastest takes no part in the rounds."""

TRIALS, MOST_TRIALS, TRYING = 40, 160, 1.0
"""Calls in which einsumx measures its candidates: at least, and at most, or for so many seconds."""

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
        first: the time of the first call for each contender with a right result.
        seconds: the least time of a call for each of them, in its steady state.
        after_product: the same right after a product of NumPy, for contenders that were not far behind.
        spread: the median of the repeats over their minimum, for contenders that were not far behind.
        notes: for each other contender, why it has no time.
        multiply_adds: along einsumx's path, including those of gradients.
        copied: bytes that einsumx's plan copies, without those of gradients.
        floor: the roofline in seconds: the multiply-adds at the rate of a large matrix product, or the operands and the
            result at the rate of a large copy, whichever takes longer.
    """

    framework: str
    problem: Problem
    first: dict[str, float]
    seconds: dict[str, float]
    after_product: dict[str, float]
    spread: dict[str, float]
    notes: dict[str, str]
    multiply_adds: int
    copied: int
    floor: float

    @property
    def peer(self) -> str | None:
        """The fastest contender except einsumx and the hand-written line."""
        return best_peer(self.seconds)

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
    def result_bytes(self) -> int:
        """The size of the result."""
        return prod(self.problem.shape) * np.dtype(self.problem.dtype).itemsize

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
        seconds: for all rounds; each contender that is not far behind gets ``ROUNDS`` in any case.
    """
    problem = prepared.problem
    try:
        arrays = framework.arrays(problem, prepared.operands)
    except einsumx.BackendError:
        return None
    field = _Field({}, {}, {})
    for name, function in framework.functions(problem).items():
        field.notes[name] = why_skipped(name, problem)
        if not field.notes[name]:
            _enter(field, name, framework, function, prepared, arrays, seconds)
    # Last, as new plans use what measuring found; the default's plan exists by now, and stays.
    if measuring := framework.measuring(problem):
        _try_candidates(measuring, problem, arrays)
        _enter(field, MEASURED, framework, measuring, prepared, arrays, seconds)
    steady, after_product = _race(field, seconds, framework.spins)
    plan = einsumx.plan(problem.equation, *arrays[: len(problem.shapes)])
    work = multiply_adds(problem, plan.path) * (1 + len(problem.shapes) * problem.gradient)
    return Row(
        framework.name,
        problem,
        {name: field.first[name][0] for name in field.calls},
        {name: min(steady.get(name, field.first[name])) for name in field.calls},
        {name: min(samples) for name, samples in after_product.items()},
        {name: spread(samples) for name, samples in steady.items()},
        {name: note for name, note in field.notes.items() if note},
        work,
        plan_cost(plan).copied,
        max(work / gemm_rate(problem.dtype), _moved(prepared) / copy_rate()),
    )


@dataclass(frozen=True, slots=True)
class _Field:
    """The calls with right results, their first times, and what is wrong with other contenders, by name."""

    calls: dict[str, Call]
    first: Samples
    notes: dict[str, str]


def _enter(
    field: _Field,
    name: str,
    framework: Framework,
    function: Function,
    prepared: PreparedProblem,
    arrays: Sequence[Any],
    seconds: float,
) -> None:
    """Call a contender and check its result; if that is right, it takes part, and a few more calls are timed."""
    rest()
    try:
        call = framework.call(function, prepared.problem, arrays)
        start = perf_counter()
        result = call()
        first = [perf_counter() - start]
        field.notes[name] = wrong(framework.values(result), prepared)
    except Exception as error:  # noqa: BLE001  any exception of a contender is a result to report
        field.notes[name] = f"raised {type(error).__name__}: {error}".partition("\n")[0]
    if not field.notes[name]:
        field.calls[name], field.first[name] = call, first
        # The first call planned and compiled.
        least = 2 if framework.jitted else 1
        while len(first) < least or (len(first) < 3 and sum(first) < (seconds / 4 if len(first) > 1 else 1.0)):
            first.append(timed(call, 1))


def _try_candidates(measuring: Function, problem: Problem, arrays: Sequence[Any]) -> None:
    """Let einsumx try its candidates: at least ``TRIALS`` calls, and more of fast ones.

    ``einsumx.tune`` would also give the default call the plan that it finds, and takes seconds for each problem.
    """
    start, done = perf_counter(), 0
    with suppress(Exception):  # the contender's own call shows the error
        while done < TRIALS or (done < MOST_TRIALS and perf_counter() < start + TRYING):
            measuring(problem.equation, *arrays)
            done += 1


# -- rounds -----------------------------------------------------------------------------------------------------


def _race(field: _Field, seconds: float, spins: bool) -> tuple[Samples, Samples]:
    """Samples in steady state, and after a product. Calls whose first times are far behind take no part."""
    best = {name: min(field.first[name]) for name in field.calls}
    limit = max(BEHIND * min(best.values(), default=0.0), 1e-3)
    racing = {name: call for name, call in field.calls.items() if best[name] < limit or name in OURS}
    counts = {name: max(1, int(SLICE / best[name])) for name in racing}
    gc.collect()
    gc.disable()
    share = 0.75 if spins else 1.0
    steady = rounds(racing, lambda name: _steady_turn(racing[name], counts[name]), share * seconds)
    after: Samples = {}
    if spins:
        after = rounds(racing, lambda name: _turn_after_products(racing[name]), (1 - share) * seconds, least=1)
    gc.enable()
    return steady, after


def rounds(names: Iterable[str], turn: Callable[[str], list[float]], seconds: float, least: int = ROUNDS) -> Samples:
    """The samples of all turns by name, in rotating order.

    Args:
        names: the contenders.
        turn: takes a name and returns samples.
        seconds: for all rounds.
        least: rounds even if that takes longer.
    """
    samples: Samples = {name: [] for name in names}
    order = list(samples)
    end = perf_counter() + seconds
    done = 0
    while order and (done < least or perf_counter() < end):
        for name in rotated(order, done):
            samples[name] += turn(name)
        done += 1
    return samples


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The names in their order, from another one on in each turn; the direction changes after each full rotation.

    So the contender before another one changes, too.

    >>> [rotated("abc", turn) for turn in range(4)]
    [['a', 'b', 'c'], ['b', 'c', 'a'], ['c', 'a', 'b'], ['c', 'b', 'a']]
    """
    if not names:
        return []
    full, place = divmod(turn, len(names))
    order = list(names) if full % 2 == 0 else list(reversed(names))
    return order[place:] + order[:place]


def spread(samples: Sequence[float]) -> float:
    """The median over the minimum.

    >>> spread([2.0, 3.0, 10.0])
    1.5
    """
    return median(samples) / min(samples)


def _steady_turn(call: Call, count: int) -> list[float]:
    """Rest, call without measuring, then measure."""
    rest()
    timed(call, count)
    return [timed(call, count) for _ in range(CALLS)]


def _turn_after_products(call: Call) -> list[float]:
    """Each call right after a product of NumPy, whose threads go on spinning; the first one is not measured."""
    samples = []
    for _ in range(CALLS + 1):
        np.matmul(_spinner(), _spinner())
        samples.append(timed(call, 1))
    return samples[1:]


@lru_cache
def _spinner() -> Any:
    return np.ones((320, 320), np.float32)


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
            difference = float(np.abs(np.subtract(values, expected)).max(initial=0))
            right = difference <= tolerance * float(np.abs(expected).max(initial=0))
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
