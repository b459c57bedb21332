"""Paddle's public functions, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.base import Array
from einsumx.backends.paddle.adapter import PaddleAdapter
from einsumx.backends.paddle.choices import INTEGERS, WIDER

__all__ = ["PublicPaddle"]


class PublicPaddle(PaddleAdapter):
    """Functions of ``paddle`` in the place of kernels."""

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self.xp.transpose(array, list(axes)).contiguous()

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return self.xp.reshape(array, list(shape))

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return self.xp.diagonal(array, axis1=axis1, axis2=axis2).contiguous()

    def copy(self, array: Array) -> Array:
        return self.xp.assign(array)

    def cast(self, array: Array, dtype: str) -> Array:
        return array.astype(dtype)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        if array.dtype.kind == "b":
            return self.xp.any(array, axis=axes)
        return array.sum(axis=axes, dtype=array.dtype.name if array.dtype.kind in "iu" else None)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.zeros(list(shape), dtype=dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        name = lhs.dtype.name
        if name not in WIDER:
            return (self.xp.logical_and if name == "bool" else self.xp.multiply)(lhs, rhs)
        left, right = (self.cast(side, WIDER[name]) for side in (lhs, rhs))
        return self.cast(self.xp.multiply(left, right), name)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        if lhs.dtype.name not in INTEGERS:
            return self.xp.matmul(lhs, rhs, transpose_x=transpose_lhs, transpose_y=transpose_rhs)
        # Paddle's product of integers computes in float32, or has no kernel; NumPy's does not.
        sides = [(lhs.numpy(), transpose_lhs), (rhs.numpy(), transpose_rhs)]
        left, right = (side.swapaxes(-1, -2) if is_transposed else side for side, is_transposed in sides)
        return self.xp.to_tensor(left @ right)
