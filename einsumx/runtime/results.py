"""Results: the memory order of a new one, and writing to ``out=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters.registry import is_stored, owner
from einsumx.errors import BackendError, SizeError, excerpt, shown

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.dtypes import Casting
    from einsumx.ir.program import Program
    from einsumx.runtime.prepare import Prepared
    from einsumx.runtime.request import Order

__all__ = ["check_fits", "check_out_dtype", "deliver", "ordered", "result_order", "writing"]


def deliver(
    adapter: Adapter, prepared: Prepared, arrays: Sequence[Array], out: Array | None, order: Order, casting: Casting
) -> Array:
    """Run a program, and return the result in a memory order or write it to ``out``."""
    if out is None:
        return ordered(adapter, prepared, order)(*arrays)
    result_order(order, out, adapter, arrays)
    _check_framework(adapter, out)
    target = adapter.signature(out)
    check_fits(adapter, prepared.program, adapter.signature(arrays[0]), target, casting)
    return writing(adapter, prepared.run)(out, *arrays)


def ordered(adapter: Adapter, prepared: Prepared, order: Order) -> Run:
    """The function that runs a program and returns a new result in a memory order.

    Raises:
        BackendError: the framework's arrays have no memory order.
    """
    run, arrange = prepared.run, adapter.arrange
    if order == "K":
        return run
    if order == "A":
        return lambda *arrays: arrange(run(*arrays), result_order(order, None, adapter, arrays))
    result_order(order, None, adapter, ())
    return (lambda *arrays: arrange(run(*arrays), order)) if prepared.program.shape else run


def writing(adapter: Adapter, run: Run) -> Run:
    """A function of ``out`` and the operands of ``run`` that writes the result to ``out`` and returns it.

    Before any work it checks what arrays of equal signatures may differ in: whether ``out`` can be written.
    """
    check, write = adapter.check_out, adapter.write

    def run_into(out: Array, *arrays: Array) -> Array:
        check(out, arrays)
        write(out, run(*arrays))
        return out

    return run_into


def _check_framework(adapter: Adapter, out: Any) -> None:
    """Raise BackendError if ``out`` is not an array of the framework."""
    out_adapter = owner(out)
    if out_adapter is None:
        hint = "; pass memory_limit= to have the result written to what is stored" if is_stored(out) else ""
        raise BackendError(f"out= is a {type(out).__name__}, but the operands are arrays of {adapter.name}{hint}")
    if out_adapter is not adapter:
        raise BackendError(f"out= belongs to {out_adapter.name}, but the operands to {adapter.name}")


def check_fits(adapter: Adapter, program: Program, first: Signature, out: Signature, casting: Casting) -> None:
    """Raise SizeError or BackendError if an ``out`` of a signature cannot take the result of a program.

    Args:
        adapter: the framework's.
        program: the program.
        first: the signature of the first operand.
        out: the signature of ``out``.
        casting: NumPy's rule.
    """
    _, shape, dtype, *_ = out
    if tuple(shape) != program.shape:
        raise SizeError(
            f"out= has shape {shown(tuple(shape))} but the result has shape {shown(program.shape)}\n"
            f"  {excerpt(program.equation)}"
        )
    out_device, device = adapter.device_of(out), adapter.device_of(first)
    if out_device != device:
        raise BackendError(f"out= is on {out_device}, but the operands are on {device}")
    check_out_dtype(adapter, program.dtype, adapter.dtype_name(dtype), casting, dtype)


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
