"""Semirings on MXNet: the defaults of every backend, with derivatives that einsumx computes.

MXNet's own derivative of a maximum gives each of several equal elements the whole cotangent instead of its part, and
those of some operators overwrite gradients where they should add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from einsumx.adapters.facets import Semirings
from einsumx.adapters.typing import Array
from einsumx.algebra.products import blocks, composed
from einsumx.backends.mxnet.gradients import record

Gradient = Callable[[int, Sequence[Any], int], Array]


class MxnetSemirings(Semirings):
    """MXNet's functions, with einsumx's derivatives."""

    has_positions = False  # indices are floats in MXNet 1, and cannot be computed while a block is traced
    names = MappingProxyType({"concat": "concatenate"})

    def elementwise(self, name: str, lhs: Array, rhs: Array) -> Array:
        run = partial(super().elementwise, name)
        return _differentiable(self, run, _elementwise_gradient(self, name))(lhs, rhs)

    def reduced(self, name: str, array: Array, axes: tuple[int, ...]) -> Array:
        run = partial(super().reduced, name, axes=axes)
        return _differentiable(self, run, _reduced_gradient(self, name, axes))(array)

    def product(
        self, add: str, multiply: str, lhs: tuple[int, ...], rhs: tuple[int, ...], dtype: str
    ) -> Callable[[Array, Array], Array] | None:
        batch = max(lhs[0], rhs[0])
        product = composed(self, add, multiply, (batch, *lhs[1:]), (batch, *rhs[1:]), dtype)

        def run(left: Array, right: Array) -> Array:  # MXNet's product does not broadcast the batch axis
            of_batch = [
                side if len(side) == batch else self.xp.broadcast_to(side, (batch, *side.shape[1:]))
                for side in (left, right)
            ]
            return product(*of_batch)

        return _differentiable(self, run, _product_gradient(self, add, multiply))


def _differentiable(functions: Semirings, run: Callable[..., Array], gradient: Gradient) -> Callable[..., Array]:
    """``run``, recorded with ``gradient`` for those of its arrays that autograd knows."""
    adapter = functions.adapter

    def function(*arrays: Array) -> Array:
        numbers = [number for number, array in enumerate(arrays) if adapter.gradients.may_be_needed(array)]
        with adapter.mx.util.np_shape(True):
            return record(adapter, gradient, lambda: run(*arrays), arrays, numbers) if numbers else run(*arrays)

    return function


def _elementwise_gradient(functions: Semirings, name: str) -> Gradient:
    """The gradient by an operand of a function that broadcasts."""

    def gradient(place: int, arrays: Sequence[Any], _: int) -> Array:
        *factors, cotangent = arrays
        points = cotangent * _of_factor(functions, name, place, *factors)
        rank, shape = len(points.shape), factors[place].shape
        axes = tuple(
            axis for axis in range(rank) if axis < rank - len(shape) or points.shape[axis] != shape[axis - rank]
        )
        return (points.sum(axis=axes) if axes else points).reshape(shape)

    return gradient


def _reduced_gradient(functions: Semirings, name: str, axes: tuple[int, ...]) -> Gradient:
    """The gradient of a reduction."""

    def gradient(_: int, arrays: Sequence[Any], __: int) -> Array:
        array, cotangent = arrays
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(array.shape))
        result = functions.reduced(name, array, axes).reshape(kept)
        return _weights(functions, name, array, result, axes) * cotangent.reshape(kept)

    return gradient


def _product_gradient(functions: Semirings, add: str, multiply: str) -> Gradient:
    """The gradient of a product of matrices with a batch axis, from the terms of a block at a time."""

    def gradient(place: int, arrays: Sequence[Any], _: int) -> Array:
        left, right, cotangent = arrays
        total = functions.xp.zeros_like(arrays[place])
        for those, some in blocks(left.shape, right.shape):
            of_left, of_right = [those if len(side) > 1 else slice(None) for side in (left, right)]
            factors = left[of_left, some][:, :, :, None], right[of_right][:, None, :, :]
            terms = functions.elementwise(multiply, *factors)
            result = functions.reduced(add, terms, (2,))[:, :, None, :]
            weights = _weights(functions, add, terms, result, (2,))
            points = weights * cotangent[those, some][:, :, None, :]
            points = points * _of_factor(functions, multiply, place, *factors)
            part = points.sum(axis=1 if place else 3)
            index = (of_right,) if place else (of_left, some)
            if len(arrays[place]) == 1:
                part = part.sum(axis=0, keepdims=True)
            total[index] = total[index] + part
        return total

    return gradient


def _weights(functions: Semirings, name: str, terms: Array, result: Array, axes: tuple[int, ...]) -> Array:
    """The derivatives of a reduction by its terms; ``result`` has its axes, of size 1."""
    xp, dtype = functions.xp, terms.dtype
    if name == "logaddexp":
        is_finite = xp.isfinite(result).astype(dtype)
        return xp.exp(terms - xp.where(xp.isfinite(result), result, xp.zeros_like(result))) * is_finite
    attains = (terms == result).astype(dtype)
    return attains / attains.sum(axis=axes, keepdims=True)


def _of_factor(functions: Semirings, name: str, place: int, *factors: Array) -> Any:
    """The derivative of a product of two by one of them, which broadcasts with it."""
    own, other = factors[place], factors[1 - place]
    if name == "add":
        return functions.xp.ones_like(own)
    if name == "multiply":
        return other
    product = functions.elementwise(name, own, other)
    attains, also = ((each == product).astype(own.dtype) for each in (own, other))
    return attains / (attains + also)
