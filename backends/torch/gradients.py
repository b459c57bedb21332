"""Gradients of contractions under a memory limit, as a function of PyTorch's autograd.

This module imports torch, and is imported when autograd records the first such contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.conjugation import conjugated_for, with_conjugates
from einsumx.adapters.typing import Array, Recorded

__all__ = ["Within", "within"]

torch: Any = import_module("torch")


def within(call: Recorded, run: Callable[[], Array], operands: Sequence[Any]) -> Array:
    """The result of ``run``, with derivatives of every order computed by ``call``."""
    plain = (False,) * call.places
    return Within.apply(call, run, call.places - 1, plain, 0, *operands, None)


class Within(torch.autograd.Function):  # type: ignore[misc]
    """The array in one place of a contraction: the result, or a gradient, which can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any, call: Recorded, run: Any, place: int, conjugated: Sequence[bool], beside: int, *arrays: Any
    ) -> Array:
        """Compute the array, and save only the arrays that derivatives need.

        Args:
            call: computes the array in each place.
            run: computes the array in this place; None for ``call``.
            place: the place to compute.
            conjugated: for each place, whether to use the complex conjugate of its array.
            beside: bytes of the gradients that are computed already.
            arrays: the arrays in all places; None in ``place``.
        """
        needed = ctx.needs_input_grad[5:]
        ctx.call, ctx.place, ctx.conjugated, ctx.is_first = call, place, conjugated, run is not None
        ctx.arrays = list(arrays)  # without the tensors, which torch saves
        ctx.saved_places = []
        for other, array in enumerate(arrays):
            if isinstance(array, torch.Tensor):
                ctx.arrays[other] = None
                if any(needed[:other] + needed[other + 1 :]):
                    ctx.saved_places.append(other)
        ctx.save_for_backward(*(arrays[other] for other in ctx.saved_places))
        return run() if run is not None else _value(call, place, conjugated, beside, arrays)

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Sequence[Array | None]:
        """The gradients by the arrays that need one.

        With the cotangent in ``ctx.place``, the gradient is the array in the other place.
        """
        arrays = list(ctx.arrays)
        for place, tensor in zip(ctx.saved_places, ctx.saved_tensors):
            arrays[place] = tensor
        arrays[ctx.place] = cotangent
        gradients: list[Array | None] = [None] * len(arrays)
        beside = 0
        for place, needed in enumerate(ctx.needs_input_grad[5:]):
            if not needed:
                continue
            conjugated = conjugated_for(ctx.conjugated, ctx.place, place)
            others = [*arrays[:place], None, *arrays[place + 1 :]]
            gradients[place] = gradient = Within.apply(ctx.call, None, place, conjugated, beside, *others)
            if ctx.is_first:  # each gradient of a gradient has the whole limit
                beside += gradient.numel() * gradient.element_size()
        return (None,) * 5 + tuple(gradients)


def _value(call: Recorded, place: int, conjugated: Sequence[bool], beside: int, arrays: Sequence[Any]) -> Array:
    """The array in a place, in its dtype, computed from the others or their complex conjugates."""
    operands, conjugates_result = with_conjugates(arrays, place, conjugated, _is_complex, torch.conj)
    value = call.value(place, operands, beside)
    if conjugates_result and value.is_complex():
        value.conj_physical_()  # no other reference exists, because it is a product of several arrays
    dtype = call.dtype(place)
    if value.is_complex() and not dtype.is_complex:
        return value.real.to(dtype, copy=True)
    return value.to(dtype)


def _is_complex(array: Any) -> bool | None:
    return bool(array.is_complex()) if isinstance(array, torch.Tensor) else None
