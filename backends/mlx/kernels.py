"""Einsumx's kernels for MLX: reshapes, products in the reference BLAS, and exact products of integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import mlx.core as mx

from einsumx.backends.mlx.choices import LIMB, Shape, inner_block, limbs, merged, product_form

Array: TypeAlias = Any
Kernel: TypeAlias = Callable[..., Array]


def reshape(shape: Shape, target: Shape) -> Kernel:
    """The kernel that reshapes an array of ``shape``: without sizes if it can be, for graphs that serve other sizes."""
    if len(shape) != len(target) and _without_ones(shape) == _without_ones(target):
        dropped, added = _ones(shape), _ones(target)
        if not added:
            return lambda array: mx.squeeze(array, dropped)
        if not dropped:
            return lambda array: mx.expand_dims(array, added)
    axes = merged(shape, target)
    if axes is not None:
        first, last = axes
        return lambda array: mx.flatten(array, first, last)
    return lambda array: mx.reshape(array, target)


def _ones(shape: Shape) -> Shape:
    return tuple([axis for axis, size in enumerate(shape) if size == 1])


def _without_ones(shape: Shape) -> Shape:
    return tuple([size for size in shape if size != 1])


# -- products -----------------------------------------------------------------------------------------------------


def product(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """The kernel for ``[..., rows, contracted] @ [..., contracted, cols]`` in these shapes, in the reference BLAS."""
    form = product_form(lhs, rhs, dtype)
    if form == "packed":
        return _packed
    if form == "sum":
        return _dot if len(rhs) == 1 else _summed
    if form == "turned":
        return _by_vector if len(rhs) == 1 else _turned
    return mx.matmul  # type: ignore[no-any-return]


def _packed(lhs: Array, rhs: Array) -> Array:
    return mx.matmul(lhs, mx.contiguous(rhs))


def _turned(lhs: Array, rhs: Array) -> Array:
    return mx.matmul(rhs.mT, lhs.mT).mT


def _by_vector(lhs: Array, rhs: Array) -> Array:
    return mx.matmul(rhs, lhs.mT)


def _dot(lhs: Array, rhs: Array) -> Array:
    return mx.multiply(lhs, rhs).sum(-1)


def _summed(lhs: Array, rhs: Array) -> Array:
    """A product of rows with columns, one of each, or of a vector with a column."""
    total = mx.multiply(lhs, rhs.mT).sum(-1)
    return total[..., None] if lhs.ndim > 1 else total


def integer_product(inner: int, dtype: str) -> Kernel:
    """The kernel for products of integers along an axis of size ``inner``, exact modulo 2**bits.

    MLX has none, so it multiplies in float64, which is only on the CPU. Integers of more than 16 bits are split into
    limbs of 16 bits.
    """
    block, count = inner_block(dtype), limbs(dtype)
    whole = _narrow if count == 1 else partial(_in_limbs, count)

    def run(lhs: Array, rhs: Array) -> Array:
        is_column = rhs.ndim == 1
        if is_column:
            rhs = rhs[:, None]
        with mx.stream(mx.cpu):
            total = whole(lhs[..., :block], rhs[..., :block, :])
            for start in range(block, inner, block):
                part = slice(start, start + block)
                total = total + whole(lhs[..., part], rhs[..., part, :])
            total = total.astype(lhs.dtype)
        return total[..., 0] if is_column else total

    return run


def _narrow(lhs: Array, rhs: Array) -> Array:
    return mx.matmul(lhs.astype(mx.float64), rhs.astype(mx.float64)).astype(mx.int64)


def _in_limbs(count: int, lhs: Array, rhs: Array) -> Array:
    """The product modulo 2**64; the limbs whose product is shifted by the same bits are joined to one product."""
    left, right = _limbs(lhs, count), _limbs(rhs, count)
    total = None
    for last in range(count):
        joined = mx.concatenate(left[: last + 1], axis=-1), mx.concatenate(right[last::-1], axis=-2)
        part = mx.left_shift(mx.matmul(*joined).astype(mx.uint64), LIMB * last)
        total = part if total is None else total + part
    return total


def _limbs(array: Array, count: int) -> list[Array]:
    unsigned = array.astype(mx.uint64 if count > 2 else mx.uint32)
    mask = (1 << LIMB) - 1
    return [mx.bitwise_and(mx.right_shift(unsigned, LIMB * k), mask).astype(mx.float64) for k in range(count)]
