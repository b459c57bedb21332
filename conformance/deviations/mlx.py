"""Known deviations of MLX's own einsum, and of einsumx on MLX."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "mlx": listed(
        r"""
    MLX does not tell that it differentiates, so it differentiates the blocks of a contraction under a memory limit
    itself, and adds their gradients in half precision. [sometimes]
        memory limit/* bfloat16|float16 gradients
        memory limit/* float16 float32 gradients
    """
    ),
    "mlx.core:einsum": listed(
        r"""
    MLX's einsum takes a text and arrays: no sublists, and no keyword but stream=.
        aliasing/ij->ji * dtype=int32
        casting/*
        dtype/*
        keywords/*
        known faults/[...,0];[0,1]|[2,0];[0,1]|[30,0];[0,1]|bij,bjk->kbi|ij,jk,kl->il|ij,kj->|ki,ij->j *
        known faults/ij,ij->i|ij,jk->ik * ignored
        known faults/bij,bjk->bik * unwritten
        known faults/i,i-> * written
        known faults/ij,jk->ik * result
        many operands/1000|60 *
        order/*
        out/*
        sublists/*
        two frameworks/* out=*
        wrong keywords/*
        wrong out/*
        wrong paths/*
        wrong sizes/* optimize=True
        !keywords/* no_such_keyword=1
    MLX has no matrix product of integers and bools, and sums bools and integers of less than 32 bits in 32 bits.
        bool/bij,bik->bjk|ij,ij->i|ij,ik,il->jkl|ij,ik->jk|ij->|ij->j *
        broadcasting/ij->|ij->i * bool
        broadcasting/...ij,...jk->...ik|ab,bc,bd->acd|abc,cd,bd->a|bhqd,bhqkd->bhqk|bij,bjk->bik * bool|int32
        broadcasting/bind,bjnd->bnij|bnid,bnjd->bnij|i,i->|iij,j->i|ij,ij->|ij,ij->i|ij,jk->ik * bool|int32
        broadcasting/ijk,kl,jl->ik * bool|int32
        dtypes/ai,bi,ci->abc|bij,bjk->bik|bind,bjnd->bnij|i,i->|ij,ij->i|ij,j->i|ij,jk,kl->il * bool|int*|uint*
        dtypes/ij,jk->ik|ijk,ikl->jl * bool|int*|uint*
        dtypes/i->|ij->j * bool|int16|int8|uint16|uint8
        integers/bij,bjk->bki|bik,bkj->bij|i,i,i->|i,i->|ij,ij->i|ij,jk,kl->il|ij,jk->ik|ik,kj->ij *
        integers/i-> * int16|int8|uint16|uint8
        jit/ij,jk->ik * bool|int32
        known faults/i,j->|ij->i *
        known faults/i-> * widened
        known faults/bij,bjk->bik * bools
        known faults/i,i-> * counted
        known faults/ij,jk->ik * int8 int32 dtypes are not promoted
        known faults/ij,jk->ki * transposed
        large rank/* int32
        larger sizes/abc,cd,bde->ae|bhqd,bhqkd->bhqk|bij,bjk->bik|bind,bjnd->bnij|bind,jnd->bnij * bool|int*|uint8
        larger sizes/bnid,bnjd->bnij|bnij,bjnc->binc|ecbfa,fd->abcde|ij,i->j|ij,ij->|ij,ij->i * bool|int*|uint8
        larger sizes/ij,j->i|ij,jk->ik|ij,kj->ki|ijk,ikl->jl|jl,kil->ijk * bool|int*|uint8
        larger sizes/ai,bi,ci->abc * bool|int8|uint8
        larger sizes/iij->j|ij->i|ij->j|ijk->kj * bool|int8
        layouts/ij->j * bool
        layouts/ij,jk->ik * bool|int32
        layouts/i,i->|i,ij,jk->k|i,ij->j|ij,ik->jk * bool|int64|int8|uint8 equal terms
        layouts/i,j,k->|i,j->|i->|ij->j * bool|int8|uint8 equal terms
        no axes/...->|ij-> * bool
        no axes/,ij,jk->ik|i,i->|ij,ji-> * bool|int64
        promotion/ij,jk,kl->il * bool
        promotion/i,i-> * int16|int32|int64|int8|uint16|uint32|uint64|uint8 bool
        promotion/i,i-> * bool int*|uint*
        promotion/i,i-> * int32 int8
        promotion/i,i-> * int8 int32
        promotion/ij,jk->ik * bool int*|uint*
        promotion/ij,jk->ik * int*|uint* bool|int*|uint*
        !promotion/* int16|int32|int64|int8 uint64
        !promotion/* uint64 int16|int32|int64|int8
        vmap/Zij,jk->Zik * bool|int32
        zero sizes/...i,i->...|ai,bi,ci->abc|i,i->|ij,jk->ik|ij,jk,kl->il * bool|int8
        zero sizes/bij,bjk->bik (0,2,3) (0,3,4) bool|int8
        zero sizes/bij,bjk->bik (3,2,0) (1,0,4) bool|int8
    MLX's einsum does not broadcast an axis of size 1 to size 0.
        zero sizes/bij,bjk->bik (0,2,3) (1,3,4) *
    MLX's einsum accepts arrays, but no lists and scalars.
        lists and scalars/*
    MLX's einsum accepts only the 52 ASCII letters as labels.
        forms/ij,\tjk\n->ik|αж,жB->Bα *
    MLX's einsum removes blanks first, also those within `...` and `->`.
        wrong equations/. ..ij->ij *
        wrong equations/ij- >i *
        wrong equations/ij->. ..ji *
    Some gradients of empty arrays fail in MLX.
        gradients/i,i-> (0) (1) float32
        gradients/ii->i (0,0) float32
    MLX's einsum sums empty arrays, which never ends in MLX in some runs if they were made of NumPy's; some random
    problems have such operands. [crashes]
        random/*
        zero sizes/ab->|ab->b|i->|ii->|i,j->|i,j->j|i,j,j->|i,j,k->|ij->i|ij->j|ij,jk->|ij,jk,kl->|ik,jk->j *
    MLX's einsum rounds each pairwise product to half precision before the next one. [sometimes]
        dtypes/* bfloat16|float16
        gradients/* bfloat16|float16
        half precision/*
        larger sizes/* bfloat16|float16
        vmap/* bfloat16|float16
    """
    ),
}
