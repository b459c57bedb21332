"""Known deviations of dpnp's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "dpnp:einsum": listed(r"""
        dpnp's einsum takes the letters of ASCII and spaces, and no other whitespace.
            forms/αж,жB->Bα *
            forms/ij,\tjk\n->ik *
        dpnp's einsum takes spaces within the words of an equation.
            wrong equations/ij- >i (2,2) float32
            wrong equations/. ..ij->ij (2,2) float32
            wrong equations/ij->. ..ji (2,2) float32
        dpnp's einsum without arguments is an IndexError.
            wrong equations/(2,2) float32
        dpnp's einsum takes sublists of numbers below 52, and sorts them as letters.
            known faults/[30,0];[0,1] *
            many operands/1000 *
            sublists/[100,52];[52,60];[60,100] *
            sublists/['left','bond'];['bond','right'];['right','left'] *
            sublists/[(0, 0),(0, 1)];[(0, 1),(1, 1)];[(1, 1),(0, 0)] *
            sublists/[None,1.5];[1.5,True];[True,None] *
            sublists/['z',0];[0,1] *
            sublists/[70,30,50] *
            sublists/['z','b','y'] *
        dpnp's einsum does not sum the axes of an ellipsis that the output lacks.
            ellipsis/...i->i|...j->j|...i,...->i *
            known faults/...j->j (4,3) *
            no axes/...-> *
            random/*
        dpnp's einsum returns a view of its operand, also with dtype=.
            aliasing/ij->ij|ij->ji|ii->i|ijk->kij|...->...|...i->i...|iij->ji|iijj->ij *
            larger sizes/ij->ji|ijk->jik *:sliced *
            layouts/ij->ij|ij->ji|ii->i *:sliced|*:offset|*:negative *
        dpnp's einsum fails on operands of stride 0, or reads the wrong elements of them. [sometimes]
            larger sizes/bind,jnd->bnij|ij,i->j|ij,j->i|ij,kj->ki * *:broadcast float32
            layouts/bind,jnd->bnij * *:broadcast float32
            layouts/ij,j->i * *:broadcast float32
            layouts/* *:broadcast-last *
            layouts/* *:broadcast-last * *
            layouts/i,ij->j|i,ij,jk->k|ij,ik->jk * float32|float64|float16|complex64 equal terms
        dpnp's einsum has no float16 products by MKL, and rounds sums of float16 to it in between. [sometimes]
            dtypes/* float16
            half precision/*
            inf and nan/* float16
            larger sizes/* float16
            layouts/* float16
            layouts/* float16 equal terms
            !layouts/* *:broadcast-last float16
            !layouts/i,ij->j|i,ij,jk->k|ij,ik->jk * float16 equal terms
            !layouts/ij->ij *:sliced|*:offset|*:negative float16
            no axes/i,i->|ij,ji-> * float16
            promotion/* float16
            promotion/* float16 *
        dpnp's einsum does not return an out= of size 0, or of a size that the result of size 0 lacks.
            out/ij,jk->ik (2,0)|(0,3) *
            out/i,j-> (0) *
        dpnp's einsum ignores order=, unless it is 'K'.
            known faults/* order=F|order=C *
            order/*
            !order/* order=K
            !order/* order=k
        dpnp's einsum ignores dtype=, casting= and wrong values of them where no product or sum is computed.
            casting/ij->ji *
            dtype/ij->ji * casting=same_kind
            dtype/ki->ik *
            wrong keywords/i->i (3) float32 dtype=*
            wrong keywords/i->i (3) float32 casting=*
        Python's numbers do not adopt the dtype of the arrays, and lists are no operands.
            lists and scalars/*
        dpnp's einsum casts within a kind, to dtype= and to the dtype of out=, although casting= is 'safe' by default.
            casting/i,i-> * int32 dtype=float32|dtype=int8 by default
            casting/i,i->i * int32 out=(6) float32|int8 by default
            casting/i,i-> * float64 dtype=float32 by default
            casting/i,i->i * float64 out=(6) float32 by default
            casting/i,i->i * float32 out=(6) float16 by default
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) float16
    """),
}
