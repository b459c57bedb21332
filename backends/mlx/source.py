"""Writes ops as calls of MLX, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.dialect import Spelling, Value, listed, numbers, summed
from einsumx.dtypes import kind, wrapped
from einsumx.ir.ops import Matmul

__all__ = ["MlxSpelling"]


class MlxSpelling(Spelling):
    """MLX's calls; ``mx.matmul`` reads operands as they are, and products of integers are sums."""

    def dtype(self, name: str) -> str:
        return super().dtype("bool_" if name == "bool" else name)

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{array.text}.T" if axes == (1, 0) else f"{array.text}.transpose({listed(axes)})"

    def reshape(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{array.text}.reshape({numbers(shape)})"

    def copy(self, array: Value) -> str:
        return f"{self.name}.contiguous({array.text})"

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        arguments = summed(axes, len(array.shape))
        if kind(array.dtype) == "b":
            return f"{array.text}.any({arguments})"
        text = f"{array.text}.sum({arguments})"
        return f"{text}.astype({self.dtype(array.dtype)})" if kind(array.dtype) in "iu" else text

    def scale(self, array: Value, count: int) -> str:
        own = self.dtype(array.dtype)
        if kind(array.dtype) == "c":  # separate parts, because an infinity times a complex number contains nan
            parts = f"{array.text}[..., None].view({self.dtype('float32')})"
            return f"({parts} * {float(count)!r}).view({own})[..., 0]"
        factor = wrapped(count, array.dtype) if kind(array.dtype) in "iu" else float(count)
        return f"{self.name}.multiply({array.text}, {self.name}.array({factor!r}, {own}))"

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        if kind(lhs.dtype) not in "iu":
            return super().matmul(lhs, rhs, op)
        left = f"{lhs.text}[..., None]" if len(rhs.shape) > 1 else lhs.text
        right = f"{rhs.text}[..., None, :, :]" if len(lhs.shape) > 1 and len(rhs.shape) > 1 else rhs.text
        axis = -1 if len(rhs.shape) == 1 else -2
        return f"{self.name}.multiply({left}, {right}).sum({axis}).astype({self.dtype(lhs.dtype)})"

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        return f"{self.name}.zeros({numbers(shape)}, dtype={self.dtype(dtype)})"
