"""Memory layouts of operands, which must not change the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from einsumx.conformance.case import Case, cases_of, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.kit.arrays import ArraySpec

FEATURES = {
    "layouts": "Transposed, sliced, reversed, broadcast (stride 0), unaligned and byte-swapped operands",
    "order of writing": "The same contraction with its operands or axes in another order",
}

_PLAIN = ("F", "swapped", "sliced", "offset", "negative", "broadcast", "broadcast-last")
_RARE = ("unaligned", "byteswapped", "readonly", "conjugated", "negated")

_EQUATIONS = examples("""
    ij->ji              3,4
    ij->i               3,4
    ii->i               4,4
    iij->j              3,3,4
    i,j->ij             3 4
    ij,ij->i            3,4 3,4
    ij,ij->ij           3,4 3,4
    ij,j->i             3,4 4
    ij,jk->ik           3,4 4,5
    ij,jk->ki           3,4 4,5
    ijk,ikl->jl         3,2,4 3,4,5
    bij,bjk->bik        2,3,4 2,4,5
    bind,bjnd->bnij     2,4,3,5 2,6,3,5
    bind,jnd->bnij      2,4,3,5 6,3,5
    bhqd,bhqkd->bhqk    2,3,4,5 2,3,4,6,5
    ecbfa,fd->abcde     2,3,2,4,2 4,3
    ij,jk,kl->il        3,4 4,5 5,2
    ai,bi,ci->abc       2,3 4,3 5,3
""")

_ORDERS = examples("""
    bnid,bnjd->bnij   2,3,4,5 2,3,6,5
    bnid,bnjd->nbji   2,3,4,5 2,3,6,5
    nbid,nbjd->bnij   3,2,4,5 3,2,6,5
    bidn,bjdn->bnij   2,4,5,3 2,6,5,3
    dnib,dnjb->bnij   5,3,4,2 5,3,6,2
    idbn,nbdj->ijbn   4,5,2,3 3,2,5,6
    bnjd,bnid->bnij   2,3,6,5 2,3,4,5
    ndjb,bdin->jnib   3,5,6,2 2,5,4,3
    idnb,jbnd->nibj   4,5,3,2 6,2,3,5
    abcd,cdef->abef   2,3,4,5 4,5,6,2
    abcd,dcef->abef   2,3,4,5 5,4,6,2
    cadb,fdec->abef   4,2,5,3 2,5,6,4
    dacb,edcf->fbea   5,2,4,3 6,5,4,2
    ijk,kl,lm->mij    2,3,4 4,5 5,6
    kl,ijk,lm->jim    4,5 2,3,4 5,6
    lm,kl,kji->imj    5,6 4,5 4,3,2
""")

_REPEATED = examples("""
    i->         300
    ij->j       300,3
    i,j->       300 3
    i,i->       300 300
    i,ij->j     300 300,3
    i,ij,jk->k  300 300,3 3,2
    ij,ik->jk   300,2 300,3
    i,j,k->     30 20 10
""")
"""Sums of more equal terms than int8 counts, because the operands' first axis has stride 0."""

_REPEATED_VALUES = (
    *(("float32", "positive"), ("int8", "range"), ("uint8", "range"), ("int64", "range"), ("bool", "normal")),
    *(("float16", "positive"), ("float16", "zero"), ("bfloat16", "positive"), ("complex64", "normal")),
    *(("float64", fill) for fill in ("inf", "-inf", "nan")),
    ("float16", "inf"),
)


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    check = gives_the_plain_sum
    for equation, shapes in _EQUATIONS:
        plain = operands(*shapes)
        for layout in _PLAIN:
            laid_out = tuple(replace(operand, layout=layout) for operand in plain)
            quick = equation in ("ij->ji", "ij,jk->ik", "bij,bjk->bik", "bind,bjnd->bnij", "ii->i")
            yield Case("layouts", check, equation, laid_out, full=not quick)
            if len(plain) > 1:  # also one operand only, because planners treat each by its layout
                yield Case("layouts", check, equation, (*laid_out[:1], *plain[1:]), full=True)
                yield Case("layouts", check, equation, (*plain[:1], *laid_out[1:]), full=True)
    few = examples("ij,jk->ik  3,4 4,5 \n ij->ij  3,4 \n ij->j  3,4")
    for layout in _PLAIN:
        for dtype in ("int32", "float64", "complex64", "bool", "float16"):
            yield from cases_of("layouts", check, few, dtype=dtype, layout=layout, full=True)
    for layout in _RARE:
        dtype = "complex64" if layout == "conjugated" else "float64"
        rare_quick = ("ij->ji", "ij,jk->ik", "ij->i")
        yield from cases_of("layouts", check, _EQUATIONS, dtype=dtype, layout=layout, quick=rare_quick)
    repeated = partial(cases_of, "layouts", check, _REPEATED, about="equal terms", layout="broadcast")
    for dtype, fill in _REPEATED_VALUES:
        repeated_quick = None if (dtype, fill) in _REPEATED_VALUES[:2] else ("i->", "i,ij->j")
        yield from repeated(quick=repeated_quick, dtype=dtype, fill=fill)
    mixed = (ArraySpec((2, 4, 3, 5), layout="F"), ArraySpec((2, 6, 3, 5), layout="broadcast"))
    yield Case("layouts", check, "bind,bjnd->bnij", mixed)
    yield from cases_of("order of writing", check, _ORDERS)
    yield from cases_of("order of writing", check, _ORDERS, dtype="float64", full=True)
