"""Measure a contraction by a framework's own einsum and by einsumx, and check every element.

Each is timed in turns, in a steady state of its own: interleaved calls would share the cores with threads that still
spin after the call before.

The reference does not involve einsumx: ``numpy.einsum`` in wider arithmetic along a pairwise path, and the bound on
rounding errors of the conformance suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from einsumx import dtypes
from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.operand_types import dtype_error
from einsumx.adapters.registry import get_backend
from einsumx.adapters.replacement import own
from einsumx.api import einsum, plan
from einsumx.errors import EinsumxError, EquationError, excerpt
from einsumx.ir import ops
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_text
from einsumx.measuring.machine import scatter, watched
from einsumx.measuring.steady import turn

if TYPE_CHECKING:
    from einsumx.conformance.kit.oracle import Expected

ATTENTION = ("bnid,bnjd->bnij", "bind,bjnd->bnij", "bind,jnd->bnij")
"""Attention scores as three models write them; the problems of apache/mxnet#18043."""

_TIE = 1.1
"""Ratios up to this one, and down to its inverse, are noise."""

_SECONDS = 1.6
"""Time for each problem on each framework."""

_LEAST_ROUNDS = 3

_PATIENCE = 10.0
"""Seconds for each problem on each framework after which no round starts, so that slow einsums take no minutes."""

_TURN = 0.03
"""Time for the calls that count in one turn; the first one always counts."""

_NO_LIMIT = 1 << 62  # NumPy's default memory limit can end in a single step over all operands


@dataclass(frozen=True, slots=True)
class Problem:
    """An equation in text form, the shapes of the operands, and what holds for all of them.

    Attributes:
        equation, shapes, dtype: as named.
        density: the share of elements that are not 0.
    """

    equation: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    density: float = 1.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem with NumPy operands and the expected result."""

    problem: Problem
    operands: tuple[Any, ...]
    expected: Expected


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one framework on one problem.

    Attributes:
        backend: its name in einsumx.
        library, version: the library that computed; its name differs from the backend's for ``array_api``.
        problem: the problem.
        native_seconds: the least time of the framework's own einsum; None if it has none for this problem.
        einsumx_seconds: the least time of :func:`einsumx.einsum`.
        rounds: how many turns each had.
        spread: the median over the least of the times of the turns, of the more erratic of the two.
        error: einsumx's largest error over the bound on rounding; up to 1 is right, infinite for a wrong shape.
        wrong: the error in a sentence; empty for a right result.
        ops: the kinds of array calls in einsumx's plan, in order.
        note: why there is no native time; empty if there is one.
        disturbances: a sentence on each thing that kept the machine busy meanwhile; empty on a quiet machine.
    """

    backend: str
    library: str
    version: str
    problem: Problem
    native_seconds: float | None
    einsumx_seconds: float
    rounds: int
    spread: float
    error: float
    wrong: str
    ops: tuple[str, ...]
    note: str
    disturbances: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """The time of the framework's own einsum over that of einsumx."""
        return None if self.native_seconds is None else self.native_seconds / self.einsumx_seconds

    @property
    def verdict(self) -> str:
        """``"faster"``, ``"tie"`` or ``"slower"`` for einsumx; empty without a native time.

        ``"not conclusive"`` if the machine was busy.
        """
        if self.ratio is None:
            return ""
        if self.disturbances:
            return "not conclusive"
        return "tie" if is_tie(self.ratio) else "faster" if self.ratio > 1 else "slower"

    @property
    def uses_generic_kernel(self) -> bool:
        """Whether the plan calls the framework's own einsum although that is not its product."""
        return ops.Native.name in self.ops and get_backend(self.backend).cpu.arrays != "einsum"


@dataclass(frozen=True, slots=True)
class Failed:
    """A problem on which einsumx raised, and the message."""

    backend: str
    library: str
    version: str
    problem: Problem
    reason: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A framework that cannot be compared here, why, and how to install it (empty if that would not help)."""

    backend: str
    reason: str
    install: str


Row: TypeAlias = Measured | Failed | Absent


def is_tie(ratio: float) -> bool:
    """Whether a ratio of two times is within the noise."""
    return 1 / _TIE < ratio < _TIE


def is_right(row: Row) -> bool:
    """Whether einsumx did nothing wrong in a row; an absent framework counts as right."""
    match row:
        case Measured():
            return not row.wrong
        case Failed():
            return False
        case Absent():
            return True


def attention(batch: int = 64, dtype: str = "float32") -> tuple[Problem, ...]:
    """The attention problems: 8 heads of 128 units, 100 queries and 50 keys.

    >>> attention(2)[2].shapes
    ((2, 100, 8, 128), (50, 8, 128))
    """
    sizes = {"b": batch, "n": 8, "i": 100, "j": 50, "d": 128}
    return tuple(
        Problem(
            equation,
            tuple(tuple(sizes[label] for label in term) for term in equation.partition("->")[0].split(",")),
            dtype,
        )
        for equation in ATTENTION
    )


def make_trial(problem: Problem) -> Trial:
    """Random operands, the same on every call, with the expected result.

    Raises:
        EinsumxError: the equation is wrong, does not fit the shapes, or cannot be checked by NumPy's einsum.
    """
    import numpy as np

    from einsumx.conformance.kit.oracle import Expected

    equation, dtype = problem.equation, problem.dtype
    sized = bind(parse_text(equation, len(problem.shapes)), problem.shapes)
    if not equation.isascii():
        raise EquationError(
            f"only the labels a to z and A to Z can be compared; frameworks accept no others\n  {excerpt(equation)}"
        )
    try:
        operands = random_operands(problem)
        wide = [operand.astype(_reference_dtype(dtype)) for operand in operands]
        values, magnitude = (
            own(np.einsum)(equation, *arrays, optimize=("greedy", _NO_LIMIT)) for arrays in (wide, [*map(np.abs, wide)])
        )
    except ValueError as error:
        raise EquationError(f"NumPy cannot compute the expected result: {error}\n  {excerpt(equation)}") from error
    except TypeError as error:
        raise dtype_error("numpy", dtype) from error
    if dtypes.kind(dtype) in "biu":
        values = values.astype(dtype)
    terms = prod(size for label, size in enumerate(sized.sizes) if label not in sized.output)
    return Trial(problem, operands, Expected(values, magnitude, terms, len(operands), dtype))


def compare(
    trials: Sequence[Trial],
    names: Sequence[str],
    *,
    device: str = "",
    rounds: int | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Measure every trial on every backend; yields a row for each pair, or one row for an absent backend.

    Args:
        trials: all of one dtype.
        names: the backends.
        device: the device of the operands; empty for the framework's default.
        rounds: how many turns each function has; by default as many as fit into 1.6 seconds, at least 3, or as many of
            these as start within 10 seconds.
        announce: called with a description of each measurement before it starts.

    Raises:
        BackendError: a name is unknown.
    """
    adapters = [get_backend(name) for name in names]
    for adapter in adapters:
        announce(adapter.name)
        absent = why_absent(adapter, trials[0].problem.dtype, device)
        if absent is not None:
            yield absent
            continue
        for trial in trials:
            announce(f"{adapter.name}  {trial.problem.equation}")
            try:
                yield _measure(adapter, trial, device, rounds)
            except Exception as error:  # noqa: BLE001  any exception of a framework is a result to report
                yield Failed(adapter.name, *library_of(adapter), trial.problem, _first_line(error))


def _measure(adapter: Adapter, trial: Trial, device: str, rounds: int | None) -> Measured:
    from einsumx.conformance.kit.oracle import judge

    equation, dtype = trial.problem.equation, trial.problem.dtype
    library, version = library_of(adapter)
    arrays = [placed(adapter, operand, dtype, device) for operand in trial.operands]
    planned = plan(equation, *arrays)
    # Prepared as einsumx's plans are: compiled if the framework compiles.
    native = adapter.prepare(lambda *arrays: adapter.native(equation, arrays), planned)

    def timed_native() -> None:
        adapter.synchronize(native(*arrays))

    def timed_einsumx() -> None:
        adapter.synchronize(einsum(equation, *arrays))

    verdict = judge(_values(adapter, einsum(equation, *arrays), dtype), trial.expected)
    note = ""
    try:
        timed_native()
    except Exception as error:  # noqa: BLE001  any exception of a framework is a result to report
        note = _first_line(error)
    calls = [timed_einsumx] if note else [timed_einsumx, timed_native]
    with watched() as watch:
        times = _in_turns(calls, rounds)
        for each in times:
            watch.repeats(each)
    return Measured(
        backend=adapter.name,
        library=library,
        version=version,
        problem=trial.problem,
        native_seconds=None if note else min(times[1]),
        einsumx_seconds=min(times[0]),
        rounds=len(times[0]),
        spread=max(map(scatter, times)),
        error=verdict.worst,
        wrong=verdict.wrong,
        ops=tuple(op.name for op in planned.ops),
        note=note,
        disturbances=tuple(watch.reasons),
    )


def _in_turns(calls: Sequence[Callable[[], None]], rounds: int | None) -> list[list[float]]:
    """The least time of each call in each of its turns. Each round starts with another call."""
    times: list[list[float]] = [[] for _ in calls]
    start = perf_counter()
    number = 0
    while number < (rounds or _LEAST_ROUNDS) or (rounds is None and perf_counter() < start + _SECONDS):
        if rounds is None and number and perf_counter() > start + _PATIENCE:
            break
        for place in range(len(calls)):
            index = (number + place) % len(calls)
            times[index].append(turn(calls[index], _TURN))
        number += 1
    return times


# -- operands and expected results ------------------------------------------------------------------------------


def random_operands(problem: Problem) -> tuple[Any, ...]:
    """NumPy operands, the same on every call; bfloat16, which NumPy lacks, as float32."""
    import numpy as np

    from einsumx.conformance.kit.arrays import ArraySpec, Numbers, values

    numbers = Numbers(0)
    operands = tuple([values(ArraySpec(shape, problem.dtype), numbers) for shape in problem.shapes])
    if problem.density == 1:
        return operands
    # Not by a product, which would make zeros with a sign, and sparse libraries store these.
    return tuple(
        [np.where(numbers.random(each.shape) < problem.density, each, each.dtype.type(0)) for each in operands]
    )


def _reference_dtype(dtype: str) -> str:
    """The dtype of the reference: wider than ``dtype``; exact for integers, modulo their range."""
    match dtypes.kind(dtype):
        case "f":
            return "float64" if dtypes.itemsize(dtype) <= 4 else "longdouble"
        case "c":
            return "complex128" if dtypes.itemsize(dtype) <= 8 else "clongdouble"
        case "b":
            return "bool"
        case _:
            return "int64"


# -- frameworks -------------------------------------------------------------------------------------------------


def why_absent(adapter: Adapter, dtype: str, device: str) -> Absent | None:
    """Why a framework cannot be compared here; None if it can."""
    import numpy as np

    try:
        array = placed(adapter, np.ones(1, "float32" if dtype == "bfloat16" else dtype), dtype, device)
        signature = adapter.signature(array)
        name = adapter.operand(signature).dtype
    except Exception as error:  # noqa: BLE001  any exception of a framework is a result to report
        if isinstance(error, ModuleNotFoundError) or isinstance(error.__cause__, ModuleNotFoundError):
            return Absent(adapter.name, "not installed", adapter.install)
        return Absent(adapter.name, _first_line(error), "")
    if name != dtype:
        return Absent(adapter.name, f"turns {dtype} into {name}", "")
    if not device.startswith("cpu") and device and adapter.device_of(signature).startswith("cpu"):
        return Absent(adapter.name, f"has arrays on the CPU only, not on {device}", "")
    return None


def placed(adapter: Adapter, operand: Any, dtype: str, device: str) -> Array:
    """An operand from :func:`random_operands` as an array of the framework."""
    array = adapter.from_numpy(operand, device)
    if dtype == "bfloat16":
        array = adapter.cast(array, dtype)
    adapter.synchronize(array)
    return array


def _values(adapter: Adapter, result: Array, dtype: str) -> Any:
    """A result as a NumPy array, bfloat16 as float32."""
    return adapter.to_numpy(adapter.cast(result, "float32") if dtype == "bfloat16" else result)


def library_of(adapter: Adapter) -> tuple[str, str]:
    """The name and the version of the library that computes."""
    name = (adapter.module or adapter.xp.__name__).partition(".")[0]
    return name, str(getattr(import_module(name), "__version__", ""))


def _first_line(error: Exception) -> str:
    """The first line of an exception's message, after its type if it is not einsumx's own."""
    from einsumx.conformance.case import error_line

    return str(error).partition("\n")[0] if isinstance(error, EinsumxError) else error_line(error)
