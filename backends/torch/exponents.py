"""PyTorch's part of :func:`einsumx.einsum_frexp`: the largest parts of tensors, and powers of two in traces.

This module imports torch, and is imported when the first exponent is stripped.
"""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from math import isfinite
from typing import Any

from einsumx.adapters.typing import Array
from einsumx.algebra.powers import traced_exponent, traced_powers

torch: Any = import_module("torch")


def magnitudes(array: Array) -> float | complex:
    """As :meth:`einsumx.adapters.facets.Exponents.magnitudes`, of a tensor with values."""
    array = array.detach().resolve_conj().resolve_neg()
    if not array.numel():
        return 0.0
    parts = torch.view_as_real(array) if array.is_complex() else array
    least, most = parts.aminmax()
    largest: float = torch.maximum(most, -least).item()
    if isfinite(largest):
        return largest
    if array.is_complex():
        return complex("nan")
    finite: float = torch.where(parts.isfinite(), parts.abs(), 0).amax().item()
    return finite


def normalized(array: Array, exponent: Any) -> tuple[Array, Array]:
    """As :meth:`einsumx.adapters.facets.Exponents.normalized_in_trace`, of a tensor without values."""
    is_complex = array.is_complex()
    parts = torch.view_as_real(array.resolve_conj()) if is_complex else array
    wide = torch.float64 if parts.dtype is torch.float64 else torch.float32
    dtype = "float64" if wide is torch.float64 else "float32"
    sizes = parts.detach().to(wide).abs()
    finite = torch.where(sizes.isfinite(), sizes, torch.zeros_like(sizes))
    largest = finite.amax() if _is_filled(array) else finite.sum()
    own = traced_exponent(largest, dtype, _bits, torch.where)
    powers = traced_powers(-own, dtype, _bits)
    scaled = reduce(torch.mul, powers, parts.to(wide)).to(parts.dtype)
    total = torch.where(largest > 0, own.long() + (0 if exponent is None else exponent), 0)
    return torch.view_as_complex(scaled) if is_complex else scaled, total


def _is_filled(array: Array) -> bool:
    """Whether a tensor has elements; a size that is a symbol is not 0."""
    return all(type(size) is not int or size for size in array.shape)


def _bits(array: Array, dtype: str) -> Array:
    return array.view(getattr(torch, dtype))
