"""NumPy's functions for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from einsumx.adapters.base import Array
from einsumx.adapters.facets import Semirings
from einsumx.backends.numpy.adapter import NumpyAdapter
from einsumx.backends.numpy.parts import NumpyNames
from einsumx.dtypes import itemsize, wrapped
from einsumx.ir.parse import diagonal_equation


class ScaledArrays(NumpyAdapter):
    """What NumPy and CuPy do by writing into new arrays."""

    def typed(self, value: float, dtype: str) -> Any:
        """A number of a dtype: with arrays without axes, NumPy 1 promotes Python's numbers to float64."""
        return getattr(self.xp, dtype)(value)

    def scale(self, array: Array, count: int) -> Array:
        np, name, letter = self.xp, array.dtype.name, array.dtype.kind
        if letter == "O":
            repeated = np.broadcast_to(array, (count, *array.shape))
            return self.boxed(np.add.reduce(repeated), name)
        if letter == "c":  # separate parts, because an infinity times a complex number contains nan
            real = f"float{itemsize(name) * 4}"
            parts = np.asarray(array, name)[..., None].view(real)
            return (parts * getattr(np, real)(count)).view(name)[..., 0]
        return np.multiply(array, getattr(np, name)(wrapped(count, name) if letter in "iu" else count))


class PublicNumpy(ScaledArrays):
    """NumPy's functions, without einsumx's threads and integer products."""

    @cached_property
    def semirings(self) -> Semirings:
        return NumpyNames(self)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        # Views of numpy.einsum are writeable, those of numpy.diagonal are not.
        return self.native(diagonal_equation(array.ndim, axis1, axis2), [array])

    def boxed(self, result: Any, dtype: str) -> Array:
        return self.xp.asarray(result, dtype=dtype) if dtype == "object" else result
