"""Shapes, dtypes and devices that stand for operands, as ``plan`` and ``expression`` take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import blocks_of
from einsumx.dtypes import kind
from einsumx.errors import REFUSALS, BackendError, SizeError, counted, excerpt, shown
from einsumx.ir.bind import SizedEquation
from einsumx.ir.sizes import UNKNOWN, Unknown
from einsumx.runtime.equations import parsed
from einsumx.runtime.request import Written
from einsumx.scalars import as_python


def as_shapes(written: Written, operands: Sequence[Any]) -> list[tuple[int, ...] | None]:
    """Each operand's shape if it is a tuple of sizes, of which None stands for an unknown one; None for an array.

    Raises:
        SizeError: an operand looks like a shape, but is not a tuple of non-negative integers.
    """
    shapes = list(map(_as_shape, operands))
    if not any(isinstance(operand, int | float | complex | list) for operand in operands):
        return shapes
    equation = parsed(written, len(operands))
    for number, (operand, term) in enumerate(zip(operands, equation.inputs)):
        is_number = isinstance(operand, int | float | complex)
        is_row = isinstance(operand, list) and all(isinstance(size, int) for size in operand)
        if ... not in term and ((is_number and len(term) > 0) or (is_row and len(term) > 1)):
            raise SizeError(
                f"operand {number} must be an array or a shape of {counted(len(term), 'size')}, as in (2, 3), not "
                f"{shown(operand)}\n  {excerpt(equation.text)}"
            )
    return shapes


def _as_shape(operand: Any) -> tuple[int, ...] | None:
    if not isinstance(operand, tuple):
        return None
    if any(isinstance(size, str) for size in operand):
        raise SizeError(f"the sizes of a shape must be integers, or None if unknown: {shown(operand)}")
    sizes = tuple([UNKNOWN if size is None or isinstance(size, Unknown) else as_python(size) for size in operand])
    are_sizes = [isinstance(size, int | Unknown) and not isinstance(size, bool) for size in sizes]
    if all(are_sizes):
        if any(size < 0 for size in sizes):
            raise SizeError(f"the sizes of a shape must not be negative: {shown(sizes)}")
        return sizes
    if any(are_sizes):
        wrong = sizes[are_sizes.index(False)]
        raise SizeError(f"the sizes of a shape must be integers, not {shown(wrong)}: {shown(operand)}")
    return None


def as_dtypes(dtypes: Any, count: int) -> list[str]:
    """The dtype of each of ``count`` operands by name, from one name for all or one for each.

    Raises:
        SizeError: another number of names.
        BackendError: not the name of a dtype.
    """
    dtypes = "float64" if dtypes is None else dtypes
    several = isinstance(dtypes, Iterable) and not isinstance(dtypes, str)
    names = list(map(as_python, dtypes if several else [dtypes] * count))
    if len(names) != count:
        raise SizeError(f"dtypes= names {counted(len(names), 'dtype')} for {counted(count, 'operand')}")
    for name in names:
        if not isinstance(name, str) or (kind(name) == "O" and name != "object"):
            raise BackendError(f"dtypes= has {shown(name)}; a dtype must be a name of NumPy's, such as 'float32'")
    return names


def check_out(out: Any, equation: SizedEquation) -> None:
    """Raise SizeError if the ``out=`` of a plan from shapes is not the shape of the result."""
    if _as_shape(out) != equation.shape:
        other = shown(out) if isinstance(out, tuple) else type(out).__name__
        raise SizeError(
            f"next to shapes, out= must be the shape of the result, {shown(equation.shape)}, not {other}\n  "
            f"{excerpt(equation.named)}"
        )


def check_device(adapter: Adapter, device: str) -> None:
    """Raise BackendError if the framework's arrays cannot be on a device; this imports no framework."""
    kinds = adapter.device_kinds
    if device and kinds and device.partition(":")[0] not in kinds:
        raise BackendError(
            f"{adapter.name} has no device {shown(device)}, because its arrays are only on {' and '.join(kinds)}; use "
            "another backend, or omit device="
        )


def free_bytes(adapter: Adapter, device: str) -> int | None:
    """Bytes of free memory on a device; None if unknown.

    Raises:
        BackendError: the framework or the device is not there, or its arrays keep no memory limit.
    """
    blocks = blocks_of(adapter)
    try:
        return blocks.free_bytes(device)
    except (ImportError, *REFUSALS) as error:
        name = f" {shown(device)}" if device else ""
        raise BackendError(f"{adapter.name} finds no device{name}: {error}") from error


def shape_of(operand: Any) -> tuple[Any, ...]:
    """The shape of an array, of a number, or of a list by its first elements.

    >>> shape_of(2), shape_of([[1, 2, 3], [4, 5, 6]])
    ((), (2, 3))
    """
    if isinstance(operand, int | float | complex):
        return ()
    if isinstance(operand, list | tuple):
        return (len(operand), *shape_of(operand[0])) if operand else (0,)
    return tuple(operand.shape) if hasattr(operand, "shape") else ()
