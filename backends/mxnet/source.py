"""Writes ops as calls of MXNet, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einsumx.adapters.dialect import Spelling, Value, listed, numbers, summed
from einsumx.dtypes import kind
from einsumx.ir.ops import Matmul

__all__ = ["MxnetSpelling"]

Axes = tuple[int, ...]


class MxnetSpelling(Spelling):
    """The calls of ``mx.np`` and ``mx.npx``.

    Args:
        swaps: the swaps of two axes to use instead of a transpose, if they are faster.
    """

    def __init__(self, swaps: Callable[[Axes], Sequence[tuple[int, int]]]) -> None:
        super().__init__("mxnet", "mx")
        self._swaps = swaps

    def decorators(self, shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
        # Shapes without axes and sizes of 0 need "np shape" semantics, which are off by default in most threads.
        return () if all(shape and 0 not in shape for shape in shapes) else ("@mx.util.use_np_shape",)

    def transpose(self, array: Value, axes: Axes) -> str:
        swaps = "".join(f".swapaxes({first:d}, {second:d})" for first, second in self._swaps(axes))
        return self._through_int8(array, swaps or f".transpose({listed(axes)})")

    def reshape(self, array: Value, shape: Axes) -> str:
        call = "reshape_view" if shape else "reshape"
        return f"{array.text}.{call}({listed(shape)})"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        axes = "" if len(array.shape) == 2 else f", axis1={axis1:d}, axis2={axis2:d}"
        if kind(array.dtype) == "b":
            return f'mx.np.diagonal({array.text}.astype("int8"){axes}).astype("bool")'
        return f"mx.np.diagonal({array.text}{axes})"

    def copy(self, array: Value) -> str:
        return f"{array.text}.copy()"

    def cast(self, array: Value, dtype: str) -> str:
        return f'{array.text}.astype("{dtype}")'

    def sum(self, array: Value, axes: Axes) -> str:
        rank = len(array.shape)
        if kind(array.dtype) == "b":
            return f"mx.np.any({', '.join(filter(None, (array.text, summed(axes, rank))))})"
        return f"{array.text}.sum({summed(axes, rank)})"

    def zeros(self, arrays: Sequence[Value], shape: Axes, dtype: str) -> str:
        return f'mx.np.zeros({numbers(shape)}, dtype="{dtype}", ctx={arrays[0].text}.ctx)'

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return f"mx.np.multiply({lhs.text}, {rhs.text})"

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        flags = [name for name, is_set in (("a", op.transpose_lhs), ("b", op.transpose_rhs)) if is_set]
        transposed = "".join(f", transpose_{name}=True" for name in flags)
        if not op.inner_batch:
            return f"mx.npx.batch_dot({lhs.text}, {rhs.text}{transposed})"
        left, right = (f"{side.text}.as_nd_ndarray()" for side in (lhs, rhs))
        return f"mx.nd.linalg.gemm2({left}, {right}{transposed}, axis=1).as_np_ndarray()"

    def native(self, equation: str, arrays: Sequence[Value]) -> str:
        return f'mx.np.einsum("{equation}", {", ".join(array.text for array in arrays)})'

    def _through_int8(self, array: Value, calls: str) -> str:
        """Method calls that MXNet does not have for bools."""
        return f'{array.text}.astype("int8"){calls}.astype("bool")' if kind(array.dtype) == "b" else array.text + calls
