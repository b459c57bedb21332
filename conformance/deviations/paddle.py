"""Known deviations of einsumx on PaddlePaddle, and of Paddle's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

_PATTERNS = {
    "RANKS": r"""
        known faults/* no more than 10 labels
        large rank/*:exact|abcdef,ghijkl->agbhcidjekfl|abcdefghij->|abcdefghijkl->bdfhjl *
        large rank/abcdefghijklmno->ocmeakgibdfhjln *
    """,
}

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "paddle": listed(
        r"""
        Paddle's tensors have at most 9 axes.
            RANKS
        Paddle does not promote int32 and int64, so addeinsum cannot mix them.
            addeinsum/* int64 int32 *out=operand 0
    """,
        _PATTERNS,
    ),
    "paddle:einsum": listed(
        r"""
        Paddle's einsum looks up labels by their character code, which crashes for characters beyond ASCII. [crashes]
            forms/αж,жB->Bα *
        Paddle's einsum computes an output with a comma out of bounds. [crashes]
            wrong equations/ij->i,j *
        Paddle's tensors have at most 9 axes.
            RANKS
        Paddle's einsum converts the equation to lower case.
            forms/Zz,za->aZ *
            implicit output/bCa *
        Paddle's einsum takes few axes for an ellipsis, and has intermediates of more than 9.
            large rank/...a,a...->...|abcdefgh,hgfedcba->hgfedcba *
        The only whitespace that Paddle accepts is the space.
            forms/ij,\tjk\n->ik *
        Paddle accepts equations only as text, not as sublists.
            known faults/[...,0];[0,1]|[2,0];[0,1]|[30,0];[0,1] *
            many operands/*
            sublists/*
        Paddle's einsum has no dtype=, casting=, order=, out= or optimize=.
            added gradients/* optimize=True
            aliasing/* dtype=*
            casting/*
            dtype/*
            keywords/*
            !keywords/* no_such_keyword=1
            known faults/* dtype=*|optimize=*|order=*|out=*
            order/*
            out/*
            two frameworks/* out=*
            wrong keywords/*
            wrong out/*
            wrong paths/*
            wrong sizes/* optimize=True
        Paddle does not sum over an ellipsis that the output omits.
            added gradients/...i->i|...i,...->i *
            ellipsis/i...->i|...i->i|...j->j|...i,...->i *
            gradients/...i->i|...i,...->i *
            known faults/...j->j *
            no axes/...-> *
            !no axes/* bool|int64|float16
        Paddle's einsum removes the summed axes of an operand with a diagonal twice, and fails.
            added gradients/iij->j|iij,j->i|iij,jkk->ik *
            aliasing/iij->ji|iijj->ij *
            broadcasting/iij,j->i *
            diagonals/iij->j|iijj->ij|iij,jkk->ik *
            gradients/iij->j|iij,j->i|iij,jkk->ik *
            jit/iij,j->i *
            known faults/iij,j->i *
            larger sizes/iij->j *
            large rank/aabbccdd->dacb *
            layouts/iij->j *
            unknown sizes/iij,j->i *
            threads/iij,j->i *
            !broadcasting/* bool|int32
            !gradients/* float16|bfloat16
            !jit/* gradients inside
            !larger sizes/* bool|int8|int32|float16|bfloat16
        Paddle's einsum has kernels for floats of 32 and 64 bits and complex numbers only, on the CPU.
            aliasing/* bool|int8
            bool/*
            broadcasting/* bool|int32
            dtypes/* bool|int8|uint8|int16|int32|int64|float16|bfloat16
            gradients/* bfloat16|float16
            half precision/*
            inf and nan/* bfloat16|float16
            integers/*
            jit/* bool|int32|float16|bfloat16
            known faults/* bool *
            known faults/* int8 is widened
            known faults/* bfloat16 is computed in float16
            !known faults/* dtypes are not promoted
            larger sizes/* bool|int8|uint8|int32|int64|float16|bfloat16
            layouts/* bool|int32|float16
            layouts/* bool|int8|uint8|int64|float16|bfloat16 equal terms
            no axes/* bool|int64|float16
            same bits/* float16
            unknown sizes/* bool|int8|int64|float16|bfloat16 all axes
            zero sizes/* bool|int8|float16
        Paddle's einsum does not convert operands to one dtype.
            gradients/* float16 float32
            gradients/* float32 complex64|float64
            known faults/* dtypes are not promoted
            promotion/* bool complex64|complex128
            promotion/* complex64|complex128 bool
            promotion/i,i-> * int8|int32|float32 complex64
            promotion/i,i-> * complex64 int8|int32
            promotion/ij,jk->ik * int8|uint8|int16|int32|int64 complex64|complex128
            promotion/ij,jk->ik * float16|bfloat16|float32|float64 complex64|complex128
            promotion/ij,jk->ik * float16 bfloat16|float32|float64
            promotion/ij,jk->ik * bfloat16 float16|float32|float64
            promotion/ij,jk->ik * float32 float16|bfloat16|float64
            promotion/ij,jk->ik * float64 float16|bfloat16|float32
            promotion/ij,jk->ik * complex64 int8|int32|int64|float64|complex128
            promotion/ij,jk->ik * complex128 int8|int32|int64|complex64
        The gradient of Paddle's einsum fails where an axis of size 1 broadcasts.
            added gradients/ij,jk->ik (2,1) (3,4) float32
            added gradients/ij,jk->ik (2,3) (1,4) float32
            added gradients/ij,ij-> (1,4) (2,1) float32
            added gradients/i,i-> (3) (1) float32
            added gradients/ab,bc,bd->acd *
            gradients/ij,jk->ik (2,1) (3,4) float32
            gradients/ij,jk->ik (2,3) (1,4) float32
            gradients/ij,ij-> (1,4) (2,1) float32
            gradients/i,i-> (3) (1) float32
            gradients/ab,bc,bd->acd (3,4) (1,3) (4,2) float32
        The gradient of Paddle's einsum of one complex operand does not conjugate as that of two does.
            gradients/ij->j (2,3) complex64|complex128
            unknown sizes/ij->|ij->j * complex64 all axes
        The gradients of Paddle's einsum cannot be differentiated.
            second order/*
        Paddle's einsum multiplies infinities by the 0 of an empty sum.
            zero sizes/i,j,j->|i,j,k->|ij,jk,kl-> *:inf|*:nan float32
        Paddle's einsum returns its operand's memory where nothing is rearranged.
            aliasing/ij->ij|...->... *
        Paddle's einsum accepts only tensors, not scalars or lists.
            lists and scalars/*
        Paddle's einsum raises AssertionError or AttributeError, or accepts wrong arguments.
            known faults/* a diagonal of sizes 1 and 3
            known faults/* an axis too many
            known faults/* an array of no library is taken for NumPy's
            wrong equations/*
            !wrong equations/
            !wrong equations/ij->ik *
            wrong operands/*
            wrong sizes/*
            !wrong sizes/ab,bc->ac|ij,jk,ki->|i,i->i|i,i,i->i|...,... *
            !wrong sizes/...i,...i->... *
            !wrong sizes/ii->i (3,4) float32
            !wrong sizes/* optimize=True
            !wrong equations/ij->i,j *
        Paddle's gradients in a static graph need gradients of the result that are not tensors.
            jit/* gradients inside
        Some random problems have diagonals, or dtypes for which Paddle's einsum has no kernels. [sometimes]
            random/*
    """,
        _PATTERNS,
    ),
}
