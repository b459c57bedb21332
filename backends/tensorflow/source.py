"""Writes ops as calls of TensorFlow, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.dialect import Spelling, Value, numbers
from einsumx.backends.tensorflow.choices import grouped, is_wide_broadcast
from einsumx.dtypes import kind
from einsumx.ir.ops import Matmul

__all__ = ["TensorflowSpelling"]


class TensorflowSpelling(Spelling):
    """TensorFlow's calls."""

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{self.name}.transpose({array.text}{'' if axes == (1, 0) else f', {numbers(axes)}'})"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        rank = len(array.shape)
        axes = (*(axis for axis in range(rank) if axis not in (axis1, axis2)), axis1, axis2)
        moved = array.text if axes == tuple(range(rank)) else self.transpose(array, axes)
        return f"{self.name}.linalg.diag_part({moved})"

    def copy(self, array: Value) -> str:
        return f"{self.name}.identity({array.text})"

    def cast(self, array: Value, dtype: str) -> str:
        text = array.text
        if kind(array.dtype) == "c" and kind(dtype) != "c":
            if dtype == "bool":
                return f"{self.name}.not_equal({text}, 0)"
            text = f"{self.name}.math.real({text})"
        return f"{self.name}.cast({text}, {self.dtype(dtype)})"

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        name = "reduce_any" if kind(array.dtype) == "b" else "reduce_sum"
        where = "" if len(axes) == len(array.shape) else f", {numbers(axes) if len(axes) > 1 else f'{axes[0]:d}'}"
        return f"{self.name}.{name}({array.text}{where})"

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        return f"{self.name}.zeros({numbers(shape)}, {self.dtype(dtype)})"

    def multiply(self, lhs: Value, rhs: Value) -> str:
        if not is_wide_broadcast(lhs.shape, rhs.shape):
            return self._multiplied(lhs.text, rhs.text, lhs.dtype)
        groups = grouped(lhs.shape, rhs.shape)
        left, right = (
            f"{self.name}.reshape({self.transpose(self._ranked(side, groups.order), groups.order)}, {numbers(shape)})"
            for side, shape in ((lhs, groups.left), (rhs, groups.right))
        )
        product = f"{self.name}.reshape({self._multiplied(left, right, lhs.dtype)}, {numbers(groups.shape)})"
        return f"{self.name}.transpose({product}, {numbers(groups.back)})"

    def _multiplied(self, lhs: str, rhs: str, dtype: str) -> str:
        return f"{self.name}.{'logical_and' if kind(dtype) == 'b' else 'multiply'}({lhs}, {rhs})"

    def _ranked(self, array: Value, order: Sequence[int]) -> Value:
        """An array with axes of size 1 in front, so that it has as many axes as ``order``."""
        shape = (*(1,) * (len(order) - len(array.shape)), *array.shape)
        return array if shape == array.shape else Value(self.reshape(array, shape), shape, array.dtype)

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        flags = [name for name, flag in (("transpose_a", op.transpose_lhs), ("transpose_b", op.transpose_rhs)) if flag]
        return f"{self.name}.linalg.matmul({', '.join([lhs.text, rhs.text, *(f'{name}=True' for name in flags)])})"
