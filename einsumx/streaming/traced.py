"""Contractions under a memory limit in traced programs: the blocks of an eager run, as loops of the compiler.

A contraction is one operation of the trace, with derivatives of its own: each is a contraction of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import loops_of
from einsumx.adapters.registry import get_backend, owner
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.blocked.program import BlockedContraction, BlockedProgram
from einsumx.blocked.traced import asked_in_trace, blocked_in_trace, unlimited_in_trace
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, excerpt
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.records import HashedOnce, record
from einsumx.ir.sizes import is_known
from einsumx.ir.text import quantity
from einsumx.planner.path import Optimize
from einsumx.runtime import front
from einsumx.runtime.conversion import check_operand, described, one_device
from einsumx.runtime.execute import run_of
from einsumx.runtime.limits import limit_bytes
from einsumx.runtime.request import Request, Written
from einsumx.runtime.transposed import backward
from einsumx.streaming.loops import LoopWriter
from einsumx.streaming.readers import is_host_array


def recorded(request: Request, adapter: Adapter, arrays: Sequence[Any]) -> Array:
    """The result of a call whose limit is kept in a traced program, where the caller's arrays do not count.

    Args:
        request: the call.
        adapter: of the framework that traces it.
        arrays: the operands, some of which may be NumPy's.

    Raises:
        MemoryLimitError: no blocks are small enough.
        BackendError: the limit asks for more than a number of bytes, or an operand is stored or sharded.
    """
    limit = request.limit
    if not limit.is_lasting or request.algebra.has_exponents:
        raise BackendError(
            f"while {adapter.name} traces a call, memory_limit= must be a number of bytes, and einsum_frexp takes "
            "none; call it outside of the trace, or omit memory_limit="
        )
    operands = _in_trace(adapter, arrays, request.out)
    signatures = list(map(adapter.signature, operands))
    request, device = request.named(adapter), one_device(adapter, signatures)
    contraction = front.contraction(request, adapter, described(adapter, signatures), device)
    if not all(is_known(operand.shape) for operand in contraction.operands):
        raise BackendError("memory_limit= needs all sizes; omit it for a program of any size")
    asked = asked_in_trace(adapter, contraction, limit_bytes(limit.amount, lambda: None), request.is_path_free)
    return _recorded(adapter, asked, operands)


def traced_call(
    operands: Sequence[Array], equation: str, _: Sequence[int], limit: int, dtype: str, accumulate: str | None,
    conj: Sequence[int],
) -> TracedContraction:  # fmt: skip
    """The contraction with these arguments, the inverse of :attr:`TracedContraction.arguments`."""
    adapter = owner(operands[0])
    assert adapter is not None
    request = Request(
        equation, (), dtype=dtype, accumulate=accumulate, casting="unsafe", conj=tuple(conj), effort="estimate"
    )
    signatures = list(map(adapter.signature, operands))
    device = one_device(adapter, signatures)
    contraction = front.contraction(request, adapter, described(adapter, signatures), device)
    return TracedContraction(asked_in_trace(adapter, contraction, limit, is_path_free=True))


def planned(program: BlockedProgram, adapter: Adapter, arrays: Sequence[Any], out: Any) -> Array:
    """The result of a plan in a traced program, in loops that keep its limit there.

    Raises:
        SizeError, BackendError: the operands do not fit the plan.
    """
    operands = _in_trace(adapter, arrays, out)
    known = described(adapter, list(map(adapter.signature, operands)))
    for number, (operand, own) in enumerate(zip(known, program.operands)):
        check_operand(number, operand, own, program.equation)
    return _recorded(adapter, asked_in_trace(adapter, program.contraction, program.limit, False), operands)


def _in_trace(adapter: Adapter, arrays: Sequence[Any], out: Any) -> list[Array]:
    """Operands as arrays of the framework, some of which may be constants of the trace."""
    if out is not None:
        raise BackendError("out= cannot be written while a call is traced; use the result")
    operands = []
    for number, array in enumerate(arrays):
        if owner(array) is not adapter and not is_host_array(array):
            raise BackendError(
                f"operand {number} is stored, and cannot be read while {adapter.name} traces the call; read it first"
            )
        own = array if owner(array) is adapter else adapter.from_numpy(array)
        operands.append(loops_of(adapter).known(own))
    return operands


def _recorded(adapter: Adapter, asked: BlockedContraction, operands: Sequence[Array]) -> Array:
    return loops_of(adapter).recorded(TracedContraction(asked), operands)


@record
class TracedContraction(HashedOnce):
    """A contraction under a memory limit, as an operation of a traced program; see :class:`TracedCall`."""

    asked: BlockedContraction

    def __repr__(self) -> str:
        return f"{excerpt(self.asked.contraction.equation.text)} within {quantity(self.asked.limit, 'B')}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.asked.contraction.equation.shape

    @property
    def dtype(self) -> str:
        """The result's dtype."""
        return self.asked.contraction.dtype

    @property
    def arguments(self) -> tuple[str, tuple[int, ...], int, str, str | None, tuple[int, ...]]:
        """Those of :func:`traced_call` beside the operands, for contractions along any path of plus and times.

        Raises:
            BackendError: it is not such a contraction.
        """
        contraction = self.asked.contraction
        if contraction.algebra is not PLUS_TIMES or not self.asked.is_path_free:
            raise BackendError(
                f"while {contraction.place.backend} traces a call, memory_limit= is not for semirings, nor for a path "
                "by optimize=; omit memory_limit="
            )
        equation, conj = contraction.equation, contraction.conjugated
        return equation.text, equation.shape, self.asked.limit, contraction.dtype, contraction.accumulate, conj

    @property
    def _adapter(self) -> Adapter:
        return get_backend(self.asked.contraction.place.backend)

    def check(self) -> None:
        """Raise MemoryLimitError if no blocks are small enough."""
        if unlimited_in_trace(self._adapter, self.asked) is None:
            blocked_in_trace(self._adapter, self.asked)

    def written(self, operands: Sequence[Array]) -> Array:
        """The result."""
        adapter = self._adapter
        program = unlimited_in_trace(adapter, self.asked)
        if program is None:
            return LoopWriter(blocked_in_trace(adapter, self.asked), adapter, operands).result()
        return adapter.boxed(run_of(program, adapter)(*operands), self.dtype)

    def _check_linear(self) -> None:
        algebra = self.asked.contraction.algebra
        if isinstance(algebra, SemiringAlgebra):
            raise BackendError(
                f"under memory_limit= there are no gradients in the semiring {algebra.name!r}; omit "
                "memory_limit=, or stop the gradients of the operands"
            )

    def tangent(self, number: int, operands: Sequence[Array], tangent: Array) -> Array:
        """The tangent of the result from that of one operand, in which it is linear; BackendError if it is not."""
        self._check_linear()
        return _recorded(self._adapter, self.asked, [*operands[:number], tangent, *operands[number + 1 :]])

    def cotangent(self, number: int, operands: Sequence[Array], cotangent: Array) -> Array:
        """The cotangent of an operand from that of the result."""
        self._check_linear()
        asked, adapter = self.asked, self._adapter
        contraction, loops = asked.contraction, loops_of(adapter)
        step, own, last = backward(contraction.equation, number), contraction.operands[number], len(operands)
        was_conjugated = number in contraction.conjugated
        conj = tuple([
            place for place, other in enumerate(step.others)
            if (was_conjugated if other == last else (other in contraction.conjugated) != was_conjugated)
        ])  # fmt: skip
        arrays = [*operands, cotangent]
        given = [arrays[other] for other in step.others]
        given += [loops.filled([cotangent], (size,), 1, own.dtype, None) for size in step.ones]
        part = self._like(step.written, given, conj)
        landing, whole = part.landing, prod(part.contraction.equation.shape) * itemsize(contraction.dtype)
        landing = landing._replace(beside=landing.beside + sum(step.ones) * itemsize(own.dtype))
        if len(step.labels) < len(step.term) or own.dtype != contraction.dtype:  # it is put on a diagonal, or cast
            landing = landing._replace(cut=whole)
        part = replace(part, landing=landing)
        gradient = _recorded(adapter, part, given)
        gradient = loops.on_diagonal(loops.as_dtype(gradient, own.dtype), step.term)
        return adapter.reshape(gradient, step.shape) if len(step.shape) != len(step.term) else gradient

    def batched(self, operands: Sequence[Array], axes: Sequence[int | None]) -> Array:
        """The results for all operands along a new axis, the first of the result."""
        contraction = self.asked.contraction
        new, terms = len(contraction.equation.sizes), []
        for term, axis in zip(contraction.equation.inputs, axes):
            terms.append(term if axis is None else (*term[:axis], new, *term[axis:]))
        written = tuple(terms), (new, *contraction.equation.output)
        optimize = "auto" if self.asked.is_path_free else contraction.path
        asked = self._like(written, operands, contraction.conjugated, optimize=optimize)
        return _recorded(self._adapter, asked, operands)

    def _like(
        self, written: Written, operands: Sequence[Array], conj: Sequence[int], optimize: Optimize = "auto"
    ) -> BlockedContraction:
        """Another contraction with the same dtype of the result, and with the same limit."""
        contraction, adapter = self.asked.contraction, self._adapter
        request = Request(
            written, (), dtype=contraction.dtype, accumulate=contraction.accumulate, casting="unsafe",
            optimize=optimize, conj=tuple(conj), algebra=contraction.algebra, effort="estimate",
        )  # fmt: skip
        known = described(adapter, list(map(adapter.signature, operands)))
        other = front.contraction(request, adapter, known, contraction.place.device)
        return asked_in_trace(adapter, other, self.asked.limit, optimize == "auto")
