"""Writes ops as calls of the array API standard, for the library of the first operand."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from einsumx.adapters.dialect import Spelling, Value, numbers, summed
from einsumx.dtypes import kind
from einsumx.ir.ops import Matmul

__all__ = ["ArrayApiSpelling"]


class ArrayApiSpelling(Spelling):
    """The functions of the first operand's namespace."""

    def __init__(self) -> None:
        super().__init__("")

    @property
    def imports(self) -> tuple[str, ...]:
        return ()

    def opening(self, operand: str) -> tuple[str, ...]:
        return (f"{self.name} = {operand}.__array_namespace__()",)

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return self._copied(self._permuted(array, axes))

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        rank = len(array.shape)
        axes = (*(axis for axis in range(rank) if axis not in (axis1, axis2)), axis1, axis2)
        *outer, size, _ = (array.shape[axis] for axis in axes)
        moved = array.text if axes == tuple(range(rank)) else self._permuted(array, axes)
        # After merging both axes, the diagonal is every (size + 1)-th element.
        flat = f"{self.name}.reshape({moved}, {numbers((prod(outer), size * size))})[:, ::{size + 1}]"
        return self._copied(f"{self.name}.reshape({flat}, {numbers((*outer, size))})")

    def copy(self, array: Value) -> str:
        return self._copied(array.text)

    def cast(self, array: Value, dtype: str) -> str:
        text = array.text
        if kind(array.dtype) == "c" and kind(dtype) != "c":  # astype would refuse
            if dtype == "bool":
                return f"({text} != 0)"
            text = f"{self.name}.real({text})"
        return f"{self.name}.astype({text}, {self.dtype(dtype)})"

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        rank = len(array.shape)
        if kind(array.dtype) == "b":
            return f"{self.name}.any({', '.join(filter(None, (array.text, summed(axes, rank))))})"
        return f"{self.name}.sum({array.text}, {summed(axes, rank, f'dtype={self.dtype(array.dtype)}')})"

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        like = arrays[0].text
        return f"{self.name}.zeros({numbers(shape)}, dtype={self.dtype(dtype)}, device={like}.device)"

    def multiply(self, lhs: Value, rhs: Value) -> str:
        function = "logical_and" if kind(lhs.dtype) == "b" else "multiply"
        return f"{self.name}.{function}({lhs.text}, {rhs.text})"

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        left, right = (
            f"{self.name}.matrix_transpose({side.text})" if is_transposed else side.text
            for side, is_transposed in ((lhs, op.transpose_lhs), (rhs, op.transpose_rhs))
        )
        return f"{self.name}.matmul({left}, {right})"

    def _permuted(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{self.name}.permute_dims({array.text}, {numbers(axes)})"

    def _copied(self, text: str) -> str:
        return f"{self.name}.asarray({text}, copy=True)"
