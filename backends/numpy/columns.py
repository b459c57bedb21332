"""Products and sums of very short rows, column by column: for NumPy, the start of a loop for each row takes longest.

Rows are computed in blocks that stay in the cache from one column to the next. The order of each sum depends on the
length of a row alone, so results are the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np

from einsumx.backends.numpy.jobs import Kernel, Range, Shape, grid, in_jobs, within
from einsumx.ir.layout import ranges

_BLOCK = 1 << 18
"""The bytes of a block of rows."""


def multiply(shapes: Sequence[Shape], shape: Shape, row: int, dtype: str, pieces: int) -> Kernel:
    """The kernel of an elementwise product that broadcasts.

    Args:
        shapes, shape: of the operands and of the result.
        row: the number of axes of a row.
        dtype: of both.
        pieces: to compute it in.
    """
    rank = len(shape)
    lhs, rhs = ((1,) * (rank - len(own)) + tuple(own) for own in shapes)
    columns = [tuple([slice(k, k + 1) for k in place]) for place in product(*map(range, shape[-row:]))]
    boxes = [(*block, *column) for block in _blocks(shape[:-row], len(columns), dtype) for column in columns]
    parts = [
        (within(box, lhs)[rank - len(shapes[0]) :], within(box, rhs)[rank - len(shapes[1]) :], box) for box in boxes
    ]
    cuts = ranges(len(parts), pieces)

    def multiply_parts(out: Any, lhs: Any, rhs: Any, *, cut: slice) -> None:
        for left, right, box in parts[cut]:
            np.multiply(lhs[left], rhs[right], out=out[box])

    return in_jobs(lambda *arrays: [partial(multiply_parts, *arrays, cut=cut) for cut in cuts], shape, dtype)


def dots(rows: Shape, row: Shape, dtype: str, pieces: int) -> Kernel:
    """The kernel of the dot products of many pairs of rows, or, of one array, the sums of its rows.

    Args:
        rows, row: the axes that count rows, and those of a row.
        dtype: of the operands.
        pieces: to compute them in.
    """
    first, second, *columns = [(..., *place) for place in product(*map(range, row))]
    blocks = _blocks(rows, prod(row), dtype)
    cuts = ranges(len(blocks), pieces)
    size = max([prod([part.stop - part.start for part in block]) for block in blocks]) * prod(row)

    def add_columns(out: Any, *arrays: Any, cut: slice) -> None:
        products = np.empty(size if len(arrays) > 1 else 0, dtype)
        with np.errstate(all="ignore"):  # as NumPy's einsum
            for block in blocks[cut]:
                terms, *others = [array[block] for array in arrays]
                total = out[block]
                if others:
                    terms = np.multiply(terms, others[0], out=products[: terms.size].reshape(terms.shape))
                np.add(terms[first], terms[second], out=total)
                for column in columns:
                    np.add(total, terms[column], out=total)

    return in_jobs(lambda *arrays: [partial(add_columns, *arrays, cut=cut) for cut in cuts], rows, dtype)


def dots_workspace(shape: Shape, dtype: str) -> int:
    """Bytes of the products of a block of the rows of an array."""
    return min(prod(shape) * np.dtype(dtype).itemsize, 2 * _BLOCK)


def _blocks(rows: Shape, row: int, dtype: str) -> list[Range]:
    return list(grid(rows, ceil(prod(rows) * row * np.dtype(dtype).itemsize / _BLOCK)))
