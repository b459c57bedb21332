"""Where cotengra's einsum deviates, on NumPy's arrays."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "cotengra:einsum on numpy": (
        Deviation(
            "random/*",
            "cotengra takes an axis of size 1 in its sum where the other operand's axis is longer.",
            sometimes=True,
        ),
        Deviation(
            r"""
            forms/* blanks
            forms/ij,\tjk\n->ik *
            implicit output/i, i *
            known faults/i, i *
            """,
            "A blank is a label for cotengra.",
        ),
        Deviation(
            """
            known faults/[2,0];[0,1] *
            known faults/[30,0];[0,1] *
            sublists/['z','b','y'] *
            sublists/[30,26];[26,27] *
            sublists/[70,30,50] *
            """,
            "cotengra leaves the labels of sublists in the order of their appearance when there is no output.",
        ),
        Deviation(
            """
            broadcasting/abc,cd,bd->a *
            broadcasting/i,i-> *
            broadcasting/iij,j->i *
            broadcasting/ij,ij-> *
            !broadcasting/ij,jk->ik (1,3) (3,1) bool
            !broadcasting/ij,jk->ik (1,3) (3,1) complex64
            !broadcasting/ij,jk->ik (1,3) (3,1) float32
            !broadcasting/ij,jk->ik (1,3) (3,1) float64
            !broadcasting/ij,jk->ik (1,3) (3,1) int32
            broadcasting/ij,jk->ik *
            known faults/* size 1 does not broadcast
            """,
            "For cotengra, an axis of size 1 does not fit another size where a matrix product would sum over it.",
        ),
        Deviation(
            """
            aliasing/ij->ji *
            casting/*
            dtype/*
            known faults/* dtype=*
            known faults/* order=*
            known faults/* out=*
            order/*
            out/*
            two frameworks/* out=*
            wrong keywords/*
            wrong out/*
            """,
            "cotengra has no dtype=, casting=, order= or out=.",
        ),
        Deviation(
            """
            keywords/ij,jk,kl->il * optimize=False
            keywords/ij,jk,kl->il * optimize=True
            known faults/ij,jk,kl->il * optimize=False *
            """,
            "cotengra's optimize= is the name of an optimizer, or a path: no bool.",
        ),
        Deviation(
            """
            views/...->... *
            views/ij->ij (3,3) float32
            """,
            "cotengra gives the operand itself where nothing is to be done.",
        ),
        Deviation(
            """
            wrong equations/
            wrong equations/[0,1];'ij' *
            wrong equations/[0,1];[0,7] *
            wrong operands/* operand 1: Opaque
            wrong paths/* optimize=['path', (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 5)]
            wrong paths/* optimize=no such
            """,
            "cotengra raises the errors of Python's dicts and lists where it looks up a label or a path.",
        ),
        Deviation(
            """
            known faults/i *
            wrong equations/'ij' *
            wrong equations/i1->i *
            wrong equations/i_->i *
            wrong equations/ij,j!->i *
            wrong equations/ij->->i *
            wrong equations/ij->i->j *
            wrong equations/{0, 1} *
            wrong operands/* operand 0: of a mask
            wrong operands/i->i *
            wrong paths/* optimize=[(0, 0), (0, 1)]
            wrong paths/* optimize=[(0, 1)]
            wrong sizes/,i->i *
            wrong sizes/-> *
            wrong sizes/...ij *
            wrong sizes/i *
            wrong sizes/ij *
            wrong sizes/ij,j->i *
            wrong sizes/ij,jk->ik *
            wrong sizes/ij... *
            """,
            "cotengra checks equations, ranks, paths and operands only in part.",
        ),
        Deviation(
            """
            zero sizes/*:inf *
            zero sizes/*:nan *
            !zero sizes/ij,jk->ik *
            """,
            "cotengra sums an operand's own axes first, so that an infinity meets the 0 of an empty sum.",
        ),
        Deviation(
            """
            dtypes/* float16
            half precision/*
            larger sizes/* float16
            layouts/* float16
            """,
            "cotengra rounds float16 after each pair of operands.",
            sometimes=True,
        ),
    ),
}
