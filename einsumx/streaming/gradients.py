"""Runs calls under a memory limit, and their gradients: each is an einsum of the cotangent and the other operands."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import TYPE_CHECKING, Any

from einsumx.adapters import hooks
from einsumx.adapters.base import Array
from einsumx.adapters.registry import get_backend, owner
from einsumx.algebra.scaled import FrexpResult, times_power
from einsumx.dtypes import itemsize
from einsumx.errors import MemoryLimitError
from einsumx.imports import LazyModule
from einsumx.ir.operand import Operand
from einsumx.ir.parse import symbol
from einsumx.runtime.conversion import arrays_of
from einsumx.runtime.factors import check_kinds, common_dtype
from einsumx.runtime.request import Request
from einsumx.runtime.results import sum_dtype
from einsumx.runtime.transposed import backward, gradients_of, ones, placed
from einsumx.streaming.readers import framework_of
from einsumx.streaming.run import check_resumable, plan_within, run_blocks
from einsumx.streaming.writers import overlap

if TYPE_CHECKING:
    from einsumx.blocked.derivatives import Passes
    from einsumx.streaming import traced
else:
    traced = LazyModule("einsumx.streaming.traced")


class RecordedContraction:
    """A contraction under a limit, as a framework records it for differentiation; it holds no arrays.

    Attributes:
        exponent: of the result, if that is a mantissa; it is known when the contraction has run.
    """

    exponent = 0
    is_differentiable = False

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    @property
    def places(self) -> int:
        """The number of arrays: the operands and, as the last, the cotangent."""
        return len(self._passes.arrays)

    @property
    def conjugated(self) -> tuple[int, ...]:
        """The places of the operands that are conjugated for the result."""
        return self._passes.conjugated

    def dtype(self, place: int) -> str:
        """The dtype of the array in a place, by name."""
        return self._passes.arrays[place].operand.dtype

    def value(self, place: int, arrays: Sequence[Any], beside: int = 0, conjugated: Collection[int] = ()) -> Array:
        """Compute the array of one place from the others: a gradient by an operand, in the dtype of the result.

        Args:
            place: the number of the operand; or the last place, for the result itself.
            arrays: the arrays in all places; the one in ``place`` is not used.
            beside: bytes of the gradients that were computed before.
            conjugated: the places whose arrays are conjugated.

        Raises:
            MemoryLimitError: it does not fit, although this was checked before the forward pass.
        """
        passes = self._passes
        adapter, step = passes.adapter, backward(passes.equation, place)
        operands = [*(arrays[other] for other in step.others), *ones(adapter, step, passes.device)]
        request = passes.asked(step, conjugated, operands)
        beside += passes.extra_bytes(step, place)
        try:
            limited = plan_within(request, beside)
        except MemoryLimitError:  # the layouts have changed since the limit was checked
            limited = plan_within(request, beside, as_copies=True)
        result = run_blocks(limited)
        if passes.request.algebra.has_exponents:  # the derivative of the mantissa, for which the exponent is a constant
            mantissa, exponent = result
            result = times_power(adapter, mantissa, exponent - self.exponent, True)
        return placed(adapter, step, result)


def recorded(request: Request, beside: int = 0) -> Array:
    """Run a contraction under a limit; if the framework records it, its gradients keep the same limit.

    Args:
        request: the call.
        beside: bytes that other arrays take meanwhile.

    Raises:
        MemoryLimitError: it or its gradients do not fit.
    """
    adapter, arrays = framework_of(request.operands, request.adapter)
    if adapter.loops is not None and adapter.loops.is_traced([each for each in arrays if owner(each) is adapter]):
        if request.factors is None:
            return traced.recorded(request, adapter, arrays)
        alone = replace(request, factors=None, added=None)
        return _sum(request, traced.recorded(alone, adapter, arrays))
    if request.factors is not None and request.added is not request.out:
        return _added(request)
    limited = plan_within(request, beside)
    run = partial(run_blocks, limited, request.limit.progress)
    if limited.passes is None:
        return run()
    call, gradients = RecordedContraction(limited.passes), gradients_of(limited.adapter)
    if not limited.program.algebra.has_exponents:
        return gradients.recorded(call, run, limited.operands, limited.passes.numbers)

    def mantissa() -> Array:
        result, call.exponent = run()
        return result

    result = gradients.recorded(call, mantissa, limited.operands, limited.passes.numbers)
    return FrexpResult(result, call.exponent)


def _added(request: Request) -> Array:
    """The sum of a contraction and of an array that is not ``out``.

    Raises:
        ValueError: the sum cannot be resumed.
    """
    factors, out, added, limit = request.factors, request.out, request.added, request.limit
    assert factors is not None
    if out is None:
        alone = replace(request, factors=None, added=None, order="K")
        unlimited = plan_within(replace(alone, memory_limit=replace(limit, amount=inf)))
        program, adapter = unlimited.program, unlimited.adapter
        values = adapter.operand(adapter.signature(arrays_of([added, *unlimited.operands[:1]], None)[1][0]))
        dtype = sum_dtype(
            adapter, Operand(program.shape, program.dtype), values, factors.kinds, request.named(adapter).dtype,
            request.casting,
        )  # fmt: skip
        factors.within(dtype)  # raises before any work
        copies = 2 * prod(program.shape) * itemsize(dtype)
        return _sum(request, adapter.boxed(recorded(alone, copies), program.dtype))
    if factors.beta == 0:
        return recorded(replace(request, added=out))
    check_resumable(request)
    written = Request("", (), out, None, None, "K", request.casting, "auto", request.backend, limit)
    if getattr(added, "shape", None) != out.shape or overlap(out, added):
        total = recorded(replace(request, out=None, is_cast=False))
        return recorded(replace(written, written=_identity(total), operands=[total]))
    framework = owner(out) or get_backend("numpy")
    dtypes = [framework.dtype_name(each.dtype) for each in (added, out)]
    check_kinds(("b", factors.kinds[1]), common_dtype(framework, *dtypes))  # before anything is written
    recorded(replace(request, factors=factors._replace(beta=0), added=out))
    factors = factors._replace(alpha=factors.beta, beta=1)
    return recorded(replace(written, written=_identity(added), operands=[added], factors=factors, added=out))


def _sum(request: Request, result: Array) -> Array:
    """The sum of the result of a contraction and of the array that a call adds it to, as a new array."""
    assert request.factors is not None
    keywords = {"dtype": request.dtype, "casting": request.casting, "order": request.order}
    return hooks.addeinsum(request.added, _identity(result), result, **request.factors._asdict(), **keywords)


def _identity(array: Array) -> str:
    """The equation that returns an array as it is."""
    shape = getattr(array, "shape", ())  # NumPy's sums of objects are objects, and no arrays
    labels = "".join(map(symbol, range(len(shape))))
    return f"{labels}->{labels}"
