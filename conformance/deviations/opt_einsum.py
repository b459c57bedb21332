"""Known deviations of opt_einsum's contract, on NumPy arrays and on PyTorch tensors."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed
from einsumx.conformance.deviations.numpy import VIEWS
from einsumx.conformance.deviations.torch import PATTERNS as TORCH_PATTERNS

__all__ = ["DEVIATIONS", "PATTERNS"]

PATTERNS = {
    **TORCH_PATTERNS,
    # Wrong labels and paths that opt_einsum looks up without a check.
    "LOOKED_UP": r"""
        wrong equations/[0,1];'ij'|[0,1];[0,7] *
        wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
        wrong paths/* optimize=[(0, 1), (0, 5)]
        wrong paths/* optimize=no such
    """,
    # Wrong equations and paths that opt_einsum's parser accepts; other libraries use it too.
    "READ_UNCHECKED": r"""
        wrong equations/'ij'|i1->i|i_->i|ij,j!->i|ij->...i... *
        wrong equations/. ..ij->ij *
        wrong equations/ij- >i *
        wrong equations/ij->. ..ji *
        wrong equations/{0, 1} *
        wrong paths/* optimize=[(0, 0), (0, 1)]
        wrong paths/* optimize=[(0, 1)]
    """,
}

_ON_BOTH = listed(r"""
    opt_einsum does not check which library its operands come from. [sometimes]
        two frameworks/*
    The only whitespace that opt_einsum accepts is the space.
        forms/ij,\tjk\n->ik *
    opt_einsum sorts the labels of sublists, so they need an order.
        sublists/['z',0];[0,1]|[None,1.5];[1.5,True];[True,None] *
    opt_einsum passes dtype=, order= and casting= to tensordot, which does not accept them.
        casting/i,i-> (2) (2) float32 casting=no
        dtype/i,i->|ij,jk,kl->il|ij,jk->ik|ij,jk->ki|ki,i->k *
        !dtype/* optimize=False
        known faults/* order=F *
        known faults/ij,jk->ik * dtype=*
        order/ij,jk,kl->il|ij,jk->ik|ij,jk->ki *
        out/ij,jk->ik * casting=*
    opt_einsum's error names the two sizes the wrong way round.
        known faults/* the wrong sizes are named
""")
"""Deviations of opt_einsum that do not depend on the library of its operands."""

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "opt_einsum:contract on numpy": (
        *_ON_BOTH,
        VIEWS,
        *listed(
            r"""
        opt_einsum looks up labels and paths unchecked and raises a bare KeyError or IndexError.
            LOOKED_UP
            wrong out/* optimize=[(0, 2)] *
        opt_einsum checks equations, paths and the types of operands incompletely.
            READ_UNCHECKED
            known faults/i,i->i *
            wrong operands/* operand 0:|1: of a mask
            wrong operands/* operand 1: of durations
            wrong operands/i->i *
        Some random problems are products of three operands in float16, which opt_einsum rounds after each pair.
        [sometimes]
            random/*
        opt_einsum writes a product to out= through a slice, which fails if out= has no axes.
            known faults/i,i-> * out=*
            out/i,i-> *
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=() float32
        opt_einsum writes tensordot's result to out= whatever its dtype.
            wrong out/* optimize=no such *
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) bool|float16|int32
        opt_einsum rounds float16 after each pair of operands, and leaves pairs without a matrix product to NumPy.
        [sometimes]
            dtypes/* float16
            half precision/*
            larger sizes/* float16
            layouts/* float16
        opt_einsum first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/i,j,j-> *
            zero sizes/i,j,k->|ij,jk,kl-> *:inf|*:nan *
    """,
            PATTERNS,
        ),
    ),
    "opt_einsum:contract on torch": (
        *_ON_BOTH,
        *listed(
            r"""
        opt_einsum looks up labels and paths unchecked and raises a bare KeyError or IndexError.
            LOOKED_UP
            wrong equations/(2,2) float32
        opt_einsum checks equations, paths and the types of operands incompletely.
            READ_UNCHECKED
            known faults/i,i->i *
        PyTorch sums integers and bools in int64, also for equations that einsum computes as a sum.
            INTEGER_SUMS
        PyTorch has no matrix product for bools or for unsigned integers of 16 bits or more.
            MATRIX_PRODUCTS
            broadcasting/abc,cd,bd->a * bool
            !layouts/i,i-> * bool equal terms
            zero sizes/i,i-> * bool
        PyTorch's matrix products need operands of one dtype, and neither einsum nor opt_einsum casts them.
            MIXED_PRODUCTS
            !promotion/* uint?? *int*
        Some random problems sum integers, which PyTorch widens, or need matrix products that PyTorch lacks. [sometimes]
            random/*
        opt_einsum writes a product to out= through a slice, which fails if out= has no axes.
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=() float32
        With optimize=False, opt_einsum passes tensors to NumPy's einsum and returns a NumPy array.
            dtype/* optimize=False
            keywords/* optimize=False
            known faults/* optimize=False *
        opt_einsum does not pass dtype=, casting= or order= to PyTorch's einsum: they are ignored.
            aliasing/* int8 *
            casting/i,i->i|ij->ji *
            casting/i,i->i * int32|int8 *
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=equiv|casting=no|casting=safe
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=same_kind|casting=unsafe
            devices/* int8 *
            devices/* out=*
            dtype/ij->|ij->i|ij->j|ij->ji|ki,ij->j|ki->i|ki->ik *
            !dtype/* optimize=False
            known faults/* dtype=*
            known faults/* order=C *
            !known faults/* optimize=False *
            !known faults/ij,jk->ik *
            order/* out=*
            order/*:sliced|bij,bjk->kbi|i,j,k->kij|iij->ji *
            order/bij,bjk->bik|ijk->kj * order=F
            order/i,j->ij * order=A
            order/ij,ij->ij * order=C
            order/ij->ij (2,3) float32 order=F
            order/ij->ij (2,3):F float32 order=C
            order/ij->ji (2,3) float32 order=C
            order/ij->ji *:F *
            !order/ij,jk->ki *
            !order/ij->ji (2,3):F float32 order=C
            out/*:range *
            wrong keywords/i->i *
            !wrong keywords/* casting=*
        opt_einsum does not pass out= to PyTorch's einsum: out= stays unwritten, or is not returned at all.
            known faults/* out=*
            !known faults/ij,jk->ik *
            out/* bool|optimize=False *
            out/->|bij,bjk->bik|i,i->|i,j->|i,j->ij|ii->|ii->i|ij,ij->ij|ij,ij->ji|ij->|ij->ij|ij->ji|ijk->kji *
            out/ij,jk->ik (2,3) (1,4) float32 out=(2,4) float32
            out/ij,jk->ik (2,3) (1,4) float32 out=(2,4) float32 between others
            out/ij->i * float32 *
            out/ij->ij *:exact *
            !out/ij->ij * out=operand 0
            wrong out/* optimize=*
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) bool|float16|int32
            wrong out/ij->|ij->ij *
        opt_einsum first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/i,j,j->|i,j->|ik,jk->j *
            zero sizes/i,j,k->|i,j->j|ij,jk,kl-> *:inf|*:nan *
        opt_einsum rounds half precision after each pair of operands. [sometimes]
            dtypes/* bfloat16|float16
            gradients/* bfloat16|float16
            half precision/*
            larger sizes/* bfloat16|float16
        opt_einsum passes lists and scalars to PyTorch, or to NumPy if they come first.
            lists and scalars/*
        PyTorch cannot compile opt_einsum's contract, because it does not support how contract looks up functions.
            compile/*
            unknown sizes/*
        opt_einsum ignores an unknown keyword if it calls no function that takes keywords.
            keywords/ij-> *
            known faults/i-> * float32 *
            wrong keywords/i->i * casting=*
    """,
            PATTERNS,
        ),
    ),
}
