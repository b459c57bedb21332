"""Known deviations of einsumx on MXNet, and of MXNet's own einsum, in 1.9 and 2.0."""

from __future__ import annotations

from einsumx.conformance.deviations.deviation import Deviation, listed

__all__ = ["DEVIATIONS"]

DEVIATIONS: dict[str, tuple[Deviation, ...]] = {
    "mxnet": listed(r"""
        MXNet 1's symbols have no sizes, ranks or dtypes; only einsumx.patch("mxnet") finds out a block's. [before
        2]
            hybridize/ij,ij->i (1,4) (2,4) float32
            hybridize/...i,i...->... *
            hybridize/* bool|float16|int32
            hybridize/* addeinsum
    """),
    "mxnet:np.einsum": listed(r"""
        Some random problems are written as sublists, and MXNet accepts only text. [sometimes]
            random/*
        The only whitespace that MXNet accepts is the space.
            forms/ij,\tjk\n->ik *
        MXNet accepts only the 52 ASCII letters as labels.
            forms/αж,жB->Bα *
        MXNet accepts equations only as text, not as sublists.
            known faults/[...,0];[0,1]|[2,0];[0,1]|[30,0];[0,1] *
            many operands/*
            many operands/* float64 *
            !many operands/* a row of letters, Ea|aE|mcD
            out/[0,1];[1,2];[2,0] *
            sublists/*
            wrong equations/
        MXNet does not sum over an ellipsis that the output omits, even if it stands for no axes.
            added gradients/...i,...->i|...i->i *
            ellipsis/...i,...->i|...i->i|...j->j|i...->i *
            gradients/...i,...->i|...i->i *
            known faults/...j->j *
            no axes/...-> *
        MXNet accepts at most 10 labels.
            known faults/* no more than 10 labels
            large rank/*:exact|abcdef,ghijkl->agbhcidjekfl|abcdefgh,bdfhijkl->lacegkji|abcdefghijkl->bdfhjl *
            large rank/abcdefghijklmno->ocmeakgibdfhjln|abcdijkl,ijklmnop->abcdmnop *
        MXNet accepts at most 15 operands.
            known faults/* no more than 15 operands
            many operands/* a row of letters, Ea|aE|mcD
        MXNet's einsum needs operands and out= of one dtype.
            dtype/ij,jk->ik (2,3) (3,4) int8 float32 dtype=float32
            gradients/* float16 *
            gradients/* float32 float64
            known faults/* dtypes are not promoted
            out/* dtype=*
            out/*:exact *
            promotion/*
            !promotion/* int8 uint8
            !promotion/* uint8 int8
        MXNet's einsum has no dtype=, casting= or order=, and ignores them like any unknown keyword.
            casting/* dtype=*
            casting/* dtype=int32|dtype=int8 *
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=equiv|casting=no|casting=safe
            !casting/i,i->i (6):exact (6):exact float32 dtype=float32 casting=same_kind|casting=unsafe
            dtype/* bool|float16 *
            dtype/* casting=*|dtype=float64
            dtype/*:range|ki->ik *
            dtype/ij,jk->ik (2,3) (3,4) int8 dtype=float32
            keywords/* no_such_keyword=*
            known faults/* dtype=*|order=*
            known faults/i-> * float32 *
            order/*
            order/* order=C|order=F
            order/bij,bjk->kbi *
            !order/* order=K|order=k
            wrong keywords/*
            wrong out/* casting=no such *
            wrong out/* dtype=*|no_such_keyword=*|order=*
        MXNet's einsum has no optimizers or paths; it converts optimize= to a bool.
            keywords/* optimize=a path
            keywords/* optimize=greedy|optimize=optimal
            known faults/* optimize=greedy *
            wrong paths/* optimize=3.5
        MXNet writes only the diagonal of the gradient and leaves the other elements as they were in memory.
            gradients/...ii->...i|ii,ii->i|ii,ij,jj->j|ii->|iiii->i|iij,j->i|iij,jkk->ik|iij->j|iji->ij *
            gradients/ii->i (3,3) float32
            known faults/* gradients of a diagonal are not written
        MXNet's gradients along a broadcast axis of size 1 omit the cotangent.
            added gradients/...,...|...ij,...jk->...ik|bij,bjk->bik|ii,i->i *
            added gradients/i,i,i->i (1) (3) (1) float32
            added gradients/ij,ij->i (1,4) (2,4) float32
            added gradients/ij,ij->ij (1,4) (2,1) float32
            gradients/...,...|...ij,...jk->...ik|bij,bjk->bik|ii,i->i|ij,ij->i *
            gradients/i,i,i->i (1) (3) (1) float32
            gradients/ij,ij->ij (1,4) (2,1) float32
            !gradients/* float32 *
            !gradients/ij,ij->i (2,3) (2,3) float32
            known faults/ij,ij->i * float32 *
        MXNet has no gradient for a single operand without axes.
            added gradients/-> *
            gradients/-> *
        MXNet's einsum writes out= while it still reads the operands, even if they share memory.
            known faults/ij,jk->ik * out=*
            out/* out=operand 0|1|2
        MXNet 1 asserts that operands are its own arrays, and users get a bare AssertionError. [before 2]
            known faults/i,i->i *
            two frameworks/* operand *
            wrong operands/*
        MXNet's einsum accepts only MXNet arrays, not lists or scalars.
            lists and scalars/*
        With optimize=True, MXNet 1 calls tensordot, which accumulates gradients wrongly. [before 2]
            added gradients/* optimize=True
            known faults/* optimize=True gradients are added wrongly
        MXNet 1 traces a block with symbols, which need another function, sym.np.einsum. [before 2]
            hybridize/*
        MXNet 2 takes an object that is no array for the address of one and crashes the process. [since 2, crashes]
            wrong operands/*
            known faults/* an array of no library is taken for NumPy's
        MXNet 1 asserts that the equation is text, and users get a bare AssertionError. [before 2]
            wrong equations/[*
            wrong equations/'ij'|5 *
            wrong equations/{0, 1} *
            wrong sizes/[0,1];[1,2] *
        MXNet's gradients of diagonals and broadcast axes of size 1 are wrong in hybridized blocks too. [since 2]
            hybridize/ij,ij->i (1,4) (2,4) float32
            hybridize/iij,j->i *
    """),
}
