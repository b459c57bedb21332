"""Which products of bfloat16 PyTorch computes with instructions of the processor, found out when it is imported.

This module imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from einsumx.adapters.typing import Array
from einsumx.backends.torch import kernels
from einsumx.ir.traits import WideOp

torch: Any = import_module("torch")

_LONG = 1000
"""Terms of a sum whose roundings to bfloat16 would show."""


@cache
def wide_products() -> frozenset[WideOp]:
    """The products of bfloat16 that are fast here, and that accumulate in float32 and round once.

    Others than oneDNN's are slow loops, and oneDNN is slow without the instructions (avx512_bf16, which all processors
    with AMX have).
    """
    try:
        if not torch.cpu._is_avx512_bf16_supported() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return frozenset()
        return accumulating()
    except (AttributeError, RuntimeError):  # a torch that does not say, or that cannot multiply here
        return frozenset()


def accumulating() -> frozenset[WideOp]:
    """The products that accumulate in float32 in each layout, but not of two vectors, which are not oneDNN's."""
    return frozenset([op for op, batch in _BATCHES.items() if all(_rounds_once(*pair) for pair in _pairs(batch))])


_BATCHES: dict[WideOp, tuple[int, ...]] = {"matmul": (), "batch": (3,)}


def _pairs(batch: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
    """Matrices of random numbers, and of a large one before many small ones, in both memory orders."""
    generator = torch.Generator().manual_seed(0)
    for rows, cols in ((16, 16), (33, 7), (1, 48), (48, 1)):
        lhs = torch.randn(*batch, rows, _LONG, generator=generator)
        rhs = torch.randn(*batch, _LONG, cols, generator=generator)
        steps = torch.ones_like(lhs)
        steps[..., 0] = 256.0
        for left, right in ((lhs, rhs), (steps, torch.ones_like(rhs))):
            left, right = left.bfloat16(), right.bfloat16()
            yield left, right
            yield left.mT.contiguous().mT, right.mT.contiguous().mT


def _rounds_once(lhs: Array, rhs: Array) -> bool:
    found = kernels.product(tuple(lhs.shape), tuple(rhs.shape), "bfloat16")(lhs, rhs).double()
    exact = lhs.double() @ rhs.double()
    noise = 1e-6 * (lhs.double().abs() @ rhs.double().abs())  # of sums in float32
    return bool(((found - exact).abs() <= exact.abs() / 256 + noise).all())
