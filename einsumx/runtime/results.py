"""Results: the memory order of a new one, writing to ``out=``, and adding to another array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.adapters.registry import is_stored, owner
from einsumx.dtypes import Casting, can_cast, itemsize
from einsumx.errors import BackendError, SizeError, excerpt, shown
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES

if TYPE_CHECKING:
    from einsumx.adapters import facets
    from einsumx.adapters.base import Adapter, Array, Run, Signature
    from einsumx.adapters.facets import MemoryOrders
    from einsumx.ir import program as programs
    from einsumx.ir import sizes
    from einsumx.ir.operand import Operand
    from einsumx.ir.program import Program
    from einsumx.runtime import conversion, dtype_rules, execute, factors
    from einsumx.runtime.execute import Folded
    from einsumx.runtime.factors import Factors
    from einsumx.runtime.prepare import Prepared
    from einsumx.runtime.request import Order, Request
else:
    programs = LazyModule("einsumx.ir.program")
    facets = LazyModule("einsumx.adapters.facets")
    sizes = LazyModule("einsumx.ir.sizes")
    execute = LazyModule("einsumx.runtime.execute")
    dtype_rules, factors = LazyModule("einsumx.runtime.dtype_rules"), LazyModule("einsumx.runtime.factors")
    conversion = LazyModule("einsumx.runtime.conversion")


class Delivery(NamedTuple):
    """What becomes of a result, as far as it does not depend on the values of arrays and factors.

    Attributes:
        order: the memory order of a new result.
        casting: NumPy's rule for casts to ``out``.
        out: the signature of ``out``; None for a new result.
        kinds: the kinds of the factors of a sum; None for the result alone.
        added: the signature of the array to which the result is added; None for none, or for ``out`` itself.
        dtype: the dtype of a sum by name; None for a promotion.
    """

    order: Order = "K"
    casting: Casting = "safe"
    out: Signature | None = None
    kinds: tuple[str, str] | None = None
    added: Signature | None = None
    dtype: str | None = None


def deliver(
    adapter: Adapter, prepared: Prepared, arrays: Sequence[Array], request: Request, added: Any = None
) -> Array:
    """Run a program, and return the result in a memory order, write it to ``out``, or add it to an array.

    Args:
        adapter: the framework's.
        prepared: the program.
        arrays: the operands.
        request: the call, in the framework's terms.
        added: the array to which the result is added, if it is not ``out``.
    """
    out, scale = request.out, request.factors
    result_order(request.order, out, adapter, ())
    if out is not None:
        _check_framework(adapter, out)
    wanted = Delivery(
        request.order,
        request.casting,
        None if out is None else adapter.signature(out),
        None if scale is None else scale.kinds,
        None if added is None else adapter.signature(added),
        request.dtype,
    )
    run = delivery(adapter, prepared, adapter.signature(arrays[0]), wanted)
    return run(*[each for each in (scale, out, added) if each is not None], *arrays)


def delivery(adapter: Adapter, prepared: Prepared, first: Signature, wanted: Delivery) -> Run:
    """The function for operands, and ``out``, of fixed signatures.

    Its arguments are the factors, ``out``, and the array to add to, each if there is one; and the operands.

    Args:
        adapter: the framework's.
        prepared: the program for the operands.
        first: the signature of the first operand.
        wanted: what becomes of the result.

    Raises:
        SizeError, BackendError, ValueError: as :func:`deliver` does.
    """
    out, kinds, program = wanted.out, wanted.kinds, prepared.program
    if out is not None:
        result_order(wanted.order, out, adapter, ())
    if kinds is not None and wanted.added is not None:
        return _adding(adapter, prepared, first, wanted, kinds, wanted.added)
    if out is None:
        return _ordered(adapter, prepared, wanted.order)
    check_fits(adapter, program, first, out, wanted.casting, program.dtype)
    if kinds is None:
        return _writing(adapter, prepared, out)
    dtype = factors.common_dtype(adapter, program.dtype, adapter.dtype_name(out[2]))
    factors.check_kinds(kinds, dtype)
    return _updating(adapter, prepared, out, dtype)


def _ordered(adapter: Adapter, prepared: Prepared, order: Order) -> Run:
    """The function that runs a program and returns a new result in a memory order."""
    run = prepared.run
    if order == "K":
        return run
    orders = _orders_of(adapter)
    arrange, is_fortran = orders.arrange, orders.is_fortran
    if not prepared.program.shape:
        return run
    if prepared.program.algebra.has_exponents:
        return _ordered_mantissa(orders, run, order)
    if order == "A":
        return lambda *arrays: arrange(run(*arrays), "F" if all(map(is_fortran, arrays)) else "C")
    return lambda *arrays: arrange(run(*arrays), order)


def _ordered_mantissa(orders: MemoryOrders, run: Run, order: Order) -> Run:
    """The function that runs a program and returns its mantissa in a memory order, and its exponent."""

    def ordered(*arrays: Array) -> Any:
        result = run(*arrays)
        is_fortran = order == "F" or (order == "A" and all(map(orders.is_fortran, arrays)))
        return result._replace(mantissa=orders.arrange(result.mantissa, "F" if is_fortran else "C"))

    return ordered


def _writing(adapter: Adapter, prepared: Prepared, target: Signature) -> Run:
    """A function of ``out`` and the operands that writes the result to ``out`` and returns it.

    Before any work it checks what arrays of equal signatures may differ in: whether ``out`` can be written. The last op
    of a large result writes it to ``out`` itself, if ``out`` overlaps no operand.
    """
    run, program = prepared.run, prepared.program
    access, fit, is_view = facets.out_of(adapter), _fitting(adapter, program, target), program.returns_view
    own = None if is_view or fit is not None else access.written(run, target, program.dtype)
    check, may_overlap, write = access.check, access.may_overlap, access.write if is_view else access.write_new

    def copied(out: Array, *arrays: Array) -> Array:
        check(out, arrays)
        result = run(*arrays)
        write(out if fit is None else fit(out, result), result)
        return out

    through_copy, left = own or copied, prepared.plan().left
    run_into = None if fit is not None else _run_into(adapter, program, left, target)
    if left is None or run_into is None:
        return through_copy
    constants = tuple(left.values.values())

    def written(out: Array, *arrays: Array) -> Array:
        check(out, arrays)
        if any(may_overlap(out, array) for array in (*arrays, *constants)):
            return through_copy(out, *arrays)
        run_into(*arrays, out)
        return out

    return written


def _run_into(adapter: Adapter, program: Program, left: Folded | None, target: Signature) -> Run | None:
    """A function of the operands and ``out`` whose last op writes the result; None if the result is copied there."""
    if left is None or not program.shape or prod(program.shape) * itemsize(program.dtype) < _LEAST:
        return None
    if program.algebra is not PLUS_TIMES or adapter.dtype_name(target[2]) != program.dtype:
        return None
    return execute.run_into(program, adapter, left, target)


def with_out(adapter: Adapter, program: Program, out: Signature) -> Program:
    """A program that says what becomes of its result with an ``out=`` that it fits and that overlaps no operand."""
    is_written = _run_into(adapter, program, execute.folded(program, adapter), out) is not None
    nbytes = prod(program.shape) * itemsize(adapter.dtype_name(out[2]))
    return replace(program, into=programs.Into("written" if is_written else "copied", nbytes))


_LEAST = 1 << 19
"""The least bytes of a result whose copy takes longer than to find out whether ``out`` overlaps an operand."""


def _adding(
    adapter: Adapter, prepared: Prepared, first: Signature, wanted: Delivery, kinds: tuple[str, str], added: Signature
) -> Run:
    """A function of the factors, perhaps ``out``, an array and the operands that returns or writes their sum."""
    run, program, out = prepared.run, prepared.program, wanted.out
    values = adapter.operand(added)
    conversion.one_device(adapter, [first, added])  # raises, if they are on two
    result = replace(values, shape=program.shape, dtype=program.dtype, strides=None, weak=False)
    dtype = sum_dtype(adapter, result, values, kinds, wanted.dtype, wanted.casting)
    if out is not None:
        check_fits(adapter, program, first, out, wanted.casting, dtype)
    else:
        _ordered(adapter, prepared, wanted.order)  # raises, if the framework has no memory order
    shape = (1,) * (len(program.shape) - len(values.shape)) + values.shape
    is_expanded = shape != program.shape and sizes.is_known(program.shape) and adapter.cpu.strided

    def total(scale: Factors, added: Array, arrays: Sequence[Array]) -> Array:
        alpha, beta = scale.within(dtype)  # raises before any work
        result = adapter.boxed(run(*arrays), program.dtype)
        added = adapter.boxed(added, values.dtype)
        if shape != values.shape:
            added = adapter.reshape(added, shape)
        if is_expanded:
            added = adapter.expand(added, program.shape)
        return adapter.arithmetic.combined(alpha, result, beta, added, dtype)

    def new(scale: Factors, added: Array, *arrays: Array) -> Array:
        def plain(*arrays: Array) -> Array:
            array = total(scale, added, arrays)
            return array if program.shape else adapter.element(array)

        return _ordered(adapter, replace(prepared, run=plain), wanted.order)(*arrays)

    if out is None:
        return new
    access = facets.out_of(adapter)

    def written(scale: Factors, out: Array, added: Array, *arrays: Array) -> Array:
        access.check(out, (*arrays, added))
        access.write_new(out, total(scale, added, arrays))
        return out

    return written


def sum_dtype(
    adapter: Adapter,
    result: Operand,
    added: Operand,
    kinds: tuple[str, str],
    dtype: str | None,
    casting: Casting,
) -> str:
    """The dtype of the sum of a result and of the array that it is added to.

    Args:
        adapter: the framework's.
        result: of the contraction.
        added: the array.
        kinds: those of the factors.
        dtype: the one that is asked for; None for the promotion.
        casting: NumPy's rule for the cast of the array.

    Raises:
        SizeError: the array does not broadcast to the result.
        BackendError: a cast that is not allowed, or a factor that the dtype does not hold.
    """
    dtype = dtype or dtype_rules.promoted(adapter, [result, added])
    factors.check_kinds(kinds, dtype)
    pairs = zip(added.shape[::-1], result.shape[::-1])
    if len(added.shape) > len(result.shape) or not all(
        size == 1 or sizes.may_be_equal((size,), (other,)) for size, other in pairs
    ):
        raise SizeError(
            f"c has shape {shown(added.shape)}, which does not broadcast to the shape of the result, "
            f"{shown(result.shape)}"
        )
    if added.dtype != dtype and not can_cast(added.dtype, dtype, casting):
        raise BackendError(
            f"c has dtype {added.dtype}, which casting={casting!r} does not allow to become {dtype}; pass a looser "
            "casting= or another dtype="
        )
    return dtype


def _updating(adapter: Adapter, prepared: Prepared, out: Signature, dtype: str) -> Run:
    """A function of the factors, ``out`` and the operands that adds a multiple of the result to one of ``out``.

    Args:
        adapter: the framework's.
        prepared: the program.
        out: the signature of ``out``.
        dtype: the dtype to multiply and add in.
    """
    run, program, access = prepared.run, prepared.program, facets.out_of(adapter)
    check, may_overlap = access.check, access.may_overlap
    fit, written = _fitting(adapter, program, out), _writing(adapter, prepared, out)
    is_view, left = program.returns_view, prepared.plan().left
    run_into = None
    if left is not None and program.dtype == dtype == adapter.dtype_name(out[2]):
        run_into = execute.run_into(program, adapter, left, out, adds=True)

    def run_update(scale: Factors, out: Array, *arrays: Array) -> Array:
        check(out, arrays)
        alpha, beta = scale.within(dtype)
        if alpha == 1 and beta == 0:
            return written(out, *arrays)
        if run_into is not None and not any(may_overlap(out, array) for array in arrays):
            run_into(*arrays, execute.Update(alpha, beta, out))
            return out
        result = adapter.boxed(run(*arrays), program.dtype)
        if fit is not None:
            out = fit(out, result)
        access.update(alpha, adapter.copy(result) if is_view else result, beta, out, dtype)
        return out

    return run_update


def _fitting(adapter: Adapter, program: Program, out: Signature) -> Callable[[Array, Array], Array] | None:
    """A function of ``out`` and the result that returns ``out``, and checks its unknown sizes; None without any."""
    unknown = [axis for axis, pair in enumerate(zip(out[1], program.shape)) if not sizes.is_known(pair)]
    if not unknown:
        return None
    message = (
        "out= has another size than the result along axis {}; axes of unknown size do not broadcast\n  "
        f"{excerpt(program.written)}"
    )

    def fit(out: Array, result: Array) -> Array:
        for axis in unknown:
            out = adapter.with_size(out, axis, adapter.size(result, axis), message.format(axis))
        return out

    return fit


def _check_framework(adapter: Adapter, out: Any) -> None:
    """Raise BackendError if ``out`` is not an array of the framework."""
    out_adapter = owner(out)
    if out_adapter is None:
        hint = "; pass memory_limit= to write the result to a stored array" if is_stored(out) else ""
        raise BackendError(
            f"out= must be an array of {adapter.name}, as the operands are, not a {type(out).__name__}{hint}"
        )
    if out_adapter is not adapter:
        raise BackendError(
            f"out= is an array of {out_adapter.name}, but the operands are arrays of {adapter.name}; make out= with "
            f"{adapter.name}"
        )


def check_fits(
    adapter: Adapter, program: Program, first: Signature, out: Signature, casting: Casting, result: str
) -> None:
    """Raise SizeError or BackendError if an ``out`` of a signature cannot take the result of a program.

    Args:
        adapter: the framework's.
        program: the program.
        first: the signature of the first operand.
        out: the signature of ``out``.
        casting: NumPy's rule.
        result: the dtype of the values to write.
    """
    _, shape, dtype, *_ = out
    if not sizes.may_be_equal(shape, program.shape):
        raise SizeError(
            f"out= has shape {shown(tuple(shape))} but the result has shape {shown(program.shape)}\n"
            f"  {excerpt(program.written)}"
        )
    out_device, device = adapter.device_of(out), adapter.device_of(first)
    if out_device and device and out_device != device:  # some arrays are on no device
        raise BackendError(f"out= is on {out_device}, but the operands are on {device}; make out= on their device")
    check_out_dtype(result, adapter.dtype_name(dtype), casting, dtype)


def check_out_dtype(dtype: str, target: str, casting: Casting, out_dtype: Any) -> None:
    """Raise BackendError if the result does not cast to the dtype of ``out``.

    Args:
        dtype: of the result, by name.
        target: of ``out``, by name.
        casting: NumPy's rule.
        out_dtype: of ``out``, as the framework has it; NumPy's includes the byte order.
    """
    is_swapped = casting == "no" and not getattr(out_dtype, "isnative", True)
    if is_swapped or not can_cast(dtype, target, casting):
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
        raise ValueError(f"order={order!r} asks for a new array, but out= is one already; pass one of them")
    if order != "K":
        _orders_of(adapter)
    if order == "A":
        return "F" if all(map(_is_fortran, operands)) else "C"
    return order


def _orders_of(adapter: Adapter) -> MemoryOrders:
    if adapter.orders is None:
        raise BackendError(f"{adapter.name} arrays have no memory order to choose; omit order=")
    return adapter.orders


def _is_fortran(array: Any) -> bool:
    """Whether an operand is F-contiguous. Stored operands are read in C order, which is F order too for one axis."""
    adapter = owner(array)
    orders = None if adapter is None else adapter.orders
    return sum(size != 1 for size in array.shape) < 2 if orders is None else orders.is_fortran(array)
