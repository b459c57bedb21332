"""Gradients of contractions under a memory limit, as a layer of Paddle's autograd.

This module imports Paddle, and is imported when autograd records the first such contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.conjugation import conjugated_for, with_conjugates
from einsumx.adapters.typing import Array, Recorded
from einsumx.dtypes import itemsize

__all__ = ["WithinLayer", "within"]

paddle: Any = import_module("paddle")


def within(call: Recorded, run: Callable[[], Array], operands: Sequence[Any]) -> Array:
    """The result of ``run``, with derivatives of every order computed by ``call``."""
    plain = (False,) * call.places
    return WithinLayer.apply(call, run, call.places - 1, plain, 0, *operands, None)


class WithinLayer(paddle.autograd.PyLayer):  # type: ignore[misc]
    """The array in one place of a contraction: the result, or a gradient, which can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any, call: Recorded, run: Any, place: int, conjugated: Sequence[bool], beside: int, *arrays: Any
    ) -> Array:
        """Compute the array.

        Args:
            ctx: keeps what derivatives need.
            call: computes the array in each place.
            run: computes the array in this place; None for ``call``.
            place: the place to compute.
            conjugated: for each place, whether to use the complex conjugate of its array.
            beside: bytes of the gradients that are computed already.
            arrays: the arrays in all places; None in ``place``.
        """
        ctx.call, ctx.place, ctx.conjugated, ctx.is_first, ctx.arrays = call, place, conjugated, run is not None, arrays
        result = run() if run is not None else _value(call, place, conjugated, beside, arrays)
        return paddle.assign(result) if any(result is array for array in arrays) else result

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Any:
        """The gradients by the tensors; None for those that need none.

        With the cotangent in ``ctx.place``, the gradient is the array in the other place.
        """
        arrays = list(ctx.arrays)
        arrays[ctx.place] = cotangent
        gradients: list[Array | None] = []
        beside = 0
        for place, array in enumerate(ctx.arrays):
            if not isinstance(array, paddle.Tensor):
                continue
            if array.stop_gradient:
                gradients.append(None)
                continue
            conjugated = conjugated_for(ctx.conjugated, ctx.place, place)
            others = [*arrays[:place], None, *arrays[place + 1 :]]
            gradient = WithinLayer.apply(ctx.call, None, place, conjugated, beside, *others)
            gradients.append(gradient)
            if ctx.is_first:  # each gradient of a gradient has the whole limit
                beside += gradient.size * itemsize(str(gradient.dtype).rpartition(".")[2])
        return tuple(gradients)


def _value(call: Recorded, place: int, conjugated: Sequence[bool], beside: int, arrays: Sequence[Any]) -> Array:
    """The array in a place, in its dtype, computed from the others or their complex conjugates."""
    operands, conjugates_result = with_conjugates(arrays, place, conjugated, _is_complex, paddle.conj)
    value = call.value(place, operands, beside)
    if conjugates_result and value.is_complex():
        value = value.conj()
    return value.astype(call.dtype(place))


def _is_complex(array: Any) -> bool | None:
    return bool(array.is_complex()) if isinstance(array, paddle.Tensor) else None
