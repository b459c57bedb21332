"""The functions of Paddle that run the ops of a plan.

This module imports Paddle; the adapter imports it when it prepares the first op.

Paddle's copies of views take ten times as long as NumPy's: they compute the place of each element by divisions. Its
products of integers are computed in float32. So NumPy, which shares the memory of tensors on the CPU, copies views and
multiplies integers, unless autograd has to record the copy. The method ``contiguous`` is used only on views made here,
because it moves its own tensor to the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from typing import Any, TypeAlias

from einsumx.adapters.typing import Array
from einsumx.backends.numpy import integers
from einsumx.backends.numpy import kernels as numpy_kernels
from einsumx.backends.paddle.choices import INTEGERS, WIDER, is_number, turned_shape
from einsumx.dtypes import kind
from einsumx.errors import BackendError
from einsumx.ir.ops import Matmul

Kernel: TypeAlias = Callable[..., Array]
Shape: TypeAlias = tuple[int, ...]

np: Any = import_module("numpy")
paddle: Any = import_module("paddle")
_ops: Any = paddle._C_ops
_Tensor: Any = paddle.Tensor
_is_grad_enabled: Callable[[], bool] = paddle.is_grad_enabled
_HOST: Any = paddle.CPUPlace()

_SMALL = 1 << 12
"""The most elements of a copy that Paddle makes in the time of the calls that share memory with NumPy."""


def not_dense_error(array: Array) -> BackendError:
    """The error for a tensor whose elements are not in one block of memory."""
    if array.is_dist():
        return BackendError(
            "einsum takes dense tensors, not distributed ones; paddle.distributed.unshard_dtensor(x) makes one"
        )
    if array.is_sparse():
        return BackendError(
            "einsum takes dense tensors, not sparse ones; x.to_dense() makes one, with memory for all its zeros"
        )
    return BackendError("einsum takes dense tensors, not selected rows or tensors without memory; pass a dense tensor")


def _memory(array: Array) -> Any:
    """The memory of a tensor on the CPU that asks for no gradient, as a NumPy array; bfloat16 as integers."""
    return np.from_dlpack(_ops.view_dtype(array, paddle.int16) if array.dtype == paddle.bfloat16 else array)


def _is_recorded(array: Array) -> bool:
    return not array.stop_gradient and _is_grad_enabled()


class GraphKernels:
    """Kernels for the values of a static graph, in which nothing is a view."""

    def copied(self, array: Array) -> Array:
        """A C-contiguous copy."""
        return _ops.assign(array)

    def _copied_view(self, view: Array) -> Array:
        """A C-contiguous copy of a view that only the caller has."""
        return view

    def _packed(self, array: Array) -> Array:
        """A tensor as Paddle's kernels read it."""
        return array

    def transpose(self, axes: tuple[int, ...]) -> Kernel:
        """The kernel of a transpose that copies."""
        order = list(axes)
        return lambda array: self._copied_view(_ops.transpose(array, order))

    def reshape(self, shape: Shape) -> Kernel:
        """The kernel of a reshape of a tensor whose elements are in C order."""
        sizes = list(shape)
        if not all(map(is_number, sizes)):
            return lambda array: paddle.reshape(array, sizes)
        return lambda array: _ops.reshape(self._packed(array), sizes)

    def diagonal(self, axis1: int, axis2: int, dtype: str) -> Kernel:
        """The kernel of a diagonal, by ops whose gradients Paddle differentiates again."""
        if dtype == "bfloat16":  # concat has no gradient in it
            own, wide = paddle.bfloat16, GraphKernels.diagonal(self, axis1, axis2, "float32")
            return lambda array: _ops.cast(wide(self.cast(array, paddle.float32)), own)

        def run(array: Array) -> Array:
            if not all(map(is_number, array.shape)):
                return _ops.diagonal(array, 0, axis1, axis2)
            kept = [axis for axis in range(len(array.shape)) if axis not in (axis1, axis2)]
            array = self._copied_view(_ops.transpose(array, [*kept, axis1, axis2]))
            *outer, size, _ = array.shape
            flat = _ops.reshape(array, [*outer, size * size])
            if size == 1:
                return flat
            # Rows of size + 1 elements start with the elements of the diagonal, except for the last one.
            rows = _ops.reshape(flat[..., :-1], [*outer, size - 1, size + 1])
            return _ops.concat([rows[..., 0], flat[..., -1:]], -1)

        return run

    def size(self, array: Array, axis: int) -> Array:
        """The size of an axis, as a value of the graph."""
        return paddle.shape(array)[axis]

    def with_size(self, array: Array, axis: int, size: Any) -> Array:
        """``array``, with a recorded check that an axis has this size."""
        paddle.static.nn.control_flow.Assert(paddle.equal(self.size(array, axis), size))
        return array

    def cast(self, array: Array, dtype: Any) -> Array:
        """A cast to one of Paddle's dtypes."""
        return _ops.cast(self._packed(array), dtype)

    def total(self, axes: tuple[int, ...], dtype: str) -> Kernel:
        """The kernel of a sum in the tensor's own dtype; bools are or-ed."""
        dims, own = list(axes), getattr(paddle, dtype)
        if dtype == "bool":
            return lambda array: _ops.any(self._packed(array), dims, False)
        return lambda array: _ops.sum(self._packed(array), dims, own, False)

    def multiply(self, dtype: str) -> Kernel:
        """The kernel of the elementwise product; bools are and-ed."""
        if dtype == "bool":
            return lambda lhs, rhs: _ops.logical_and(self._packed(lhs), self._packed(rhs))
        if dtype in WIDER:
            own, wide = getattr(paddle, dtype), getattr(paddle, WIDER[dtype])
            return lambda lhs, rhs: _ops.cast(_ops.multiply(self.cast(lhs, wide), self.cast(rhs, wide)), own)
        return lambda lhs, rhs: _ops.multiply(self._packed(lhs), self._packed(rhs))

    def product(self, op: Matmul, shapes: Sequence[Shape], dtype: str) -> Kernel:
        """The kernel of a matrix product."""
        transpose_lhs, transpose_rhs = op.transpose_lhs, op.transpose_rhs
        return lambda lhs, rhs: _ops.matmul(lhs, rhs, transpose_lhs, transpose_rhs)

    def zeros(self, *arrays: Array, shape: Shape, dtype: str) -> Array:
        """Zeros on the device of ``arrays``; with gradients of zero for those that are recorded."""
        result = self._zeros(arrays[0], list(shape), getattr(paddle, dtype))
        recorded = [array for array in arrays if _is_recorded(array)]
        if not recorded or kind(dtype) not in "fc":
            return result
        sums = [_ops.cast(_ops.reshape(array, [-1])[:0].sum(), result.dtype) for array in recorded]
        return result + reduce(_ops.multiply, sums)

    def _zeros(self, like: Array, shape: list[int], dtype: Any) -> Array:
        return paddle.zeros(shape, dtype)


class EagerKernels(GraphKernels):
    """Kernels for tensors, which may be views."""

    # -- memory -----------------------------------------------------------------------------------------

    def shared(self, array: Any) -> Array:
        """A tensor in the memory of a NumPy array with elements."""
        return _Tensor(value=array, place=_HOST, zero_copy=True)

    def _restored(self, memory: Any, dtype: Any) -> Array:
        result = self.shared(memory)
        return _ops.view_dtype(result, dtype) if dtype == paddle.bfloat16 else result

    def may_share(self, first: Array, second: Array) -> bool:
        """Whether two tensors may share memory."""
        if not (first.place.is_cpu_place() and second.place.is_cpu_place()):
            return True
        return bool(np.may_share_memory(_memory(first.detach()), _memory(second.detach())))

    # -- ops of plans -----------------------------------------------------------------------------------

    def _copied_view(self, view: Array) -> Array:
        if view.is_contiguous():
            return _ops.assign(view)
        if view.size <= _SMALL or _is_recorded(view) or not view.place.is_cpu_place():
            return view.contiguous()
        memory = _memory(view.detach())
        return self._restored(numpy_kernels.copy(memory.shape, memory.dtype.name)(memory), view.dtype)

    def copied(self, array: Array) -> Array:
        if array.is_contiguous() or _is_recorded(array):
            return _ops.assign(array)
        return self._copied_view(array.detach())

    def _packed(self, array: Array) -> Array:
        # Paddle's kernels read views too, after a slow copy.
        return array if array.is_contiguous() else self.copied(array)

    def diagonal(self, axis1: int, axis2: int, dtype: str) -> Kernel:
        recorded = super().diagonal(axis1, axis2, dtype)

        def run(array: Array) -> Array:
            if _is_recorded(array):
                return recorded(array)
            return self._copied_view(_ops.diagonal(array, 0, axis1, axis2))

        return run

    def product(self, op: Matmul, shapes: Sequence[Shape], dtype: str) -> Kernel:
        transpose_lhs, transpose_rhs = op.transpose_lhs, op.transpose_rhs
        if dtype in INTEGERS:
            return self._integer_product(op, shapes, dtype)

        def run(lhs: Array, rhs: Array) -> Array:
            if lhs.is_contiguous() and rhs.is_contiguous():
                return _ops.matmul(lhs, rhs, transpose_lhs, transpose_rhs)
            (lhs, turned_lhs), (rhs, turned_rhs) = self._turned(lhs), self._turned(rhs)
            return _ops.matmul(lhs, rhs, transpose_lhs != turned_lhs, transpose_rhs != turned_rhs)

        return run

    def _turned(self, array: Array) -> tuple[Array, bool]:
        """A contiguous tensor, and whether its matrices are transposed."""
        if array.is_contiguous():
            return array, False
        rank = array.ndim
        matrix = _ops.transpose(array, [*range(rank - 2), rank - 1, rank - 2])
        return (matrix, True) if matrix.is_contiguous() else (self.copied(array), False)

    def _integer_product(self, op: Matmul, shapes: Sequence[Shape], dtype: str) -> Kernel:
        """The product of integers on the CPU."""
        flags = op.transpose_lhs, op.transpose_rhs
        product = integers.matmul([turned_shape(shape, flag) for shape, flag in zip(shapes, flags)], dtype)

        def run(*sides: Array) -> Array:
            lhs, rhs = (memory.swapaxes(-1, -2) if flag else memory for memory, flag in zip(map(_memory, sides), flags))
            return self.shared(product(lhs, rhs))

        return run

    def _zeros(self, like: Array, shape: list[int], dtype: Any) -> Array:
        return _ops.full(shape, 0, dtype, like.place)

    # -- blocks -----------------------------------------------------------------------------------------

    def empty(self, shape: Shape, dtype: Any, device: str) -> Array:
        """An uninitialized tensor."""
        place = paddle.framework._get_paddle_place(device) if device else paddle.framework._current_expected_place()
        return _ops.empty(list(shape), dtype, place)

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        """A block of a tensor that asks for no gradient: in its memory if its elements are adjacent, or a copy."""
        if not box or 0 in array.shape or not array.place.is_cpu_place():
            return self._packed(array[box]) if box else array
        memory = _memory(array)[box]  # Paddle slices six axes at most
        if not memory.size:
            return self.empty(memory.shape, array.dtype, "cpu")
        return self._restored(np.ascontiguousarray(memory), array.dtype)

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        """``out`` with a block of its dtype written into it."""
        if 0 in block.shape:
            return out
        if not out.place.is_cpu_place():
            out[box] = block
            return out
        index = (*box, ...)  # the ellipsis makes it an array even without axes
        np.copyto(_memory(out)[index], _memory(block.detach()))
        return out

    def added(self, total: Array, part: Array) -> Array:
        """``total + part``, in the memory of ``total`` if Paddle has such a kernel; bools are or-ed."""
        if total.dtype == paddle.bool:
            return _ops.logical_or_(total, part)
        if total.dtype in (paddle.float16, paddle.bfloat16):
            return _ops.cast(_ops.add(_ops.cast(total, paddle.float32), _ops.cast(part, paddle.float32)), total.dtype)
        return _ops.add_(total, part)
