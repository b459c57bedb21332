"""The array calls that plans are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einsumx.adapters.arrays import Arrays
from einsumx.adapters.replacement import own
from einsumx.adapters.typing import Array
from einsumx.imports import LazyModule

__all__ = ["Primitives"]

np: Any = LazyModule("numpy")


class Primitives(Arrays):
    """Twelve array calls. Every backend implements ``copy`` and ``sum``; the others have defaults.

    The defaults use names that NumPy and the array API standard share.
    """

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Axis ``k`` of the result is axis ``axes[k]`` of ``array``."""
        return self.xp.transpose(array, axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The same elements in C order; the planner only asks for reshapes that need no copy."""
        return self.xp.reshape(array, shape)

    def expand(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A read-only view with axes of size 1 broadcast to ``shape``; called only if the traits have strides."""
        return self.xp.broadcast_to(array, shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        """The diagonal of two axes, as the last axis."""
        return self.xp.diagonal(array, 0, axis1, axis2)

    def copy(self, array: Array) -> Array:
        """A fresh C-contiguous array."""
        raise NotImplementedError("the backend does not define copy(array)")

    def cast(self, array: Array, dtype: str) -> Array:
        """``array`` in another dtype; a cast to bool gives True for all but zero."""
        return array.astype(self.dtype(dtype))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The sum over ``axes`` in the array's own dtype: integers wrap, bools are or-ed."""
        raise NotImplementedError("the backend does not define sum(array, axes)")

    def scale(self, array: Array, count: int) -> Array:
        """The sum of ``count`` arrays that are equal to ``array``; called only if the traits have strides.

        This sums by doubling. Override it if multiplying by ``count`` gives the same result; for complex numbers,
        multiply the real and imaginary parts separately, because an infinity times a complex count contains nan.
        """
        total = None
        while True:
            if count & 1:
                total = array if total is None else total + array
            count >>= 1
            if not count:
                return total
            array = array + array

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        """Zeros on the device of ``arrays``, with zeros as gradients: the result if a summed label has size 0."""
        array = self.from_numpy(np.zeros(shape, "float32"), self.device(arrays[0]))
        return self.cast(array, dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        """The elementwise product, broadcasting."""
        return self.xp.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        """The matrix product over the last two axes; the flags are set only if the traits allow them."""
        return self.xp.matmul(lhs, rhs)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        """The framework's own einsum: plans use it if the traits allow it, benchmarks always."""
        return own(self.xp.einsum)(equation, *arrays)
