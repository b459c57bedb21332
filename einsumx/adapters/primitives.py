"""The array calls that plans are made of."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from einsumx.adapters.arrays import Arrays
from einsumx.adapters.replacement import own
from einsumx.adapters.typing import Array

__all__ = ["Primitives"]


class Primitives(Arrays):
    """Twelve array calls, which every backend has: ``copy`` and ``sum`` are its own, the others have defaults.

    A default is written against the names that NumPy and the array API standard share, so that a subclass overrides
    only where its framework differs.
    """

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Axis ``k`` of the result is axis ``axes[k]`` of ``array``."""
        return self.xp.transpose(array, axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The same elements in C order; never asked to copy by the planner."""
        return self.xp.reshape(array, shape)

    def expand(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A read-only view in which axes of size 1 have the sizes of ``shape``; asked only where there are strides."""
        return self.xp.broadcast_to(array, shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        """Two axes become one, in the last place."""
        return self.xp.diagonal(array, 0, axis1, axis2)

    def copy(self, array: Array) -> Array:
        """A fresh C-contiguous array."""
        raise NotImplementedError

    def cast(self, array: Array, dtype: str) -> Array:
        """``array`` in another dtype; to bool: whether not zero."""
        return array.astype(self.dtype(dtype))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The sum over ``axes`` in the array's own dtype: integers wrap, bools are or-ed."""
        raise NotImplementedError

    def scale(self, array: Array, count: int) -> Array:
        """The sum of ``count`` arrays that are all equal to ``array``; asked only where there are strides.

        It is summed by doubling. Overridden where a product with the count gives the same: of complex numbers it is to
        be taken of each part, as an infinity times a complex count would be nan.
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
        """Zeros on the device of ``arrays``, whose gradients are zeros: the result where a label has size 0."""
        numpy = import_module("numpy")
        try:
            known = numpy.dtype(dtype)
        except TypeError:  # NumPy has no such dtype
            known = numpy.dtype("float32")
        array = self.from_numpy(numpy.zeros(shape, known), self.device(arrays[0]))
        return array if known.name == dtype else self.cast(array, dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        """The elementwise product, broadcasting."""
        return self.xp.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        """The matrix product over the last two axes; the flags are set only where the traits say so."""
        return self.xp.matmul(lhs, rhs)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        """The framework's own einsum: a primitive where the traits ask for it, else only compared against."""
        return own(self.xp.einsum)(equation, *arrays)
