"""Writes ops as calls of PyTorch, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.dialect import Spelling, Value, listed, numbers
from einsumx.backends.torch.choices import SIGNED
from einsumx.dtypes import kind, wrapped
from einsumx.ir.ops import Matmul

__all__ = ["TorchSpelling"]


class TorchSpelling(Spelling):
    """PyTorch's calls; ``torch.matmul`` chooses the kernels."""

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
        if array.dtype in SIGNED:  # torch cannot sum these; the signed sum has the same bits
            signed = self.dtype(SIGNED[array.dtype])
            arguments = ", ".join((*dims, f"dtype={signed}"))
            return f"{array.text}.view({signed}).sum({arguments}).view({self.dtype(array.dtype)})"
        own = [f"dtype={self.dtype(array.dtype)}"] if kind(array.dtype) in "iu" else []
        return f"{array.text}.sum({', '.join((*dims, *own))})"

    def scale(self, array: Value, count: int) -> str:
        text = array.text
        match kind(array.dtype):
            case "c":  # separate parts, because an infinity times a complex number contains nan
                parts = f"{self.name}.view_as_real({text}.resolve_conj())"
                return f"{self.name}.view_as_complex({self.name}.mul({parts}, {float(count)!r}))"
            case "f":
                return f"{self.name}.mul({text}, {float(count)!r})"
        if array.dtype not in SIGNED:
            return f"{self.name}.mul({text}, {wrapped(count, array.dtype):d})"
        signed = SIGNED[array.dtype]
        product = f"{self.name}.mul({text}.view({self.dtype(signed)}), {wrapped(count, signed):d})"
        return f"{product}.view({self.dtype(array.dtype)})"

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        text = f"{arrays[0].text}.new_zeros({numbers(shape)}, dtype={self.dtype(dtype)})"
        if kind(dtype) not in "fc":
            return text
        # A product of empty sums, which records derivatives of zero for each operand.
        parts = ", ".join(f"{array.text}[None][:0].sum()" for array in arrays)
        tail = "," if len(arrays) == 1 else ""
        product = f"{self.name}.prod({self.name}.stack(({parts}{tail})), dtype={self.dtype(dtype)})"
        return f"{self.name}.add({text}, {product})"

    def _any(self, array: Value, axes: tuple[int, ...]) -> str:
        """One axis after the other, from the last: older versions of torch accept one at a time."""
        if len(axes) == len(array.shape):
            return f"{array.text}.any()"
        return array.text + "".join(f".any({axis:d})" for axis in sorted(axes, reverse=True))

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return f"{self.name}.mul({lhs.text}, {rhs.text})"

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        if op.sums:
            wide = self.dtype(op.sums)
            return f"{self.name}.matmul({lhs.text}.to({wide}), {rhs.text}.to({wide}))"
        return f"{self.name}.matmul({lhs.text}, {rhs.text})"

    def reduced(self, name: str, array: str, axes: str) -> str:
        functions = {"maximum": "amax", "minimum": "amin", "logaddexp": "logsumexp"}
        return f"{self.name}.{functions[name]}({array}, dim={axes})"

    def concatenated(self, arrays: str, axis: int) -> str:
        return f"{self.name}.cat({arrays}, dim={axis})"

    def constant(self, value: str, dtype: str) -> str:
        return value
