"""Products of matrices in a semiring as compiled loops, by numba where it is installed.

A loop keeps its terms in registers, where functions of arrays write and read each, and needs no turn of Python's lock.
Compiling takes a second, so it waits until as much time went into functions of arrays. The results are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

_PAYS = 4e9
"""The terms that functions of arrays compute in about the time that numba takes to be imported and to compile."""

_BLOCK = 256 << 10
"""Bytes of the rows of the second operand that are used for all rows of the first before the next are read."""

_DTYPES = ("float32", "float64")

_computed = 0.0
"""The terms that were computed by functions of arrays in this process."""


def product_loops(add: str, multiply: str, dtype: str, terms: int) -> Callable[..., None] | None:
    """The function that computes a part of a product; None while functions of arrays should.

    It takes ``lhs[batch, m, k]``, ``rhs[batch, k, n]`` and ``out[batch, m, n]``, all C-contiguous, an operand's batch
    axis of size 1 standing for any; then the first matrix and the one after the last, and so the rows.

    Args:
        add: ``maximum`` or ``minimum``.
        multiply: ``add``, ``multiply``, ``maximum`` or ``minimum``.
        dtype: of all three arrays.
        terms: how many the product has.
    """
    global _computed  # noqa: PLW0603  # threads that lose a count only compile later
    if dtype not in _DTYPES:
        return None
    if _computed < _PAYS:
        _computed += terms
        return None
    return _compiled(add, multiply)


@cache
def _compiled(add: str, multiply: str) -> Callable[..., None] | None:
    """Loops for any dtype, which numba compiles when they are called; None without numba."""
    try:
        numba: Any = import_module("numba")
    except ImportError:  # also for a NumPy that this numba does not know
        return None
    if numba.config.DISABLE_JIT:
        return None
    compiled = numba.njit(nogil=True, error_model="numpy")
    larger, smaller = compiled(_maximum), compiled(_minimum)
    select = larger if add == "maximum" else smaller
    products = {"add": compiled(_sum), "multiply": compiled(_product), "maximum": larger, "minimum": smaller}
    product = products[multiply]

    def part(lhs: Any, rhs: Any, out: Any, first: int, last: int, top: int, bottom: int) -> None:
        inner, cols = rhs.shape[1], rhs.shape[2]
        step = max(1, _BLOCK // (cols * rhs.itemsize))
        for b in range(first, last):
            left, right = lhs[b if len(lhs) > 1 else 0], rhs[b if len(rhs) > 1 else 0]
            for start in range(0, inner, step):
                for i in range(top, bottom):
                    total = out[b, i]
                    for k in range(start, min(inner, start + step)):
                        factor, row = left[i, k], right[k]
                        if k == 0:
                            for j in range(cols):
                                total[j] = product(factor, row[j])
                        else:
                            for j in range(cols):
                                total[j] = select(total[j], product(factor, row[j]))

    return compiled(part)  # type: ignore[no-any-return]


# What numba compiles. A nan is kept, as by NumPy's functions.


def _maximum(x: Any, y: Any) -> Any:
    return x if x > y or x != x else y


def _minimum(x: Any, y: Any) -> Any:
    return x if x < y or x != x else y


def _sum(x: Any, y: Any) -> Any:
    return x + y


def _product(x: Any, y: Any) -> Any:
    return x * y
