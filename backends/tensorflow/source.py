"""TensorFlow's public functions, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from einsumx.adapters.base import Array
from einsumx.backends.tensorflow.adapter import TensorflowAdapter
from einsumx.backends.tensorflow.choices import grouped, is_wide_broadcast
from einsumx.dtypes import kind

__all__ = ["PublicTensorflow"]


class PublicTensorflow(TensorflowAdapter):
    """Functions of ``tf`` in the place of raw operations."""

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self.xp.transpose(array, axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return self.xp.reshape(array, shape)

    def copy(self, array: Array) -> Array:
        return self.xp.identity(array)

    def cast(self, array: Array, dtype: str) -> Array:
        if array.dtype.kind == "c" and kind(dtype) != "c":
            if dtype == "bool":
                return self.xp.not_equal(array, 0)
            array = self.xp.math.real(array)
        return self.xp.cast(array, dtype)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return (self.xp.reduce_any if array.dtype.kind == "b" else self.xp.reduce_sum)(array, axes)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        product = self.xp.logical_and if lhs.dtype.kind == "b" else self.xp.multiply
        if not is_wide_broadcast(lhs.shape, rhs.shape):
            return product(lhs, rhs)
        groups = grouped(lhs.shape, rhs.shape)
        left, right = (
            self.reshape(self.transpose(self._ranked(side, len(groups.order)), groups.order), shape)
            for side, shape in ((lhs, groups.left), (rhs, groups.right))
        )
        return self.transpose(self.reshape(product(left, right), groups.shape), groups.back)

    def _ranked(self, array: Array, rank: int) -> Array:
        """An array with axes of size 1 in front, so that it has ``rank`` axes."""
        return array if array.ndim == rank else self.reshape(array, ((1,) * (rank - array.ndim)) + array.shape)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        return self.xp.linalg.matmul(lhs, rhs, transpose_a=transpose_lhs, transpose_b=transpose_rhs)
