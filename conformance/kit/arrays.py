"""Arrays of cases: their shapes, dtypes and values, which a few lines compute in any language."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array that every framework makes with the same values, in a memory layout of its own.

    Attributes:
        shape: the array's shape.
        dtype: NumPy's name of the dtype, or ``"bfloat16"``.
        layout: the memory layout, by a name of einsumx's suite; the kit's own cases have contiguous arrays.
        fill: the kind of values; :func:`values` lists them.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = "C"
    fill: str = "normal"


class Numbers:
    """A sequence of random numbers: SplitMix64 [1]_, whose results need 64-bit integers and nothing else.

    The ``k``-th number, ``k`` from 1 on, mixes the bits of ``seed + k * 0x9E3779B97F4A7C15``. Each method continues
    where the last one ended.

    .. [1] G. L. Steele Jr., D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

    >>> hex(Numbers(0).bits((1,))[0])
    '0xe220a8397b1dcdaf'
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._drawn = seed, 0

    def bits(self, shape: tuple[int, ...]) -> Any:
        """Integers of 64 bits."""
        count = math.prod(shape)
        places = np.arange(self._drawn + 1, self._drawn + count + 1, dtype="uint64")
        self._drawn += count
        mixed = np.uint64(self._seed) + places * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return (mixed ^ (mixed >> np.uint64(31))).reshape(shape)

    def random(self, shape: tuple[int, ...]) -> Any:
        """Floats from 0 to 1, without 1: the upper 53 bits, divided by 2**53."""
        return (self.bits(shape) >> np.uint64(11)) * 2.0**-53

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> Any:
        """Floats from ``low`` to ``high``."""
        return low + (high - low) * self.random(shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> Any:
        """Integers from ``low`` to ``high``, without ``high``."""
        return low + np.floor((high - low) * self.random(shape)).astype("int64")

    def normal(self, shape: tuple[int, ...]) -> Any:
        """Normally distributed floats, by the method of Box and Muller: first all radii, then all angles."""
        radius = np.sqrt(-2 * np.log1p(-self.random(shape)))
        return radius * np.cos(2 * np.pi * self.random(shape))


def values(spec: ArraySpec, numbers: Numbers) -> Any:
    """Random values of a spec's fill, all of which its dtype holds exactly.

    ==============  ======================================================================================
    ``normal``      normally distributed; integers from -4 to 4; bools, half of them true
    ``wide``        normally distributed over 12 orders of magnitude (6 for half precision)
    ``positive``    between 0.1 and 1, so that no sum of products cancels or is zero
    ``range``       integers from the whole range of the dtype
    ``exact``       integers from -3 to 3, also for floats, so that small sums of products are exact
    ``one``, ``zero``, ``tenth``  ones, zeros, 0.1 as the dtype rounds it
    ``large``, ``tiny``  512 and 1/128; half precision holds the product of two large values and a tiny one
    ``half``        between 0.4 and 0.6, so that sums of two products neither grow nor vanish
    ``inf``, ``-inf``, ``nan``  as ``positive``, with one such element in the middle
    ==============  ======================================================================================

    The values of a broadcast layout repeat along the axis of stride 0.
    """
    array = np.asarray(_filled(spec, numbers))
    for axis in broadcast_axes(spec):
        array = np.repeat(array.take([0], axis), spec.shape[axis], axis)
    return rounded(array, spec.dtype)


def broadcast_axes(spec: ArraySpec) -> tuple[int, ...]:
    """The axes of stride 0 in a broadcast layout: the first, or the last, that is longer than 1."""
    long = [axis for axis, size in enumerate(spec.shape) if size > 1]
    match spec.layout:
        case "broadcast":
            return tuple(long[:1])
        case "broadcast-last":
            return tuple(long[-1:])
        case _:
            return ()


def rounded(array: Any, dtype: str) -> Any:
    """Values as ``dtype`` holds them. NumPy has no bfloat16, so its values are float32."""
    if dtype != "bfloat16":
        return np.asarray(array).astype(dtype)
    bits = np.ascontiguousarray(array, "float32").view("uint32")
    return (bits & np.uint32(0xFFFF0000)).view("float32").reshape(np.shape(array))


def _filled(spec: ArraySpec, numbers: Numbers) -> Any:
    shape = spec.shape
    kind = "f" if spec.dtype == "bfloat16" else np.dtype(spec.dtype).kind
    match spec.fill, kind:
        case (("one" | "zero" | "tenth" | "large" | "tiny"), _):
            constants = {"one": 1.0, "zero": 0.0, "tenth": 0.1, "large": 512.0, "tiny": 1 / 128}
            return np.full(shape, constants[spec.fill])
        case "range", "i" | "u":
            return numbers.bits(shape).astype(spec.dtype)
        case _, "b":
            return numbers.random(shape) < 0.5
        case "exact", "u":
            return numbers.integers(0, 4, shape)
        case "exact", _:
            return numbers.integers(-3, 4, shape)
        case _, "u":
            return numbers.integers(0, 5, shape)
        case _, "i":
            return numbers.integers(-4, 5, shape)
        case _, "c":
            return _floats(spec, numbers) + 1j * _floats(spec, numbers)
        case _:
            return _floats(spec, numbers)


def _floats(spec: ArraySpec, numbers: Numbers) -> Any:
    shape = spec.shape
    match spec.fill:
        case "normal":
            return numbers.normal(shape)
        case "wide":
            decades = 3.0 if spec.dtype == "float16" else 6.0
            return numbers.normal(shape) * 10.0 ** numbers.uniform(-decades, decades, shape)
        case "half":
            return numbers.uniform(0.4, 0.6, shape)
        case "positive" | "inf" | "-inf" | "nan":
            array = np.asarray(numbers.uniform(0.1, 1, shape))
            if spec.fill != "positive" and array.size:
                array[tuple(size // 2 for size in shape)] = float(spec.fill)
            return array
        case _:
            raise ValueError(f"there is no fill {spec.fill!r} for {spec.dtype}")
