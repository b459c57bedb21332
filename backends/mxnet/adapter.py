"""MXNet's ``mx.np`` arrays: all C-contiguous, matmul with one batch axis, and calls that cost tens of microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.facets import Arithmetic, BlockAccess, OutAccess, Semirings
from einsumx.adapters.replacement import Name
from einsumx.backends.mxnet.arrays import MxnetArrays
from einsumx.backends.mxnet.blocks import TRACED, MxnetBlocks
from einsumx.backends.mxnet.choices import MOST_TRANSPOSED, sums, swaps
from einsumx.backends.mxnet.gradients import ArrayGradients, record
from einsumx.backends.mxnet.graphs import recorded, signatures
from einsumx.backends.mxnet.kernels import MxnetKernels
from einsumx.backends.mxnet.patch import names
from einsumx.backends.mxnet.semirings import MxnetSemirings
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError
from einsumx.imports import imported
from einsumx.ir import ops
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.runtime.request import Written


class MxnetOut(OutAccess):
    """Arrays that are written to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        autograd = self.adapter.mx.autograd
        if not autograd.is_recording():
            return
        if self.adapter.gradients.in_graph(out):
            raise BackendError(
                "out= is a variable of autograd, or autograd has recorded a value of it already; omit out= and use "
                "the result"
            )
        if any(map(self.adapter.gradients.in_graph, operands)):
            with autograd.pause(), self.adapter.mx.util.np_shape(True):
                overlaps = any(self.xp.may_share_memory(out, operand) for operand in operands)
            if overlaps:
                raise BackendError(
                    "out= shares memory with an operand, whose values autograd needs later; pass another array, or "
                    "omit out="
                )

    def write(self, out: Array, result: Array) -> None:
        with self.adapter.mx.util.np_shape(True):
            self.adapter.cast(result, self.adapter.dtype_name(out.dtype)).copyto(out)

    def write_new(self, out: Array, result: Array) -> None:
        shape, dtype = self.adapter._describe(out)
        is_plain = bool(shape) and 0 not in shape and dtype is self.adapter._describe(result)[1]
        if is_plain and self.adapter.calls.mxnet_1 and not self.adapter.mx.autograd.is_recording():
            self.adapter.calls.copy_into(out, result)
        else:
            self.write(out, result)


class MxnetArithmetic(Arithmetic):
    """Arithmetic of arrays with few axes."""

    def scaled(self, array: Array, factor: Any, dtype: str) -> Array:
        with self.adapter.mx.util.np_shape(True):
            if self.adapter.is_tracing():  # a graph takes no array from outside of it, but a number
                return self.as_dtype(array, dtype) * factor
            flat = self.adapter.reshape(array, (array.size,))  # MXNet does not broadcast many axes
            return self.adapter.reshape(super().scaled(flat, factor, dtype), array.shape)

    def combined(self, alpha: Any, result: Array, beta: Any, values: Array, dtype: str) -> Array:
        with self.adapter.mx.util.np_shape(True):
            return super().combined(alpha, result, beta, values, dtype)

    def plus(self, lhs: Array, rhs: Array) -> Array:
        if lhs.dtype == bool:  # MXNet 1 has no logical_or
            return (lhs.astype("int8") + rhs.astype("int8")).astype(bool)
        if lhs.shape != rhs.shape:
            return lhs + rhs
        flat = [self.adapter.reshape(each, (each.size,)) for each in (lhs, rhs)]  # MXNet does not broadcast many axes
        return self.adapter.reshape(flat[0] + flat[1], lhs.shape)


class MxnetAdapter(MxnetArrays, Adapter):
    """``mx.np`` arrays of MXNet 1.9 and 2.0."""

    blocks: cached_property[BlockAccess | None] = cached_property(MxnetBlocks)
    out: cached_property[OutAccess | None] = cached_property(MxnetOut)
    arithmetic = cached_property(MxnetArithmetic)
    semirings: cached_property[Semirings | None] = cached_property(MxnetSemirings)

    def serving(self, kind: type) -> Adapter:
        return self if issubclass(kind, self.xp.ndarray) else SYMBOLS

    # -- primitives -------------------------------------------------------------------------------------

    @cached_property
    def _kernels(self) -> MxnetKernels:
        return MxnetKernels(self)

    def kernel(self, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        match op:
            case ops.Reshape():
                return self.calls.view(op.shape)
            case ops.Transpose():
                return self._kernels.transpose(op.axes, shapes[0], dtype)
            case ops.Diagonal():
                return self._kernels.diagonal(op.axis1, op.axis2, dtype)
            case ops.Sum():
                return self._kernels.total(shapes[0], op.axes, dtype)
            case ops.Multiply():
                return self.calls.multiply()
            case ops.Matmul():
                return self._kernels.matmul(op, shapes, dtype)
            case ops.Native():
                return self._kernels.einsum(op.equation, shapes, dtype)
            case _:
                return super().kernel(op, shapes, dtype)

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._kernels.transpose(axes, array.shape, self.dtype_name(array.dtype))(array)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        # A view shares memory, but MXNet reads a size of 0 in its shape as "unchanged".
        return array.reshape(shape) if 0 in shape else self.calls.view(shape)(array)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return self._kernels.diagonal(axis1, axis2, self.dtype_name(array.dtype))(array)

    def copy(self, array: Array) -> Array:
        with self.mx.util.np_shape(True):
            return array.reshape(array.shape)  # the gradient of array.copy() overwrites where it should add

    def cast(self, array: Array, dtype: str) -> Array:
        if self.calls.mxnet_1:  # the gradient of its cast overwrites where it should add; that of the reshape adds
            array = self.reshape(array, array.shape)
        with self.mx.util.np_shape(True):
            return array.astype(dtype)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._kernels.total(array.shape, axes, self.dtype_name(array.dtype))(array)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        return self._kernels.product(lhs.ndim, transpose_lhs, transpose_rhs)(lhs, rhs)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        return self.calls.einsum(equation, len(arrays))(*arrays)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        context = self.context(self.device(arrays[0]))

        def run() -> Array:
            return self.xp.zeros(shape, dtype=dtype, ctx=context)

        def gradient(place: int, arrays: Sequence[Array], _: int) -> Array:
            return self.xp.zeros_like(arrays[place])

        numbers = [number for number, array in enumerate(arrays) if self.gradients.may_be_needed(array)]
        return record(self, gradient, run, arrays, numbers) if numbers else run()

    def workspace(self, op: ops.Op, operands: Sequence[Operand], device: str = "") -> int:
        source = operands[0]
        match op:
            case ops.Transpose():
                is_one = len(op.axes) <= MOST_TRANSPOSED and len(swaps(op.axes, mxnet_1=self._has_mxnet_1)) < 2
                return 0 if is_one else source.nbytes
            case ops.Sum():
                first, *others = sums(op.axes, len(source.shape))
                kept = [size for axis, size in enumerate(source.shape) if axis not in first]
                return prod(kept) * itemsize(source.dtype) if others else 0
            case _:
                return super().workspace(op, operands, device)

    # -- plans ------------------------------------------------------------------------------------------

    def prepare(self, run: Run, program: Program) -> Run:
        if not self.calls.mxnet_1:
            run = self.calls.unless_tracing(run, self._recording(program))
        # Shapes without axes and sizes of 0 are valid only under "np shape" semantics, a switch of the thread that is
        # off by default in MXNet 1, and in all threads but the main one in MXNet 2.
        is_plain = all(each.shape and 0 not in each.shape for each in program.values)
        return run if is_plain else self.calls.in_np_shape(run)

    def _recording(self, program: Program) -> Run:
        """The function that MXNet 2 traces in a block, for later calls with any sizes."""

        def record(*operands: Array) -> Array:
            if len(operands) < len(program.operands):
                raise BackendError(
                    "MXNet cannot trace an expression with constants, because a block computes only from its inputs "
                    "and parameters; call einsum, and pass the constant as one of them"
                )
            return recorded(program, self)(*operands)

        return record

    def public_class(self) -> type[Adapter]:
        public: type[Adapter] = imported("einsumx.backends.mxnet.source").PublicMxnet
        return public

    def names(self) -> Iterable[Name]:
        return names()

    @cached_property
    def gradients(self) -> ArrayGradients:
        return ArrayGradients(self)

    def synchronize(self, array: Array) -> None:
        array.wait_to_read()


class SymbolAdapter(MxnetAdapter):
    """Symbols, with which MXNet 1 traces a block; their sizes are unknown until the block runs."""

    blocks = None
    missing = MappingProxyType({"blocks": TRACED})

    @cached_property
    def xp(self) -> Any:
        return self.mx.sym.np

    @cached_property
    def npx(self) -> Any:
        return self.mx.sym.npx

    def signature(self, array: Array) -> Signature:
        raise BackendError("MXNet's symbols have no sizes yet, so only einsum takes them; call einsum without out=")

    def signatures(self, written: Written, arrays: Sequence[Array]) -> tuple[Signature, ...]:
        return signatures(written, arrays)

    def prepare(self, run: Run, program: Program) -> Run:
        return recorded(program, self)


ADAPTER = MxnetAdapter()
SYMBOLS = SymbolAdapter()
