"""Gradients of contractions under a memory limit, as a function of PyTorch's autograd.

This module imports torch, and is imported when autograd records the first such contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.recorded import RecordedArray, RecordedGradients
from einsumx.adapters.typing import Array

torch: Any = import_module("torch")


class _RecordedTorch(RecordedArray):
    """A tensor that autograd records."""

    def recorded(self, arrays: Sequence[Any]) -> Array:
        return _Within.apply(self, *arrays)

    def finished(self, value: Array, dtype: str) -> Array:
        target = getattr(torch, dtype)
        if value.is_complex() and not target.is_complex:
            return value.real.to(target, copy=True)
        return value.to(target)


class _Within(torch.autograd.Function):  # type: ignore[misc]
    """Computes a tensor, and saves only the arrays that derivatives need."""

    @staticmethod
    def forward(ctx: Any, tensor: _RecordedTorch, *arrays: Any) -> Array:
        needed = ctx.needs_input_grad[1:]
        ctx.tensor = tensor
        ctx.arrays = list(arrays)  # without the tensors, which torch saves
        ctx.saved_places = []
        for place, array in enumerate(arrays):
            if isinstance(array, torch.Tensor):
                ctx.arrays[place] = None
                if any(needed[:place] + needed[place + 1 :]):
                    ctx.saved_places.append(place)
        ctx.save_for_backward(*(arrays[place] for place in ctx.saved_places))
        return tensor.value(arrays)

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Sequence[Array | None]:
        arrays = list(ctx.arrays)
        for place, tensor in zip(ctx.saved_places, ctx.saved_tensors):
            arrays[place] = tensor
        places = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        gradients = ctx.tensor.gradients(arrays, cotangent, places)
        return None, *(gradients.get(place) for place in range(len(arrays)))


class TorchGradients(RecordedGradients):
    """Gradients of tensors."""

    array = _RecordedTorch

    def needed(self, array: Array) -> bool:
        return bool(array.requires_grad) and bool(torch.is_grad_enabled())

    def constant(self, array: Array) -> Array:
        return array.detach() if array.requires_grad else array

    def embed_diagonal(self, array: Array) -> Array:
        return torch.diag_embed(array)
