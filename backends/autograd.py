"""Autograd: NumPy's arrays, which a box holds while autograd records the calls on them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.operand_types import wrong_type_error
from einsumx.backends.numpy.adapter import ADAPTER as NUMPY
from einsumx.backends.numpy.parts import NumpyNames
from einsumx.dtypes import itemsize
from einsumx.dtypes import kind as dtype_kind
from einsumx.ir.layout import contiguous
from einsumx.ir.program import Program
from einsumx.ir.rates import Rates
from einsumx.ir.traits import BLAS, Traits


class AutogradSemirings(NumpyNames):
    """NumPy's functions, of which autograd differentiates all but ``take``."""

    def mode(self, array: Array) -> AbstractContextManager[Any]:
        return NUMPY.mode(array)

    def detached(self, array: Array) -> Array:
        return self.adapter.to_numpy(array)

    def rows(self, matrix: Array, places: Array) -> Array:
        return matrix[places]


class AutogradAdapter(Adapter):
    """Boxes of autograd, and NumPy's arrays beside them, which are constants."""

    name = "autograd"
    module = "autograd.numpy"
    import_statement = "import autograd.numpy as np"
    install = "pip install autograd"
    device_kinds = ("cpu",)
    cpu = Traits(  # no native_dtypes: the gradients of its einsum are einsums of all other operands, without BLAS
        dtypes=NUMPY.cpu.dtypes,
        matmul_dtypes=BLAS,
        matmul_through=NUMPY.cpu.matmul_through,
        widen=NUMPY.cpu.widen,
        long_side="in order",
        rates=Rates(call=10e-6, matrix=0.06e-6, gemm=100e9, stream=25e9, copy=20e9, permute=8e9),
    )
    blocks = None
    semirings = cached_property(AutogradSemirings)
    missing = MappingProxyType(
        {
            "blocks": (
                "it keeps every intermediate for the gradients; omit memory_limit=, or contract NumPy arrays outside "
                "of a gradient"
            )
        }
    )

    def has_values(self, array: Array) -> bool:
        return True

    @cached_property
    def _value(self) -> Any:
        return import_module("autograd.tracer").getval

    def check_type(self, kind: type) -> None:
        if kind.__name__ != "ArrayBox":
            raise wrong_type_error(kind, "autograd's boxes of arrays")

    def takes_arrays_of(self, other: Adapter) -> bool:
        return other is NUMPY

    # -- describing arrays ------------------------------------------------------------------------------

    def signature(self, array: Array) -> Signature:
        value = NUMPY.xp.asarray(self._value(array))  # a box may hold a number
        strides = tuple([step // value.itemsize for step in value.strides])
        if 0 in strides and array is not value:
            strides = contiguous(value.shape)  # elements in one place of memory have derivatives of their own
        return type(array), value.shape, value.dtype, "cpu", strides

    def dtype_name(self, dtype: Any) -> str:
        return NUMPY.dtype_name(dtype)

    def dtype(self, name: str) -> Any:
        return NUMPY.dtype(name)

    def promote(self, dtypes: Sequence[str]) -> str:
        return NUMPY.promote(dtypes)

    def from_numpy(self, array: Any, device: str = "") -> Array:
        return array

    def to_numpy(self, array: Array) -> Any:
        return NUMPY.xp.asarray(self._value(array))

    # -- primitives -------------------------------------------------------------------------------------

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        # Every (size + 1)-th element of two merged axes: the gradient of autograd's own diagonal is of float64 alone.
        rest, size = [axis for axis in range(array.ndim) if axis not in (axis1, axis2)], array.shape[axis1]
        merged = (*[array.shape[axis] for axis in rest], size * size)
        return self.xp.reshape(self.xp.transpose(array, (*rest, axis1, axis2)), merged)[..., :: size + 1]

    def copy(self, array: Array) -> Array:
        return self.xp.array(array)

    def cast(self, array: Array, dtype: str) -> Array:
        if array.dtype.kind == "c" and dtype_kind(dtype) not in "bc":
            array = self.xp.real(array)
        if array.dtype.kind != "c" and dtype_kind(dtype) == "c":  # the derivative of astype would warn of the cast back
            real = self.arithmetic.as_dtype(array, f"float{itemsize(dtype) * 4}")
            return real + NUMPY.xp.full((1,) * array.ndim, -0.0, dtype)
        return array.astype(dtype)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self.xp.sum(array, axis=axes, dtype=array.dtype)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        zeros = self.xp.zeros(shape, dtype)
        for array in arrays:  # sums of no elements, for gradients that are zeros and not None
            zeros = zeros + self.cast(self.xp.sum(self.xp.ravel(array)[:0]), dtype)
        return zeros

    def prepare(self, run: Run, program: Program) -> Run:
        def quiet(*operands: Array) -> Array:
            with NUMPY.mode(operands[0]):
                return run(*operands)

        return quiet


ADAPTER = AutogradAdapter()
