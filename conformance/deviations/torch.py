"""Where PyTorch's own einsum deviates."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "torch:einsum": (
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, PyTorch takes spaces alone.",
        ),
        Deviation(
            """
            forms/αж*
            sublists/[100,*
            sublists/['*
            sublists/[(0, 0)*
            sublists/[None*
            sublists/[70,*
            """,
            "PyTorch's labels are 52 letters, or the integers from 0 to 51.",
        ),
        Deviation(
            """
            known faults/* no matrix product of bools
            known faults/* bools are counted
            known faults/ij,jk->ki * bools are not transposed
            """,
            "PyTorch has no matrix product of bools, and its einsum has no other way.",
        ),
        Deviation(
            """
            known faults/* int8 is widened
            """,
            "PyTorch's sums of integers are in int64, and so are those equations in which einsum calls a sum.",
        ),
        Deviation(
            """
            known faults/ij,jk->ik * dtypes are not promoted
            """,
            "PyTorch's matrix products take one dtype, and einsum casts nothing for them.",
        ),
        Deviation(
            """
            known faults/* dtype=*
            known faults/* optimize=*
            """,
            "PyTorch's einsum has neither dtype= nor a path for a call.",
        ),
    ),
}
