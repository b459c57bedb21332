"""An array library of a dozen functions that knows nothing of einsumx: arrays in C order, and NumPy's names."""

from __future__ import annotations

from typing import Any

import numpy as np

__version__ = "1.0"

_DTYPES = bool, int64, float32, float64, complex128 = "bool", "int64", "float32", "float64", "complex128"  # noqa: A001


class ExampleArray:
    """An array that only the functions of this module can work on."""

    __slots__ = ("_values",)

    def __init__(self, values: Any, dtype: str | None = None) -> None:
        self._values = np.array(values, dtype, order="C")
        if self.dtype not in _DTYPES:
            raise TypeError(f"examplelib has no {self.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self._values.shape

    @property
    def dtype(self) -> str:
        return self._values.dtype.name

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self._values, dtype)

    def __getitem__(self, box: Any) -> ExampleArray:
        return ExampleArray(self._values[box])

    def __setitem__(self, box: Any, values: ExampleArray) -> None:
        self._values[box] = values._values

    def __add__(self, other: ExampleArray) -> ExampleArray:
        return ExampleArray(self._values + other._values)

    def astype(self, dtype: str) -> ExampleArray:
        return ExampleArray(self._values, dtype)

    def tolist(self) -> Any:
        return self._values.tolist()


def asarray(values: Any) -> ExampleArray:
    return ExampleArray(values)


def empty(shape: tuple[int, ...], dtype: str) -> ExampleArray:
    return ExampleArray(np.empty(shape, dtype))


def result_type(*dtypes: str) -> str:
    return np.result_type(*dtypes).name


def transpose(array: ExampleArray, axes: tuple[int, ...]) -> ExampleArray:
    return ExampleArray(array._values.transpose(axes))


def reshape(array: ExampleArray, shape: tuple[int, ...]) -> ExampleArray:
    return ExampleArray(array._values.reshape(shape))


def diagonal(array: ExampleArray, offset: int, axis1: int, axis2: int) -> ExampleArray:
    return ExampleArray(array._values.diagonal(offset, axis1, axis2))


def copy(array: ExampleArray) -> ExampleArray:
    return ExampleArray(array._values)


def conj(array: ExampleArray) -> ExampleArray:
    return ExampleArray(array._values.conj())


def sum(array: ExampleArray, axis: Any = None, dtype: str | None = None) -> ExampleArray:  # noqa: A001
    return ExampleArray(array._values.sum(axis, dtype=dtype))


def multiply(lhs: ExampleArray, rhs: ExampleArray) -> ExampleArray:
    return ExampleArray(lhs._values * rhs._values)


def matmul(lhs: ExampleArray, rhs: ExampleArray) -> ExampleArray:
    return ExampleArray(lhs._values @ rhs._values)
