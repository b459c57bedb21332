"""Where cotengra's einsum deviates, on NumPy's arrays."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "cotengra:einsum on numpy": (
        Deviation(
            r"""
            forms/* blanks
            forms/ij,\tjk\n->ik *
            implicit output/i, i *
            known faults/* a blank makes another label
            """,
            "A blank is a label for cotengra.",
        ),
        Deviation(
            """
            sublists/[30,26];[26,27] *
            sublists/[70,*
            sublists/['z','b','y']*
            known faults/[30,0]*
            known faults/[2,0]*
            """,
            "cotengra leaves the labels of sublists in the order of their appearance when there is no output.",
        ),
        Deviation(
            "known faults/* size 1 does not broadcast",
            "For cotengra, sizes of 1 are equal to no others.",
        ),
        Deviation(
            "known faults/* dtype=*",
            "cotengra has no dtype=.",
        ),
        Deviation(
            "known faults/* optimize=False no path for a call",
            "cotengra has no optimize=False.",
        ),
    ),
}
