"""How MLX computes a matrix product, and what that allocates: decided from shapes alone, without MLX."""

from __future__ import annotations

from math import prod
from typing import Literal, TypeAlias

from einsumx.dtypes import itemsize
from einsumx.ir.layout import broadcast

Shape: TypeAlias = tuple[int, ...]

Form: TypeAlias = Literal["plain", "sum", "turned", "packed"]
"""A product by ``matmul`` as it is, as a sum of an elementwise product, as the transpose of the product of both
transposes, or with a copy of its second operand if that is not in C order."""

_SMALL = 4096
"""The most multiply-adds of a product for which no other form pays for its calls."""

# The reference BLAS adds a multiple of a row of the second operand to a row of the result. Measured on a processor with
# AVX2, in ns for each multiply-add in float32: 0.33, but 0.8 if the second operand is transposed, because it then
# computes one dot product after the other. A row has an overhead of 3 ns, so that a product with a vector on the right
# takes 3.3 for each multiply-add, and at most 0.8 with the vector on the left. A copy takes 0.7 to 4 for each element.
_FEW_COLUMNS = 3
_ROWS, _COLUMNS = 32, 8


def product_form(lhs: Shape, rhs: Shape, dtype: str) -> Form:
    """The fastest form of ``[..., rows, contracted] @ [..., contracted, cols]`` in the reference BLAS.

    >>> product_form((9000,), (9000,), "float32"), product_form((900, 90), (90,), "float32")
    ('sum', 'turned')
    """
    rows, cols = lhs[-2] if len(lhs) > 1 else 1, rhs[-1] if len(rhs) > 1 else 1
    if dtype not in ("float32", "float64", "complex64") or _work(lhs, rhs) <= _SMALL:
        return "plain"
    if rows == cols == 1:
        return "sum"
    if cols <= _FEW_COLUMNS and rows > cols:
        return "turned"
    return "packed" if dtype != "complex64" and rows >= _ROWS and cols >= _COLUMNS else "plain"


def _work(lhs: Shape, rhs: Shape) -> int:
    """The multiply-adds of a product."""
    return prod(broadcast(lhs[:-2], rhs[:-2])) * prod(lhs[-2:]) * (rhs[-1] if len(rhs) > 1 else 1)


def workspace(lhs: Shape, rhs: Shape, dtype: str) -> int:
    """The most bytes that a product in any form allocates besides its result."""
    size = itemsize(dtype)
    if product_form(lhs, rhs, dtype) == "sum":
        return _work(lhs, rhs) * size
    # MLX copies operands whose matrices have a gap between their elements.
    return (prod(lhs) + prod(rhs)) * size


LIMB = 16
"""The bits of the limbs of wide integers: a product of two has 32 bits, so that 2**21 of them are exact in float64."""


def limbs(dtype: str) -> int:
    """How many limbs an integer has."""
    return max(8 * itemsize(dtype) // LIMB, 1)


def inner_block(dtype: str) -> int:
    """The most products of two integers, or of their limbs, whose sum is exact in float64."""
    return (1 << 53 - 2 * LIMB) // limbs(dtype)


def integer_workspace(lhs: Shape, rhs: Shape, dtype: str) -> int:
    """The most bytes that a product of integers allocates besides its result.

    MLX may keep them all until the product is done.
    """
    count = limbs(dtype)
    result = prod(broadcast(lhs[:-2], rhs[:-2])) * prod(lhs[-2:-1]) * (rhs[-1] if len(rhs) > 1 else 1)
    # As unsigned integers, shifted, masked and as floats; joined along the contracted axis.
    operand = count * (2 * itemsize(dtype) + 8) + 8 * count * (count + 1) // 2 + itemsize(dtype)
    blocks = -(-lhs[-1] // inner_block(dtype))
    return (prod(lhs) + prod(rhs)) * operand + result * 32 * count * blocks


def merged(shape: Shape, target: Shape) -> tuple[int, int] | None:
    """The first and the last of the axes that a reshape merges into one; None if it does anything else.

    >>> merged((2, 3, 4, 5), (2, 12, 5)), merged((2, 3), (3, 2)), merged((6,), (2, 3))
    ((1, 2), None, None)
    """
    extra = len(shape) - len(target)
    if extra < 1 or not target:
        return None
    first = next((axis for axis, size in enumerate(target) if size != shape[axis]), len(target) - 1)
    is_merge = shape[first + extra + 1 :] == target[first + 1 :] and prod(shape) == prod(target)
    return (first, first + extra) if is_merge else None
