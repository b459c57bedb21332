"""Where opt_einsum's contract deviates, on NumPy's arrays and on PyTorch's."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation
from einsumx.conformance.deviations.numpy import VIEWS

__all__ = ["DEVIATIONS"]

_ON_BOTH = (
    Deviation(
        "two frameworks/*",
        "opt_einsum does not look at whose arrays it is given.",
        sometimes=True,
    ),
    Deviation(
        r"""
        forms/ij,\tjk\n->ik *
        """,
        "Of all blanks, opt_einsum takes spaces alone.",
    ),
    Deviation(
        """
        sublists/['z',0];[0,1] *
        sublists/[None,1.5];[1.5,True];[True,None] *
        """,
        "opt_einsum sorts the labels of sublists, so they must have an order.",
    ),
    Deviation(
        """
        casting/i,i-> (2) (2) float32 casting=no
        !dtype/* optimize=False
        dtype/i,i-> *
        dtype/ij,jk,kl->il *
        dtype/ij,jk->ik *
        dtype/ij,jk->ki *
        dtype/ki,i->k *
        known faults/* order=F *
        known faults/ij,jk->ik * dtype=*
        order/ij,jk,kl->il *
        order/ij,jk->ik *
        order/ij,jk->ki *
        out/ij,jk->ik * casting=*
        """,
        "opt_einsum hands dtype=, order= and casting= on to tensordot, which has no such keywords.",
    ),
    Deviation(
        "known faults/* the wrong sizes are named",
        "opt_einsum names the sizes of an error the wrong way round.",
    ),
)
"""What opt_einsum does by itself, whosever arrays it is given."""

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "opt_einsum:contract on numpy": (
        *_ON_BOTH,
        VIEWS,
        Deviation(
            "random/*",
            "Among random problems are products of three in float16, which opt_einsum rounds after each pair.",
            sometimes=True,
        ),
        Deviation(
            """
            known faults/i,i-> * out=*
            out/i,i-> *
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=() float32
            """,
            "opt_einsum writes a product into out= by a slice, which an out= without axes does not have.",
        ),
        Deviation(
            """
            wrong equations/[0,1];'ij' *
            wrong equations/[0,1];[0,7] *
            wrong out/* optimize=[(0, 2)] *
            wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 5)]
            wrong paths/* optimize=no such
            """,
            "opt_einsum raises the errors of Python's dicts and lists where it looks up a label or a path.",
        ),
        Deviation(
            """
            known faults/i,i->i *
            wrong equations/'ij' *
            wrong equations/. ..ij->ij *
            wrong equations/i1->i *
            wrong equations/i_->i *
            wrong equations/ij,j!->i *
            wrong equations/ij- >i *
            wrong equations/ij->. ..ji *
            wrong equations/ij->...i... *
            wrong equations/{0, 1} *
            wrong operands/* operand 0: of a mask
            wrong operands/* operand 1: of a mask
            wrong operands/* operand 1: of durations
            wrong operands/i->i *
            wrong paths/* optimize=[(0, 0), (0, 1)]
            wrong paths/* optimize=[(0, 1)]
            """,
            "opt_einsum checks neither all of an equation, nor that a path is complete, nor what its operands are.",
        ),
        Deviation(
            """
            wrong out/* optimize=no such *
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) bool
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) float16
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) int32
            """,
            "opt_einsum writes what tensordot gives into out=, whatever its dtype.",
        ),
        Deviation(
            """
            dtypes/* float16
            half precision/*
            larger sizes/* float16
            layouts/* float16
            """,
            "opt_einsum rounds float16 after each pair of operands, and hands to NumPy what has no matrix product.",
            sometimes=True,
        ),
        Deviation(
            "zero sizes/i,j,j-> *",
            "opt_einsum sums an operand's own axes first, so that an infinity meets the 0 of an empty sum.",
        ),
    ),
    "opt_einsum:contract on torch": (
        *_ON_BOTH,
        Deviation(
            "random/*",
            "Among random problems are sums of integers, which PyTorch widens, and matrix products that it lacks.",
            sometimes=True,
        ),
        Deviation(
            "wrong out/ij,jk->ik (2,3) (3,4) float32 out=() float32",
            "opt_einsum writes a product into out= by a slice, which an out= without axes does not have.",
        ),
        Deviation(
            """
            dtype/* optimize=False
            keywords/* optimize=False
            known faults/* optimize=False *
            """,
            "With optimize=False, opt_einsum hands PyTorch's arrays to NumPy's einsum, and gives a NumPy array.",
        ),
        Deviation(
            """
            aliasing/* int8 *
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=equiv
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=no
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=safe
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=same_kind
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=unsafe
            casting/i,i->i *
            casting/i,i->i * int32 *
            casting/i,i->i * int8 *
            casting/ij->ji *
            devices/* int8 *
            devices/* out=*
            !dtype/* optimize=False
            dtype/ij-> *
            dtype/ij->i *
            dtype/ij->j *
            dtype/ij->ji *
            dtype/ki,ij->j *
            dtype/ki->i *
            dtype/ki->ik *
            known faults/* dtype=*
            !known faults/* optimize=False *
            known faults/* order=C *
            !known faults/ij,jk->ik *
            order/* out=*
            order/*:sliced *
            order/bij,bjk->bik * order=F
            order/bij,bjk->kbi *
            order/i,j,k->kij *
            order/iij->ji *
            order/ij,ij->ij * order=C
            !order/ij,jk->ki *
            order/ij->ij (2,3) float32 order=F
            order/ij->ij (2,3):F float32 order=C
            order/ij->ji (2,3) float32 order=C
            !order/ij->ji (2,3):F float32 order=C
            order/ij->ji *:F *
            order/ijk->kj * order=F
            out/*:range *
            !wrong keywords/* casting=*
            wrong keywords/i->i *
            """,
            "opt_einsum gives PyTorch's einsum no dtype=, casting= or order=: what it is given is ignored.",
        ),
        Deviation(
            """
            known faults/* out=*
            !known faults/ij,jk->ik *
            out/* bool *
            out/* optimize=False *
            out/-> *
            out/bij,bjk->bik *
            out/i,i-> *
            out/i,j-> *
            out/i,j->ij *
            out/ii-> *
            out/ii->i *
            out/ij,ij->ij *
            out/ij,ij->ji *
            out/ij,jk->ik (2,3) (1,4) float32 out=(2,4) float32
            out/ij,jk->ik (2,3) (1,4) float32 out=(2,4) float32 between others
            out/ij-> *
            out/ij->i * float32 *
            out/ij->ij *
            !out/ij->ij * out=operand 0
            out/ij->ij *:exact *
            out/ij->ji *
            out/ijk->kji *
            wrong out/* optimize=*
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) bool
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) float16
            wrong out/ij,jk->ik (2,3) (3,4) float32 out=(2,4) int32
            wrong out/ij-> *
            wrong out/ij->ij *
            """,
            "opt_einsum gives PyTorch's einsum no out=: what it is given is returned, unwritten, or not at all.",
        ),
        Deviation(
            """
            wrong equations/(2,2) float32
            wrong equations/[0,1];'ij' *
            wrong equations/[0,1];[0,7] *
            wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
            wrong paths/* optimize=[(0, 1), (0, 5)]
            wrong paths/* optimize=no such
            """,
            "opt_einsum raises the errors of Python's dicts and lists where it looks up a label or a path.",
        ),
        Deviation(
            """
            known faults/i,i->i *
            wrong equations/'ij' *
            wrong equations/. ..ij->ij *
            wrong equations/i1->i *
            wrong equations/i_->i *
            wrong equations/ij,j!->i *
            wrong equations/ij- >i *
            wrong equations/ij->. ..ji *
            wrong equations/ij->...i... *
            wrong equations/{0, 1} *
            wrong paths/* optimize=[(0, 0), (0, 1)]
            wrong paths/* optimize=[(0, 1)]
            """,
            "opt_einsum checks neither all of an equation, nor that a path is complete, nor what its operands are.",
        ),
        Deviation(
            """
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
            """,
            "PyTorch's sums of integers and bools are in int64, and so are the equations in which einsum calls a sum.",
        ),
        Deviation(
            """
            bool/bij,bik->bjk *
            bool/ij,ij->i *
            bool/ij,ik,il->jkl *
            bool/ij,ik->jk *
            broadcasting/...ij,...jk->...ik * bool
            broadcasting/ab,bc,bd->acd * bool
            broadcasting/abc,cd,bd->a * bool
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
            layouts/ij,jk->ik * bool
            no axes/,ij,jk->ik * bool
            no axes/i,i-> * bool
            no axes/ij,ji-> * bool
            vmap/* bool
            zero sizes/i,i-> * bool
            """,
            "PyTorch has no matrix product of bools, nor of unsigned integers of 16 bits or more.",
        ),
        Deviation(
            """
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
            !promotion/* uint?? *int*
            !promotion/* uint?? bool
            !promotion/* uint?? complex*
            !promotion/* uint?? int16
            !promotion/* uint?? int64
            !promotion/* uint?? int8
            !promotion/* uint?? uint8
            promotion/i,i-> *
            !promotion/i,i->i *
            !promotion/i,j->ij *
            """,
            "PyTorch's matrix products take one dtype, and neither einsum nor opt_einsum casts for them.",
        ),
        Deviation(
            """
            zero sizes/i,j,j-> *
            zero sizes/i,j-> *
            zero sizes/i,j->j *:inf *
            zero sizes/i,j->j *:nan *
            zero sizes/ik,jk->j *
            """,
            "opt_einsum sums an operand's own axes first, so that an infinity meets the 0 of an empty sum.",
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
            """,
            "opt_einsum rounds half precision after each pair of operands.",
            sometimes=True,
        ),
        Deviation(
            "lists and scalars/*",
            "opt_einsum hands lists and scalars to PyTorch, or to NumPy where they come first.",
        ),
        Deviation(
            "compile/*",
            "PyTorch cannot compile opt_einsum's contract, whose way of finding arrays' functions it does not support.",
        ),
        Deviation(
            """
            keywords/ij-> *
            known faults/i-> * float32 *
            wrong keywords/i->i * casting=*
            """,
            "opt_einsum ignores an unknown keyword where it has no use for keywords.",
        ),
    ),
}
