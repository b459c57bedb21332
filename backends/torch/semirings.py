"""Products of matrices in a semiring on tensors: NumPy's kernels in host memory, otherwise rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from einsumx.backends.numpy.kernels import matmul
from einsumx.backends.numpy.semirings import product as product_of_arrays
from einsumx.backends.torch.choices import IN_NUMPY, rows_at_once
from einsumx.backends.torch.kernels import is_observed
from einsumx.ir.semiring import Semiring

__all__ = ["elementwise", "product", "reduced"]

Shape: TypeAlias = tuple[int, ...]


def elementwise(name: str, lhs: Any, rhs: Any) -> Any:
    """An elementwise function, which broadcasts."""
    return getattr(torch, name)(lhs, rhs)


def reduced(name: str, array: Any, axes: tuple[int, ...]) -> Any:
    """The reduction over ``axes``; its gradient is shared by equal maxima, and 0 for a sum of minus infinities."""
    if name != "logaddexp":
        return array.amax(axes) if name == "maximum" else array.amin(axes)
    if not is_observed((array,)):
        return torch.logsumexp(array, axes)
    shift = array.detach().amax(axes, keepdim=True)
    shift = torch.where(shift.isfinite(), shift, 0)
    total = (array - shift).exp().sum(axes)
    is_possible = total != 0  # the derivative of the logarithm at 0 would be nan
    result = torch.where(is_possible, total, 1).log() + shift.reshape(total.shape)
    return torch.where(is_possible, result, -torch.inf)


def product(semiring: Semiring, lhs: Shape, rhs: Shape, dtype: str) -> Callable[[Any, Any], Any]:
    """The function that multiplies tensors ``[batch, m, k]`` and ``[batch, k, n]`` in a semiring.

    Tensors that autograd or a transform records go through torch's own functions, which differentiate.
    """
    in_host_memory = None
    if dtype in IN_NUMPY:
        in_host_memory = product_of_arrays(semiring, lhs, rhs, matmul((lhs, rhs), dtype, ""))
    step = rows_at_once(lhs, rhs)

    def multiply(left: Any, right: Any) -> Any:
        if in_host_memory is not None and not is_observed((left, right)):
            return torch.from_numpy(in_host_memory(_as_numpy(left), _as_numpy(right)))
        parts = []
        for start in range(0, lhs[1], step):
            terms = elementwise(semiring.multiply, left[:, start : start + step, :, None], right[:, None])
            parts.append(reduced(semiring.add, terms, (2,)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    return multiply


def _as_numpy(tensor: Any) -> Any:
    return tensor.detach().resolve_neg().numpy()
