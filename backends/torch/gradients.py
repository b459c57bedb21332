"""Gradients of contractions by einsumx, as a function of PyTorch's autograd.

This module imports torch, and is imported when autograd records the first such contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.adapters.recorded import RecordedArray, RecordedGradients
from einsumx.adapters.typing import Array, Run
from einsumx.ir.contraction import Contraction
from einsumx.runtime.transposed import TransposedContraction

torch: Any = import_module("torch")


class _RecordedTorch(RecordedArray):
    """A tensor that autograd records."""

    needs_all = False

    def recorded(self, arrays: Sequence[Any]) -> Array:
        return _Within.apply(self, *arrays)

    def finished(self, value: Array, dtype: str) -> Array:
        target = getattr(torch, dtype)
        if value.is_complex() and not target.is_complex:
            return value.real.to(target, copy=True)
        return value if value.dtype is target else value.to(target)


class _Within(torch.autograd.Function):  # type: ignore[misc]
    """Computes a tensor, and saves only the arrays that derivatives need."""

    @staticmethod
    def forward(ctx: Any, tensor: _RecordedTorch | _Repeated, *arrays: Any) -> Array:
        needed = ctx.needs_input_grad[1:]
        ctx.tensor = tensor
        ctx.arrays = list(arrays)  # without the tensors, which torch saves
        ctx.saved_places = []
        for place, array in enumerate(arrays):
            if isinstance(array, torch.Tensor):
                ctx.arrays[place] = None
                if tensor.needs_all or any(needed[:place] + needed[place + 1 :]):
                    ctx.saved_places.append(place)
        ctx.save_for_backward(*(arrays[place] for place in ctx.saved_places))
        return tensor.value(arrays)

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Sequence[Array | None]:
        arrays = list(ctx.arrays)
        for place, tensor in zip(ctx.saved_places, ctx.saved_tensors):
            arrays[place] = tensor
        places = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        with torch._C._DisableAutocast():
            gradients = ctx.tensor.gradients(arrays, cotangent, places)
        return None, *(gradients.get(place) for place in range(len(arrays)))


class _Repeated:
    """A result whose gradients are those of the calls that compute it, which run again in the backward pass.

    Args:
        run: these calls, as a function of the operands.
    """

    needs_all = True  # also an operand itself for its gradient

    def __init__(self, run: Run) -> None:
        self._run = run

    def value(self, arrays: Sequence[Any]) -> Array:
        """The result for operands, and for None."""
        return _without_base(self._run(*arrays[:-1]))

    def gradients(self, arrays: Sequence[Any], cotangent: Array, places: Sequence[int]) -> dict[int, Array]:
        """The gradients by the operands in some places."""
        is_recorded, operands = torch.is_grad_enabled(), list(arrays[:-1])
        with torch.enable_grad():
            for place in places:  # other tensors, as hooks on the operands are called later
                array = arrays[place]
                operands[place] = array.view_as(array) if is_recorded else array.detach().requires_grad_()
            result, inputs = self._run(*operands), [operands[place] for place in places]
            found = torch.autograd.grad(result, inputs, cotangent, create_graph=is_recorded)
        return dict(zip(places, found))


def with_own(run: Run, adapter: Adapter, contraction: Contraction) -> Run:
    """``run``, a function of tensors, as autograd records it with einsumx's gradients: it keeps only these tensors.

    Args:
        run: the function.
        adapter: of the tensors.
        contraction: the one that it computes.
    """
    if len(contraction.operands) > 2:  # whose gradients have products in common
        repeated = _Repeated(run)
        return lambda *arrays: _Within.apply(repeated, *arrays, None)
    call = TransposedContraction(adapter, contraction)
    return lambda *arrays: _RecordedTorch(call, lambda: _without_base(run(*arrays))).recorded([*arrays, None])


def _without_base(result: Array) -> Array:
    """A result that is no view: nobody could write to a view that a function of autograd's returns."""
    return result.detach() if result._is_view() else result


class TorchGradients(RecordedGradients):
    """Gradients of tensors."""

    array = _RecordedTorch

    def needed(self, array: Array) -> bool:
        return bool(array.requires_grad) and bool(torch.is_grad_enabled())

    def constant(self, array: Array) -> Array:
        return array.detach() if array.requires_grad else array

    def embed_diagonal(self, array: Array) -> Array:
        return torch.diag_embed(array)
