"""Products of large arrays of narrow integers with vectors, or with a few of them, by float32 BLAS.

Their time is that of reading the array. Each part of it is cast to float32 in a cache, and read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np

from einsumx.host.threads import get_num_threads, run
from einsumx.ir.layout import broadcast

__all__ = ["is_thin", "matmul", "workspace"]

Shape: TypeAlias = tuple[int, ...]

_THIN = 8
"""The most rows or columns of the other operand."""

_PART = 1 << 17
"""The elements of a part: in float32, half of a core's cache."""

_LEAST = 1 << 18
"""The least elements of the large operand."""

_SHARED = 1 << 20
"""The least elements for more than one thread."""


def is_thin(shapes: Sequence[Shape]) -> bool:
    """Whether this module multiplies ``[..., m, k]`` by ``[..., k, n]``."""
    lhs, rhs = shapes
    return min(lhs[-2], rhs[-1]) <= _THIN and max(map(prod, shapes)) >= _LEAST and lhs[:-2] == rhs[:-2]


def matmul(shapes: Sequence[Shape], sums: str, step: int) -> Callable[[Any, Any], Any]:
    """The kernel of such a product.

    Args:
        shapes: of the operands.
        sums: the dtype of the result.
        step: how many products float32 sums exactly.
    """
    lhs, rhs = shapes
    shape = (*broadcast(lhs[:-2], rhs[:-2]), lhs[-2], rhs[-1])
    is_tall = lhs[-2] >= rhs[-1]
    boxes = list(_boxes(shape[:-2], max(shape[-2:]), min(lhs[-1], step)))
    blocks = [slice(start, start + step) for start in range(0, lhs[-1], step)]

    def kernel(lhs: Any, rhs: Any) -> Any:
        out = np.empty(shape, sums)
        # The large operand is on the left.
        left, right, target = (
            (lhs, rhs, out) if is_tall else (rhs.swapaxes(-1, -2), lhs.swapaxes(-1, -2), out.swapaxes(-1, -2))
        )
        right = right.astype(np.float32)
        count = get_num_threads() if left.size >= _SHARED else 1
        jobs = [partial(_multiply, left, right, target, boxes[first::count], blocks) for first in range(count)]
        if count == 1:
            jobs[0]()
        else:
            run(jobs)
        return out

    return kernel


def _boxes(batch: Shape, rows: int, inner: int) -> Iterator[tuple[slice, ...]]:
    """Parts of a batch, and of the rows of each matrix, of about as many elements as fit the cache."""
    within = max(1, _PART // max(inner, 1))
    sizes, steps = (*batch, rows), []
    for size in reversed(sizes):
        steps.append(max(1, min(size, within)))
        within //= size or 1
    cuts = [[slice(at, at + step) for at in range(0, size, step)] for size, step in zip(sizes, reversed(steps))]
    return product(*cuts)


def _multiply(left: Any, right: Any, out: Any, boxes: Sequence[tuple[slice, ...]], blocks: Sequence[slice]) -> None:
    for box in boxes:
        target, batch = out[box], box[:-1]
        for number, block in enumerate(blocks):
            places, few = (*box, block), (*batch, block)
            part = np.matmul(left[places].astype(np.float32), right[few])
            if number == 0:
                np.copyto(target, part, casting="unsafe")
            else:
                target += part.astype(out.dtype)


def workspace(shapes: Sequence[Shape], step: int) -> int:
    """The most bytes that such a product allocates, without its result."""
    lhs, rhs = shapes
    small, threads = min(prod(lhs), prod(rhs)), get_num_threads()
    cols, block = min(lhs[-2], rhs[-1]), min(lhs[-1], step)
    rows = max(1, min(max(map(prod, shapes)), _PART) // block)
    return 4 * small + threads * (4 * rows * block + 8 * rows * cols)
