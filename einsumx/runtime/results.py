"""Results: the memory order of a new one, and writing to ``out=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters.registry import is_stored, owner
from einsumx.errors import BackendError, SizeError, excerpt, shown

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array
    from einsumx.dtypes import Casting
    from einsumx.ir.program import Program
    from einsumx.runtime.prepare import Prepared
    from einsumx.runtime.request import Order

__all__ = ["check_out_dtype", "deliver", "result_order"]


def deliver(
    adapter: Adapter, prepared: Prepared, arrays: Sequence[Array], out: Array | None, order: Order, casting: Casting
) -> Array:
    """Run a program, and return the result in a memory order or write it to ``out``."""
    order = result_order(order, out, adapter, arrays)
    if out is None:
        result = prepared.run(*arrays)
        return adapter.arrange(result, order) if prepared.program.shape and order != "K" else result
    _check_out(adapter, prepared.program, arrays, out, casting)
    adapter.write(out, prepared.run(*arrays))
    return out


def _check_out(adapter: Adapter, program: Program, arrays: Sequence[Array], out: Array, casting: Casting) -> None:
    """Raise SizeError or BackendError, before ``out`` is touched, if it cannot take the result."""
    out_adapter = owner(out)
    if out_adapter is None:
        hint = "; pass memory_limit= to have the result written to what is stored" if is_stored(out) else ""
        raise BackendError(f"out= is a {type(out).__name__}, but the operands are arrays of {adapter.name}{hint}")
    if out_adapter is not adapter:
        raise BackendError(f"out= belongs to {out_adapter.name}, but the operands to {adapter.name}")
    _, shape, dtype, *_ = adapter.signature(out)
    if tuple(shape) != program.shape:
        raise SizeError(
            f"out= has shape {shown(tuple(shape))} but the result has shape {shown(program.shape)}\n"
            f"  {excerpt(program.equation)}"
        )
    out_device, device = adapter.device(out), adapter.device(arrays[0])
    if out_device != device:
        raise BackendError(f"out= is on {out_device}, but the operands are on {device}")
    check_out_dtype(adapter, program.dtype, adapter.dtype_name(dtype), casting, dtype)
    adapter.check_out(out, arrays)


def check_out_dtype(adapter: Adapter, dtype: str, target: str, casting: Casting, out_dtype: Any) -> None:
    """Raise BackendError if the result does not cast to the dtype of ``out``.

    Args:
        adapter: the framework's.
        dtype: of the result, by name.
        target: of ``out``, by name.
        casting: NumPy's rule.
        out_dtype: of ``out``, as the framework has it; NumPy's includes the byte order.
    """
    is_swapped = casting == "no" and not getattr(out_dtype, "isnative", True)
    if is_swapped or not adapter.can_cast(dtype, target, casting):
        raise BackendError(
            f"the result has dtype {dtype}, which casting={casting!r} does not allow into an out= of "
            f"{out_dtype if is_swapped else target}; pass a looser casting= or dtype="
        )


def result_order(order: Order, out: Any, adapter: Adapter, operands: Sequence[Any]) -> Order:
    """The memory order of a new result: ``"C"``, ``"F"``, or ``"K"`` for any.

    Raises:
        ValueError: ``out`` is set, which has an order already.
        BackendError: the framework's arrays have no memory order.
    """
    if order != "K" and out is not None:
        raise ValueError(f"order={order!r} asks for a new array, but out= brings one; leave one of them away")
    if order != "K" and not adapter.cpu.memory_order:
        raise BackendError(f"{adapter.name} arrays have no memory order to choose; leave order= away")
    if order == "A":
        return "F" if all(map(_is_fortran, operands)) else "C"
    return order


def _is_fortran(array: Any) -> bool:
    """Whether an operand is F-contiguous. Stored operands are read in C order, which is F order too for one axis."""
    adapter = owner(array)
    return sum(size != 1 for size in array.shape) < 2 if adapter is None else adapter.is_fortran(array)
