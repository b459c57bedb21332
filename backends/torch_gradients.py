"""Gradients of contractions under a memory limit, as a function of PyTorch's autograd.

This module imports torch, and is imported when the first such contraction is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from einsumx.adapter import Array

if TYPE_CHECKING:
    from einsumx.gradients import Recorded

__all__ = ["Within"]

torch: Any = import_module("torch")


class Within(torch.autograd.Function):  # type: ignore[misc]
    """A contraction whose gradients are contractions under the same limit; these can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, call: Recorded, *operands: Any) -> Array:
        """Keep the operands that gradients need, and nothing else."""
        needed = ctx.needs_input_grad[1:]
        ctx.call, ctx.given = call, list(operands)
        ctx.places = []
        for place, operand in enumerate(operands):
            if isinstance(operand, torch.Tensor):
                ctx.given[place] = None
                if any(needed[:place] + needed[place + 1 :]):
                    ctx.places.append(place)
        ctx.save_for_backward(*(operands[place] for place in ctx.places))
        ctx.dtypes = [getattr(operand, "dtype", None) for operand in operands]
        return call.run()

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Sequence[Array | None]:
        """The gradient by each operand that asks for one."""
        operands = list(ctx.given)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            operands[place] = tensor
        found: list[Array | None] = []
        beside = 0
        for number, needed in enumerate(ctx.needs_input_grad[1:]):
            if not needed:
                found.append(None)
                continue
            gradient = _in_kind(_gradient(ctx.call, number, cotangent, operands, beside), ctx.dtypes[number])
            beside += gradient.numel() * gradient.element_size()
            found.append(gradient)
        return (None, *found)


def _gradient(call: Recorded, number: int, cotangent: Array, operands: Sequence[Any], beside: int) -> Array:
    """The gradient, with the other operands conjugated: so is the whole, where the cotangent alone is conjugated."""
    if not cotangent.is_complex():
        return call.gradient(number, cotangent, operands, beside)
    found = call.gradient(number, cotangent.conj(), operands, beside)
    return found.conj().resolve_conj() if torch.is_grad_enabled() else found.conj_physical_()


def _in_kind(gradient: Array, dtype: Any) -> Array:
    """A real operand's gradient is real."""
    return (gradient.real if gradient.is_complex() and not dtype.is_complex else gradient).to(dtype)
