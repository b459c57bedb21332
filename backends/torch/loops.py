"""Contractions under a memory limit in graphs of torch: one operator, which computes the blocks when it runs.

This module imports torch, and is imported when something traces the first such contraction. The operator has only
texts and numbers beside tensors, so that graphs can be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters import hooks
from einsumx.adapters.facets import TracedCall, TracedLoops
from einsumx.adapters.typing import Array
from einsumx.backends.torch.kernels import has_memory
from einsumx.errors import BackendError

torch: Any = import_module("torch")

NAME = "einsumx::within_limit"

torch.library.define(
    NAME,
    "(Tensor[] operands, str equation, int[] shape, int limit, str dtype, str? accumulate, int[] conj) -> Tensor",
)


class TorchLoops(TracedLoops):
    """Contractions in graphs, as the operator."""

    counts_results = True

    def is_traced(self, arrays: Sequence[Array]) -> bool:
        return not all(map(has_memory, arrays))

    def known(self, array: Array) -> Array:
        is_recorded = torch._C._are_functorch_transforms_active() and array.requires_grad
        if is_recorded or torch.autograd.forward_ad.unpack_dual(array).tangent is not None:
            raise BackendError(
                "memory_limit= has no derivatives by torch.func or in forward mode; use torch.autograd, or omit "
                "memory_limit="
            )
        # A size that changes between calls becomes a number, for which there is a graph of its own.
        return array.expand(list(map(int, array.shape))) if array._has_symbolic_sizes_strides else array

    def recorded(self, call: TracedCall, operands: Sequence[Array]) -> Array:
        return torch.ops.einsumx.within_limit(list(operands), *call.arguments)

    def filled(self, like: Sequence[Array], shape: tuple[int, ...], value: float, dtype: str, after: Any) -> Array:
        return torch.full(shape, value, dtype=self.adapter.dtype(dtype), device=like[0].device)

    def as_dtype(self, array: Array, dtype: str) -> Array:
        target = self.adapter.dtype(dtype)
        return (array.real if array.is_complex() and not target.is_complex else array).to(target)

    def on_diagonal(self, array: Array, term: Sequence[int]) -> Array:
        first = [term.index(label) for label in term]
        added = [axis for axis, place in enumerate(first) if place != axis]
        for axis in added:
            array = array.unsqueeze(axis)
        for axis in added:
            places = torch.arange(array.shape[first[axis]], device=array.device)
            rows, columns = [
                places.view([-1 if each == own else 1 for each in range(array.ndim)]) for own in (first[axis], axis)
            ]
            array = torch.where(rows == columns, array, 0)
        return array


@torch.library.register_fake(NAME)  # type: ignore[untyped-decorator]
def _empty(operands: Sequence[Array], _: str, shape: Sequence[int], __: int, dtype: str, *___: Any) -> Array:
    return torch.empty(shape, dtype=getattr(torch, dtype), device=operands[0].device)


def _with_lazy_conjugates() -> Any:
    """A context in which kernels heed that a tensor is conjugated, which torch switches off around some operators."""
    excluded, keys = torch._C._dispatch_tls_local_exclude_set(), torch._C.DispatchKey
    for key in (keys.Conjugate, keys.Negative):
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


@torch.library.impl(NAME, "CompositeExplicitAutograd")  # type: ignore[untyped-decorator]
def _computed(operands: Sequence[Array], equation: str, _: Sequence[int], limit: int, *arguments: Any) -> Array:
    dtype, accumulate, conj = arguments
    how = {"dtype": dtype, "accumulate": accumulate, "conj": tuple(conj), "casting": "unsafe"}
    with torch.no_grad(), _with_lazy_conjugates():
        result = hooks.einsum(equation, *operands, memory_limit=limit, **how)
    return result.clone(memory_format=torch.contiguous_format) if result._is_view() else result.contiguous()


def _save(ctx: Any, inputs: tuple[Any, ...], output: Array) -> None:  # noqa: ARG001 - torch names them
    operands, *ctx.arguments = inputs
    ctx.save_for_backward(*operands)


def _gradients(ctx: Any, cotangent: Array) -> tuple[Any, ...]:
    operands, arguments = ctx.saved_tensors, ctx.arguments
    call, conjugate = hooks.traced_call(operands, *arguments), cotangent.conj().resolve_conj()
    found = [
        call.cotangent(number, operands, conjugate).conj().resolve_conj() if needed else None
        for number, needed in enumerate(ctx.needs_input_grad[0])
    ]
    return found, *[[] if isinstance(each, Sequence) and not each else None for each in arguments]


torch.library.register_autograd(NAME, _gradients, setup_context=_save)


@torch.library.register_vmap(NAME)  # type: ignore[untyped-decorator]
def _batched(_: Any, places: tuple[Any, ...], operands: Sequence[Array], *arguments: Any) -> tuple[Array, int]:
    axes = places[0]
    first = [operand if axis is None else operand.select(axis, 0) for operand, axis in zip(operands, axes)]
    return hooks.traced_call(first, *arguments).batched(operands, axes), 0
