"""Sizes of 1, which broadcast, sizes of 0, and arrays without axes."""

from __future__ import annotations

from collections.abc import Iterator

from einsumx.conformance.case import Case, Operand, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "broadcasting": "An axis of size 1 goes with any size, in every role",
    "zero sizes": "Sums over nothing are 0, and results without elements have their shape",
    "no axes": "Arrays without axes as operands and as results",
}

_BROADCASTS = examples("""
    ij,jk->ik           2,1 3,4
    ij,jk->ik           2,3 1,4
    ij,jk->ik           1,3 3,1
    bij,bjk->bik        1,2,3 5,3,4
    bij,bjk->bik        5,2,3 1,3,4
    bij,bjk->bik        1,2,1 5,3,4
    ij,ij->i            1,4 2,4
    ij,ij->ij           2,1 1,4
    ij,ij->             1,4 2,1
    i,i->               3 1
    i,i->i              1 1
    ij->i               2,1
    ij->                1,1
    i,i,i->i            1 3 1
    ijk,kl,jl->ik       1,5,4 4,6 5,6
    ab,bc,bd->acd       5,4 1,5 4,6
    ii,i->i             1,1 3
    iij,j->i            3,3,1 4
    bnid,bnjd->bnij     2,1,4,5 1,3,6,5
    bind,bjnd->bnij     2,4,3,1 2,6,3,5
    bhqd,bhqkd->bhqk    2,4,1,4 1,4,5,3,4
    ...ij,...jk->...ik  5,1,2,3 6,3,4
    ...ij,...jk->...ik  1,2,3 5,3,4
    abc,cd,bd->a        3,1,4 4,2 5,2
""")

_ZEROS = examples("""
    i->                 0
    ij->i               3,0
    ij->j               3,0
    ij->ji              3,0
    ii->i               0,0
    ii->                0,0
    i,i->               0 0
    i,i->i              0 1
    ij,jk->ik           2,0 0,4
    ij,jk->ik           0,3 3,4
    ij,jk->             0,3 3,4
    bij,bjk->bik        0,2,3 0,3,4
    bij,bjk->bik        3,2,0 1,0,4
    bij,bjk->bik        0,2,3 1,3,4
    i,j->ij             0 4
    i,j->j              0 4
    ij,jk,kl->il        2,3 3,0 0,2
    ij,jk,kl->il        0,3 3,4 4,2
    ...i,i->...         2,0 0
    ...i,i->...         0,3 3
    ai,bi,ci->abc       2,0 3,0 4,0
""")

_EMPTY_SUMS = examples("""
    i,j->       0 4
    i,j->j      0 4
    ik,jk->j    0,3 4,3
    ij,jk->ik   2,0 0,4
    i,j,j->     0 4 4
""")
"""Sums over nothing, which are 0 also beside operands that hold an infinity or nan."""

_SCALARS = examples("""
    ->           ()
    ,->          () ()
    ,,->         () () ()
    ,i->i        () 3
    i,->i        3 ()
    ij,->ji      2,3 ()
    ,ij,jk->ik   () 2,3 3,4
    ij->         2,3
    i,i->        3 3
    ij,ji->      2,3 3,2
    ...,->...    2,3 ()
    ...->        2,3
""")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    check = gives_the_plain_sum
    for equation, shapes in _BROADCASTS:
        yield Case("broadcasting", check, equation, operands(*shapes))
        for dtype in ("int32", "complex64", "bool", "float64"):
            yield Case("broadcasting", check, equation, operands(*shapes, dtype=dtype), full=True)
    for equation, shapes in _ZEROS:
        yield Case("zero sizes", check, equation, operands(*shapes))
        for dtype in ("int8", "bool", "complex64", "float16"):
            yield Case("zero sizes", check, equation, operands(*shapes, dtype=dtype), full=True)
    for equation, (empty, *others) in _EMPTY_SUMS:
        for fill in ("inf", "nan"):
            beside = tuple(Operand(shape, fill=fill) for shape in others)
            yield Case("zero sizes", check, equation, (Operand(empty), *beside))
    for equation, shapes in _SCALARS:
        for dtype in ("float32", "int64", "bool", "complex64", "float16"):
            full = dtype != "float32" and equation not in (",->", ",i->i", "ij->")
            yield Case("no axes", check, equation, operands(*shapes, dtype=dtype), full=full)
