"""Writes ops as calls of Paddle, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.dialect import Spelling, Value, summed
from einsumx.backends.paddle.choices import INTEGERS, WIDER
from einsumx.dtypes import kind
from einsumx.ir.ops import Matmul

__all__ = ["PaddleSpelling"]


class PaddleSpelling(Spelling):
    """Paddle's public functions."""

    @property
    def imports(self) -> tuple[str, ...]:
        return ("import paddle",)

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"paddle.transpose({array.text}, {list(axes)!r}).contiguous()"

    def reshape(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"paddle.reshape({array.text}, {list(shape)!r})"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        axes = "" if len(array.shape) == 2 else f", axis1={axis1:d}, axis2={axis2:d}"
        return f"paddle.diagonal({array.text}{axes}).contiguous()"

    def copy(self, array: Value) -> str:
        return f"paddle.assign({array.text})"

    def cast(self, array: Value, dtype: str) -> str:
        return f'{array.text}.astype("{dtype}")'

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        if kind(array.dtype) == "b":
            arguments = summed(axes, len(array.shape))
            return f"paddle.any({array.text}{', ' if arguments else ''}{arguments})"
        own = [f'dtype="{array.dtype}"'] if kind(array.dtype) in "iu" else []
        return f"{array.text}.sum({summed(axes, len(array.shape), *own)})"

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        return f'paddle.zeros({list(shape)!r}, dtype="{dtype}")'

    def multiply(self, lhs: Value, rhs: Value) -> str:
        if kind(lhs.dtype) == "b":
            return f"paddle.logical_and({lhs.text}, {rhs.text})"
        if lhs.dtype not in WIDER:
            return f"paddle.multiply({lhs.text}, {rhs.text})"
        left, right = (self.cast(side, WIDER[lhs.dtype]) for side in (lhs, rhs))
        return f'paddle.multiply({left}, {right}).astype("{lhs.dtype}")'

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        if lhs.dtype in INTEGERS:  # Paddle's product computes in float32, or has no kernel
            sides = ((lhs, op.transpose_lhs), (rhs, op.transpose_rhs))
            left, right = (f"{side.text}.numpy(){'.swapaxes(-1, -2)' if flag else ''}" for side, flag in sides)
            return f"paddle.to_tensor({left} @ {right})"
        flags = [name for name, is_set in (("x", op.transpose_lhs), ("y", op.transpose_rhs)) if is_set]
        transposed = "".join(f", transpose_{name}=True" for name in flags)
        return f"paddle.matmul({lhs.text}, {rhs.text}{transposed})"
