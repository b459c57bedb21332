"""Integer products of matrices, exact modulo 2^bits, through floating-point BLAS: integers have none of their own.

A floating-point product is exact as long as no sum of products leaves the integers that the type represents without
gaps: up to 2^24 in float32, 2^53 in float64. The dtype proves that for narrow integers; for wide ones the largest
numbers that the operands hold may. Otherwise operands are split into limbs, short enough that the products of limbs are
exact, and those that reach into the result's bits are shifted and added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import ceil, prod
from typing import Any, TypeAlias

import numpy as np

from einsumx.backends import numpy_kernels as kernels
from einsumx.layout import broadcast

__all__ = ["matmul"]

Kernel: TypeAlias = Callable[..., Any]
Shape: TypeAlias = tuple[int, ...]

_EXACT = {"float32": 24, "float64": 53}
"""Bits of the integers that a float type represents without gaps."""

# Seconds, by which the ways to a product are compared.
_CALLS = 4e-6
_CONVERSION = 3e-9
_BLAS = 5e-11
_LOOP_START = 20e-9
_LOOP = {1: 0.15e-9, 2: 0.3e-9, 4: 0.45e-9, 8: 0.7e-9}
_MATMUL = 1e-9


def matmul(shapes: Sequence[Shape], dtype: str) -> Kernel:
    """The kernel of ``lhs[..., m, k] @ rhs[..., k, n]`` for integers."""
    lhs, rhs = shapes
    (rows, inner), cols = lhs[-2:], rhs[-1]
    shape = (*broadcast(lhs[:-2], rhs[:-2]), rows, cols)
    count = prod(shape[:-2])
    work = count * rows * inner * cols
    converted = prod(lhs) + prod(rhs) + count * rows * cols
    seconds = {
        "matmul": work * _MATMUL,
        "loop": _CALLS / 2 + work * _LOOP[np.dtype(dtype).itemsize] + work / max(cols, inner, 1) * _LOOP_START,
        "blas": _CALLS + converted * _CONVERSION + work * _BLAS,
    }
    match min(seconds, key=lambda way: seconds[way]):
        case "matmul":
            return partial(np.matmul, order="C")
        case "loop":
            batch = "".join(chr(ord("d") + axis) for axis in range(len(lhs) - 2))
            if max(rows, cols) == 1 or len(batch) > 20 or lhs[:-2] != rhs[:-2]:
                return kernels.einsum_into("...ab,...bc->...ac", shape, dtype)
            return kernels.native(f"{batch}ab,{batch}bc->{batch}ac", shapes, dtype)
    return _through_blas(shapes, dtype)


def _through_blas(shapes: Sequence[Shape], dtype: str) -> Kernel:
    inner = shapes[0][-1]
    info = np.iinfo(dtype)
    bound = max(-int(info.min), int(info.max))
    for through, bits in _EXACT.items():
        if inner * bound * bound <= 1 << bits:
            return _whole(shapes, dtype, through)
    in_floats = {through: _whole(shapes, dtype, through) for through in _EXACT}
    in_limbs = _by_limbs(shapes, dtype)

    def by_largest(lhs: Any, rhs: Any) -> Any:
        left, right = _largest(lhs), _largest(rhs)
        for through, bits in _EXACT.items():
            if inner * left * right <= 1 << bits:
                return in_floats[through](lhs, rhs)
        return in_limbs(lhs, rhs, left.bit_length(), right.bit_length())

    return by_largest


def _largest(array: Any) -> int:
    """The largest absolute value."""
    return max(int(array.max()), -int(array.min()))


def _whole(shapes: Sequence[Shape], dtype: str, through: str) -> Kernel:
    """A product that is exact in the float type ``through``."""
    to_floats = [kernels.cast(shape, dtype, through) for shape in shapes]
    product = kernels.matmul(shapes, through)
    # Every exact sum fits this type; casting it on to a narrower one wraps, which casting the float would not.
    wide = "int32" if through == "float32" else "int64"

    def whole(lhs: Any, rhs: Any) -> Any:
        found = product(*(to_float(array) for to_float, array in zip(to_floats, (lhs, rhs))))
        return found.astype(wide).astype(dtype, copy=False)

    return whole


def _by_limbs(shapes: Sequence[Shape], dtype: str) -> Kernel:
    """A product of operands too large for any float, given how many bits their largest numbers have."""
    to_floats = [kernels.cast(shape, dtype, "float64") for shape in shapes]
    product = kernels.matmul(shapes, "float64")
    width = 8 * np.dtype(dtype).itemsize
    budget = _EXACT["float64"] - (shapes[0][-1] - 1).bit_length()

    def by_limbs(lhs: Any, rhs: Any, lhs_bits: int, rhs_bits: int) -> Any:
        lhs_step, rhs_step = _limb_widths(lhs_bits, rhs_bits, budget, width)
        left, right = (
            [to_float(limb) for limb in _limbs(array, bits, step)]
            for to_float, array, bits, step in zip(to_floats, (lhs, rhs), (lhs_bits, rhs_bits), (lhs_step, rhs_step))
        )
        parts = (
            product(left[i], right[j]).astype("int64").view("uint64") << np.uint64(shift)
            for i in range(len(left))
            for j in range(len(right))
            if (shift := i * lhs_step + j * rhs_step) < width
        )
        return reduce(np.add, parts).astype(dtype)

    return by_limbs


def _limb_widths(lhs_bits: int, rhs_bits: int, budget: int, width: int) -> tuple[int, int]:
    """The widths of limbs, ``budget`` bits together, that need the fewest products for a result of ``width`` bits.

    >>> _limb_widths(32, 32, 43, 32), _limb_widths(40, 7, 43, 64)
    ((11, 32), (36, 7))
    """

    def products(steps: tuple[int, int]) -> int:
        return sum(
            left + right < width for left in range(0, lhs_bits, steps[0]) for right in range(0, rhs_bits, steps[1])
        )

    right = (ceil(rhs_bits / count) for count in range(1, rhs_bits + 1))
    return min(((budget - step, step) for step in right if step < budget), key=products)


def _limbs(array: Any, bits: int, step: int) -> list[Any]:
    """``array`` as a sum of limbs, each shifted by ``step`` bits more than the one before; the last has the sign."""
    limbs = [(array >> start) & ((1 << step) - 1) for start in range(0, bits - step, step)]
    return [*limbs, array >> (len(limbs) * step)]
