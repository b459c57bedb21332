"""Known deviations of TensorFlow's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "tensorflow:einsum": (
        *listed(r"""
        TensorFlow's einsum computes in floats, complex numbers, int32 and int64 only.
            broadcasting/* bool
            dtypes/* bool|int8|int16|uint8|uint16|uint32|uint64
            integers/* int8|int16|uint8|uint16|uint32|uint64
            bool/*
            known faults/* bool *
            known faults/* int8 *
            larger sizes/* bool|int8|uint8
            no axes/* bool
            zero sizes/* bool|int8
            jit/* bool
            compile/* bool
            unknown sizes/* bool|int8 all axes
            vmap/* bool
        TensorFlow broadcasts axes of size 1 under an ellipsis only.
            broadcasting/* complex64|float32|float64|int32
            !broadcasting/ij,jk->ik (1,3) (3,1) *
            !broadcasting/i,i->i (1) (1) *
            !broadcasting/ij->i|ij-> *
            !broadcasting/ijk,kl,jl->ik *
            !broadcasting/...ij,...jk->...ik *
            compile/ij,ij->i (1,4) *
            gradients/ab,bc,bd->acd|bij,bjk->bik|i,i->|ij,jk->ik * (1*
            gradients/bij,bjk->bik|i,i,i->i|ii,i->i|ij,ij->|ij,ij->i|ij,ij->ij (1*
            gradients/ij,jk->ik (2,1) *
            !gradients/i,i-> (1) (1) *
            implicit output/...ij,...jk (5,2,3) (5,3,4) *
            jit/ij,ij->i (1,4) *
            known faults/* gradients of size 1 lack the cotangent
            known faults/* size 1 does not broadcast
            large rank/abcdefg,abcdefh->gabcdefh (2,1* *
            second order/* (1*
            unknown sizes/bij,bjk->bik (1,3,4) *
            unknown sizes/ij,ij->i (1,4) * all axes
            vmap/Zij,ij->Zi *
            zero sizes/bij,bjk->bik (3,2,0) (1,0,4) complex64|float16|float32
        TensorFlow does not sum the axes of an ellipsis that the output leaves out.
            ellipsis/...,...|...i->i|...j->j|...i,...->i *
            gradients/...,...|...i->i|...i,...->i *
            known faults/* ellipsis axes are not summed
            no axes/...-> (2,3) complex64|float16|float32|int64
        TensorFlow's errors for tensors that do not fit are of no built-in class.
            known faults/* a diagonal of sizes 1 and 3
            known faults/* an axis too many
            known faults/* errors come late
            known faults/* the wrong sizes are named
            promotion/*
            wrong sizes/*
        TensorFlow raises a bare AttributeError or KeyError for objects that are no tensor, equation or path.
            known faults/* an array of no library is taken for NumPy's
            wrong equations/(2,2) float32
            wrong equations/'ij'|5|[...,...]|[0,1];'ij'|[0,1];5|[0,1];[0,0]|[0,1];[0,7] *
            wrong equations/{0, 1} *
            wrong equations/[0,[1]] *
            wrong operands/*
            wrong paths/* optimize=no such
        TensorFlow accepts blanks inside of an arrow, and two ellipses in a subscript.
            wrong equations/ij- >i *
            wrong equations/...i... *
        TensorFlow converts NumPy arrays to its own.
            two frameworks/*
        The only whitespace that TensorFlow accepts is the space, and the only labels the 52 ASCII letters.
            forms/ij,\tjk\n->ik *
            forms/αж,жB->Bα *
        TensorFlow's einsum first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/*:inf|*:nan *
            !zero sizes/ij,jk->ik *
        TensorFlow's einsum takes no optimize=False.
            keywords/ij,jk,kl->il * optimize=False
            known faults/ij,jk,kl->il * optimize=False *
        TensorFlow's einsum has no dtype=, casting=, order= or out=.
            casting/*
            dtype/*
            known faults/* order=* order= fails, or is ignored
            order/*
            wrong keywords/*
            wrong out/*
        TensorFlow's einsum takes no lists, and no numbers.
            known faults/* labels of sublists are *
            known faults/* no ellipsis in sublists
            lists and scalars/*
            many operands/1000 *
            many operands/60 *
            sublists/*
        Some random problems have other dtypes, or broadcast. [sometimes]
            random/*
        TensorFlow's einsum sums float16 without a wider dtype, and rounds half precision after each pair. [sometimes]
            compile/* float16|bfloat16
            dtypes/* float16|bfloat16
            gradients/* float16|bfloat16
            !gradients/ij,ij->i *
            half precision/*
            larger sizes/* float16|bfloat16
            unknown sizes/* float16|bfloat16 all axes
            vmap/* float16|bfloat16
"""),
    ),
}
