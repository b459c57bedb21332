"""Einsum of two CuPy arrays by cuTENSOR, as a contender. It runs on a GPU alone, and has not run yet."""

from __future__ import annotations

from typing import Any

import cupy
from cupyx import cutensor


def einsum(equation: str, lhs: Any, rhs: Any) -> Any:
    """The contraction of two arrays of one dtype."""
    terms, _, output = equation.partition("->")
    left, right = terms.split(",")
    sizes = dict(zip(left + right, lhs.shape + rhs.shape))
    result = cupy.empty([sizes[label] for label in output], lhs.dtype)
    return cutensor.contraction(1.0, lhs, tuple(left), rhs, tuple(right), 0.0, result, tuple(output))
