"""Sizes of 1, which broadcast, sizes of 0, large sizes, and arrays without axes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from einsumx.conformance.case import Case, cases_of, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.kit.arrays import ArraySpec

FEATURES = {
    "broadcasting": "An axis of size 1 broadcasts to any size, in every role",
    "larger sizes": "Sizes at which libraries switch kernels",
    "zero sizes": "Empty sums are 0, and results without elements have the right shape",
    "no axes": "Operands and results without axes",
}

BROADCASTS = examples("""
    ij,jk->ik           2,1 3,4 | 2,3 1,4 | 1,3 3,1
    bij,bjk->bik        1,2,3 5,3,4 | 5,2,3 1,3,4 | 1,2,1 5,3,4
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
    ...ij,...jk->...ik  5,1,2,3 6,3,4 | 1,2,3 5,3,4
    abc,cd,bd->a        3,1,4 4,2 5,2
""")

_LARGER = examples("""
    ij->ji               90,70
    ij->i                90,70
    ij->j                90,70
    ijk->kj              30,40,20
    ijk->jik             30,40,20
    iij->j               40,40,30
    i,j->ij              90 70
    ij,ij->ij            90,70 90,70
    ij,ij->i             90,70 90,70
    ij,ij->              90,70 90,70
    ij,j->i              90,170 170
    ij,i->j              90,170 90
    ij,jk->ik            40,30 30,50
    ij,kj->ki            40,30 50,30
    bij,bjk->bik         8,20,30 8,30,20
    ijk,ikl->jl          9,20,30 9,30,20
    bnid,bnjd->bnij      3,4,9,16 3,4,11,16
    bind,bjnd->bnij      3,9,4,16 3,11,4,16
    bind,jnd->bnij       3,9,4,16 11,4,16
    bnij,bjnc->binc      3,4,9,11 3,11,4,16
    bhqd,bhqkd->bhqk     3,4,9,16 3,4,9,11,16
    ecbfa,fd->abcde      5,4,6,9,7 9,8
    jl,kil->ijk          30,40 20,9,40
    abc,cd,bde->ae       9,8,7 7,10 8,10,11
    ai,bi,ci->abc        20,60 20,60 20,60
""")

ZEROS = examples("""
    i->                 0
    ij->i               3,0
    ij->j               3,0
    ij->ji              3,0
    ii->i               0,0
    ii->                0,0
    i,i->               0 0
    i,i->i              0 1
    ij,jk->ik           2,0 0,4 | 0,3 3,4
    ij,jk->             0,3 3,4
    bij,bjk->bik        0,2,3 0,3,4 | 3,2,0 1,0,4 | 0,2,3 1,3,4
    i,j->ij             0 4
    i,j->j              0 4
    ij,jk,kl->il        2,3 3,0 0,2 | 0,3 3,4 4,2
    ...i,i->...         2,0 0 | 0,3 3
    ai,bi,ci->abc       2,0 3,0 4,0
""")

_EMPTY_SUMS = examples("""
    i,j->       0 4
    i,j->j      0 4
    ik,jk->j    0,3 4,3
    ij,jk->ik   2,0 0,4
    i,j,j->     0 4 4
    i,j,k->     0 4 3
    ij,jk,kl->  0,2 2,3 3,4
""")
"""Empty sums, which are 0 even if another operand has an infinity or nan."""

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
    broadcasting, larger, empty = (
        partial(cases_of, feature, gives_the_plain_sum) for feature in ("broadcasting", "larger sizes", "zero sizes")
    )
    yield from broadcasting(BROADCASTS)
    for dtype in ("int32", "complex64", "bool", "float64"):
        yield from broadcasting(BROADCASTS, dtype=dtype, full=True)
    yield from larger(_LARGER)
    for dtype in ("bool", "int8", "int32", "float16", "bfloat16", "float64", "complex64"):
        yield from larger(_LARGER, dtype=dtype, full=True)
    for layout in ("F", "sliced", "broadcast"):
        yield from larger(_LARGER, layout=layout, full=True)
    for dtype in ("int32", "int64", "uint8"):
        yield from larger([example for example in _LARGER if "," in example[0]], dtype=dtype, fill="range", full=True)
    yield from empty(ZEROS)
    for dtype in ("int8", "bool", "complex64", "float16"):
        yield from empty(ZEROS, dtype=dtype, full=True)
    yield from empty(examples("bind,bjnd->bnij  2,4,0,5 2,6,0,5"))
    for equation, (first, *others) in _EMPTY_SUMS:
        for fill in ("inf", "nan"):
            specs = (ArraySpec(first), *operands(*others, fill=fill))
            yield Case("zero sizes", gives_the_plain_sum, equation, specs)
    for layout in ("F", "sliced", "broadcast"):
        yield from empty(examples("ab->b  4,0 \n ab->  4,0 \n ij,jk->ik  4,0 0,6"), layout=layout)
    for dtype in ("float32", "int64", "bool", "complex64", "float16"):
        quick = None if dtype == "float32" else (",->", ",i->i", "ij->")
        yield from cases_of("no axes", gives_the_plain_sum, _SCALARS, dtype=dtype, quick=quick)
