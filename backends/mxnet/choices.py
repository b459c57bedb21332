"""Which of MXNet's operators runs an op fastest: decided from shapes alone, without the framework."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from einsumx.ir.ops import Matmul

Shape: TypeAlias = tuple[int, ...]

_LARGE_SUM = 1 << 16
"""The least number of elements for which a sum by matmul pays for its additional calls."""

_LARGE_PRODUCT = 1 << 20
"""The least number of multiply-adds for which MXNet 1 computes a single product faster as a network layer."""

_USES_PER_COPY = 256
"""How often a layer must use each element of a transposed operand to pay for its copy."""


def swaps(axes: Sequence[int], *, mxnet_1: bool) -> list[tuple[int, int]]:
    """The fewest swaps of two axes that make up a transpose, if they are faster than the transpose; otherwise none.

    If the last axis stays in place, swaps copy whole rows. That is several times faster than the transpose of MXNet 1,
    and than that of MXNet 2 beyond four axes.

    >>> swaps((0, 2, 1, 3), mxnet_1=True), swaps((0, 2, 1, 3), mxnet_1=False)
    ([(1, 2)], [])
    """
    if axes[-1] != len(axes) - 1 or not (mxnet_1 or len(axes) > 4):
        return []
    order, pairs = list(range(len(axes))), []
    for place, axis in enumerate(axes):
        other = order.index(axis)
        if other != place:
            pairs.append((place, other))
            order[place], order[other] = order[other], order[place]
    return pairs


def pays_as_layer(op: Matmul, lhs: Shape, rhs: Shape) -> bool:
    """Whether MXNet 1 computes a single float32 product faster as a network layer, copies included."""
    rows, inner = lhs[:0:-1] if op.transpose_lhs else lhs[1:]
    cols = rhs[1] if op.transpose_rhs else rhs[2]
    copies_pay = (not op.transpose_lhs or cols >= _USES_PER_COPY) and (op.transpose_rhs or rows >= _USES_PER_COPY)
    return rows * inner * cols >= _LARGE_PRODUCT and copies_pay


def pays_by_matmul(shape: Shape, axes: Sequence[int], dtype: str) -> bool:
    """Whether a sum is faster as a product with ones: it is large, and the summed axes are adjacent."""
    is_adjacent = axes[-1] - axes[0] + 1 == len(axes)
    return prod(shape) >= _LARGE_SUM and is_adjacent and dtype in ("float32", "float64")
