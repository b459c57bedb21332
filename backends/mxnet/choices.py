"""Which of MXNet's operators runs an op fastest: decided from shapes alone, without the framework."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from einsumx.ir import traits
from einsumx.ir.layout import cut, merged_transpose
from einsumx.ir.ops import Matmul

Shape: TypeAlias = tuple[int, ...]

MOST_TRANSPOSED = 6
"""The most axes that MXNet 1 transposes."""

AROUND_BATCH = {equation: flags for flags, equation in traits.AROUND_BATCH.items()}
"""The einsums that the linear algebra of MXNet 1 computes, and which operands it transposes."""

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


def transposes(axes: tuple[int, ...], shape: Shape) -> list[tuple[Shape, tuple[int, ...]]]:
    """Transposes of few axes that make up one of many: the shape before each, and its axes.

    >>> transposes((3, 4, 5, 0, 1, 2), (2,) * 6)
    [((8, 8), (1, 0))]
    """
    order, steps = tuple(range(len(axes))), []
    while order != axes:
        # Bring as many axes as the limit allows into place from the left. The runs between those that are taken out
        # count as axes too.
        stages = [(*axes[:end], *[axis for axis in order if axis not in axes[:end]]) for end in range(len(axes) + 1)]
        merged = [merged_transpose(order, stage, shape) for stage in stages]
        last = max(end for end, (_, moved) in enumerate(merged) if len(moved) <= MOST_TRANSPOSED)
        order = stages[last]
        if len(merged[last][1]) > 1:  # not if it moved axes of size 1 alone
            steps.append(merged[last])
    return steps


def sums(axes: tuple[int, ...], rank: int) -> list[tuple[int, ...]]:
    """The axes of sums that make up one, each with at most five runs of axes that are all summed or all kept.

    >>> sums((0, 2, 4), 5), sums((1, 3, 5), 6)
    ([(0, 2, 4)], [(3, 5), (1,)])
    """
    runs = cut(axes, lambda run, axis: axis == run[-1] + 1)
    if len(runs) < 3 or (len(runs) == 3 and axes[0] == 0 and axes[-1] == rank - 1):
        return [axes]
    return [sum(runs[max(end - 2, 0) : end], ()) for end in range(len(runs), 0, -2)]


def pays_as_layer(op: Matmul, lhs: Shape, rhs: Shape) -> bool:
    """Whether MXNet 1 computes a float32 product of two matrices faster as a network layer, copies included."""
    rows, inner = lhs[::-1] if op.transpose_lhs else lhs
    cols = rhs[0] if op.transpose_rhs else rhs[1]
    copies_pay = (not op.transpose_lhs or cols >= _USES_PER_COPY) and (op.transpose_rhs or rows >= _USES_PER_COPY)
    return rows * inner * cols >= _LARGE_PRODUCT and copies_pay


def pays_by_matmul(shape: Shape, axes: Sequence[int], dtype: str) -> bool:
    """Whether a sum is faster as a product with ones: it is large, and the summed axes are adjacent."""
    is_adjacent = axes[-1] - axes[0] + 1 == len(axes)
    return prod(shape) >= _LARGE_SUM and is_adjacent and dtype in ("float32", "float64")
