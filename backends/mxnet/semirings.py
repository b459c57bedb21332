"""Semirings on MXNet: the defaults of every backend, with derivatives that einsumx computes.

MXNet's own derivative of a maximum gives each of several equal elements the whole cotangent instead of its part, and
those of some operators overwrite gradients where they should add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.adapters.typing import Array
from einsumx.algebra.products import blocks
from einsumx.backends.mxnet.gradients import record

__all__ = ["differentiable", "elementwise_gradient", "product_gradient", "reduced_gradient"]

Gradient = Callable[[int, Sequence[Any], int], Array]


def differentiable(adapter: Adapter, run: Callable[..., Array], gradient: Gradient) -> Callable[..., Array]:
    """``run``, recorded with ``gradient`` for those of its arrays that autograd knows."""
    gradients: Any = adapter.gradients

    def function(*arrays: Array) -> Array:
        numbers = [number for number, array in enumerate(arrays) if gradients.may_be_needed(array)]
        with adapter.mx.util.np_shape(True):  # type: ignore[attr-defined]
            return record(adapter, gradient, lambda: run(*arrays), arrays, numbers) if numbers else run(*arrays)

    return function


def elementwise_gradient(adapter: Adapter, name: str) -> Gradient:
    """The gradient by an operand of a function that broadcasts."""

    def gradient(place: int, arrays: Sequence[Any], _: int) -> Array:
        *factors, cotangent = arrays
        points = cotangent * _of_factor(adapter, name, place, *factors)
        rank, shape = len(points.shape), factors[place].shape
        axes = tuple(
            axis for axis in range(rank) if axis < rank - len(shape) or points.shape[axis] != shape[axis - rank]
        )
        return (points.sum(axis=axes) if axes else points).reshape(shape)

    return gradient


def reduced_gradient(adapter: Adapter, name: str, axes: tuple[int, ...]) -> Gradient:
    """The gradient of a reduction."""

    def gradient(_: int, arrays: Sequence[Any], __: int) -> Array:
        array, cotangent = arrays
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(array.shape))
        result = adapter.reduced(name, array, axes).reshape(kept)
        return _weights(adapter, name, array, result, axes) * cotangent.reshape(kept)

    return gradient


def product_gradient(adapter: Adapter, add: str, multiply: str) -> Gradient:
    """The gradient of a product of matrices with a batch axis, from the terms of a block at a time."""

    def gradient(place: int, arrays: Sequence[Any], _: int) -> Array:
        left, right, cotangent = arrays
        total = adapter.xp.zeros_like(arrays[place])
        for those, some in blocks(left.shape, right.shape):
            of_left, of_right = [those if len(side) > 1 else slice(None) for side in (left, right)]
            factors = left[of_left, some][:, :, :, None], right[of_right][:, None, :, :]
            terms = adapter.elementwise(multiply, *factors)
            result = adapter.reduced(add, terms, (2,))[:, :, None, :]
            weights = _weights(adapter, add, terms, result, (2,))
            points = weights * cotangent[those, some][:, :, None, :]
            points = points * _of_factor(adapter, multiply, place, *factors)
            part = points.sum(axis=1 if place else 3)
            index = (of_right,) if place else (of_left, some)
            if len(arrays[place]) == 1:
                part = part.sum(axis=0, keepdims=True)
            total[index] = total[index] + part
        return total

    return gradient


def _weights(adapter: Adapter, name: str, terms: Array, result: Array, axes: tuple[int, ...]) -> Array:
    """The derivatives of a reduction by its terms; ``result`` has its axes, of size 1."""
    xp, dtype = adapter.xp, terms.dtype
    if name == "logaddexp":
        is_finite = xp.isfinite(result).astype(dtype)
        return xp.exp(terms - xp.where(xp.isfinite(result), result, xp.zeros_like(result))) * is_finite
    attains = (terms == result).astype(dtype)
    return attains / attains.sum(axis=axes, keepdims=True)


def _of_factor(adapter: Adapter, name: str, place: int, *factors: Array) -> Any:
    """The derivative of a product of two by one of them, which broadcasts with it."""
    own, other = factors[place], factors[1 - place]
    if name == "add":
        return adapter.xp.ones_like(own)
    if name == "multiply":
        return other
    product = adapter.elementwise(name, own, other)
    attains, also = ((each == product).astype(own.dtype) for each in (own, other))
    return attains / (attains + also)
