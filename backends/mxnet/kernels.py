"""Functions that run the ops of a plan, with MXNet's operators chosen from shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from einsumx.adapters.typing import Array, Run
from einsumx.backends.mxnet.arrays import MxnetArrays
from einsumx.backends.mxnet.choices import Shape, pays_as_layer, pays_by_matmul
from einsumx.ir.ops import Matmul

__all__ = ["MxnetKernels", "through_int8"]


def through_int8(rearrange: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """``rearrange`` for bools, which MXNet's transposes and diagonals do not accept."""
    return lambda array: rearrange(array.astype("int8")).astype("bool")


class MxnetKernels:
    """MxnetKernels for ``mx.np`` arrays."""

    def __init__(self, arrays: MxnetArrays) -> None:
        self._arrays, self._calls = arrays, arrays.calls

    def transpose(self, axes: tuple[int, ...], dtype: str) -> Run:
        """The kernel of a transpose."""
        if dtype == "bool":
            return through_int8(self.transpose(axes, "int8"))
        swaps = [self._calls.swapaxes(*pair) for pair in self._arrays.swaps(axes)]
        if not swaps:
            return self._calls.transpose(axes)
        if len(swaps) == 1:
            return swaps[0]

        def swapped(array: Array) -> Array:
            for swap in swaps:
                array = swap(array)
            return array

        return swapped

    def diagonal(self, axis1: int, axis2: int, dtype: str) -> Run:
        """The kernel of a diagonal."""
        diagonal = self._calls.diagonal(axis1, axis2)
        return through_int8(diagonal) if dtype == "bool" else diagonal

    def matmul(self, op: Matmul, shapes: Sequence[Shape], dtype: str) -> Run:
        """The kernel of a product with one batch axis."""
        if op.inner_batch:
            return self._strided_matmul(op, shapes)
        is_single = dtype == "float32" and shapes[0][0] == 1
        if is_single and self._calls.mxnet_1 and pays_as_layer(op, *shapes):
            return self._layer(op, shapes[1])
        return self._calls.batch_dot(op.transpose_lhs, op.transpose_rhs)

    def _strided_matmul(self, op: Matmul, shapes: Sequence[Shape]) -> Run:
        """Products of matrices whose rows are not adjacent, by the matmul of MXNet's linear algebra."""
        gemm = self._calls.gemm(op.transpose_lhs, op.transpose_rhs)
        # The gradient of gemm overwrites where it should add; that of a view adds.
        view_lhs, view_rhs = map(self._calls.view, shapes)
        return lambda lhs, rhs: gemm(view_lhs(lhs), view_rhs(rhs))

    def _layer(self, op: Matmul, rhs: Shape) -> Run:
        """A single product as the layer ``x @ weights.T``, for which MXNet 1 calls oneDNN; batch_dot calls its BLAS."""
        transpose_lhs, transpose_rhs = op.transpose_lhs, op.transpose_rhs
        weights = rhs[1:] if transpose_rhs else rhs[:0:-1]
        calls = self._calls
        layer, view, transpose = calls.layer(weights[0]), calls.view(weights), calls.transpose((0, 2, 1))

        def product(lhs: Array, rhs: Array) -> Array:
            lhs = transpose(lhs) if transpose_lhs else lhs
            rhs = rhs if transpose_rhs else transpose(rhs)
            return layer(lhs, view(rhs))

        return product

    def total(self, shape: Shape, axes: tuple[int, ...], dtype: str) -> Run:
        """The kernel of a sum in the array's own dtype; bools are or-ed."""
        if dtype == "bool":
            return lambda array: self._arrays.xp.any(array, axis=axes)
        if pays_by_matmul(shape, axes, dtype):
            return self._total_by_matmul(shape, axes, dtype)
        return self._calls.sum(axes)

    def _total_by_matmul(self, shape: Shape, axes: tuple[int, ...], dtype: str) -> Run:
        """The sum over the middle axis of ``[outer, count, inner]`` as products with ones, often ten times as fast."""
        outer, inner = prod(shape[: axes[0]]), prod(shape[axes[-1] + 1 :])
        count = prod(shape[axis] for axis in axes)
        kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        by_rows = inner == 1  # one product of a matrix and a vector instead of many short rows
        matrices = (1, outer, count) if by_rows else (outer, count, inner)
        arrays, calls = self._arrays, self._calls
        stack, product, result = calls.view(matrices), calls.batch_dot(False, by_rows), calls.view(kept)

        def total(array: Array) -> Array:
            context = arrays.context(arrays.device(array))
            ones = arrays.xp.ones((matrices[0], 1, count), dtype=dtype, ctx=context)
            return result(product(ones, stack(array)))

        return total
