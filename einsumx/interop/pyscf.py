"""``lib.einsum`` and ``lib.contract`` of PySCF, with its keywords."""

from __future__ import annotations

from typing import Any

from einsumx.api import addeinsum, einsum


def contract(*operands: Any, alpha: Any = 1, beta: Any = 0, out: Any = None, **options: Any) -> Any:
    """``out = alpha * einsum(*operands) + beta * out``, or a new array without ``out``, as PySCF's ``lib.contract``.

    Args:
        *operands: as for :func:`einsumx.einsum`.
        alpha: a number that multiplies the contraction.
        beta: a number that multiplies the values in ``out``; 0 does not read them.
        out: where to write the result.
        **options: keywords of :func:`einsumx.einsum`.

    >>> import numpy as np
    >>> contract("ij,j->i", np.eye(2), np.array([1.0, 2.0]), alpha=2)
    array([2., 4.])
    """
    if out is None:
        return einsum(*operands, **options) if alpha == 1 else addeinsum(0, *operands, alpha=alpha, beta=0, **options)
    if alpha == 1 and beta == 0:
        return einsum(*operands, out=out, **options)
    return addeinsum(out, *operands, alpha=alpha, beta=beta, out=out, **options)
