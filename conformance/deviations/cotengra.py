"""Known deviations of cotengra's einsum on NumPy arrays."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "cotengra:einsum on numpy": listed(r"""
        Some random problems sum over a broadcast axis of size 1, which cotengra computes wrongly. [sometimes]
            random/*
        cotengra treats whitespace as a label.
            forms/* blanks
            forms/ij,\tjk\n->ik *
            implicit output/i, i *
            known faults/i, i *
        Without an output, cotengra keeps the labels of sublists in order of appearance.
            known faults/[2,0];[0,1]|[30,0];[0,1] *
            sublists/['z','b','y']|[30,26];[26,27]|[70,30,50] *
        cotengra does not broadcast an axis of size 1 if a matrix product would sum over it.
            broadcasting/abc,cd,bd->a|i,i->|iij,j->i|ij,ij->|ij,jk->ik *
            !broadcasting/ij,jk->ik (1,3) (3,1) bool|complex64|float32|float64|int32
            known faults/* size 1 does not broadcast
        cotengra has no dtype=, casting=, order= or out=.
            aliasing/ij->ji *
            casting/*
            dtype/*
            known faults/* dtype=*|order=*|out=*
            order/*
            out/*
            two frameworks/* out=*
            wrong keywords/*
            wrong out/*
        cotengra's optimize= is the name of an optimizer or a path, not a bool.
            keywords/ij,jk,kl->il * optimize=False|optimize=True
            known faults/ij,jk,kl->il * optimize=False *
        cotengra returns the operand itself if there is nothing to compute.
            views/...->... *
            views/ij->ij (3,3) float32
        cotengra looks up labels and paths unchecked and raises a bare KeyError or IndexError.
            wrong equations/
            wrong equations/[0,1];'ij'|[0,1];[0,7] *
            wrong paths/* optimize=['path', (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 5)]
            wrong paths/* optimize=no such
        cotengra checks equations, ranks, paths and operands incompletely.
            known faults/i *
            wrong equations/'ij'|i1->i|i_->i|ij,j!->i|ij->->i|ij->i->j *
            wrong equations/{0, 1} *
            wrong operands/* operand 0: of a mask
            wrong operands/i->i *
            wrong paths/* optimize=[(0, 0), (0, 1)]
            wrong paths/* optimize=[(0, 1)]
            wrong sizes/,i->i|->|...ij|i|ij|ij,j->i|ij,jk->ik|ij... *
        cotengra first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/*:inf|*:nan *
            !zero sizes/ij,jk->ik *
        cotengra rounds float16 after each pair of operands. [sometimes]
            dtypes/* float16
            half precision/*
            larger sizes/* float16
            layouts/* float16
    """),
}
