"""``compare``: one contraction by a framework's own einsum and by einsumx, timed side by side, every element checked.

What is right is decided without einsumx: by ``numpy.einsum`` in wider arithmetic, pair by pair, and by the bound on
rounding that the conformance suite holds every backend to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import prod
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from einsumx import dtypes
from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend
from einsumx.adapters.replacement import own
from einsumx.api import einsum, plan
from einsumx.errors import EinsumxError, EquationError, excerpt, shown
from einsumx.ir.bind import bind
from einsumx.ir.ops import Native
from einsumx.ir.parse import parse_text

if TYPE_CHECKING:
    from einsumx.conformance.oracle import Expected

__all__ = [
    "Absent",
    "Failed",
    "Measured",
    "Problem",
    "Row",
    "Trial",
    "attention",
    "compare",
    "is_right",
    "library_of",
    "make_case",
    "placed",
    "random_operand",
    "why_absent",
]

ATTENTION = ("bnid,bnjd->bnij", "bind,bjnd->bnij", "bind,jnd->bnij")
"""Attention scores as three models write them; the problems of apache/mxnet#18043."""

_NO_LIMIT = 1 << 62  # NumPy's default memory limit can end in a single step over all operands


@dataclass(frozen=True, slots=True)
class Problem:
    """An equation in text form, the operands' shapes, and the dtype of all of them."""

    equation: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem with operands for it, as NumPy arrays, and what must come out."""

    problem: Problem
    operands: tuple[Any, ...]
    expected: Expected


@dataclass(frozen=True, slots=True)
class Measured:
    """What one framework did on one problem.

    Attributes:
        backend: by its name in einsumx.
        library, version: what did the work; of another name than the backend for ``array_api``.
        problem: what was computed.
        native_seconds: the median time of the framework's own einsum; None where it has none that takes this.
        einsumx_seconds: the median time of :func:`einsumx.einsum`.
        rounds: how many times each was timed.
        error: einsumx's largest error over the bound on rounding; up to 1 is right, infinite for a wrong shape.
        wrong: what is wrong with einsumx's result, in a sentence; empty where it is right.
        ops: the kinds of array calls that einsumx's plan makes, in order.
        note: why there is no native time, empty where there is one.
    """

    backend: str
    library: str
    version: str
    problem: Problem
    native_seconds: float | None
    einsumx_seconds: float
    rounds: int
    error: float
    wrong: str
    ops: tuple[str, ...]
    note: str

    @property
    def ratio(self) -> float | None:
        """How many times longer the framework's own einsum takes."""
        return None if self.native_seconds is None else self.native_seconds / self.einsumx_seconds

    @property
    def uses_generic_kernel(self) -> bool:
        """Whether a call of the plan is the framework's own einsum."""
        return Native.__name__.lower() in self.ops


@dataclass(frozen=True, slots=True)
class Failed:
    """A problem on which einsumx raised, and what it said."""

    backend: str
    library: str
    version: str
    problem: Problem
    reason: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A framework that cannot be compared here, why, and how to install it (empty where that would not help)."""

    backend: str
    reason: str
    install: str


Row: TypeAlias = Measured | Failed | Absent


def is_right(row: Row) -> bool:
    """Whether nothing in a row speaks against einsumx; a framework that is absent does not."""
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


def make_case(problem: Problem) -> Trial:
    """Random operands, the same on every call, with the result and the bound on its rounding.

    Raises:
        EinsumxError: the equation is wrong, does not fit the shapes, or is none that NumPy's einsum can check.
    """
    import numpy as np

    from einsumx.conformance.oracle import Expected

    equation, dtype = problem.equation, problem.dtype
    sized = bind(parse_text(equation, len(problem.shapes)), problem.shapes)
    if not equation.isascii():
        raise EquationError(
            f"labels from a to z and A to Z can be compared, as frameworks have no others\n  {excerpt(equation)}"
        )
    rng = np.random.default_rng(0)
    try:
        operands = tuple(random_operand(rng, shape, dtype) for shape in problem.shapes)
        wide = [operand.astype(_reference_dtype(dtype)) for operand in operands]
        values, magnitude = (
            own(np.einsum)(equation, *arrays, optimize=("greedy", _NO_LIMIT)) for arrays in (wide, [*map(np.abs, wide)])
        )
    except ValueError as error:
        raise EquationError(
            f"NumPy, which checks the results, cannot do this: {error}\n  {excerpt(equation)}"
        ) from error
    if dtypes.kind(dtype) in "biu":
        values = values.astype(dtype)
    terms = prod(size for label, size in enumerate(sized.sizes) if label not in sized.output)
    return Trial(problem, operands, Expected(values, magnitude, terms, len(operands), dtype))


def compare(
    cases: Sequence[Trial],
    names: Sequence[str],
    *,
    device: str = "",
    rounds: int | None = None,
    seconds: float = 1.0,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Measure every case on every backend: a row for each pair, or one for a backend that is absent.

    Args:
        cases: all of one dtype.
        names: of backends.
        device: where operands are put; the framework's default where empty.
        rounds: how many times each function is timed; by default as often as ``seconds`` allow, at least 3 times.
        seconds: the time to spend on each pair.
        announce: called with what is measured next.

    Raises:
        BackendError: there is no backend of such a name.
    """
    adapters = [get_backend(name) for name in names]
    for adapter in adapters:
        announce(adapter.name)
        absent = why_absent(adapter, cases[0].problem.dtype, device)
        if absent is not None:
            yield absent
            continue
        for case in cases:
            announce(f"{adapter.name}  {case.problem.equation}")
            try:
                yield _measure(adapter, case, device, rounds, seconds)
            except Exception as error:  # noqa: BLE001  whatever a framework raises is what there is to report
                yield Failed(adapter.name, *library_of(adapter), case.problem, _first_line(error))


def _measure(adapter: Adapter, case: Trial, device: str, rounds: int | None, seconds: float) -> Measured:
    from einsumx.conformance.oracle import judge

    equation, dtype = case.problem.equation, case.problem.dtype
    library, version = library_of(adapter)
    arrays = [placed(adapter, operand, dtype, device) for operand in case.operands]
    # As einsumx's plans are: jitted where the framework jits.
    planned = plan(equation, *arrays)
    native = adapter.prepare(lambda *arrays: adapter.native(equation, arrays), planned)

    def timed_native() -> None:
        adapter.synchronize(native(*arrays))

    def timed_einsumx() -> None:
        adapter.synchronize(einsum(equation, *arrays))

    verdict = judge(_values(adapter, einsum(equation, *arrays), dtype), case.expected)
    note = ""
    try:
        timed_native()
    except Exception as error:  # noqa: BLE001  whatever a framework raises is what there is to report
        note = _first_line(error)
    calls = [timed_einsumx] if note else [timed_einsumx, timed_native]
    times = _interleaved(calls, rounds, seconds)
    return Measured(
        backend=adapter.name,
        library=library,
        version=version,
        problem=case.problem,
        native_seconds=None if note else median(times[1]),
        einsumx_seconds=median(times[0]),
        rounds=len(times[0]),
        error=verdict.worst,
        wrong=verdict.wrong,
        ops=tuple(type(op).__name__.lower() for op in planned.ops),
        note=note,
    )


def _interleaved(calls: Sequence[Callable[[], None]], rounds: int | None, seconds: float) -> list[list[float]]:
    """The times of each call in turn, so that what disturbs the machine disturbs all alike."""
    times: list[list[float]] = [[] for _ in calls]
    end = perf_counter() + seconds
    while len(times[0]) < (rounds or 3) or (rounds is None and perf_counter() < end):
        for call, found in zip(calls, times):
            start = perf_counter()
            call()
            found.append(perf_counter() - start)
    return times


# -- the operands and what must come out ------------------------------------------------------------------------


def random_operand(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Values that ``dtype`` holds exactly; those of bfloat16, which NumPy lacks, as float32."""
    import numpy as np

    def uniform() -> Any:
        return rng.uniform(-1, 1, shape)

    match dtypes.kind(dtype):
        case "b":
            return np.asarray(uniform() > 0)
        case "u" | "i":
            return rng.integers(0 if dtypes.kind(dtype) == "u" else -4, 5, shape).astype(dtype)
        case "f" if dtype == "bfloat16":
            return (np.asarray(uniform(), "float32").view("uint32") & 0xFFFF0000).view("float32")
        case "f":
            return np.asarray(uniform(), dtype)
        case "c":
            return np.asarray(uniform() + 1j * uniform(), dtype)
        case _:
            raise EinsumxError(f"there is no dtype {shown(dtype)} to compare in")


def _reference_dtype(dtype: str) -> str:
    """What the reference is computed in: wider than ``dtype``, and exact for integers, modulo their range."""
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
    """Why a framework cannot be compared here; None where it can."""
    import numpy as np

    try:
        array = placed(adapter, np.ones(1, "float32" if dtype == "bfloat16" else dtype), dtype, device)
        found = adapter.signature(array)
        name = adapter.operand(found).dtype
    except Exception as error:  # noqa: BLE001  whatever a framework raises is what there is to report
        if isinstance(error, ModuleNotFoundError) or isinstance(error.__cause__, ModuleNotFoundError):
            return Absent(adapter.name, "not installed", adapter.install)
        return Absent(adapter.name, _first_line(error), "")
    if name != dtype:
        return Absent(adapter.name, f"makes {name} of {dtype}", "")
    if not device.startswith("cpu") and device and adapter.device_of(found).startswith("cpu"):
        return Absent(adapter.name, f"has arrays on the CPU only, not on {device}", "")
    return None


def placed(adapter: Adapter, operand: Any, dtype: str, device: str) -> Array:
    """An operand that :func:`random_operand` made, as an array of the framework."""
    array = adapter.from_numpy(operand, device)
    if dtype == "bfloat16":
        array = adapter.cast(array, dtype)
    adapter.synchronize(array)
    return array


def _values(adapter: Adapter, result: Array, dtype: str) -> Any:
    """A result as NumPy has it, bfloat16 as float32."""
    return adapter.to_numpy(adapter.cast(result, "float32") if dtype == "bfloat16" else result)


def library_of(adapter: Adapter) -> tuple[str, str]:
    """The name and the version of what does the work."""
    name = (adapter.module or adapter.xp.__name__).partition(".")[0]
    return name, str(getattr(import_module(name), "__version__", ""))


def _first_line(error: Exception) -> str:
    """An exception in a line: what it says, after its type where it is not one of ours."""
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, EinsumxError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
