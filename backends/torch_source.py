"""How PyTorch's calls are spelled in code."""

from __future__ import annotations

from einsumx.backends.torch import SIGNED
from einsumx.dtypes import kind
from einsumx.ops import Matmul
from einsumx.spelling import Spelling, Value, listed, numbers

__all__ = ["TorchSpelling"]


class TorchSpelling(Spelling):
    """PyTorch's calls, of which ``torch.matmul`` chooses among the kernels."""

    @property
    def imports(self) -> tuple[str, ...]:
        return ("import torch",)

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{array.text}.T" if axes == (1, 0) else f"{array.text}.permute({listed(axes)})"

    def reshape(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{array.text}.reshape({listed(shape)})"

    def expand(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{array.text}.expand({listed(shape)})"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        axes = "" if len(array.shape) == 2 else f"dim1={axis1:d}, dim2={axis2:d}"
        return f"{array.text}.diagonal({axes})"

    def copy(self, array: Value) -> str:
        return f"{array.text}.clone(memory_format={self.name}.contiguous_format)"

    def cast(self, array: Value, dtype: str) -> str:
        return f"{array.text}.to({self.dtype(dtype)})"

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        dims = [f"dim={numbers(axes)}"] if len(axes) < len(array.shape) else []
        if kind(array.dtype) == "b":
            return self._any(array, axes)
        if array.dtype in SIGNED:  # for which torch has no sum; the signed one has the same bits
            signed = self.dtype(SIGNED[array.dtype])
            arguments = ", ".join((*dims, f"dtype={signed}"))
            return f"{array.text}.view({signed}).sum({arguments}).view({self.dtype(array.dtype)})"
        own = [f"dtype={self.dtype(array.dtype)}"] if kind(array.dtype) in "iu" else []
        return f"{array.text}.sum({', '.join((*dims, *own))})"

    def _any(self, array: Value, axes: tuple[int, ...]) -> str:
        """One axis after the other, from the last: older versions take no more at once."""
        if len(axes) == len(array.shape):
            return f"{array.text}.any()"
        return array.text + "".join(f".any({axis:d})" for axis in sorted(axes, reverse=True))

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return f"{self.name}.mul({lhs.text}, {rhs.text})"

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        return f"{self.name}.matmul({lhs.text}, {rhs.text})"
