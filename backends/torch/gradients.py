"""Gradients of contractions under a memory limit, as a function of PyTorch's autograd.

This module imports torch, and is imported when the first such contraction is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.typing import Array, Recorded

__all__ = ["Within", "within"]

torch: Any = import_module("torch")


def within(call: Recorded, run: Callable[[], Array], operands: Sequence[Any]) -> Array:
    """The result of ``run``, whose derivatives of every order are those that ``call`` gives."""
    plain = (False,) * call.places
    return Within.apply(call, run, call.places - 1, plain, 0, *operands, None)


class Within(torch.autograd.Function):  # type: ignore[misc]
    """What belongs in one place of a contraction: the result, or a gradient, which can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any, call: Recorded, run: Any, place: int, conjugated: Sequence[bool], beside: int, *arrays: Any
    ) -> Array:
        """Keep what derivatives need, and nothing else.

        Args:
            call: gives what belongs in each place.
            run: gives it in this one; None for ``call``.
            place: that is left open.
            conjugated: of the array in each place, whether it is taken as its complex conjugate.
            beside: bytes of the gradients that are there already.
            arrays: in all places; None in the one that is left open.
        """
        needed = ctx.needs_input_grad[5:]
        ctx.call, ctx.place, ctx.conjugated, ctx.is_first = call, place, conjugated, run is not None
        ctx.given = list(arrays)
        ctx.kept = []
        for other, array in enumerate(arrays):
            if isinstance(array, torch.Tensor):
                ctx.given[other] = None
                if any(needed[:other] + needed[other + 1 :]):
                    ctx.kept.append(other)
        ctx.save_for_backward(*(arrays[other] for other in ctx.kept))
        return run() if run is not None else _value(call, place, conjugated, beside, arrays)

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Sequence[Array | None]:
        """The gradient by what is in each place, where it asks for one.

        With the cotangent in the place that was left open, it is what belongs in the other: by the rule of complex
        derivatives with everything else conjugated, or, where what is there was taken as its conjugate, with the
        cotangent conjugated instead.
        """
        arrays = list(ctx.given)
        for place, tensor in zip(ctx.kept, ctx.saved_tensors):
            arrays[place] = tensor
        arrays[ctx.place] = cotangent
        found: list[Array | None] = []
        beside = 0
        for place, needed in enumerate(ctx.needs_input_grad[5:]):
            if not needed:
                found.append(None)
                continue
            was = ctx.conjugated[place]
            conjugated = [flag == was for flag in ctx.conjugated]
            conjugated[ctx.place] = was
            given = [*arrays[:place], None, *arrays[place + 1 :]]
            gradient = Within.apply(ctx.call, None, place, conjugated, beside, *given)
            if ctx.is_first:  # of gradients of gradients, each has the limit to itself
                beside += gradient.numel() * gradient.element_size()
            found.append(gradient)
        return (None,) * 5 + tuple(found)


def _value(call: Recorded, place: int, conjugated: Sequence[bool], beside: int, arrays: Sequence[Any]) -> Array:
    """What belongs in a place, in its dtype, where some of the others are taken as their complex conjugates.

    The whole is conjugated in the place of most of them, or of arrays that are no tensors, which all are or none is.
    """
    others = [other for other in range(len(arrays)) if other != place]
    stored = [conjugated[other] for other in others if not isinstance(arrays[other], torch.Tensor)]
    flags = [conjugated[other] for other in others if _is_complex(arrays[other])]
    as_whole = stored[0] if stored else sum(flags) > max(1, len(flags) - sum(flags))
    given = list(arrays)
    for other in others:
        if _is_complex(arrays[other]) and conjugated[other] != as_whole:
            given[other] = arrays[other].conj()
    found = call.value(place, given, beside)
    if as_whole and found.is_complex():
        found.conj_physical_()  # it is new, as more than one array was multiplied
    dtype = call.dtype(place)
    if found.is_complex() and not dtype.is_complex:
        return found.real.to(dtype, copy=True)
    return found.to(dtype)


def _is_complex(array: Any) -> bool:
    return isinstance(array, torch.Tensor) and array.is_complex()
