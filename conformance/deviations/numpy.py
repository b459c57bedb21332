"""Known deviations of NumPy's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS", "VIEWS"]

(VIEWS,) = listed(r"""
    NumPy returns a view for a rearrangement of one operand and ignores dtype=, casting= and order=.
        aliasing/* int8 *
        casting/ij->ji *
        dtype/ij->ji|ki->ik *
        order/* out=*
        order/*:sliced|iij->ji *
        order/ij->ij (2,3) float32 order=F
        order/ij->ij (2,3):F float32 order=C
        order/ij->ji (2,3) float32 order=C
        order/ij->ji *:F *
        !order/ij,jk->ki *
        !order/ij->ji (2,3):F float32 order=C
""")
"""Shared with libraries that call NumPy's einsum for one operand."""

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "numpy:einsum": (
        VIEWS,
        *listed(r"""
        NumPy converts other libraries' arrays to NumPy arrays where it can. [sometimes]
            two frameworks/*
        Some random problems leave an ellipsis out of the output, and NumPy does not sum over it. [sometimes]
            random/*
        The only whitespace that NumPy accepts is the space.
            forms/ij,\tjk\n->ik *
        NumPy accepts only the 52 ASCII letters, or integers from 0 to 51, as labels.
            forms/αж,жB->Bα *
            sublists/['left','bond'];['bond','right'];['right','left']|['z','b','y']|['z',0];[0,1]|[70,30,50] *
            sublists/[(0, 0),(0, 1)];[(0, 1),(1, 1)];[(1, 1),(0, 0)] *
            sublists/[100,52];[52,60];[60,100]|[None,1.5];[1.5,True];[True,None] *
        NumPy does not sum over an ellipsis that the output omits.
            ellipsis/...i,...->i|...i->i|...j->j *
            known faults/* ellipsis axes are not summed
            no axes/...-> *
        NumPy accepts at most 63 operands.
            many operands/* in a binary tree
            many operands/* in a row
        NumPy converts any object to an array and accepts any iterable as a sublist.
            known faults/i,i->i *
            wrong equations/{0, 1} *
            wrong operands/* operand 0:|1: of a mask
            wrong operands/i->i *
        NumPy reads optimize= only if there are paths to choose from, and treats an unknown name as True.
            wrong out/* optimize=no such *
            wrong paths/* optimize=no such
        NumPy accumulates float16 in float16 if the elements are not contiguous. [sometimes]
            dtypes/* float16
            half precision/*
            larger sizes/* float16
            layouts/* float16
            promotion/* float16
            promotion/* float16 *
        With optimize=, NumPy first sums axes that only one operand has, in that operand's dtype, not in dtype=. [since
        2.4]
            dtype/ki,ij->j (3,4):range (4,2):range int8 dtype=int32 optimize=True
            known faults/* optimize=True the sum that goes first ignores dtype=
        With optimize=, NumPy before 2.4 calls tensordot, which has no dtype=. [before 2.4]
            dtype/ij,jk,kl->il|ki,i->k * optimize=True
        NumPy 1 accepts at most 32 operands. [before 2]
            many operands/60 *
    """),
    ),
}
