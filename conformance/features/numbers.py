"""Accuracy, and the propagation of infinities and nan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from einsumx.conformance.case import ArraySpec, Case, cases_of, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "accuracy": "Each element within c·n·eps·(|A|·|B|·…) of the exact value",
    "inf and nan": "They reach exactly the elements that they reach in the plain sum",
}

_SUMS = examples("""
    ij->i                 3,900
    i->                   9000
    ij,ij->i              3,900 3,900
    ik,jk->ij             7,900 5,900
    bik,bjk->bij          3,7,300 3,5,300
    bik,bjk->             3,7,90 3,7,90
    bik,bik->b            3,7,300 3,7,300
    ij,jk,kl->il          5,60 60,70 70,4
    ai,bi,ci->abc         3,200 4,200 5,200
    i,j->ij               30 40
    ijk,ikl,il->j         6,8,9 6,9,7 6,7
""")

_REACHED = examples("""
    ij->ji            4,3
    ij->i             4,3
    ii->i             4,4
    ij,ij->i          4,3 4,3
    i,j->ij           4 5
    i,j->i            4 5
    ij,jk->ik         4,3 3,5
    ij,jk->ki         4,3 3,5
    bij,bjk->bik      2,4,3 2,3,5
    ij,jk,kl->il      4,3 3,5 5,2
""")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    quick = [equation for equation, _ in _SUMS if "ik" in equation]
    for example in _SUMS:
        for dtype in ("float32", "float64", "complex64", "complex128"):
            for fill in ("normal", "wide", "positive"):
                full = dtype.startswith("complex") or fill != "wide"
                yield from cases_of(
                    "accuracy", gives_the_plain_sum, [example], dtype=dtype, fill=fill, full=full, quick=quick
                )
    for equation, shapes in _REACHED:
        for fill in ("inf", "-inf", "nan"):
            for place in range(len(shapes)):
                specs = list(operands(*shapes, fill="positive"))
                specs[place] = replace(specs[place], fill=fill)
                full = equation not in ("ij,jk->ik", "ij->i", "i,j->i") or fill == "-inf"
                yield Case("inf and nan", gives_the_plain_sum, equation, tuple(specs), full=full)
    zero = (ArraySpec((2, 2), fill="inf"), ArraySpec((2, 2), fill="zero"))
    yield Case("inf and nan", gives_the_plain_sum, "ij,jk->ik", zero, about="inf times zero")
    for dtype in ("float64", "float16", "bfloat16"):
        pair = (ArraySpec((4, 3), dtype, fill="inf"), ArraySpec((3, 5), dtype, fill="positive"))
        yield Case("inf and nan", gives_the_plain_sum, "ij,jk->ik", pair)
