"""Known deviations on sparse arrays."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "sparse": listed(r"""
        A zero that a sparse array does not store meets no inf: the product is 0, as that of sparse.matmul.
            inf and nan/ij,jk->ik * inf times zero
    """),
}
