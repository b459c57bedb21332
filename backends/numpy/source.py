"""Writes ops as calls of NumPy, and of CuPy and JAX, whose arrays have the same methods."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.dialect import Spelling, Value, listed, numbers, summed
from einsumx.dtypes import itemsize, kind, wrapped
from einsumx.ir.ops import Matmul, Multiply, Native, Op, Sum
from einsumx.ir.parse import symbol

__all__ = ["CupySpelling", "JaxSpelling", "NumpySpelling"]


class _MethodSpelling(Spelling):
    """Calls of the methods of arrays."""

    def dtype(self, name: str) -> str:
        return name if name in ("bool", "object") else super().dtype(name)

    def transpose(self, array: Value, axes: tuple[int, ...]) -> str:
        return f"{array.text}.T" if axes == (1, 0) else f"{array.text}.transpose({listed(axes)})"

    def reshape(self, array: Value, shape: tuple[int, ...]) -> str:
        return f"{array.text}.reshape({listed(shape)})"

    def diagonal(self, array: Value, axis1: int, axis2: int) -> str:
        axes = "" if len(array.shape) == 2 else f"axis1={axis1:d}, axis2={axis2:d}"
        return f"{array.text}.diagonal({axes})"

    def copy(self, array: Value) -> str:
        return f"{array.text}.copy()"

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        rank = len(array.shape)
        if kind(array.dtype) == "b":
            return f"{array.text}.any({summed(axes, rank)})"
        own = [f"dtype={self.dtype(array.dtype)}"] if kind(array.dtype) in "iu" else []
        return f"{array.text}.sum({summed(axes, rank, *own)})"

    def scale(self, array: Value, count: int) -> str:
        text, np = array.text, self.name
        match kind(array.dtype):
            case "O":
                repeated = f"{np}.broadcast_to({text}, {numbers((count, *array.shape))})"
                return f"{np}.asarray({np}.add.reduce({repeated}), dtype=object)"
            case "c":  # separate parts, because an infinity times a complex number contains nan
                own, real = self.dtype(array.dtype), self.dtype(f"float{4 * itemsize(array.dtype)}")
                parts = f"{np}.asarray({text}, {own})[..., None].view({real})"
                return f"({parts} * {real}({count:d})).view({own})[..., 0]"
            case "i" | "u":
                count = wrapped(count, array.dtype)
        return f"{np}.multiply({text}, {self.dtype(array.dtype)}({count:d}))"

    def reduced(self, name: str, array: str, axes: str) -> str:
        if name == "logaddexp":
            return f"logsumexp({array}, axis={axes})"
        return f"{self.name}.{'max' if name == 'maximum' else 'min'}({array}, axis={axes})"

    def logsumexp(self) -> list[str]:
        np = self.name
        body = [
            f"shift = {np}.max(x, axis=axis, keepdims=True)",
            f"shift = {np}.where({np}.isfinite(shift), shift, {np}.zeros_like(shift))",
            f"total = {np}.sum({np}.exp(x - shift), axis=axis)",
            *self._logarithm(f"{np}.squeeze(shift, axis=axis)"),
        ]
        return _function("logsumexp(x, axis)", "log(sum(exp(x))), from the differences to maxima.", self.silently(body))

    def _logarithm(self, shift: str) -> list[str]:
        return [f"return {self.name}.log(total) + {shift}"]


def _function(head: str, about: str, body: Sequence[str]) -> list[str]:
    return [f"def {head}:", f'    """{about}"""', *(f"    {line}" for line in body), "", ""]


class NumpySpelling(_MethodSpelling):
    """NumPy's calls, without einsumx's threads and integer products."""

    def dtype(self, name: str) -> str:
        platforms = {
            "float128": "longdouble",
            "complex256": "clongdouble",
        }  # portable names
        return super().dtype(platforms.get(name, name))

    def silently(self, lines: Sequence[str]) -> list[str]:
        return [f'with {self.name}.errstate(all="ignore"):', *(f"    {line}" for line in lines)]

    def diagonal_view(self, array: Value, axis1: int, axis2: int) -> str:
        # Views of numpy.einsum are writeable, those of numpy.diagonal are not.
        labels = [symbol(axis) for axis in range(len(array.shape))]
        labels[axis2] = labels[axis1]
        kept = [label for axis, label in enumerate(labels) if axis not in (axis1, axis2)]
        return f'{self.name}.einsum("{"".join(labels)}->{"".join(kept)}{labels[axis1]}", {array.text})'

    def sum(self, array: Value, axes: tuple[int, ...]) -> str:
        return self._array(super().sum(array, axes), array, len(axes) == len(array.shape))

    def first(self, array: Value, axes: tuple[int, ...]) -> str:
        text = super().first(array, axes)
        return f"{text[:-1]}, ...]" if array.dtype == "object" else text  # an array instead of a bare object

    def multiply(self, lhs: Value, rhs: Value) -> str:
        return self._array(super().multiply(lhs, rhs), lhs, not (lhs.shape or rhs.shape))

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        if op.sums:
            return f"{self.name}.matmul({lhs.text}, {rhs.text}, dtype={self.dtype(op.sums)})"
        return self._array(super().matmul(lhs, rhs, op), lhs, len(lhs.shape) == len(rhs.shape) == 1)

    def element(self, array: Value, made_by: Op) -> str:
        is_scalar = isinstance(made_by, Sum | Multiply | Matmul | Native) and array.dtype != "object"
        return array.text if is_scalar else f"{array.text}[()]"

    def _array(self, text: str, like: Value, is_element: bool) -> str:
        """A call whose result is an array of objects, if it would otherwise be a bare object."""
        return f"{self.name}.asarray({text}, dtype=object)" if is_element and like.dtype == "object" else text


class CupySpelling(_MethodSpelling):
    """CuPy's calls."""


class JaxSpelling(_MethodSpelling):
    """The calls of ``jax.numpy``."""

    fuses = True

    def _logarithm(self, shift: str) -> list[str]:
        np = self.name
        return [
            "possible = total != 0  # the derivative of the logarithm at 0 would be nan",
            f"total = {np}.where(possible, total, {np}.ones_like(total))",
            f"return {np}.where(possible, {np}.log(total) + {shift}, -{np}.inf)",
        ]

    def matmul(self, lhs: Value, rhs: Value, op: Matmul) -> str:
        left, right = (
            f"{side.text}.swapaxes(-1, -2)" if is_transposed else side.text
            for side, is_transposed in ((lhs, op.transpose_lhs), (rhs, op.transpose_rhs))
        )
        if lhs.dtype not in ("float16", "bfloat16"):
            return f"{self.name}.matmul({left}, {right})"
        wide = f"preferred_element_type={self.dtype('float32')}"
        return f"{self.name}.matmul({left}, {right}, {wide}).astype({self.dtype(lhs.dtype)})"

    def native(self, equation: str, arrays: Sequence[Value]) -> str:
        text, (dtype,) = super().native(equation, arrays), {array.dtype for array in arrays}
        if dtype not in ("float16", "bfloat16"):
            return text
        return f"{text[:-1]}, preferred_element_type={self.dtype('float32')}).astype({self.dtype(dtype)})"

    def zeros(self, arrays: Sequence[Value], shape: tuple[int, ...], dtype: str) -> str:
        # This reads no element of the operand, but puts the compiled program on the operand's device.
        read = f"{self.name}.any({arrays[0].text}[None][:0])"
        return f"{self.name}.broadcast_to({read}.astype({self.dtype(dtype)}), {numbers(shape)})"
