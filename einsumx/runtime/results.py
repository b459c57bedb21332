"""Results: the memory order of a new one, and writing to ``out=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters.registry import backend_of, is_stored, owner
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.runtime.caches import Uncacheable

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.dtypes import Casting
    from einsumx.ir import cost
    from einsumx.ir.program import Program
    from einsumx.runtime.prepare import Prepared
    from einsumx.runtime.request import Order
else:
    cost = LazyModule("einsumx.ir.cost")

__all__ = ["check_out_dtype", "check_plain", "deliver", "delivery", "result_order"]


def deliver(
    adapter: Adapter, prepared: Prepared, arrays: Sequence[Array], out: Array | None, order: Order, casting: Casting
) -> Array:
    """Run a program, and return the result in a memory order or write it to ``out``."""
    result_order(order, out, adapter, ())
    if out is not None:
        _check_framework(adapter, out)
    target = None if out is None else adapter.signature(out)
    run = delivery(adapter, prepared, order, adapter.signature(arrays[0]), target, casting)
    return run(*arrays) if out is None else run(out, *arrays)


def check_plain(adapter: Adapter, signatures: Sequence[Signature], out: Signature | None) -> None:
    """Raise Uncacheable unless operands and ``out`` of these signatures are plain arrays of the framework."""
    every = signatures if out is None else (*signatures, out)
    if backend_of(tuple([signature[0] for signature in every])) != (adapter, True):
        raise Uncacheable


def delivery(
    adapter: Adapter, prepared: Prepared, order: Order, first: Signature, out: Signature | None, casting: Casting
) -> Run:
    """The function for operands, and ``out``, of fixed signatures: of ``out``, if there is one, and the operands.

    Args:
        adapter: the framework's.
        prepared: the program for the operands.
        order: the memory order of a new result.
        first: the signature of the first operand.
        out: the signature of ``out``; None for a new result.
        casting: NumPy's rule.

    Raises:
        SizeError, BackendError, ValueError: as :func:`deliver` does.
    """
    if out is None:
        return _ordered(adapter, prepared, order)
    result_order(order, out, adapter, ())
    _check_fits(adapter, prepared.program, first, out, casting)
    return _writing(adapter, prepared)


def _ordered(adapter: Adapter, prepared: Prepared, order: Order) -> Run:
    """The function that runs a program and returns a new result in a memory order."""
    run, arrange, is_fortran = prepared.run, adapter.arrange, adapter.is_fortran
    if order == "K":
        return run
    _check_memory_order(adapter)
    if not prepared.program.shape:
        return run
    if order == "A":
        return lambda *arrays: arrange(run(*arrays), "F" if all(map(is_fortran, arrays)) else "C")
    return lambda *arrays: arrange(run(*arrays), order)


def _writing(adapter: Adapter, prepared: Prepared) -> Run:
    """A function of ``out`` and the operands that writes the result to ``out`` and returns it.

    Before any work it checks what arrays of equal signatures may differ in: whether ``out`` can be written.
    """
    run, check = prepared.run, adapter.check_out
    write = adapter.write if cost.returns_view(prepared.program) else adapter.write_new

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


def _check_fits(adapter: Adapter, program: Program, first: Signature, out: Signature, casting: Casting) -> None:
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
    if order != "K":
        _check_memory_order(adapter)
    if order == "A":
        return "F" if all(map(_is_fortran, operands)) else "C"
    return order


def _check_memory_order(adapter: Adapter) -> None:
    if not adapter.cpu.memory_order:
        raise BackendError(f"{adapter.name} arrays have no memory order to choose; leave order= away")


def _is_fortran(array: Any) -> bool:
    """Whether an operand is F-contiguous. Stored operands are read in C order, which is F order too for one axis."""
    adapter = owner(array)
    return sum(size != 1 for size in array.shape) < 2 if adapter is None else adapter.is_fortran(array)
