"""Where opt_einsum's contract deviates, on NumPy's arrays and on PyTorch's."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

_EVERYWHERE = (
    Deviation(
        r"""
        forms/ij,\tjk\n->ik *
        """,
        "Of all blanks, opt_einsum takes spaces alone.",
    ),
    Deviation(
        """
        sublists/[None*
        sublists/['z',0]*
        """,
        "opt_einsum sorts the labels of sublists, so they must have an order.",
    ),
    Deviation(
        """
        known faults/ij,jk->ik * dtype=int32 dtype= fails*
        """,
        "opt_einsum hands dtype= on to tensordot, which has no such keyword.",
    ),
)

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "opt_einsum:contract on numpy": _EVERYWHERE,
    "opt_einsum:contract on torch": (
        *_EVERYWHERE,
        Deviation(
            """
            known faults/* no matrix product of bools
            known faults/* bools are counted
            known faults/ij,jk->ki * bools are not transposed
            """,
            "PyTorch has no matrix product of bools, and opt_einsum has no other way.",
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
            "PyTorch's matrix products take one dtype, and neither einsum nor opt_einsum casts for them.",
        ),
        Deviation(
            """
            known faults/* dtype=*
            !known faults/ij,jk->ik *
            !* optimize=False *
            """,
            "opt_einsum gives PyTorch's einsum no dtype=: what it is given is ignored.",
        ),
        Deviation(
            """
            known faults/* optimize=False *
            """,
            "With optimize=False, opt_einsum hands PyTorch's arrays to NumPy's einsum, and gives a NumPy array.",
        ),
    ),
}
