"""Known deviations of TensorFlow's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "tensorflow:einsum": listed(r"""
        Some random problems are in dtypes or have broadcasting that TensorFlow's einsum lacks, or round float16.
        [sometimes]
            random/*
        TensorFlow accepts only the 52 ASCII letters as labels, and only the space as whitespace.
            forms/ij,\tjk\n->ik|αж,жB->Bα *
        With optimize=False, TensorFlow's einsum passes three operands to a kernel for two.
            keywords/ij,jk,kl->il * optimize=False
        TensorFlow does not sum over an ellipsis, and its implicit output leaves the ellipsis out.
            ellipsis/...,...|...i,...->i|...i->i|...j->j *
            gradients/...,...|...i,...->i|...i->i *
            implicit output/...ij,...jk *
            known faults/* summed
            no axes/...-> * complex64
            no axes/...-> * float16
            no axes/...-> * float32
            no axes/...-> * int64
            wrong sizes/...,... *
        TensorFlow's einsum has no dtype=, casting=, order= or out=, and optimize= only by name.
            casting/*
            dtype/*
            known faults/* dtype=int32 *
            known faults/* order= *
            order/*
            wrong keywords/*
            wrong out/*
        TensorFlow's einsum does not promote operands of different dtypes.
            promotion/*
        TensorFlow's einsum has no kernel for bools and for integers other than int32 and int64.
            bool/*
            broadcasting/* bool
            dtypes/* bool
            dtypes/* int16
            dtypes/* int8
            dtypes/* uint16
            dtypes/* uint32
            dtypes/* uint64
            dtypes/* uint8
            integers/* int16
            integers/* int8
            integers/* uint16
            integers/* uint32
            integers/* uint64
            integers/* uint8
            known faults/* bool *
            known faults/* widened
            larger sizes/* bool
            larger sizes/* int8
            larger sizes/* uint8
            no axes/* bool
            zero sizes/* bool
            zero sizes/* int8
            compile/* bool
            jit/* bool
            vmap/* bool
        TensorFlow's einsum accepts equations only as text and operands only as tensors.
            known faults/* NumPy's
            known faults/* labels *
            known faults/* sublists
            lists and scalars/*
            many operands/1000|60 *
            sublists/*
            wrong equations/'ij'|5|[...,...]|[0,1];'ij'|[0,1];5|[0,1];[0,0]|[0,1];[0,7]|[0,[1]]|{0, *
            wrong operands/*
            wrong sizes/[0,1];[1,2] *
        TensorFlow's einsum first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/i,j->j (0) (4):inf float32
            zero sizes/i,j->j (0) (4):nan float32
            zero sizes/i,j,j->|i,j,k->|i,j->|ij,jk,kl->|ik,jk->j *
        TensorFlow converts arrays of other libraries to tensors where it can. [sometimes]
            two frameworks/*
        TensorFlow's einsum accumulates half precision in half precision, or rounds it after each pair of operands.
        [sometimes]
            dtypes/* bfloat16
            dtypes/* float16
            gradients/bind,bjnd->bnij|iij,j->i|ij,jk,kl->li *
            gradients/ij,jk->ik * float16
            half precision/*
            larger sizes/* bfloat16
            larger sizes/* float16
            compile/* float16
            vmap/* float16
        TensorFlow's einsum raises errors of its own, which are no ValueError, or checks incompletely.
            known faults/* many
            wrong equations/(2,2)|...i...|ij- *
            wrong paths/* such
            wrong sizes/,i->i|->|...i,...i->...|...ij|ab,bc->ac|i|i,i,i->i|i,i->i|ii|ii->i|ij|ij,j->i|ij,jk,ki-> *
            wrong sizes/ij,jk->ik|ij...|jii,j->i *
        TensorFlow's einsum does not broadcast an axis of size 1, unless an ellipsis stands for it.
            broadcasting/ij,jk->ik (2,1) (3,4) complex64
            broadcasting/ij,jk->ik (2,1) (3,4) float32
            broadcasting/ij,jk->ik (2,1) (3,4) float64
            broadcasting/ij,jk->ik (2,1) (3,4) int32
            broadcasting/ij,jk->ik (2,3) (1,4) complex64
            broadcasting/ij,jk->ik (2,3) (1,4) float32
            broadcasting/ij,jk->ik (2,3) (1,4) float64
            broadcasting/ij,jk->ik (2,3) (1,4) int32
            broadcasting/ab,bc,bd->acd|abc,cd,bd->a|bhqd,bhqkd->bhqk|bij,bjk->bik|bind,bjnd->bnij * complex64
            broadcasting/bnid,bnjd->bnij|i,i,i->i|i,i->|ii,i->i|iij,j->i|ij,ij->|ij,ij->i|ij,ij->ij * complex64
            broadcasting/ab,bc,bd->acd|abc,cd,bd->a|bhqd,bhqkd->bhqk|bij,bjk->bik|bind,bjnd->bnij * float32
            broadcasting/bnid,bnjd->bnij|i,i,i->i|i,i->|ii,i->i|iij,j->i|ij,ij->|ij,ij->i|ij,ij->ij * float32
            broadcasting/ab,bc,bd->acd|abc,cd,bd->a|bhqd,bhqkd->bhqk|bij,bjk->bik|bind,bjnd->bnij * float64
            broadcasting/bnid,bnjd->bnij|i,i,i->i|i,i->|ii,i->i|iij,j->i|ij,ij->|ij,ij->i|ij,ij->ij * float64
            broadcasting/ab,bc,bd->acd|abc,cd,bd->a|bhqd,bhqkd->bhqk * int32
            broadcasting/bij,bjk->bik|bind,bjnd->bnij|bnid,bnjd->bnij * int32
            broadcasting/i,i,i->i|i,i->|ii,i->i|iij,j->i|ij,ij->|ij,ij->i|ij,ij->ij * int32
            compile/ij,ij->i *
            gradients/i,i-> (0) (1) float32
            gradients/i,i,i->i (1) (3) (1) float32
            gradients/ij,ij->ij (1,4) (2,1) float32
            gradients/ij,ij->i (1,4) (2,4) float32
            gradients/ij,jk->ik (2,1) (3,4) float32
            gradients/ij,jk->ik (2,3) (1,4) float32
            gradients/i,i-> (3) (1) float32
            gradients/ab,bc,bd->acd|bij,bjk->bik|ii,i->i|ij,ij-> *
            gradients/ij,ij->i * bfloat16
            gradients/ij,ij->i * complex128
            gradients/ij,ij->i * complex64
            gradients/ij,ij->i * float16
            gradients/ij,ij->i * float64
            jit/ij,ij->i *
            known faults/ij,jk,kl->il * optimize=False *
            known faults/* 1 *
            known faults/* late
            known faults/* named
            large rank/abcdefg,abcdefh->gabcdefh *
            second order/ab,bc,bd->acd|ij,ij->i *
            vmap/Zij,ij->Zi *
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) complex64
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) float16
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) float32
    """),
}
