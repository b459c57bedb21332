"""An array library of a dozen functions that knows nothing of einsumx: immutable arrays, always C-contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np

_DTYPES = bool, int64, float32, float64, complex128 = "bool", "int64", "float32", "float64", "complex128"  # noqa: A001


class ExampleArray:
    """An array that only the functions of this module can work on; NumPy cannot read it."""

    __slots__ = ("_values",)
    __array__ = None  # otherwise numpy.asarray makes an array that holds the object

    def __init__(self, values: Any, dtype: str | None = None) -> None:
        self._values = np.array(values, dtype, order="C")
        if self.dtype not in _DTYPES:
            raise TypeError(f"einsumx_example has no {self.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self._values.shape

    @property
    def dtype(self) -> str:
        return self._values.dtype.name

    def astype(self, dtype: str) -> ExampleArray:
        return ExampleArray(self._values, dtype)

    def tolist(self) -> Any:
        return self._values.tolist()


def asarray(values: Any) -> ExampleArray:
    return ExampleArray(values)


def result_type(*dtypes: str) -> str:
    return np.result_type(*dtypes).name


def transpose(array: ExampleArray, axes: tuple[int, ...]) -> ExampleArray:
    return ExampleArray(array._values.transpose(axes))


def reshape(array: ExampleArray, shape: tuple[int, ...]) -> ExampleArray:
    return ExampleArray(array._values.reshape(shape))


def diagonal(array: ExampleArray, offset: int, axis1: int, axis2: int) -> ExampleArray:
    return ExampleArray(array._values.diagonal(offset, axis1, axis2))


def total(array: ExampleArray, axes: tuple[int, ...]) -> ExampleArray:
    return ExampleArray(array._values.sum(axes), array.dtype)


def multiply(lhs: ExampleArray, rhs: ExampleArray) -> ExampleArray:
    return ExampleArray(lhs._values * rhs._values)


def matmul(lhs: ExampleArray, rhs: ExampleArray) -> ExampleArray:
    return ExampleArray(lhs._values @ rhs._values)


def add(lhs: ExampleArray, rhs: ExampleArray) -> ExampleArray:
    return ExampleArray(lhs._values + rhs._values)


def part(array: ExampleArray, box: tuple[slice, ...]) -> ExampleArray:
    return ExampleArray(array._values[box])


def zeros(shape: tuple[int, ...], dtype: str) -> ExampleArray:
    return ExampleArray(np.zeros(shape, dtype))


def replaced(array: ExampleArray, box: tuple[slice, ...], values: ExampleArray) -> ExampleArray:
    result = ExampleArray(array._values)
    result._values[box] = values._values
    return result
