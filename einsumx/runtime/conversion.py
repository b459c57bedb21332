"""The operands of a call as plain arrays of one framework, on one device, as the planner sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import backend_of, get_backend, is_builtin, is_stored
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.ir import sizes
from einsumx.runtime.dtype_rules import promoted

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array, Signature
    from einsumx.ir.operand import Operand
    from einsumx.runtime import stored
else:
    stored = LazyModule("einsumx.runtime.stored")


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
        raise BackendError(
            f"backend={required.name!r} was passed, but the operands are arrays of {adapter.name}; convert them, or "
            "omit backend="
        )
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
                    f"{adapter.name} cannot make an array of operand {numbers[slot]}, a {type(operand).__name__}: "
                    f"{error}; {_advice_on(operand)}"
                ) from error
    return adapter, [arrays[slot] for slot in range(len(operands))]


def _advice_on(operand: Any) -> str:
    """What to do with a list of which a framework makes no array."""
    if isinstance(operand, list | tuple) and any(hasattr(each, "shape") for each in operand):
        return "arrays are operands of their own: einsum(equation, *arrays)"
    return "pass nested lists of numbers, with rows of equal length, or an array"


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
                f"operand {number} ({type_name(type(operand))}) is a stored array, which without memory_limit= is read "
                f"for NumPy only, not for {framework.name}; pass memory_limit=, or read it first"
            )
    return adapter, [
        stored.read_whole(number, each) if number in to_read else each for number, each in operands.items()
    ]


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


def check_operand(number: int, operand: Operand, planned: Operand, text: str) -> None:
    """Raise SizeError or BackendError if an operand has another shape or dtype than planned; ``text`` is for errors.

    An unknown size fits any.
    """
    if not sizes.may_be_equal(operand.shape, planned.shape):
        raise SizeError(
            f"operand {number} has shape {shown(operand.shape)}, but the plan is for {shown(planned.shape)}; make "
            f"another one\n  {excerpt(text)}"
        )
    if operand.dtype != planned.dtype:
        raise BackendError(
            f"operand {number} has dtype {operand.dtype}, but the plan is for {planned.dtype}; make another one, or "
            "cast the operand"
        )
