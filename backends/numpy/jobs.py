"""Work on parts of arrays, on the threads of the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from einsumx.imports import LazyModule
from einsumx.ir.layout import ranges

if TYPE_CHECKING:
    from einsumx.host import threads as pool
else:
    pool = LazyModule("einsumx.host.threads")

Kernel: TypeAlias = Callable[..., Any]
Shape: TypeAlias = tuple[int, ...]
Range: TypeAlias = tuple[slice, ...]

_ALL = slice(None)


def grid(shape: Sequence[int], pieces: int) -> Iterator[Range]:
    """Boxes that make up ``shape``, if possible at least ``pieces``, split along the first axes."""
    axes = []
    for size in shape:
        axes.append(ranges(size, pieces))
        pieces = ceil(pieces / len(axes[-1]))
    return product(*axes)


def in_jobs(jobs: Callable[..., list[Kernel]], shape: Shape, dtype: str) -> Kernel:
    """A kernel whose result is written in parts, on the pool.

    Args:
        jobs: makes the functions that write them, of ``out`` and the operands.
        shape, dtype: of the result.
    """
    new = partial(np.empty, shape, dtype)

    def kernel(*arrays: Any, out: Any = None) -> Any:
        result = new() if out is None else out
        parts = jobs(result, *arrays)
        run = partial(pool.run, parts) if len(parts) > 1 else parts[0]
        try:
            run()
        except BaseException:  # such as an interruption: an ``out`` is written completely all the same
            if out is not None:
                run()
            raise
        return result

    return kernel


def within(box: Range, shape: Sequence[int]) -> Range:
    """The part of an operand that broadcasts to ``box``."""
    return tuple(_ALL if size == 1 else cut for cut, size in zip(box, shape))
