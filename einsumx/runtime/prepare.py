"""From operands to something that runs: parse, bind, path and lowering behind two bounded caches.

The first cache is keyed by what a call shows (equation, types, shapes, strides, dtypes as the framework gives them) and
is all that a repeated call touches. The second is keyed by layout class, so that arrays which differ only in the gaps
between their rows share a plan. Both are keyed by values and are safe under threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.registry import backend_of, get_backend, is_builtin, is_stored, owner
from einsumx.adapters.traits import Traits
from einsumx.dtypes import Casting
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.ir.bind import SizedEquation, bind
from einsumx.ir.cost import returns_view
from einsumx.ir.layout import contiguous
from einsumx.ir.meaning import check_fields
from einsumx.ir.parse import Equation, misread, parse_sublists, parse_text
from einsumx.ir.program import Operand, Program
from einsumx.ir.text import tell_plan
from einsumx.planner.lower import lower
from einsumx.planner.path import find_path
from einsumx.runtime.caches import register_cache
from einsumx.runtime.calibration import calibrated
from einsumx.runtime.checks import check_fits, check_plan
from einsumx.runtime.execute import executable
from einsumx.runtime.request import DEFAULT, Contraction, Options, Order, Written
from einsumx.runtime.stored import read_whole

__all__ = [
    "Prepared",
    "prepare",
]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with the function that runs it on fitting operands."""

    plan: Program
    run: Run


def arrays_of(operands: list[Any], wanted: Adapter | None, numbers: Sequence[int] = ()) -> tuple[Adapter, list[Array]]:
    """The operands as plain arrays of the one framework that they belong to, and its adapter.

    What is stored is read whole, where the others are NumPy's arrays, Python's values, or stored as well.

    Args:
        operands: of a contraction, all of them or some.
        wanted: the adapter that they have to be of; None for any.
        numbers: of the operands among all of the contraction, for errors; those of their places if empty.

    Raises:
        BackendError: operands of two frameworks, of none that is known, or of another than ``wanted``; a list of which
            the framework makes no array; something stored beside arrays that are not NumPy's.
    """
    numbers = numbers or range(len(operands))
    try:
        adapter, plain = backend_of(tuple(map(type, operands)))
    except BackendError:
        adapter, operands, plain = *_read(dict(zip(numbers, operands)), wanted), False
    if adapter is None:
        adapter = wanted or get_backend("numpy")
    elif wanted is not None and adapter.name != wanted.name:
        raise BackendError(f"backend={wanted.name!r} was asked for, but the operands are arrays of {adapter.name}")
    if plain:
        return adapter, operands
    arrays = {
        slot: _plain(adapter, numbers[slot], array)
        for slot, array in enumerate(operands)
        if not is_builtin(type(array))
    }
    if len(arrays) == len(operands):
        return adapter, list(arrays.values())
    like = next(iter(arrays.values()), None)
    dtype = _promoted(adapter, [adapter.operand(adapter.signature(array)) for array in arrays.values()])
    for slot, operand in enumerate(operands):
        if slot not in arrays:
            try:
                arrays[slot] = adapter.scalar(operand, like, dtype)
            except BackendError:
                raise
            except (RuntimeError, TypeError, ValueError) as error:
                raise BackendError(
                    f"{adapter.name} makes no array of operand {numbers[slot]}, a {type(operand).__name__}: {error}; "
                    "arrays are operands of their own: einsum(equation, *arrays)"
                ) from error
    return adapter, [arrays[slot] for slot in range(len(operands))]


def _plain(adapter: Adapter, number: int, array: Array) -> Array:
    """An operand as a plain array; the error for sizes that are not known says which operand it is."""
    try:
        return adapter.plain(array)
    except SizeError as error:
        raise SizeError(f"operand {number} {error}") from None


def _read(operands: Mapping[int, Any], wanted: Adapter | None) -> tuple[Adapter | None, list[Any]]:
    """The backend of operands of which some are stored, and the operands with these as NumPy arrays.

    Raises:
        BackendError: none is stored, and they belong to no backend or to two; or they are not NumPy's.
    """
    stored = {number: operand for number, operand in operands.items() if is_stored(operand)}
    others = {number: type(operand) for number, operand in operands.items() if number not in stored}
    adapter, _ = backend_of(tuple([others.get(number, list) for number in range(max(operands) + 1)]))
    numpy = get_backend("numpy")
    for number, operand in stored.items():
        if (adapter or wanted or numpy) is not numpy:
            kind = type(operand)
            raise BackendError(
                f"operand {number} ({kind.__module__}.{kind.__qualname__}) is stored, and without a memory_limit= it "
                f"is read for NumPy alone, not for {(adapter or wanted or numpy).name}; pass memory_limit=, or make an "
                "array of it first"
            )
    return adapter, [read_whole(number, each) if number in stored else each for number, each in operands.items()]


def _promoted(adapter: Adapter, operands: Sequence[Operand]) -> str:
    """The framework's promotion of the operands' dtypes; empty where there are none."""
    strong = list(dict.fromkeys(operand.dtype for operand in operands if not operand.weak))
    weak = list(dict.fromkeys(operand.dtype for operand in operands if operand.weak))
    if len(strong) + len(weak) < 2:
        return "".join((*strong, *weak))
    return adapter.promote_weak(strong, weak) if weak else adapter.promote(strong)


def prepare(adapter: Adapter, written: Written, arrays: Sequence[Array], options: Options) -> Prepared:
    """A plan for these arrays, made ready to run; from the cache where the same was asked before."""
    signatures = adapter.signatures(written, arrays)
    if isinstance(options.optimize, str | bool | tuple):
        return _by_signature(adapter, written, signatures, options)
    return _from_signatures(adapter, written, signatures, options)


@lru_cache(maxsize=4096)
def ready(adapter: Adapter, equation: str, *signatures: Signature) -> Run:
    """What runs an equation given as text on plain arrays of these signatures, where nothing else is asked.

    This is the cache that a repeated call is answered from; ``adapter`` serves the first of the arrays.

    Raises:
        BackendError: operands that are something else; others as :func:`prepare`.
    """
    if backend_of(tuple([signature[0] for signature in signatures])) != (adapter, True):
        raise BackendError("the operands are not all plain arrays")
    if not isinstance(equation, str):
        raise BackendError("the equation is not given as text")
    return _from_signatures(adapter, equation, signatures, DEFAULT).run


def _from_signatures(
    adapter: Adapter, written: Written, signatures: tuple[Signature, ...], options: Options
) -> Prepared:
    device = one_device(adapter, signatures)
    operands = described(adapter, signatures)
    contraction = Contraction(adapter, written, operands, device, options)
    by_layout = _by_layout if isinstance(options.optimize, str | bool | tuple) else _by_layout.__wrapped__
    found: Prepared = by_layout(contraction)
    if options.casting == "no" and not returns_view(found.plan):
        check_byte_order([signature[2] for signature in signatures])
    return found


def described(adapter: Adapter, signatures: Sequence[Signature]) -> tuple[Operand, ...]:
    """The planner's view of operands.

    Raises:
        BackendError: einsum makes no sense for the dtype of one; the error says which.
    """
    found = []
    for number, signature in enumerate(signatures):
        try:
            found.append(adapter.operand(signature))
        except BackendError as error:
            raise BackendError(f"operand {number}: {error}") from error
    return tuple(found)


def check_byte_order(dtypes: Iterable[Any]) -> None:
    """Raise BackendError where an operand's dtype has another byte order than the machine, as under casting="no"."""
    for number, dtype in enumerate(dtypes):
        if not getattr(dtype, "isnative", True):
            raise BackendError(
                f"operand {number} has dtype {dtype}, whose byte order casting='no' does not allow to change; "
                "pass casting='equiv'"
            )


_by_signature = lru_cache(maxsize=4096)(_from_signatures)


def one_device(adapter: Adapter, signatures: Iterable[Signature]) -> str:
    """The device that holds all operands; an empty name, as of a traced array, stands for any.

    Raises:
        BackendError: there are two.
    """
    devices = [name for name in dict.fromkeys(map(adapter.device_of, signatures)) if name]
    if len(devices) > 1:
        raise BackendError(f"the operands are on two devices, {devices[0]} and {devices[1]}; move one of them first")
    return devices[0] if devices else ""


@lru_cache(maxsize=1024)
def _by_layout(contraction: Contraction) -> Prepared:
    plan = make_plan(contraction)
    return Prepared(plan, executable(plan, contraction.adapter))


def make_plan(contraction: Contraction) -> Program:
    """Parse, bind, find a path and lower; no array is needed, and no framework where all dtypes are alike."""
    adapter, written, operands, device, options = contraction
    sized = _sized(written, tuple(operand.shape for operand in operands))
    traits = calibrated(adapter, device)
    dtype = served_dtype(contraction, traits)
    plan = lower(
        sized,
        operands,
        find_path(sized, options.optimize),
        backend=adapter.name,
        traits=traits,
        dtype=dtype,
        device=device,
    )
    tell_plan(plan, adapter)
    return plan


@lru_cache(maxsize=1024)
def _sized(written: Written, shapes: tuple[tuple[int, ...], ...]) -> SizedEquation:
    try:
        return bind(parsed(written, len(shapes)), shapes)
    except SizeError as error:
        if isinstance(written, str):
            first, _, rest = str(error).partition("\n")
            raise SizeError(f"{first}{misread(written)}\n{rest}") from None
        # The cache may have the equation with labels that are equal, and print as something else: 1 and True.
        bind(parsed.__wrapped__(written, len(shapes)), shapes)
        raise


@lru_cache(maxsize=1024)
def parsed(written: Written, count: int) -> Equation:
    """The equation for that many operands, from the cache where it was read before."""
    if isinstance(written, str):
        return parse_text(written, count)
    return parse_sublists(*written)


def sized_equation(written: Written, shapes: Sequence[tuple[int, ...]]) -> SizedEquation:
    """The equation bound to shapes, from the cache where it was before."""
    return _sized(written, tuple(shapes))


def result_dtype(adapter: Adapter, operands: Sequence[Operand], options: Options) -> str:
    """The dtype asked for, or the framework's promotion; every operand must be castable to it."""
    dtype = options.dtype
    if dtype is None:
        dtype = _promoted(adapter, operands)
        if options.casting not in ("no", "equiv"):
            return dtype
    for number, operand in enumerate(operands):
        if operand.dtype != dtype and not adapter.can_cast(operand.dtype, dtype, options.casting):
            raise BackendError(
                f"operand {number} has dtype {operand.dtype}, which casting={options.casting!r} does not allow to "
                f"become {dtype}; pass a looser casting= or another dtype="
            )
    return dtype


def served_dtype(contraction: Contraction, traits: Traits) -> str:
    """The dtype of the result; BackendError where the framework's einsum computes in no such dtype as one there."""
    adapter, _, operands, _, options = contraction
    dtype = result_dtype(adapter, operands, options)
    for name in (dtype, *(operand.dtype for operand in operands)):
        if traits.dtypes is not None and name not in traits.dtypes:
            raise BackendError(f"{adapter.name}: einsum computes in no dtype {shown(name)}")
    return dtype


def retarget(plan: Program, backend: str, device: str = "") -> Program:
    """The contraction of ``plan`` along its path, lowered for another backend."""
    operands = tuple(Operand(operand.shape, operand.dtype) for operand in plan.operands)
    options = Options(plan.dtype, "unsafe", plan.path)
    return make_plan(Contraction(get_backend(backend), plan.equation, operands, device, options))


def run_program(plan: Program, operands: Sequence[Any]) -> Array:
    """Run a plan on its own framework's arrays; retargeted on those of another, or that repeat themselves less.

    Raises:
        SizeError: the number of operands or their shapes are not the plan's.
        BackendError: their dtypes are not, or they belong to two frameworks.
    """
    adapter, arrays = arrays_of(list(operands), None)
    if len(arrays) != len(plan.operands):
        raise SizeError(f"the plan takes {len(plan.operands)} operands, not {len(arrays)}\n  {excerpt(plan.equation)}")
    signatures = tuple(map(adapter.signature, arrays))
    device = one_device(adapter, signatures)
    operands = described(adapter, signatures)
    for number, (found, planned) in enumerate(zip(operands, plan.operands)):
        check_operand(number, found, planned, plan.equation)
    is_for_these = adapter.name == plan.backend and all(map(_repeats, operands, plan.operands))
    try:
        run = _executable(plan, adapter, device, is_for_these)
    except TypeError:
        check_fields(plan)  # a list in the place of a tuple has no hash
        raise
    return run(*arrays)


def check_operand(number: int, found: Operand, planned: Operand, text: str) -> None:
    """Raise where an operand has another shape or dtype than a plan was made for."""
    if found.shape != planned.shape:
        raise SizeError(
            f"operand {number} has shape {shown(found.shape)}, but the plan is made for {shown(planned.shape)}\n"
            f"  {excerpt(text)}"
        )
    if found.dtype != planned.dtype:
        raise BackendError(f"operand {number} has dtype {found.dtype}, but the plan is made for {planned.dtype}")


def _repeats(found: Operand, planned: Operand) -> bool:
    """Whether an operand repeats itself (has strides of 0) along all the axes along which a plan takes it to do so."""
    strides = found.strides or contiguous(found.shape)
    axes = zip(planned.shape, planned.strides or (), strides)
    return not any(size > 1 and not step and own for size, step, own in axes)


@lru_cache(maxsize=256)
def _executable(plan: Program, adapter: Adapter, device: str, is_for_these: bool) -> Run:
    check_plan(plan)
    if is_for_these:
        check_fits(plan, adapter.traits(plan.device))
    else:
        plan = retarget(plan, adapter.name, device)
    return executable(plan, adapter)


def result_order(order: Order, out: Any, adapter: Adapter, operands: Sequence[Any]) -> Order:
    """The memory order of a fresh result: ``"C"``, ``"F"``, or ``"K"`` for any.

    Raises:
        ValueError: ``out`` has its own.
        BackendError: the framework's arrays have none.
    """
    if order != "K" and out is not None:
        raise ValueError(f"order={order!r} asks for a new array, but out= brings one; leave one of them away")
    if order != "K" and not adapter.cpu.memory_order:
        raise BackendError(f"{adapter.name} arrays have no memory order to choose; leave order= away")
    if order == "A":
        return "F" if all(map(_is_fortran, operands)) else "C"
    return order


def _is_fortran(array: Any) -> bool:
    """Whether an operand is in F order; what is stored is read in C order, which is F order too along one axis."""
    theirs = owner(array)
    return sum(size != 1 for size in array.shape) < 2 if theirs is None else theirs.is_fortran(array)


def check_out_dtype(adapter: Adapter, dtype: str, target: str, casting: Casting, own: Any) -> None:
    """Raise where a result does not cast to the dtype of ``out``, ``target`` by name; ``own`` is as ``out`` has it."""
    is_swapped = casting == "no" and not getattr(own, "isnative", True)
    if is_swapped or not adapter.can_cast(dtype, target, casting):
        raise BackendError(
            f"the result has dtype {dtype}, which casting={casting!r} does not allow into an out= of "
            f"{own if is_swapped else target}; "
            "pass a looser casting= or dtype="
        )


for _name, _cache in {
    "calls": ready,
    "options": _by_signature,
    "plans": _by_layout,
    "sizes": _sized,
    "equations": parsed,
    "stored": _executable,
}.items():
    register_cache(_name, _cache)
