"""From operands to a function that runs on them: parse, bind, find a path and lower, behind two bounded caches.

A call that :mod:`einsumx.runtime.calls` does not serve comes here. The first cache is keyed by the arrays' signatures
(type, shape, strides and dtype, in the framework's own terms). The second is keyed by layout class, so that arrays that
differ only in the gaps between their rows share a plan. Both are keyed by values and are thread-safe.

This module, and the planner with it, is imported on the first miss, to keep ``import einsumx`` fast.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import backend_of, get_backend, is_builtin, is_stored
from einsumx.caches import Uncacheable, cached
from einsumx.dtypes import Casting, can_cast, itemsize, kind
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.ir import bind, cost, layout, parse, sizes
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.contraction import Contraction, Place
from einsumx.measuring import calibration, wisdom
from einsumx.planner import lower, path
from einsumx.runtime import execute
from einsumx.runtime.request import Described, Options, Written

if TYPE_CHECKING:
    from einsumx import log
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.ir import text
    from einsumx.ir.bind import SizedEquation
    from einsumx.ir.operand import Operand, Path
    from einsumx.ir.parse import Equation
    from einsumx.ir.program import Program
    from einsumx.ir.traits import Traits
    from einsumx.planner import search
    from einsumx.runtime import measured, stored
else:
    log, text = LazyModule("einsumx.log"), LazyModule("einsumx.ir.text")
    search = LazyModule("einsumx.planner.search")
    measured, stored = LazyModule("einsumx.runtime.measured"), LazyModule("einsumx.runtime.stored")


class Prepared(NamedTuple):
    """A program, and the function that runs it on arrays of its shapes, dtypes and layouts.

    Attributes:
        program: the program.
        run: the function of the operands that are not constant.
        is_fixed: whether it always runs this program, on all operands, as the framework does by default: none is
            constant, no other program is tried, and no option of the framework is set.
    """

    program: Program
    run: Run
    is_fixed: bool


def arrays_of(
    operands: list[Any], required: Adapter | None, numbers: Sequence[int] = ()
) -> tuple[Adapter, list[Array]]:
    """The framework that the operands belong to, and the operands as its plain arrays.

    Python numbers and lists become arrays. Stored operands, such as HDF5 datasets, are read whole if all others are
    NumPy arrays, Python values or stored too.

    Args:
        operands: some or all operands of a contraction.
        required: the adapter that must serve them; None for any.
        numbers: the operands' positions in the contraction, for errors; if empty, they are counted from 0.

    Raises:
        BackendError: the operands belong to two frameworks, to an unknown one, or to another than ``required``; a list
            is no array; or an operand is stored and others are not NumPy's.
    """
    numbers = numbers or range(len(operands))
    adapter: Adapter | None
    plain: bool | None
    try:
        adapter, plain = backend_of(tuple(map(type, operands)))
    except BackendError:
        adapter, plain = None, None
    if plain is None:  # and not in the handler, whose error would stand above the one that is raised here
        adapter, operands = _read_stored(dict(zip(numbers, operands)), required)
    if adapter is None:
        adapter = required or get_backend("numpy")
    elif required is not None and adapter.name != required.name:
        raise BackendError(f"backend={required.name!r} was asked for, but the operands are arrays of {adapter.name}")
    if plain:
        return adapter, operands
    adapter = adapter.of([array for array in operands if not is_builtin(type(array))])
    arrays = {
        slot: _plain(adapter, numbers[slot], array)
        for slot, array in enumerate(operands)
        if not is_builtin(type(array))
    }
    if len(arrays) == len(operands):
        return adapter, list(arrays.values())
    like = next(iter(arrays.values()), None)
    dtype = promoted(adapter, [adapter.operand(adapter.signature(array)) for array in arrays.values()])
    for slot, operand in enumerate(operands):
        if slot not in arrays:
            try:
                arrays[slot] = adapter.scalar(operand, like, dtype)
            except BackendError:
                raise
            except (RuntimeError, TypeError, ValueError) as error:
                raise BackendError(
                    f"{adapter.name} makes no array of operand {numbers[slot]}, a {type(operand).__name__}: {error}; "
                    f"{_advice_on(operand)}"
                ) from error
    return adapter, [arrays[slot] for slot in range(len(operands))]


def _advice_on(operand: Any) -> str:
    """What to do with a list of which a framework makes no array."""
    if isinstance(operand, list | tuple) and any(hasattr(each, "shape") for each in operand):
        return "arrays are operands of their own: einsum(equation, *arrays)"
    return "pass nested lists of numbers, with rows of equal length, or an array"


def numbers_as_arrays(operands: Sequence[Any]) -> tuple[Adapter, list[Array]]:
    """As :func:`arrays_of`, for plain arrays of one framework and at least one Python number.

    Raises:
        Uncacheable: other operands.
    """
    adapter, first, numbers = _number_places(*map(type, operands))
    if adapter is None:
        raise Uncacheable  # the operands are not plain arrays of one framework and numbers
    arrays = list(operands)
    like = arrays[first]
    dtype = _promotion(adapter, *[adapter.signature(each) for place, each in enumerate(arrays) if place not in numbers])
    for place in numbers:
        arrays[place] = adapter.scalar(arrays[place], like, dtype)
    return adapter, arrays


@cached("number places")
def _number_places(*kinds: type) -> tuple[Adapter | None, int, tuple[int, ...]]:
    """The framework of operands of these types, the position of the first array, and those of the Python numbers.

    The framework is None if there are no numbers, or others that are not plain arrays.
    """
    numbers = tuple([place for place, kind in enumerate(kinds) if kind in (bool, int, float, complex)])
    arrays = [place for place in range(len(kinds)) if place not in numbers]
    adapter, plain = backend_of(tuple([kinds[place] for place in arrays]))
    return adapter if plain and numbers else None, min(arrays, default=0), numbers


@cached("promotions")
def _promotion(adapter: Adapter, *signatures: Signature) -> str:
    return promoted(adapter, [adapter.operand(signature) for signature in signatures])


def _plain(adapter: Adapter, number: int, array: Array) -> Array:
    try:
        return adapter.plain(array)
    except SizeError as error:
        raise SizeError(f"operand {number} {error}") from None


def _read_stored(operands: Mapping[int, Any], required: Adapter | None) -> tuple[Adapter | None, list[Any]]:
    """Replace the stored operands by NumPy arrays; also returns the adapter of the others, if there is one.

    Raises:
        BackendError: no operand is stored, and they belong to no framework or to two; or some are stored, and the
            framework is not NumPy.
    """
    to_read = {number: operand for number, operand in operands.items() if is_stored(operand)}
    others = {number: type(operand) for number, operand in operands.items() if number not in to_read}
    adapter, _ = backend_of(tuple([others.get(number, list) for number in range(max(operands) + 1)]))
    numpy = get_backend("numpy")
    framework = adapter or required or numpy
    for number, operand in to_read.items():
        if framework is not numpy:
            raise BackendError(
                f"operand {number} ({type_name(type(operand))}) is stored, and without a memory_limit= it "
                f"is read for NumPy alone, not for {framework.name}; pass memory_limit=, or make an array of it first"
            )
    return adapter, [
        stored.read_whole(number, each) if number in to_read else each for number, each in operands.items()
    ]


def promoted(adapter: Adapter, operands: Sequence[Operand]) -> str:
    """The framework's promotion of the operands' dtypes; empty without operands."""
    kinds = {(operand.dtype, operand.weak) for operand in operands}
    if len(kinds) < 2:
        return kinds.pop()[0] if kinds else ""
    strong = list(dict.fromkeys([operand.dtype for operand in operands if not operand.weak]))
    weak = list(dict.fromkeys([operand.dtype for operand in operands if operand.weak]))
    return adapter.promote_weak(strong, weak) if weak else adapter.promote(strong)


def prepare(adapter: Adapter, written: Written, arrays: Sequence[Array], options: Options) -> Prepared:
    """The plan for these arrays and the function that runs it, from the caches if possible."""
    signatures = adapter.signatures(written, arrays)
    if isinstance(options.optimize, str | bool | tuple):
        mode = adapter.planning_mode(adapter.device_of(signatures[0]) if signatures else "")
        return _by_signature(adapter, written, signatures, options, mode)
    return from_signatures(adapter, written, signatures, options)


def from_signatures(
    adapter: Adapter, written: Written, signatures: tuple[Signature, ...], options: Options
) -> Prepared:
    """The plan for plain arrays of these signatures, and the function that runs it, from the cache of plans."""
    device = one_device(adapter, signatures)
    operands = described(adapter, signatures)
    call = described_call(adapter, written, operands, device, options)
    # An optimizer object may find another path next time, so its plan is not cached.
    make = by_layout if isinstance(options.optimize, str | bool | tuple) else by_layout.__wrapped__
    prepared: Prepared = make(call)
    if options.casting == "no" and not cost.returns_view(prepared.program):
        check_byte_order([signature[2] for signature in signatures])
    return prepared


def plain_run(
    adapter: Adapter, written: Written, signatures: tuple[Signature, ...], optimize: Any = "auto"
) -> Run | None:
    """The function that runs the plan of a call whose only keyword is ``optimize``; None for a call that needs more.

    It is the plan that :func:`make_program` makes, made without the caches and the checks of keywords on the way there.
    """
    # An optimizer object may find another path next time.
    if type(optimize) not in (str, list, tuple) or ("logging" in sys.modules and log.tells_plans()):
        return None
    try:
        operands = tuple(map(adapter.operand, signatures))
    except BackendError:
        return None  # the error will say of which operand
    dtype, device = operands[0].dtype, adapter.device_of(signatures[0])
    shapes = []
    for operand, signature in zip(operands, signatures):
        if operand.dtype != dtype or operand.weak:
            return None
        if adapter.device_of(signature) != device:
            device = one_device(adapter, signatures)
        shapes.append(operand.shape)
    if adapter.is_mode_set is not None and adapter.is_mode_set():
        return None
    sized = bind.bind_plain(written, tuple(shapes))
    traits = calibration.calibrated(adapter, device)
    is_served = traits.dtypes is None or dtype in traits.dtypes
    if sized is None or not is_served or wisdom.may_have(adapter, device, sized):
        return None
    place = Place(adapter.name, device, traits)
    steps = _path_of(sized, optimize, operands, place, dtype, adapter)
    return execute.run_of(lower.lower(Contraction(sized, operands, dtype, steps, place)), adapter)


def _path_of(
    sized: SizedEquation, optimize: Any, operands: Sequence[Operand], place: Place, dtype: str, adapter: Adapter | None
) -> Path:
    """The path of a contraction: see :func:`~einsumx.planner.path.find_path`.

    Args:
        sized, optimize, operands: as there.
        place, dtype: where it is computed, and in which dtype.
        adapter: of the arrays that are there to be contracted now, so that the steps have to fit into free memory.
    """
    if len(operands) < 3:
        return path.find_path(sized, optimize, operands)

    def room() -> float:
        blocks = None if adapter is None else adapter.blocks
        free = None if blocks is None else blocks.free_bytes(place.device)
        return inf if free is None else free / itemsize(dtype)

    return path.find_path(sized, optimize, operands, search.pace_of(place.traits, dtype), room)


def described_call(
    adapter: Adapter, written: Written, operands: tuple[Operand, ...], device: str, options: Options
) -> Described:
    """The call; a mode of the framework such as ``torch.autocast`` counts as a ``dtype=``.

    It does not change calls that have a ``dtype=`` or an ``out=``, nor what is no sum of products.
    """
    mode = adapter.planning_mode(device)
    may_cast = options.mode is None and options.dtype is None and options.algebra is PLUS_TIMES
    if options.mode != mode:
        options = options._replace(mode=mode)
    if mode is not None and may_cast:
        dtypes = [operand.dtype for operand in operands]
        sized = sized_equation(written, [operand.shape for operand in operands])
        dtype = adapter.autocast_dtype(sized, dtypes, device, mode)
        if dtype not in (None, promoted(adapter, operands)):
            casting: Casting = options.casting if options.casting in ("no", "equiv") else "same_kind"
            options = options._replace(dtype=dtype, casting=casting)
    return Described(adapter, written, operands, device, options)


def described(adapter: Adapter, signatures: Sequence[Signature]) -> tuple[Operand, ...]:
    """Shape, dtype and layout of each operand, as the planner sees them.

    Raises:
        BackendError: an operand's dtype is not one of numbers.
    """
    operands = []
    for number, signature in enumerate(signatures):
        try:
            operands.append(adapter.operand(signature))
        except BackendError as error:
            raise BackendError(f"operand {number}: {error}") from error
    return tuple(operands)


def check_byte_order(dtypes: Iterable[Any]) -> None:
    """Raise BackendError if an operand is not in the machine's byte order; ``casting="no"`` demands that."""
    for number, dtype in enumerate(dtypes):
        if not getattr(dtype, "isnative", True):
            raise BackendError(
                f"operand {number} has dtype {dtype}, whose byte order casting='no' does not allow to change; "
                "pass casting='equiv'"
            )


@cached("options")
def _by_signature(
    adapter: Adapter, written: Written, signatures: tuple[Signature, ...], options: Options, _: Hashable
) -> Prepared:
    """As :func:`from_signatures`; the last argument is :meth:`~einsumx.adapters.arrays.Arrays.planning_mode`."""
    return from_signatures(adapter, written, signatures, options)


def one_device(adapter: Adapter, signatures: Iterable[Signature]) -> str:
    """The device of all operands; empty if none is known. A traced array has none, and goes with any.

    Raises:
        BackendError: the operands are on two devices.
    """
    devices = dict.fromkeys(map(adapter.device_of, signatures))
    devices.pop("", None)
    if len(devices) > 1:
        first, second, *_ = devices
        raise BackendError(f"the operands are on two devices, {first} and {second}; move one of them first")
    return next(iter(devices), "")


def runnable(call: Described, constants: Mapping[int, Array] | None = None) -> Prepared:
    """The program of a contraction, and the function that runs it, or that tries its candidates first.

    With operands of unknown size, which are traced, none is tried.

    Args:
        call: what to compute.
        constants: operands that are known already, by position; the function takes the others.
    """
    program = make_program(call, are_there=True)
    # The program's operands have names of labels for sizes that are not known; others are equal, which is quick to see.
    if program.operands != call.operands and sizes.names_in([operand.shape for operand in call.operands]):
        of_any_size = execute.run_of_any_size(program, call.runner, constants)
        return Prepared(program, of_any_size, is_fixed=False)
    run = None
    if call.options.effort == "measure":
        run = measured.trying(call.runner, contraction_of(call), call.options.optimize, constants)
    is_fixed = run is None and not constants and call.options.framework is None
    return Prepared(program, run or execute.run_of(program, call.runner, constants), is_fixed)


by_layout = cached("plans")(runnable)


def make_program(
    call: Described,
    traits: Traits | None = None,
    choices: tuple[str, ...] | None = None,
    *,
    are_there: bool = False,
) -> Program:
    """The program of a call. This needs no array, and imports no framework if all dtypes are equal.

    Args:
        call: what to compute.
        traits, are_there: as for :func:`contraction_of`.
        choices: the names of candidates for the steps; None for what the wisdom has.
    """
    adapter, contraction, program = call.adapter, contraction_of(call, traits, are_there=are_there), None
    may_be_measured = choices is None and call.options.algebra is PLUS_TIMES and contraction.operands == call.operands
    if may_be_measured and wisdom.may_have(adapter, call.device, contraction.equation):
        program = measured.remembered(adapter, contraction, call.options.optimize)
    if program is None:
        program = call.options.algebra.lowered(lower.lower(contraction, choices or ()))
    text.tell_plan(program, adapter)
    return program


def contraction_of(call: Described, traits: Traits | None = None, *, are_there: bool = False) -> Contraction:
    """What a call computes: its equation bound, its dtypes resolved, its path found.

    Args:
        call: what to compute.
        traits: of the framework; None for those with the rates of this machine.
        are_there: the arrays are there to be contracted now, so that the steps have to fit into free memory.
    """
    adapter, written, operands, device, options = call
    shapes = tuple([operand.shape for operand in operands])
    sized = sized_equation(written, shapes)
    traits = traits or calibration.traits_in(options.algebra, adapter, device)
    dtype = served_dtype(call, traits)
    accumulate = None if options.accumulate is None else accumulator(operands, options, dtype, traits)
    if sized.shapes != shapes:  # unknown sizes have the names of their labels now
        operands = tuple(map(_in_shape, operands, sized.shapes))
    place = Place(adapter.name, device, traits)
    steps = _path_of(sized, options.optimize, operands, place, dtype, adapter if are_there else None)
    return Contraction(sized, operands, dtype, steps, place, accumulate, options.algebra)


def _in_shape(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """The operand with its unknown sizes as the equation has them."""
    strides = layout.pattern_strides(layout.layout_pattern(operand.shape, operand.strides) or (), shape)
    return replace(operand, shape=shape, strides=strides)


def sized_equation(written: Written, shapes: Sequence[tuple[int, ...]]) -> SizedEquation:
    """The equation bound to shapes.

    Raises:
        EquationError, SizeError: it is wrong, or does not fit the shapes.
    """
    shapes = tuple(shapes)
    sized = bind.bind_plain(written, shapes)
    if sized is not None:
        return sized
    try:
        return bind.bind(parsed(written, len(shapes)), shapes)
    except SizeError as error:
        if isinstance(written, str):
            first, _, rest = str(error).partition("\n")
            raise SizeError(f"{first}{parse.misread(written)}\n{rest}") from None
        # Labels that are equal but print differently, such as 1 and True, share an entry of the cache.
        bind.bind(parsed.__wrapped__(written, len(shapes)), shapes)
        raise


@cached("equations")
def parsed(written: Written, count: int) -> Equation:
    """The parsed equation for ``count`` operands, cached."""
    if isinstance(written, str):
        return parse.parse_text(written, count)
    return parse.parse_sublists(*written)


def result_dtype(adapter: Adapter, operands: Sequence[Operand], options: Options) -> str:
    """The dtype to return: ``dtype=``, or the framework's promotion.

    Raises:
        BackendError: an operand cannot be cast to it.
    """
    dtype = options.dtype
    if dtype is None:
        dtype = promoted(adapter, operands)
        if options.casting not in ("no", "equiv") and options.algebra is PLUS_TIMES:
            return dtype
    options.algebra.check_dtype(dtype)
    if options.algebra.is_boolean:  # nonzero is true, whatever casts are allowed
        return dtype
    for number, operand in enumerate(operands):
        yields: Casting = "same_kind" if operand.weak and options.casting == "safe" else options.casting
        if operand.dtype != dtype and not can_cast(operand.dtype, dtype, yields):
            raise BackendError(
                f"operand {number} has dtype {operand.dtype}, which casting={options.casting!r} does not allow to "
                f"become {dtype}; pass a looser casting= or another dtype="
            )
    return dtype


def served_dtype(call: Described, traits: Traits) -> str:
    """The dtype to return; see :func:`result_dtype`.

    Raises:
        BackendError: the framework's einsum does not support it, or an operand's.
    """
    adapter, _, operands, _, options = call
    dtype = result_dtype(adapter, operands, options)
    if traits.dtypes is None:
        return dtype
    for name in (dtype, options.accumulate or dtype, *[operand.dtype for operand in operands]):
        if name not in traits.dtypes:
            raise BackendError(f"{adapter.name}: einsum computes in no dtype {shown(name)}")
    return dtype


def accumulator(operands: Sequence[Operand], options: Options, dtype: str, traits: Traits) -> str | None:
    """The dtype that ``accumulate=`` asks for, to compute a result of ``dtype`` in; None if it changes no result.

    Overflow of integers wraps, so that a sum in wider integers ends in the same bits. Where the framework's own
    products accumulate in that dtype, the operands need no cast.

    Raises:
        BackendError: it does not hold an operand or the result, or a cast from it to the result would lose a part.
    """
    accumulate = options.accumulate
    if accumulate is None:
        return None
    named = f"accumulate={accumulate!r}"
    for number, operand in enumerate(operands):
        if not can_cast(operand.dtype, accumulate, "safe"):
            raise BackendError(
                f"{named} does not hold every value of operand {number}, which has dtype {operand.dtype}; pass a wider "
                "accumulate=, or cast the operand first"
            )
    if not can_cast(dtype, accumulate, "safe"):
        raise BackendError(
            f"{named} does not hold every value of the result, which has dtype {dtype}; pass a wider accumulate=, or "
            "another dtype="
        )
    if kind(dtype) in "biu" and kind(accumulate) in "biu":
        return None
    if not can_cast(accumulate, dtype, "same_kind"):
        raise BackendError(
            f"{named} is of another kind than the result, which has dtype {dtype}; pass dtype={accumulate!r} for a "
            "result of that kind too"
        )
    return None if accumulate in (dtype, traits.compute_dtype(dtype)) else accumulate


def computed_dtype(
    equation: SizedEquation, operands: Sequence[Operand], options: Options, dtype: str, traits: Traits
) -> str:
    """The dtype in which blocks of a result of ``dtype`` are computed and added; raises as :func:`accumulator` does."""
    accumulate = accumulator(operands, options, dtype, traits)
    return dtype if equation.is_rearrangement else traits.compute_dtype(accumulate or dtype)


def check_operand(number: int, operand: Operand, planned: Operand, text: str) -> None:
    """Raise SizeError or BackendError if an operand has another shape or dtype than planned; ``text`` is for errors.

    An unknown size fits any.
    """
    if not sizes.may_be_equal(operand.shape, planned.shape):
        raise SizeError(
            f"operand {number} has shape {shown(operand.shape)}, but the plan is made for {shown(planned.shape)}\n"
            f"  {excerpt(text)}"
        )
    if operand.dtype != planned.dtype:
        raise BackendError(f"operand {number} has dtype {operand.dtype}, but the plan is made for {planned.dtype}")
