"""Known deviations of einsumx on sparse arrays, and of sparse's own einsum, in 0.19."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "sparse": listed(r"""
        A zero that a sparse array does not store meets no inf: the product is 0, as that of sparse.matmul.
            inf and nan/ij,jk->ik * inf times zero
    """),
    "sparse:einsum": listed(r"""
        sparse's einsum multiplies all operands in one loop over all labels, so that these take too long. [crashes]
            large rank/hrdbnjlmceqkgapfoi,uvcgehfwzAtbdasByx->otirsujzlykxAnwmqvpB *
            same bits/ij,jk,kl->il *
            same bits/ij,jk->ik * float32
        sparse's einsum ignores casting=, and casts to dtype= whatever it is. [sometimes]
            casting/*
        sparse's einsum fails on some of these: numbers without axes, axes of size 1, sums of narrow integers.
            random/*
        sparse's einsum does not broadcast axes of size 1.
            broadcasting/ij,jk->ik (2,1) (3,4) bool
            broadcasting/ij,jk->ik (2,1) (3,4) complex64
            broadcasting/ij,jk->ik (2,1) (3,4) float32
            broadcasting/ij,jk->ik (2,1) (3,4) float64
            broadcasting/ij,jk->ik (2,1) (3,4) int32
            broadcasting/ij,jk->ik (2,3) (1,4) bool
            broadcasting/ij,jk->ik (2,3) (1,4) complex64
            broadcasting/ij,jk->ik (2,3) (1,4) float32
            broadcasting/ij,jk->ik (2,3) (1,4) float64
            broadcasting/ij,jk->ik (2,3) (1,4) int32
            broadcasting/...ij,...jk->...ik|ab,bc,bd->acd|abc,cd,bd->a|bhqd,bhqkd->bhqk|bij,bjk->bik|bind,bjnd->bnij *
            broadcasting/bnid,bnjd->bnij|i,i,i->i|i,i->|ii,i->i|iij,j->i|ij,ij->|ij,ij->i|ij,ij->ij *
            ellipsis/...,...|...ij,...jk->...ki *
            known faults/* broadcast
            large rank/...a,a...->...|abcdefg,abcdefh->gabcdefh *
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) bool
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) complex64
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) float16
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) float32
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) int8
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) bool
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) complex64
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) float16
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) float32
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) int8
            zero sizes/i,i->i *
        sparse's einsum refuses operands without axes, whose element becomes the fill value.
            ellipsis/...,...->... *
            forms/,->|,i->i|-> *
            no axes/,,->|,->|->|...,->... *
            no axes/,i->i|,ij,jk->ik|i,->i|ij,->ji * complex64
            no axes/,i->i|,ij,jk->ik|i,->i|ij,->ji * float16
            no axes/,i->i|,ij,jk->ik|i,->i|ij,->ji * float32
            no axes/,i->i|,ij,jk->ik|i,->i|ij,->ji * int64
            threads/,-> *
            threads/* kinds
        sparse's einsum ignores order=; its arrays have no memory order.
            known faults/* order= *
            order/bij,bjk->kbi *
            order/* order=A
            order/* order=C
            order/* order=F
            order/* order=a
            wrong keywords/* order=B
            wrong keywords/* order=no *
        sparse's einsum ignores keywords that it does not know, and wrong values of them.
            keywords/* array
            keywords/* no_such_keyword=1
            known faults/ij,kj-> *
            known faults/i-> * ignored
            wrong keywords/* casting=no *
            wrong paths/*
        sparse's einsum sums bools and narrow integers in 64 bits where nothing is multiplied, or all is summed.
            bool/ij-> *
            broadcasting/ij-> * bool
            broadcasting/ij-> * int32
            dtype/ij-> * dtype=int32
            dtype/* casting=unsafe
            dtypes/i,i->|i-> * bool
            dtypes/i,i->|i-> * int16
            dtypes/i,i->|i-> * int32
            dtypes/i,i->|i-> * int8
            dtypes/i,i->|i-> * uint16
            dtypes/i,i->|i-> * uint32
            dtypes/i,i->|i-> * uint8
            integers/i,i,i->|i,i->|i-> * int16
            integers/i,i,i->|i,i->|i-> * int32
            integers/i,i,i->|i,i->|i-> * int8
            integers/i,i,i->|i,i->|i-> * uint16
            integers/i,i,i->|i,i->|i-> * uint32
            integers/i,i,i->|i,i->|i-> * uint8
            known faults/i,j-> *
            known faults/i-> * widened
            known faults/* counted
            larger sizes/ij,ij-> * bool
            larger sizes/ij,ij-> * int32
            larger sizes/ij,ij-> * int8
            larger sizes/ij,ij-> * uint8
            no axes/...->|i,i->|ij,ji->|ij-> * bool
            promotion/i,i-> (3) (3) bool int32
            promotion/i,i-> (3) (3) bool int8
            promotion/i,i-> (3) (3) int32 bool
            promotion/i,i-> (3) (3) int32 int8
            promotion/i,i-> (3) (3) int8 bool
            promotion/i,i-> (3) (3) int8 int32
            promotion/i,i-> * int16
            promotion/i,i-> * int16 *
            promotion/i,i-> * uint16
            promotion/i,i-> * uint16 *
            promotion/i,i-> * uint32
            promotion/i,i-> * uint32 *
            promotion/i,i-> * uint8
            promotion/i,i-> * uint8 *
            zero sizes/i,i->|i,j->j|i->|ii->|ij,jk-> * bool
            zero sizes/i,i->|i,j->j|i->|ii->|ij,jk-> * int8
        sparse's einsum takes arrays: no lists and no Python numbers.
            lists and scalars/*
        sparse's einsum multiplies the fill values of operands without elements: inf times zero is nan.
            zero sizes/i,j->j (0) (4):inf float32
            zero sizes/i,j->j (0) (4):nan float32
            zero sizes/i,j,j->|i,j,k->|i,j->|ij,jk,kl->|ik,jk->j *
        sparse's einsum takes the 52 letters, and spaces: no other labels.
            forms/ij,\tjk\n->ik *
            known faults/* letters
            many operands/1000 *
            sublists/['left','bond'];['bond','right'];['right','left']|['z','b','y']|['z',0];[0,1]|[(0, *
            sublists/[100,52];[52,60];[60,100]|[70,30,50]|[None,1.5];[1.5,True];[True,None] *
        sparse's einsum raises an AttributeError for objects that are no arrays.
            known faults/* NumPy's
            wrong operands/*
            wrong sizes/ij,jk->ik *
        sparse's einsum accepts some wrong equations and sizes.
            known faults/* many
            wrong equations/.|[0,1];[0,0]|ij-|ij->.|ij->...i...|ij->ii|{0, *
            wrong sizes/i (2,3) float32
            wrong sizes/,i->i|->|ij|ij,j->i *
        sparse's einsum adds half precision in half precision. [sometimes]
            dtypes/* float16
            half precision/*
            inf and nan/*
            larger sizes/* float16
            promotion/ij,jk->ik *
    """),
}
