"""Where einsumx on MXNet deviates, and where MXNet's own einsum does, in 1.9 and in 2.0."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "mxnet": (
        Deviation(
            "inf and nan/ij->i (4,3):*inf float32",
            "MXNet 1's own sum carries its rounding error along, which is inf - inf beside an infinity: nan.",
            before="2",
        ),
        Deviation(
            """
            hybridize/ij,ij->i (1,4) (2,4) float32
            hybridize/...i,i...->... *
            hybridize/* float16
            hybridize/* int32
            hybridize/* bool
            """,
            "Symbols of MXNet 1 have no sizes, ranks or dtypes: only einsumx.mxnet.replace_einsum learns a block's.",
            before="2",
        ),
    ),
    "mxnet:np.einsum": (
        Deviation(
            "random/*",
            "Random problems are written as sublists too, and MXNet takes equations as text alone.",
            sometimes=True,
        ),
        Deviation(
            r"""
            forms/ij,\tjk\n->ik *
            """,
            "Of all blanks, MXNet takes spaces alone.",
        ),
        Deviation(
            "forms/αж,жB->Bα *",
            "MXNet's labels are 52 letters.",
        ),
        Deviation(
            """
            known faults/[...,0];[0,1] *
            known faults/[2,0];[0,1] *
            known faults/[30,0];[0,1] *
            many operands/*
            !many operands/* a row of letters, Ea
            !many operands/* a row of letters, aE
            !many operands/* a row of letters, mcD
            many operands/* float64 *
            out/[0,1];[1,2];[2,0] *
            sublists/*
            wrong equations/
            """,
            "MXNet takes equations as text alone.",
        ),
        Deviation(
            """
            added gradients/...i,...->i *
            added gradients/...i->i *
            ellipsis/...i,...->i *
            ellipsis/...i->i *
            ellipsis/...j->j *
            ellipsis/i...->i *
            gradients/...i,...->i *
            gradients/...i->i *
            known faults/...j->j *
            no axes/...-> *
            """,
            "MXNet does not sum an ellipsis that the output lacks, even one that stands for no axes.",
        ),
        Deviation(
            """
            known faults/* no more than 10 labels
            large rank/*:exact *
            large rank/abcdef,ghijkl->agbhcidjekfl *
            large rank/abcdefgh,bdfhijkl->lacegkji *
            large rank/abcdefghijkl->bdfhjl *
            large rank/abcdefghijklmno->ocmeakgibdfhjln *
            large rank/abcdijkl,ijklmnop->abcdmnop *
            """,
            "MXNet takes 10 labels at most.",
        ),
        Deviation(
            """
            known faults/* no more than 15 operands
            many operands/* a row of letters, Ea
            many operands/* a row of letters, aE
            many operands/* a row of letters, mcD
            """,
            "MXNet takes 15 operands at most.",
        ),
        Deviation(
            """
            dtype/ij,jk->ik (2,3) (3,4) int8 float32 dtype=float32
            gradients/* float16 *
            gradients/* float32 float64
            known faults/* dtypes are not promoted
            out/* dtype=*
            out/*:exact *
            promotion/*
            !promotion/* int8 uint8
            !promotion/* uint8 int8
            """,
            "MXNet's einsum takes operands, and an out=, of one dtype.",
        ),
        Deviation(
            """
            casting/* dtype=*
            casting/* dtype=int32 *
            casting/* dtype=int8 *
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=equiv
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=no
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=safe
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=same_kind
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=unsafe
            dtype/* bool *
            dtype/* casting=*
            dtype/* dtype=float64
            dtype/* float16 *
            dtype/*:range *
            dtype/ij,jk->ik (2,3) (3,4) int8 dtype=float32
            dtype/ki->ik *
            keywords/* no_such_keyword=*
            known faults/* dtype=*
            known faults/* order=*
            known faults/i-> * float32 *
            order/*
            order/* order=C
            order/* order=F
            !order/* order=K
            !order/* order=k
            order/bij,bjk->kbi *
            wrong keywords/*
            wrong out/* casting=no such *
            wrong out/* dtype=*
            wrong out/* no_such_keyword=*
            wrong out/* order=*
            """,
            "MXNet's einsum has no dtype=, casting= or order=, and ignores them as any unknown keyword.",
        ),
        Deviation(
            """
            keywords/* optimize=a path
            keywords/* optimize=greedy
            keywords/* optimize=optimal
            known faults/* optimize=greedy *
            wrong paths/* optimize=3.5
            """,
            "MXNet's einsum has no optimizers and no paths: optimize= is a bool, and what is none is made one.",
        ),
        Deviation(
            """
            gradients/...ii->...i *
            gradients/ii,ii->i *
            gradients/ii,ij,jj->j *
            gradients/ii-> *
            gradients/ii->i (3,3) float32
            gradients/iiii->i *
            gradients/iij,j->i *
            gradients/iij,jkk->ik *
            gradients/iij->j *
            gradients/iji->ij *
            known faults/* gradients of a diagonal are not written
            """,
            "MXNet writes the gradient of a diagonal alone: what else was in memory stays there.",
        ),
        Deviation(
            """
            added gradients/...,... *
            added gradients/...ij,...jk->...ik *
            added gradients/bij,bjk->bik *
            added gradients/i,i,i->i (1) (3) (1) float32
            added gradients/ii,i->i *
            added gradients/ij,ij->i (1,4) (2,4) float32
            added gradients/ij,ij->ij (1,4) (2,1) float32
            !gradients/* float32 *
            gradients/...,... *
            gradients/...ij,...jk->...ik *
            gradients/bij,bjk->bik *
            gradients/i,i,i->i (1) (3) (1) float32
            gradients/ii,i->i *
            !gradients/ij,ij->i (2,3) (2,3) float32
            gradients/ij,ij->i *
            gradients/ij,ij->ij (1,4) (2,1) float32
            known faults/ij,ij->i * float32 *
            """,
            "MXNet's gradients by an axis of size 1 that broadcasts leave out the cotangent.",
        ),
        Deviation(
            """
            added gradients/-> *
            gradients/-> *
            """,
            "MXNet has no gradient of what has neither axes nor a partner.",
        ),
        Deviation(
            """
            known faults/ij,jk->ik * out=*
            out/* out=operand 0
            out/* out=operand 1
            out/* out=operand 2
            """,
            "MXNet's einsum writes to out= while it reads the operands, also where both are the same memory.",
        ),
        Deviation(
            """
            known faults/i,i->i *
            two frameworks/* operand *
            wrong operands/*
            """,
            "MXNet 1 asserts that operands are its own arrays, which is no error that users can act on.",
            before="2",
        ),
        Deviation(
            "lists and scalars/*",
            "MXNet's einsum takes its own arrays alone, and no lists or scalars.",
        ),
        Deviation(
            """
            added gradients/* optimize=True
            known faults/* optimize=True gradients are added wrongly
            """,
            "With optimize=True, MXNet 1 calls tensordot, which adds gradients wrongly.",
            before="2",
        ),
        Deviation(
            "hybridize/*",
            "MXNet 1 traces a block with symbols, for which it has another function, sym.np.einsum.",
            before="2",
        ),
        Deviation(
            """
            wrong operands/*
            known faults/* an array of no library is taken for NumPy's
            """,
            "MXNet 2 takes what is no array for the address of one, and ends the process.",
            since="2",
            crashes=True,
        ),
        Deviation(
            """
            wrong equations/[*
            wrong equations/5 *
            wrong equations/'ij' *
            wrong equations/{0, 1} *
            wrong sizes/[0,1];[1,2] *
            """,
            "MXNet 1 takes equations as text alone, and asserts it, which is no error for users.",
            before="2",
        ),
        Deviation(
            """
            hybridize/ij,ij->i (1,4) (2,4) float32
            hybridize/iij,j->i *
            """,
            "MXNet's gradients of diagonals and of axes of size 1 that broadcast are wrong in hybridized blocks too.",
            since="2",
        ),
    ),
}
