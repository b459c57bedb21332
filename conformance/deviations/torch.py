"""Known deviations of PyTorch's own einsum."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS", "PATTERNS"]

PATTERNS = {
    # Cases with sums of integers or bools, which PyTorch widens.
    "INTEGER_SUMS": r"""
        bool/ij->|ij->j *
        broadcasting/abc,cd,bd->a|bind,bjnd->bnij|i,i->|iij,j->i|ij,ij->|ij,jk->ik|ij->|ij->i * int32
        broadcasting/bij,bjk->bik (1,2,1) (5,3,4) bool|int32
        broadcasting/bind,bjnd->bnij|i,i->|iij,j->i|ij,ij->|ij,jk->ik|ij->|ij->i * bool
        !broadcasting/ij,jk->ik (1,3) (3,1) bool|int32
        dtypes/i->|ij->j *
        !dtypes/* bfloat16|complex128|complex64|float16|float32|float64|int64
        integers/i-> *
        !integers/* int64
        known faults/* int8 is widened
        larger sizes/iij->j|ij->i|ij->j|ijk->kj * bool|int32|int8
        layouts/ij->j * bool|int32
        layouts/i,j,k->|i,j->|i->|ij->j * bool|int8|uint8 equal terms
        no axes/...->|ij-> * bool
        zero sizes/i,j->j|i->|ii->|ij,jk->|ij->i|ij->j * bool|int8
    """,
    # Cases with matrix products in dtypes for which PyTorch has none.
    "MATRIX_PRODUCTS": r"""
        bool/bij,bik->bjk|ij,ij->i|ij,ik,il->jkl|ij,ik->jk *
        broadcasting/...ij,...jk->...ik|ab,bc,bd->acd|bhqd,bhqkd->bhqk|bij,bjk->bik|bnid,bnjd->bnij|ij,ij->i * bool
        broadcasting/ij,jk->ik (1,3) (3,1) bool
        broadcasting/ijk,kl,jl->ik * bool
        !broadcasting/bij,bjk->bik (1,2,1) (5,3,4) bool
        dtypes/* bool|uint16|uint32|uint64
        !dtypes/i,i,i->i|i,j->ij|i->|ii->i|ij,ij->ij|ij->j|ij->ji *
        integers/*
        !integers/* int16|int32|int64|int8|uint8
        !integers/i,j->ij|i-> *
        known faults/*:one *
        known faults/bij,bjk->bik|ij,jk->ki * bool *
        larger sizes/* bool
        !larger sizes/i,j->ij|iij->j|ij,ij->ij|ij->i|ij->j|ij->ji|ijk->jik|ijk->kj *
        layouts/i,i->|i,ij,jk->k|i,ij->j|ij,ik->jk * bool equal terms
        layouts/ij,jk->ik * bool
        no axes/,ij,jk->ik|i,i->|ij,ji-> * bool
        vmap/* bool
    """,
    # Cases with matrix products of two dtypes, which PyTorch lacks.
    "MIXED_PRODUCTS": r"""
        gradients/* complex64|float16|float32 *
        !gradients/* one array for all
        known faults/ij,jk->ik * dtypes are not promoted
        promotion/* bfloat16|bool|complex128|complex64|float16|float32|float64|int16|int32|int64|int8|uint8
        promotion/* bfloat16|float16|float32|float64 *int*
        promotion/i,i-> *
        !promotion/* bool uint16|uint32|uint64
        !promotion/* uint?? bool|complex*|int16|int64|int8|uint8
        !promotion/i,i->i|i,j->ij *
    """,
}
"""Shared with libraries that call PyTorch's einsum, sums and matrix products."""

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "torch:einsum": (
        *listed(
            r"""
        PyTorch sums integers and bools in int64, also for equations that einsum computes as a sum.
            INTEGER_SUMS
            broadcasting/abc,cd,bd->a * bool
            unknown sizes/ij->|ij->j * bool|int8 *
        PyTorch has no matrix product for bools or for unsigned integers of 16 bits or more.
            MATRIX_PRODUCTS
            compile/* bool
            unknown sizes/ij,jk->ik * bool *
        PyTorch's matrix products need operands of one dtype, and einsum does not cast them.
            MIXED_PRODUCTS
            !promotion/* uint?? int32
        Some random problems sum integers, which PyTorch widens, or need matrix products that PyTorch lacks. [sometimes]
            random/*
        The only whitespace that PyTorch accepts is the space.
            forms/ij,\tjk\n->ik *
        PyTorch accepts only the 52 ASCII letters, or integers from 0 to 51, as labels.
            forms/αж,жB->Bα *
            many operands/* in a binary tree
            many operands/* in a row
            sublists/['left','bond'];['bond','right'];['right','left']|['z','b','y']|['z',0];[0,1]|[70,30,50] *
            sublists/[(0, 0),(0, 1)];[(0, 1),(1, 1)];[(1, 1),(0, 0)] *
            sublists/[100,52];[52,60];[60,100]|[None,1.5];[1.5,True];[True,None] *
        PyTorch's einsum has no dtype=, casting=, order=, out= or optimize=.
            added gradients/* float32 *
            aliasing/ij->ji *
            casting/*
            devices/* on each other device
            devices/* out=*
            dtype/*
            keywords/* optimize=*
            known faults/* dtype=*|optimize=*|order=*|out=*
            order/*
            out/*
            two frameworks/* out=*
            views/* float32 *
            wrong keywords/*
            wrong out/*
            wrong paths/*
            wrong sizes/* float32 *
        PyTorch's einsum first sums axes that only one operand has, so an infinity meets the 0 of an empty sum.
            zero sizes/*:inf|*:nan *
            !zero sizes/ij,jk->ik *
        PyTorch's einsum rounds each pairwise product to half precision before the next one. [sometimes]
            dtypes/* bfloat16|float16
            gradients/* bfloat16|float16
            half precision/*
            larger sizes/* bfloat16|float16
            vmap/* bfloat16|float16
        PyTorch's einsum has the path of three operands or more found by their sizes, which torch.compile then takes for
        fixed.
            unknown sizes/ij,jk,kl->li|ab,bc,cd,da->|ai,bi,ci->abc|abc,cde,efa->bdf *
        PyTorch's einsum accepts only tensors, not scalars or lists.
            lists and scalars/*
        PyTorch's einsum accepts any iterable of integers, such as a set, as a sublist.
            wrong equations/{0, 1} *
        PyTorch's einsum checks the devices of its operands only if it computes with their elements.
            devices/i,i-> *
    """,
            PATTERNS,
        ),
    ),
}
