"""Known deviations of einsumx on tinygrad, and of tinygrad's own einsum, in 0.14."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "tinygrad": listed(r"""
        tinygrad is not made for threads: while one thread compiles, its settings hold in all others, which then fail
        with 'usage of device CPU disallowed'. [sometimes]
            threads/*
        tinygrad forgets how a contiguous copy was made when its elements are read, here the largest: no gradient.
            exponents/ij->ji (6,5) float32 gradients
            exponents/ij->ji (6,5) float64 gradients
            exponents/iij->ij (4,4,5) float32 gradients
            exponents/iij->ij (4,4,5) float64 gradients
    """),
    "tinygrad:Tensor.einsum": listed(r"""
        tinygrad is not made for threads: while one thread compiles, its settings hold in all others, which then fail
        with 'usage of device CPU disallowed'. [sometimes]
            threads/*
        tinygrad's einsum accepts some wrong equations and repeated labels of unequal sizes.
            known faults/* 3
            wrong equations/.|i1->i|i_->i|ij,j!->i|ij-|ij->.|ij->...i... *
            wrong sizes/,i->i *
            wrong sizes/ii|ii->i * float32
        tinygrad's einsum raises an IndexError or an AttributeError for some mistakes.
            known faults/* NumPy's
            two frameworks/* operand *
            wrong equations/i..j|ij->i,j|ij->ii|ij->ik|ij-i|ij>i *
            wrong keywords/* dtype=float33
            wrong keywords/* dtype=no *
            wrong operands/*
            wrong sizes/...ij|ij|ij,jk->ik|ij... *
        tinygrad's einsum returns a view of its operand where it has nothing to compute.
            aliasing/i...->...|ii->|ij->|ij->i (1,1) float32
        tinygrad's einsum takes dtype= for the sum: it casts from any dtype, and computes products before.
            casting/i,i->|ij->ji * default
            dtype/ij,jk->ik * dtype=float64
        tinygrad's einsum takes a text and tensors, or a list of them: no sublists, and no keyword but dtype=.
            known faults/* labels *
            known faults/* sublists
            lists and scalars/*
            many operands/1000|60 *
            sublists/*
            views/[0,1];[1,0] *
            added gradients/* optimize=True
            casting/i,i->i *
            casting/* casting=equiv
            casting/* casting=no
            casting/* casting=same_kind
            devices/ii->i|ij,ij->ij|ij,jk,kl->il|ij,jk->ik|ij->ji * device
            devices/ij->i * float32 *
            devices/* out=elsewhere
            dtype/* Python's
            dtype/* casting=same_kind
            dtype/* dtype=int32 *
            keywords/ij->i *
            keywords/* optimize=False
            keywords/* optimize=True
            keywords/* optimize=greedy
            keywords/* optimize=optimal
            keywords/* path
            known faults/* call
            known faults/* optimize=True *
            known faults/* order= *
            known faults/* out= *
            known faults/* that *
            lists and scalars/*
            order/*
            out/*
            two frameworks/* out=of *
            views/* optimize=True
            wrong keywords/* casting=no *
            wrong keywords/* order=B
            wrong keywords/* order=no *
            wrong out/*
            wrong paths/*
            wrong sizes/* optimize=True
        tinygrad's einsum does not broadcast axes of size 1.
            added gradients/i,i-> (0) (1) float32
            added gradients/i,i,i->i (1) (3) (1) float32
            added gradients/ij,ij->ij (1,4) (2,1) float32
            added gradients/ij,ij->i (1,4) (2,4) float32
            added gradients/ij,jk->ik (2,1) (3,4) float32
            added gradients/ij,jk->ik (2,3) (1,4) float32
            added gradients/i,i-> (3) (1) float32
            added gradients/...,...|...ij,...jk->...ik|ab,bc,bd->acd|bij,bjk->bik|ii,i->i|iij,j->i|iij,jkk->ik|ij,ij-> *
            aliasing/ij,j->ij *
            broadcasting/ij,jk->ik (2,1) (3,4) bool
            broadcasting/ij,jk->ik (2,1) (3,4) float32
            broadcasting/ij,jk->ik (2,1) (3,4) float64
            broadcasting/ij,jk->ik (2,1) (3,4) int32
            broadcasting/ij,jk->ik (2,3) (1,4) bool
            broadcasting/ij,jk->ik (2,3) (1,4) float32
            broadcasting/ij,jk->ik (2,3) (1,4) float64
            broadcasting/ij,jk->ik (2,3) (1,4) int32
            broadcasting/...ij,...jk->...ik|ab,bc,bd->acd|abc,cd,bd->a|bhqd,bhqkd->bhqk|bij,bjk->bik|bind,bjnd->bnij *
            broadcasting/bnid,bnjd->bnij|i,i,i->i|i,i->|ii,i->i|iij,j->i|ij,ij->|ij,ij->i|ij,ij->ij *
            diagonals/iij,jkk->ik|iji,jk->ik *
            ellipsis/...,...|...ij,...jk->...ki *
            forms/ij,\tjk\n->ik *
            gradients/i,i-> (0) (1) float32
            gradients/i,i,i->i (1) (3) (1) float32
            gradients/ij,ij->ij (1,4) (2,1) float32
            gradients/ij,ij->i (1,4) (2,4) float32
            gradients/ij,ij->i (1,4):F (2,4):F float32
            gradients/ij,ij->i (1,4):broadcast (2,4):broadcast float32
            gradients/ij,ij->i (1,4):broadcast-last (2,4):broadcast-last float32
            gradients/ij,ij->i (1,4):offset (2,4):offset float32
            gradients/ij,ij->i (1,4):sliced (2,4):sliced float32
            gradients/ij,ij->i (1,4):swapped (2,4):swapped float32
            gradients/ij,jk->ik (2,1) (3,4) float32
            gradients/ij,jk->ik (2,3) (1,4) float32
            gradients/i,i-> (3) (1) float32
            gradients/...,...|...ij,...jk->...ik|ab,bc,bd->acd|bij,bjk->bik|ii,i->i|iij,j->i|iij,jkk->ik|ij,ij-> *
            gradients/ij,ij->i * bfloat16
            gradients/ij,ij->i * float16
            gradients/ij,ij->i * float64
            known faults/iij,j->i *
            known faults/* broadcast
            known faults/* cotangent
            large rank/...a,a...->...|abcdefg,abcdefh->gabcdefh *
            second order/ab,bc,bd->acd|iij,j->i|ij,ij->i *
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) bool
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) float16
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) float32
            zero sizes/bij,bjk->bik (0,2,3) (1,3,4) int8
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) bool
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) float16
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) float32
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) int8
            zero sizes/i,i->i *
            !gradients/ij,ij->i|iij,j->i * bfloat16
        tinygrad's einsum multiplies bools with numbers by a bitwise and: wrong values with integers,
        an error with floats.
            known faults/ij,ij->ij|ij,jk->ik * bool *
            promotion/ij,jk->ik (2,3) (3,4) bool bfloat16
            promotion/ij,jk->ik (2,3) (3,4) bool float16
            promotion/ij,jk->ik (2,3) (3,4) bool float32
            promotion/ij,jk->ik (2,3) (3,4) bool float64
            promotion/ij,jk->ik (2,3) (3,4) bool int32
            promotion/ij,jk->ik (2,3) (3,4) bool int64
            promotion/ij,jk->ik (2,3) (3,4) bool uint64
            promotion/i,i-> (3) (3) bool float32
            promotion/i,i-> (3) (3) bool int32
            promotion/i,i->|i,i->i|i,j->ij * bfloat16
            promotion/i,i->|i,i->i|i,j->ij * float16
            promotion/i,i->i|i,j->ij|ij,jk,kl->il * float32
            promotion/i,i->|i,i->i|i,j->ij * float64
            promotion/i,i->i|i,j->ij * int32
            promotion/i,i->|i,i->i|i,j->ij * int64
            promotion/i,i->i|i,j->ij * uint32
            promotion/i,i->|i,j->ij * uint64
        tinygrad's einsum computes half precision in half precision, and rounds each term. [sometimes]
            dtypes/* bfloat16
            gradients/* bfloat16
            half precision/*
            larger sizes/ai,bi,ci->abc * float16
            larger sizes/* bfloat16
            layouts/* bfloat16 *
            promotion/ij,jk->ik * int32|int64|uint8|uint32 bfloat16
            promotion/ij,jk->ik * bfloat16 int32|int64|uint8|uint32
        tinygrad's einsum widens bools and short integers, as its sum does, also where nothing is summed.
            bool/*
            broadcasting/ij,jk->ik (1,3) (3,1) bool
            broadcasting/i,i->i|ij->|ij->i|ijk,kl,jl->ik * bool
            dtypes/* bool
            dtypes/* int16
            dtypes/* int8
            dtypes/* uint16
            dtypes/* uint8
            integers/* int16
            integers/* int8
            integers/* uint16
            integers/* uint8
            known faults/* bools
            known faults/* bools *
            known faults/* widened
            larger sizes/* bool
            larger sizes/* int8
            larger sizes/* uint8
            layouts/* bool
            layouts/* bool *
            layouts/* int8 *
            layouts/* uint8 *
            no axes/* bool
            promotion/ij,jk->ik (2,3) (3,4) bool int16
            promotion/ij,jk->ik (2,3) (3,4) bool int8
            promotion/ij,jk->ik (2,3) (3,4) bool uint16
            promotion/ij,jk->ik (2,3) (3,4) bool uint8
            promotion/ij,jk->ik (2,3) (3,4) int16 bool
            promotion/ij,jk->ik (2,3) (3,4) int16 int8
            promotion/ij,jk->ik (2,3) (3,4) int16 uint8
            promotion/ij,jk->ik (2,3) (3,4) int8 bool
            promotion/ij,jk->ik (2,3) (3,4) int8 int16
            promotion/ij,jk->ik (2,3) (3,4) int8 uint8
            promotion/ij,jk->ik (2,3) (3,4) uint16 bool
            promotion/ij,jk->ik (2,3) (3,4) uint16 uint8
            promotion/ij,jk->ik (2,3) (3,4) uint8 bool
            promotion/ij,jk->ik (2,3) (3,4) uint8 int16
            promotion/ij,jk->ik (2,3) (3,4) uint8 int8
            promotion/ij,jk->ik (2,3) (3,4) uint8 uint16
            promotion/i,i-> (3) (3) bool int8
            promotion/i,i-> (3) (3) int8 bool
            promotion/i,i->|i,i->i|i,j->ij * int16
            promotion/i,i->|i,i->i|i,j->ij * int16 *
            promotion/i,i->i|i,j->ij * int8
            promotion/i,i->i|i,j->ij * int8 *
            promotion/i,i->|i,i->i|i,j->ij * uint16
            promotion/i,i->|i,i->i|i,j->ij * uint16 *
            promotion/i,i->|i,i->i|i,j->ij * uint8
            promotion/i,i->|i,i->i|i,j->ij * uint8 *
            views/* int8
            zero sizes/bij,bjk->bik (0,2,3) (0,3,4) bool
            zero sizes/bij,bjk->bik (0,2,3) (0,3,4) int8
            zero sizes/...i,i->...|ai,bi,ci->abc|i,i->|i,j->ij|i,j->j|i->|ii->|ii->i|ij,jk,kl->il|ij,jk-> * bool
            zero sizes/ij,jk->ik|ij->i|ij->j|ij->ji * bool
            zero sizes/...i,i->...|ai,bi,ci->abc|i,i->|i,j->ij|i,j->j|i->|ii->|ii->i|ij,jk,kl->il|ij,jk-> * int8
            zero sizes/ij,jk->ik|ij->i|ij->j|ij->ji * int8
        tinygrad's einsum moves a diagonal's axis where the term has others: wrong axes, shapes and values.
            added gradients/iij->j|iji->ij *
            diagonals/iij->j|iijj->ij|iji->ij|iji->ji *
            gradients/iij->j|iji->ij *
            implicit output/a...a *
            large rank/aabbccdd->dacb *
            larger sizes/iij->j * float16
            larger sizes/iij->j * float32
            larger sizes/iij->j * float64
            larger sizes/iij->j * int32
            layouts/iij->j *
            views/iij->ji|iijj->ij *
        Random problems have several of these.
            random/*
    """),
}
