"""Where opt_einsum's contract deviates, on NumPy's arrays and on PyTorch's."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation
from einsumx.conformance.deviations.numpy import VIEWS
from einsumx.conformance.deviations.torch import INTEGER_SUMS, MATRIX_PRODUCTS, MIXED_PRODUCTS

__all__ = ["DEVIATIONS", "READ_UNCHECKED"]

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

_LOOKED_UP = """
    wrong equations/[0,1];'ij' *
    wrong equations/[0,1];[0,7] *
    wrong paths/* optimize=[(0, 1), (0, 1), (0, 1)]
    wrong paths/* optimize=[(0, 1), (0, 5)]
    wrong paths/* optimize=no such
"""
"""Wrong labels and paths, which opt_einsum looks up without a check."""

READ_UNCHECKED = """
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
"""
"""What is wrong in an equation or a path, and what opt_einsum reads, which others read them with."""

_UNCHECKED = f"""
    known faults/i,i->i *
    {READ_UNCHECKED}
"""
"""What is wrong in an equation, a path or an operand, and what opt_einsum takes."""

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
            _LOOKED_UP
            + """
            wrong out/* optimize=[(0, 2)] *
            """,
            "opt_einsum raises the errors of Python's dicts and lists where it looks up a label or a path.",
        ),
        Deviation(
            _UNCHECKED
            + """
            wrong operands/* operand 0: of a mask
            wrong operands/* operand 1: of a mask
            wrong operands/* operand 1: of durations
            wrong operands/i->i *
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
            """
            zero sizes/i,j,j-> *
            zero sizes/i,j,k-> *:inf *
            zero sizes/i,j,k-> *:nan *
            zero sizes/ij,jk,kl-> *:inf *
            zero sizes/ij,jk,kl-> *:nan *
            """,
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
            order/i,j->ij * order=A
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
            _LOOKED_UP
            + """
            wrong equations/(2,2) float32
            """,
            "opt_einsum raises the errors of Python's dicts and lists where it looks up a label or a path.",
        ),
        Deviation(
            _UNCHECKED,
            "opt_einsum checks neither all of an equation, nor that a path is complete, nor what its operands are.",
        ),
        Deviation(
            INTEGER_SUMS,
            "PyTorch's sums of integers and bools are in int64, and so are the equations in which einsum calls a sum.",
        ),
        Deviation(
            MATRIX_PRODUCTS
            + """
            broadcasting/abc,cd,bd->a * bool
            !layouts/i,i-> * bool equal terms
            zero sizes/i,i-> * bool
            """,
            "PyTorch has no matrix product of bools, nor of unsigned integers of 16 bits or more.",
        ),
        Deviation(
            MIXED_PRODUCTS
            + """
            !promotion/* uint?? *int*
            """,
            "PyTorch's matrix products take one dtype, and neither einsum nor opt_einsum casts for them.",
        ),
        Deviation(
            """
            zero sizes/i,j,j-> *
            zero sizes/i,j,k-> *:inf *
            zero sizes/i,j,k-> *:nan *
            zero sizes/i,j-> *
            zero sizes/ij,jk,kl-> *:inf *
            zero sizes/ij,jk,kl-> *:nan *
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
