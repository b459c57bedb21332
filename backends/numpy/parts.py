"""The parts of the NumPy adapter: ``out=``, memory orders, blocks and arithmetic. Plain calls need none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Array, Run, Signature
from einsumx.adapters.facets import Arithmetic, BlockAccess, MemoryOrders, OutAccess, Semirings
from einsumx.errors import BackendError
from einsumx.imports import LazyModule
from einsumx.ir.ops import Matmul, Multiply, Native, Op, Sum
from einsumx.ir.traits import INTEGERS

if TYPE_CHECKING:
    from einsumx.host import free_memory
    from einsumx.storage import maps
else:
    free_memory, maps = LazyModule("einsumx.host.free_memory"), LazyModule("einsumx.storage.maps")

_OVERLAP_WORK = 10_000
"""The most candidates that NumPy tries to prove that two arrays do not overlap."""


class NumpyBlocks(BlockAccess):
    """Blocks of arrays."""

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        index = (*box, ...)  # the ellipsis makes the result an array even without axes
        return array[index]

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        index = (*box, ...)
        with self.adapter.mode(out):
            self.xp.copyto(out[index], block, casting="unsafe")
        return out

    def in_place(self, array: Any) -> Array:
        return array

    def free_bytes(self, device: str) -> int | None:
        return free_memory.free_host_bytes()


class NumpyOrders(MemoryOrders):
    """Memory orders of arrays."""

    def arrange(self, array: Array, order: str) -> Array:
        return self.xp.asarray(array, order=order)

    def is_fortran(self, array: Array) -> bool:
        return bool(array.flags.f_contiguous)


class NumpyOut(OutAccess):
    """Arrays that are written to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        if not out.flags.writeable:
            raise BackendError("out= is a read-only array; pass a writable one")

    def update(self, alpha: Any, result: Array, beta: Any, out: Array, dtype: str) -> None:
        if dtype == "object":  # an object may raise an error, which must leave out= as it was
            super().update(alpha, result, beta, out, dtype)
            return
        with self.adapter.mode(out):
            self.adapter.kernels.update(out, alpha, result, beta, dtype)

    def may_overlap(self, out: Array, array: Array) -> bool:
        xp = self.xp
        try:
            if xp.may_share_memory(out, array) and xp.shares_memory(out, array, max_work=_OVERLAP_WORK):
                return True
        except RuntimeError:  # NumPy gave up
            return True
        return not (out.flags.owndata or array.flags.owndata) and self._may_share_file(out, array)

    @cached_property
    def _assign(self) -> Callable[..., None]:
        """``out[index] = values``, faster than :func:`numpy.copyto`, for subclasses too that override it."""
        assign: Callable[..., None] = self.xp.ndarray.__setitem__
        return assign

    def write(self, out: Array, result: Array) -> None:
        # A view of an operand may overlap with out=, or map the same file at another address. NumPy assigns one axis to
        # another that overlaps as if both had the same stride.
        is_view = getattr(result, "base", None) is not None and isinstance(result, self.xp.ndarray)
        if is_view and (self.xp.may_share_memory(out, result) or self._may_share_file(out, result)):
            result = result.copy()
        self.write_new(out, result)

    def _may_share_file(self, out: Array, result: Array) -> bool:
        return not maps.owns_memory(result) and maps.share_file(out, result)

    def write_new(self, out: Array, result: Array) -> None:
        if out.dtype == getattr(result, "dtype", None):
            self._assign(out, ..., result)
            return
        with self.xp.errstate(all="ignore"):  # an error would leave out= partly written, also one of an object's
            if getattr(result, "dtype", None) == self.xp.object_:
                result = result.astype(out.dtype)
            self.xp.copyto(out, result, casting="unsafe")

    def kernel_into(
        self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str, out: Signature
    ) -> Callable[..., object] | None:
        _, _, own, strides = out
        if dtype == "object" or not own.isnative or any(stride % own.itemsize for stride in strides):
            return None
        if isinstance(op, Matmul):
            takes_out = min(map(len, shapes)) > 1 and dtype not in INTEGERS
        else:
            takes_out = isinstance(op, Multiply | Sum | Native)
        kernel: Callable[..., object] | None = self.adapter.kernel(op, shapes, dtype) if takes_out else None
        return self.xp.matmul if kernel is self.xp.ndarray.dot else kernel  # dot() writes to contiguous arrays alone

    def written(self, run: Run, out: Signature, dtype: str) -> Run | None:
        if out[0] is not self.xp.ndarray or dtype == "object" or self.adapter.dtype_name(out[2]) != dtype:
            return None

        def written(out: Array, lhs: Array, rhs: Array = None, *others: Array) -> Array:
            if not out.flags.writeable:
                self.check(out, ())
            if rhs is None:
                out[...] = run(lhs)
            else:
                out[...] = run(lhs, rhs, *others) if others else run(lhs, rhs)
            return out

        return written


class NumpyArithmetic(Arithmetic):
    """Arithmetic without warnings, in the memory of new arrays."""

    def plus(self, lhs: Array, rhs: Array) -> Array:
        with self.adapter.mode(lhs):
            return self.adapter.boxed(self.xp.add(lhs, rhs, out=lhs if lhs.ndim else None), lhs.dtype.name)

    def scaled_new(self, array: Array, factor: Any, dtype: str) -> Array:
        if dtype == "object" or not isinstance(array, self.xp.ndarray) or not array.flags.writeable:
            return self.scaled(array, factor, dtype)
        with self.adapter.mode(array):
            self.adapter.kernels.update(array, factor, array, 0, dtype)
        return array

    def scaled(self, array: Array, factor: Any, dtype: str) -> Array:
        with self.adapter.mode(array):
            return super().scaled(array, factor, dtype)

    def combined(self, alpha: Any, result: Array, beta: Any, values: Array, dtype: str) -> Array:
        if dtype == "object":
            return super().combined(alpha, result, beta, values, dtype)
        target = self.adapter.dtype(dtype)
        total = self.xp.empty(result.shape, target) if beta == 0 else values.astype(target)
        self.adapter.out.update(alpha, result, beta, total, dtype)
        return total


class NumpyNames(Semirings):
    """The functions of semirings by NumPy's names."""

    names = MappingProxyType({"concat": "concatenate"})

    def mode(self, array: Array) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.adapter.mode(array)
        return context
