"""Known deviations of PaddlePaddle's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "paddle:einsum": listed(r"""
        Paddle's einsum crashes the process for labels that are not ASCII, and for a comma in the output. [crashes]
            forms/αж,жB->Bα *
            wrong equations/ij->i,j *
        Some random problems are in dtypes, in forms or with broadcasting that Paddle's einsum lacks. [sometimes]
            random/*
        Paddle's einsum has no dtype=, casting=, order=, out= or optimize=.
            added gradients/* optimize=True
            aliasing/* dtype=int32
            casting/*
            dtype/*
            keywords/ij->i *
            keywords/* optimize=False
            keywords/* optimize=True
            keywords/* optimize=greedy
            keywords/* optimize=optimal
            keywords/* path
            known faults/* call
            known faults/* dtype=int32 *
            known faults/* optimize=True *
            known faults/* order= *
            known faults/* out= *
            order/*
            out/*
            two frameworks/* out=of *
            wrong keywords/*
            wrong out/*
            wrong paths/*
            wrong sizes/* optimize=True
        Paddle accepts equations only as text, not as sublists.
            known faults/* labels *
            known faults/* sublists
            many operands/1000|60 *
            sublists/*
            wrong equations/'ij'|(2,2)|5|[...,...]|[0,1];'ij'|[0,1];5|[0,1];[0,0]|[0,1];[0,7]|[0,[1]]|{0, *
            wrong sizes/[0,1];[1,2] * float32
        On the CPU, Paddle's einsum computes in float32, float64, complex64 and complex128 only.
            aliasing/* bool
            aliasing/* int8
            bool/*
            broadcasting/* bool
            broadcasting/* int32
            dtypes/* bfloat16
            dtypes/* bool
            dtypes/* float16
            dtypes/* int16
            dtypes/* int32
            dtypes/* int64
            dtypes/* int8
            dtypes/* uint8
            gradients/* bfloat16
            gradients/* float16
            gradients/* float16 *
            half precision/*
            inf and nan/* bfloat16
            inf and nan/* float16
            integers/*
            known faults/* bool *
            known faults/* float16
            known faults/* widened
            larger sizes/* bfloat16
            larger sizes/* bool
            larger sizes/* float16
            larger sizes/* int32
            larger sizes/* int64
            larger sizes/* int8
            larger sizes/* uint8
            layouts/* bfloat16 *
            layouts/* bool
            layouts/* bool *
            layouts/* float16
            layouts/* float16 *
            layouts/* int32
            layouts/* int64 *
            layouts/* int8 *
            layouts/* uint8 *
            no axes/,,->|,->|,i->i|,ij,jk->ik|->|...,->...|i,->i|i,i->|ij,->ji|ij,ji->|ij-> * bool
            no axes/,,->|,->|,i->i|,ij,jk->ik|->|...,->...|i,->i|i,i->|ij,->ji|ij,ji->|ij-> * float16
            no axes/,,->|,->|,i->i|,ij,jk->ik|->|...,->...|i,->i|i,i->|ij,->ji|ij,ji->|ij-> * int64
            promotion/ij,jk->ik (2,3) (3,4) bfloat16 complex128
            promotion/ij,jk->ik (2,3) (3,4) bfloat16 complex64
            promotion/ij,jk->ik (2,3) (3,4) bfloat16 float16
            promotion/ij,jk->ik (2,3) (3,4) bfloat16 float32
            promotion/ij,jk->ik (2,3) (3,4) bfloat16 float64
            promotion/ij,jk->ik (2,3) (3,4) bool complex128
            promotion/ij,jk->ik (2,3) (3,4) bool complex64
            promotion/ij,jk->ik (2,3) (3,4) float16 bfloat16
            promotion/ij,jk->ik (2,3) (3,4) float16 complex128
            promotion/ij,jk->ik (2,3) (3,4) float16 complex64
            promotion/ij,jk->ik (2,3) (3,4) float16 float32
            promotion/ij,jk->ik (2,3) (3,4) float16 float64
            promotion/ij,jk->ik (2,3) (3,4) int16 complex128
            promotion/ij,jk->ik (2,3) (3,4) int16 complex64
            promotion/ij,jk->ik (2,3) (3,4) int32 complex128
            promotion/ij,jk->ik (2,3) (3,4) int32 complex64
            promotion/ij,jk->ik (2,3) (3,4) int64 complex128
            promotion/ij,jk->ik (2,3) (3,4) int64 complex64
            promotion/ij,jk->ik (2,3) (3,4) int8 complex128
            promotion/ij,jk->ik (2,3) (3,4) int8 complex64
            promotion/ij,jk->ik (2,3) (3,4) uint8 complex128
            promotion/ij,jk->ik (2,3) (3,4) uint8 complex64
            promotion/i,i-> (3) (3) bool complex64
            promotion/i,i-> (3) (3) int32 complex64
            promotion/i,i-> (3) (3) int8 complex64
            promotion/i,i->|i,i->i|i,j->ij * complex128
            promotion/i,i->i|i,j->ij * complex64
            same bits/* float16
            zero sizes/* bool
            zero sizes/* float16
            zero sizes/* int8
        Paddle's einsum accepts only tensors, not scalars or lists.
            lists and scalars/*
        Paddle's einsum does not promote operands of different dtypes.
            gradients/ij,jk->ik (2,3) (3,4) float32 complex64
            gradients/ij,jk->ik (2,3) (3,4) float32 float64
            known faults/* promoted
            !known faults/* bool *
            promotion/ij,jk->ik (2,3) (3,4) complex128 bool
            promotion/ij,jk->ik (2,3) (3,4) complex128 complex64
            promotion/ij,jk->ik (2,3) (3,4) complex128 int32
            promotion/ij,jk->ik (2,3) (3,4) complex128 int64
            promotion/ij,jk->ik (2,3) (3,4) complex128 int8
            promotion/ij,jk->ik (2,3) (3,4) complex64 bool
            promotion/ij,jk->ik (2,3) (3,4) complex64 complex128
            promotion/ij,jk->ik (2,3) (3,4) complex64 float64
            promotion/ij,jk->ik (2,3) (3,4) complex64 int32
            promotion/ij,jk->ik (2,3) (3,4) complex64 int64
            promotion/ij,jk->ik (2,3) (3,4) complex64 int8
            promotion/ij,jk->ik (2,3) (3,4) float32 bfloat16
            promotion/ij,jk->ik (2,3) (3,4) float32 complex128
            promotion/ij,jk->ik (2,3) (3,4) float32 complex64
            promotion/ij,jk->ik (2,3) (3,4) float32 float16
            promotion/ij,jk->ik (2,3) (3,4) float32 float64
            promotion/ij,jk->ik (2,3) (3,4) float64 bfloat16
            promotion/ij,jk->ik (2,3) (3,4) float64 complex128
            promotion/ij,jk->ik (2,3) (3,4) float64 complex64
            promotion/ij,jk->ik (2,3) (3,4) float64 float16
            promotion/ij,jk->ik (2,3) (3,4) float64 float32
            promotion/i,i-> (3) (3) complex64 bool
            promotion/i,i-> (3) (3) complex64 int32
            promotion/i,i-> (3) (3) complex64 int8
            promotion/i,i-> (3) (3) float32 complex64
            promotion/i,i->|i,i->i|i,j->ij * complex128 *
            promotion/i,i->i|i,j->ij * complex64 *
        Paddle's einsum has no second derivatives.
            second order/*
        Paddle's einsum fails for a diagonal beside another axis.
            added gradients/iij,j->i|iij,jkk->ik|iij->j *
            aliasing/iij->ji|iijj->ij *
            broadcasting/iij,j->i * complex64
            broadcasting/iij,j->i * float32
            broadcasting/iij,j->i * float64
            diagonals/iij,jkk->ik|iij->j|iijj->ij *
            gradients/iij,jkk->ik|iij->j *
            gradients/iij,j->i * complex128
            gradients/iij,j->i * complex64
            gradients/iij,j->i * float32
            gradients/iij,j->i * float64
            known faults/iij,j->i *
            large rank/aabbccdd->dacb *
            larger sizes/iij->j * complex64
            larger sizes/iij->j * float32
            larger sizes/iij->j * float64
            layouts/iij->j *
            threads/iij,j->i *
        Paddle's gradients along a broadcast axis of size 1, and of diagonals, fail or are wrong.
            added gradients/ij,jk->ik (2,1) (3,4) float32
            added gradients/ij,jk->ik (2,3) (1,4) float32
            added gradients/i,i-> (3) (1) float32
            added gradients/...i,...->i|...i->i|ab,bc,bd->acd|ij,ij-> *
            gradients/ij,jk->ik (2,1) (3,4) float32
            gradients/ij,jk->ik (2,3) (1,4) float32
            gradients/i,i-> (3) (1) float32
            gradients/...i,...->i|...i->i|ab,bc,bd->acd|ij,ij-> *
            gradients/ij->j * complex128
            gradients/ij->j * complex64
            jit/iij,j->i *
            jit/* bfloat16
            jit/* bool
            jit/* float16
            jit/* inside
            jit/* int32
        Paddle does not sum over an ellipsis that the output omits.
            ellipsis/...i,...->i|...i->i|...j->j|i...->i *
            known faults/...j->j *
            no axes/...-> *
            wrong equations/. *
        Paddle's einsum first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/i,j,j->|i,j,k->|ij,jk,kl-> *
        Paddle's einsum fails beyond 9 axes.
            known faults/* labels
            large rank/...a,a...->...|abcdef,ghijkl->agbhcidjekfl|abcdefgh,hgfedcba->hgfedcba|abcdefghij-> *
            large rank/abcdefghijkl->bdfhjl|abcdefghijklmno->ocmeakgibdfhjln *
            large rank/hrdbnjlmceqkgapfoi,uvcgehfwzAtbdasByx->otirsujzlykxAnwmqvpB *
        Paddle's einsum needs unused letters for networks of many operands, of which there are none.
            many operands/30 *
        Paddle's einsum confuses small and capital letters: it takes Z for z, and sorts C after b.
            forms/Zz,za->aZ *
            implicit output/bCa *
        The only whitespace that Paddle accepts is the space.
            forms/ij,\tjk\n->ik *
        Paddle returns the operand's own memory if there is nothing to compute.
            aliasing/...->...|ij->ij *
        Paddle's einsum checks equations and diagonals incompletely.
            known faults/* 3
            wrong equations/ij-|ij->.|ij->...i...|ij->ii *
            wrong sizes/ii->i (1,3) float32
            wrong sizes/ii->i (3,1) float32
            wrong sizes/ii|jii,j->i * float32
        Paddle asserts what equations and operands are, and users get a bare AssertionError or AttributeError.
            known faults/* NumPy's
            known faults/* many
            wrong equations/ij
            wrong equations/...i...|i..j|i1->i|i_->i|ij|ij,j!->i *
            wrong equations/ij,jk|ij,jk,kl->il|ij,jk->ik|ij->->i|ij->i->j|ij-i|ij>i *
            wrong operands/*
            wrong sizes/,i->i|->|...ij|i|ij|ij,j->i|ij,jk->ik|ij... *
    """),
}
