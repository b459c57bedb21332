"""Gradients of contractions under a memory limit, as a layer of Paddle's autograd.

This module imports Paddle, and is imported when autograd records the first such contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.recorded import RecordedArray, RecordedGradients
from einsumx.adapters.typing import Array

paddle: Any = import_module("paddle")


class _RecordedPaddle(RecordedArray):
    """A tensor that autograd records."""

    def recorded(self, arrays: Sequence[Any]) -> Array:
        return _WithinLayer.apply(self, *arrays)

    def finished(self, value: Array, dtype: str) -> Array:
        return value.astype(dtype)


class _WithinLayer(paddle.autograd.PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, tensor: _RecordedPaddle, *arrays: Any) -> Array:
        ctx.tensor, ctx.arrays = tensor, arrays
        result = tensor.value(arrays)
        return paddle.assign(result) if any(result is array for array in arrays) else result

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Any:
        """The gradients by the tensors; None for those that need none."""
        own = [place for place, array in enumerate(ctx.arrays) if isinstance(array, paddle.Tensor)]
        needed = [place for place in own if not ctx.arrays[place].stop_gradient]
        gradients = ctx.tensor.gradients(ctx.arrays, cotangent, needed)
        return tuple([gradients.get(place) for place in own])


class PaddleGradients(RecordedGradients):
    """Gradients of tensors."""

    array = _RecordedPaddle

    def needed(self, array: Array) -> bool:
        return not array.stop_gradient and bool(paddle.is_grad_enabled())

    def constant(self, array: Array) -> Array:
        return array if array.stop_gradient else array.detach()

    def embed_diagonal(self, array: Array) -> Array:
        return paddle.diag_embed(array)
