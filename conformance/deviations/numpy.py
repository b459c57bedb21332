"""Where NumPy's own einsum deviates."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "numpy:einsum": (
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, NumPy takes spaces alone.",
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
            "NumPy's labels are 52 letters, or the integers from 0 to 51.",
        ),
        Deviation(
            """
            ellipsis/...i->i (2,*
            ellipsis/...j->j *
            ellipsis/...i,...->i *
            known faults/* ellipsis axes are not summed
            """,
            "NumPy does not sum the axes of an ellipsis that the output leaves out.",
        ),
        Deviation(
            "known faults/* optimize=True the sum that goes first ignores dtype=",
            "With optimize=, NumPy sums what one operand alone has before, and does so in the operand's dtype.",
            since="2.4",
        ),
    ),
}
