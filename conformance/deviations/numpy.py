"""Where NumPy's own einsum deviates."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS", "VIEWS"]

VIEWS = Deviation(
    """
    aliasing/* int8 *
    casting/ij->ji *
    dtype/ij->ji *
    dtype/ki->ik *
    order/* out=*
    order/*:sliced *
    order/iij->ji *
    !order/ij,jk->ki *
    order/ij->ij (2,3) float32 order=F
    order/ij->ij (2,3):F float32 order=C
    order/ij->ji (2,3) float32 order=C
    !order/ij->ji (2,3):F float32 order=C
    order/ij->ji *:F *
    """,
    "NumPy gives a view for a rearrangement of one operand, whatever dtype=, casting= and order= say.",
)
"""Shared with what calls NumPy's einsum for one operand."""

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "numpy:einsum": (
        Deviation(
            "two frameworks/*",
            "NumPy makes NumPy arrays of another library's, where it can.",
            sometimes=True,
        ),
        Deviation(
            "random/*",
            "Among random problems are ellipses that the output leaves out, which NumPy does not sum.",
            sometimes=True,
        ),
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, NumPy takes spaces alone.",
        ),
        Deviation(
            """
            forms/αж,жB->Bα *
            sublists/['left','bond'];['bond','right'];['right','left'] *
            sublists/['z','b','y'] *
            sublists/['z',0];[0,1] *
            sublists/[(0, 0),(0, 1)];[(0, 1),(1, 1)];[(1, 1),(0, 0)] *
            sublists/[100,52];[52,60];[60,100] *
            sublists/[70,30,50] *
            sublists/[None,1.5];[1.5,True];[True,None] *
            """,
            "NumPy's labels are 52 letters, or the integers from 0 to 51.",
        ),
        Deviation(
            """
            ellipsis/...i,...->i *
            ellipsis/...i->i *
            ellipsis/...j->j *
            known faults/* ellipsis axes are not summed
            no axes/...-> *
            """,
            "NumPy does not sum the axes of an ellipsis that the output leaves out.",
        ),
        Deviation(
            """
            many operands/* in a binary tree
            many operands/* in a row
            """,
            "NumPy takes 63 operands at most.",
        ),
        VIEWS,
        Deviation(
            """
            known faults/i,i->i *
            wrong equations/{0, 1} *
            wrong operands/* operand 0: of a mask
            wrong operands/* operand 1: of a mask
            wrong operands/i->i *
            """,
            "NumPy makes an array of all that it can, and a sublist of what it can go through.",
        ),
        Deviation(
            """
            wrong out/* optimize=no such *
            wrong paths/* optimize=no such
            """,
            "NumPy looks at optimize= only where there is a choice to make, and takes an unknown name for a yes.",
        ),
        Deviation(
            """
            dtypes/* float16
            half precision/*
            larger sizes/* float16
            layouts/* float16
            promotion/* float16
            promotion/* float16 *
            """,
            "NumPy sums float16 in float16 where the elements do not lie beside each other.",
            sometimes=True,
        ),
        Deviation(
            """
            dtype/ki,ij->j (3,4):range (4,2):range int8 dtype=int32 optimize=True
            known faults/* optimize=True the sum that goes first ignores dtype=
            """,
            "With optimize=, NumPy sums what one operand alone has before, and does so in the operand's dtype.",
            since="2.4",
        ),
        Deviation(
            """
            dtype/ki,i->k * optimize=True
            dtype/ij,jk,kl->il * optimize=True
            """,
            "With optimize=, NumPy before 2.4 calls tensordot, which has no dtype=.",
            before="2.4",
        ),
        Deviation("many operands/60 *", "NumPy before 2 takes 32 operands at most.", before="2"),
    ),
}
