"""Where PyTorch's own einsum deviates."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS", "INTEGER_SUMS", "MATRIX_PRODUCTS", "MIXED_PRODUCTS"]

INTEGER_SUMS = """
    bool/ij-> *
    bool/ij->j *
    broadcasting/abc,cd,bd->a * int32
    broadcasting/bij,bjk->bik (1,2,1) (5,3,4) bool
    broadcasting/bij,bjk->bik (1,2,1) (5,3,4) int32
    broadcasting/bind,bjnd->bnij * bool
    broadcasting/bind,bjnd->bnij * int32
    broadcasting/i,i-> * bool
    broadcasting/i,i-> * int32
    broadcasting/iij,j->i * bool
    broadcasting/iij,j->i * int32
    broadcasting/ij,ij-> * bool
    broadcasting/ij,ij-> * int32
    !broadcasting/ij,jk->ik (1,3) (3,1) bool
    !broadcasting/ij,jk->ik (1,3) (3,1) int32
    broadcasting/ij,jk->ik * bool
    broadcasting/ij,jk->ik * int32
    broadcasting/ij-> * bool
    broadcasting/ij-> * int32
    broadcasting/ij->i * bool
    broadcasting/ij->i * int32
    !dtypes/* bfloat16
    !dtypes/* complex128
    !dtypes/* complex64
    !dtypes/* float16
    !dtypes/* float32
    !dtypes/* float64
    !dtypes/* int64
    dtypes/i-> *
    dtypes/ij->j *
    !integers/* int64
    integers/i-> *
    known faults/* int8 is widened
    larger sizes/iij->j * bool
    larger sizes/iij->j * int32
    larger sizes/iij->j * int8
    larger sizes/ij->i * bool
    larger sizes/ij->i * int32
    larger sizes/ij->i * int8
    larger sizes/ij->j * bool
    larger sizes/ij->j * int32
    larger sizes/ij->j * int8
    larger sizes/ijk->kj * bool
    larger sizes/ijk->kj * int32
    larger sizes/ijk->kj * int8
    layouts/ij->j * bool
    layouts/ij->j * int32
    layouts/i,j,k-> * bool equal terms
    layouts/i,j,k-> * int8 equal terms
    layouts/i,j,k-> * uint8 equal terms
    layouts/i,j-> * bool equal terms
    layouts/i,j-> * int8 equal terms
    layouts/i,j-> * uint8 equal terms
    layouts/i-> * bool equal terms
    layouts/i-> * int8 equal terms
    layouts/i-> * uint8 equal terms
    layouts/ij->j * bool equal terms
    layouts/ij->j * int8 equal terms
    layouts/ij->j * uint8 equal terms
    no axes/...-> * bool
    no axes/ij-> * bool
    zero sizes/i,j->j * bool
    zero sizes/i,j->j * int8
    zero sizes/i-> * bool
    zero sizes/i-> * int8
    zero sizes/ii-> * bool
    zero sizes/ii-> * int8
    zero sizes/ij,jk-> * bool
    zero sizes/ij,jk-> * int8
    zero sizes/ij->i * bool
    zero sizes/ij->i * int8
    zero sizes/ij->j * bool
    zero sizes/ij->j * int8
"""
"""Cases with sums of integers or bools, which PyTorch widens."""

MATRIX_PRODUCTS = """
    bool/bij,bik->bjk *
    bool/ij,ij->i *
    bool/ij,ik,il->jkl *
    bool/ij,ik->jk *
    broadcasting/...ij,...jk->...ik * bool
    broadcasting/ab,bc,bd->acd * bool
    broadcasting/bhqd,bhqkd->bhqk * bool
    !broadcasting/bij,bjk->bik (1,2,1) (5,3,4) bool
    broadcasting/bij,bjk->bik * bool
    broadcasting/bnid,bnjd->bnij * bool
    broadcasting/ij,ij->i * bool
    broadcasting/ij,jk->ik (1,3) (3,1) bool
    broadcasting/ijk,kl,jl->ik * bool
    dtypes/* bool
    dtypes/* uint16
    dtypes/* uint32
    dtypes/* uint64
    !dtypes/i,i,i->i *
    !dtypes/i,j->ij *
    !dtypes/i-> *
    !dtypes/ii->i *
    !dtypes/ij,ij->ij *
    !dtypes/ij->j *
    !dtypes/ij->ji *
    integers/*
    !integers/* int16
    !integers/* int32
    !integers/* int64
    !integers/* int8
    !integers/* uint8
    !integers/i,j->ij *
    !integers/i-> *
    known faults/*:one *
    known faults/bij,bjk->bik * bool *
    known faults/ij,jk->ki * bool *
    larger sizes/* bool
    !larger sizes/i,j->ij *
    !larger sizes/iij->j *
    !larger sizes/ij,ij->ij *
    !larger sizes/ij->i *
    !larger sizes/ij->j *
    !larger sizes/ij->ji *
    !larger sizes/ijk->jik *
    !larger sizes/ijk->kj *
    layouts/i,i-> * bool equal terms
    layouts/i,ij,jk->k * bool equal terms
    layouts/i,ij->j * bool equal terms
    layouts/ij,ik->jk * bool equal terms
    layouts/ij,jk->ik * bool
    no axes/,ij,jk->ik * bool
    no axes/i,i-> * bool
    no axes/ij,ji-> * bool
    vmap/* bool
"""
"""Cases with matrix products in dtypes in which PyTorch has none."""

MIXED_PRODUCTS = """
    gradients/* complex64 *
    gradients/* float16 *
    gradients/* float32 *
    !gradients/* one array for all
    known faults/ij,jk->ik * dtypes are not promoted
    promotion/* bfloat16
    promotion/* bfloat16 *int*
    promotion/* bool
    !promotion/* bool uint16
    !promotion/* bool uint32
    !promotion/* bool uint64
    promotion/* complex128
    promotion/* complex64
    promotion/* float16
    promotion/* float16 *int*
    promotion/* float32
    promotion/* float32 *int*
    promotion/* float64
    promotion/* float64 *int*
    promotion/* int16
    promotion/* int32
    promotion/* int64
    promotion/* int8
    promotion/* uint8
    !promotion/* uint?? bool
    !promotion/* uint?? complex*
    !promotion/* uint?? int16
    !promotion/* uint?? int64
    !promotion/* uint?? int8
    !promotion/* uint?? uint8
    promotion/i,i-> *
    !promotion/i,i->i *
    !promotion/i,j->ij *
"""
"""Cases with matrix products of two dtypes, of which PyTorch has none."""

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "torch:einsum": (
        Deviation(
            "random/*",
            "Among random problems are sums of integers, which PyTorch widens, and matrix products that it lacks.",
            sometimes=True,
        ),
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, PyTorch takes spaces alone.",
        ),
        Deviation(
            """
            forms/αж,жB->Bα *
            many operands/* in a binary tree
            many operands/* in a row
            sublists/['left','bond'];['bond','right'];['right','left'] *
            sublists/['z','b','y'] *
            sublists/['z',0];[0,1] *
            sublists/[(0, 0),(0, 1)];[(0, 1),(1, 1)];[(1, 1),(0, 0)] *
            sublists/[100,52];[52,60];[60,100] *
            sublists/[70,30,50] *
            sublists/[None,1.5];[1.5,True];[True,None] *
            """,
            "PyTorch's labels are 52 letters, or the integers from 0 to 51.",
        ),
        Deviation(
            """
            added gradients/* float32 *
            aliasing/ij->ji *
            casting/*
            devices/* on each other device
            devices/* out=*
            dtype/*
            keywords/* optimize=*
            known faults/* dtype=*
            known faults/* optimize=*
            known faults/* order=*
            known faults/* out=*
            order/*
            out/*
            two frameworks/* out=*
            views/* float32 *
            wrong keywords/*
            wrong out/*
            wrong paths/*
            wrong sizes/* float32 *
            """,
            "PyTorch's einsum has no dtype=, casting=, order=, out= or optimize=.",
        ),
        Deviation(
            INTEGER_SUMS
            + """
            broadcasting/abc,cd,bd->a * bool
            """,
            "PyTorch's sums of integers and bools are in int64, and so are the equations in which einsum calls a sum.",
        ),
        Deviation(
            MATRIX_PRODUCTS
            + """
            compile/* bool
            """,
            "PyTorch has no matrix product of bools, nor of unsigned integers of 16 bits or more.",
        ),
        Deviation(
            MIXED_PRODUCTS
            + """
            !promotion/* uint?? int32
            """,
            "PyTorch's matrix products take one dtype, and einsum casts nothing for them.",
        ),
        Deviation(
            """
            zero sizes/*:inf *
            zero sizes/*:nan *
            !zero sizes/ij,jk->ik *
            """,
            "PyTorch's einsum sums an operand's own axes first, so that an infinity meets the 0 of an empty sum.",
        ),
        Deviation(
            """
            dtypes/* bfloat16
            dtypes/* float16
            gradients/* bfloat16
            gradients/* float16
            half precision/*
            larger sizes/* bfloat16
            larger sizes/* float16
            vmap/* bfloat16
            vmap/* float16
            """,
            "PyTorch's einsum rounds each product of a pair to half precision before the next.",
            sometimes=True,
        ),
        Deviation(
            "lists and scalars/*",
            "PyTorch's einsum takes tensors alone, and no scalars or lists.",
        ),
        Deviation(
            "wrong equations/{0, 1} *",
            "PyTorch's einsum takes any iterable of integers, such as a set, for a list of labels.",
        ),
        Deviation(
            "devices/i,i-> *",
            "PyTorch's einsum looks at the devices of its operands only where it computes with their elements.",
        ),
    ),
}
