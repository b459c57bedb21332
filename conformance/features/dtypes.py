"""The dtypes of results, the arithmetic of each dtype, its accuracy, and infinities and nan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from einsumx.conformance.case import Case, Failure, cases_of, examples, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.framework import DTYPES
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.subject import Subject

FEATURES = {
    "dtypes": "Every dtype of the framework in every kind of equation; the result has the same dtype",
    "promotion": "Mixed dtypes promote as in the framework, for every equation",
    "integers": "Integer sums are exact, wrap, and never widen",
    "bool": "An or of ands",
    "half precision": "float16 and bfloat16 accumulate in at least float32, and are rounded once",
    "accuracy": "Each element within c·n·eps·(|A|·|B|·…) of the exact value",
    "inf and nan": "They reach exactly the elements that they reach in the plain sum",
}

_EQUATIONS = examples("""
    ij->ji                3,4
    ii->i                 3,3
    i->                   5
    ij->j                 3,4
    i,i->                 4 4
    i,j->ij               3 4
    ij,ij->ij             3,4 3,4
    ij,ij->i              3,4 3,4
    ij,j->i               3,4 4
    ij,jk->ik             3,4 4,5
    bij,bjk->bik          2,3,4 2,4,5
    bind,bjnd->bnij       2,4,3,5 2,6,3,5
    ijk,ikl->jl           3,2,4 3,4,5
    ij,jk,kl->il          2,3 3,4 4,2
    i,i,i->i              4 4 4
    ai,bi,ci->abc         2,3 3,3 4,3
""")
_QUICK = ("ij->ji", "ij->j", "i,j->ij", "ij,jk->ik", "bij,bjk->bik")

_WRAPPING = examples("""
    i->               700
    i,i->             7 7
    i,j->ij           7 5
    ij,ij->i          3,7 3,7
    ij,jk->ik         3,7 7,4
    bij,bjk->bki      2,3,7 2,7,4
    i,i,i->           7 7 7
    ij,jk,kl->il      3,7 7,5 5,4
""")

_LONG_SUMS = examples("""
    ik,kj->ij         3,300 300,4
    bik,bkj->bij      2,3,300 2,300,4
""")

_BOOLS = examples("""
    ij->j             256,3
    ij->              256,3
    ij,ik->jk         256,3 256,4
    bij,bik->bjk      2,256,3 2,256,4
    ij,ij->ij         3,4 3,4
    ij,ij->i          3,4 3,4
    ij,ik,il->jkl     256,2 256,3 256,2
    i,j->ij           3 4
""")

_HALF_SUMS = examples("""
    i->               4096
    ij->i             3,4096
    i,i->             4096 4096
    ij,jk->ik         2,4096 4096,2
    bij,bjk->bik      2,2,4096 2,4096,2
""")

_HALF_PRODUCTS = examples("""
    i,i,i->i          40 40 40
    i,j,j->i          40 30 30
    ij,jk,kl->il      3,40 40,30 30,2
    ij,j,jk->ik       2,600 600 600,2
""")

_PROMOTING = examples("""
    i,i->       3 3
    i,i->i      3 3
    i,j->ij     3 2
    ij,jk->ik   2,3 3,4
""")


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

_LONG, _COUNTED = 1 << 22, 1 << 10
"""The terms of a long product of vectors, and as how many they count in the bound."""

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
    check = gives_the_plain_sum
    for dtype in DTYPES:
        yield from cases_of("dtypes", check, _EQUATIONS, dtype=dtype, quick=_QUICK)

    for first in DTYPES:
        for second in DTYPES:
            if first == second:
                continue
            for equation, shapes in _PROMOTING:
                quick = equation == "i,i->" and {first, second} <= {"bool", "int8", "int32", "float32", "complex64"}
                if quick or equation == "ij,jk->ik" or "bool" in (first, second):
                    pair = tuple(map(ArraySpec, shapes, (first, second)))
                    yield Case("promotion", promotes, equation, pair, full=not quick)
    for dtypes in (("int8", "float32", "int16"), ("bool", "int8", "float32"), ("float32", "int8", "bool")):
        three = tuple(map(ArraySpec, ((2, 3), (3, 4), (4, 2)), dtypes))
        yield Case("promotion", promotes, "ij,jk,kl->il", three)

    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        quick_equations = None if dtype in ("int8", "int64") else ["ij,jk->ik"]
        yield from cases_of("integers", check, _WRAPPING, dtype=dtype, fill="range", quick=quick_equations)
    # Sums near the middle of the range and far beyond it, with more digits than a float's significand has.
    for dtype in ("int32", "int64"):
        yield from cases_of("integers", check, _LONG_SUMS, dtype=dtype, fill="range")

    yield from cases_of("bool", check, _BOOLS, dtype="bool")
    # A byte that counts 256 times true is 0.
    yield from cases_of("bool", check, _BOOLS, dtype="bool", fill="one")

    for dtype in ("float16", "bfloat16"):
        for fill in ("one", "positive", "normal"):
            yield from cases_of("half precision", check, _HALF_SUMS, dtype=dtype, fill=fill, full=fill == "normal")
        yield from cases_of("half precision", check, _HALF_PRODUCTS, dtype=dtype)
        wide = operands((4,), (5,), dtype=dtype, fill="wide")
        yield Case("half precision", check, "i,j->ij", wide)
        large = tuple(ArraySpec((3,), dtype, fill=fill) for fill in ("large", "large", "tiny"))
        for equation in ("i,i,i->i", "i,i,i->"):
            yield Case("half precision", check, equation, large, about="products beyond its range")
    yield from _accuracy_cases()


def _accuracy_cases() -> Iterator[Case]:
    quick = [equation for equation, _ in _SUMS if "ik" in equation]
    for dtype in ("float32", "float64", "complex64", "complex128"):
        for fill in ("normal", "wide", "positive"):
            full = dtype.startswith("complex") or fill != "wide"
            yield from cases_of("accuracy", gives_the_plain_sum, _SUMS, dtype=dtype, fill=fill, full=full, quick=quick)
        if dtype in ("float32", "complex64"):
            yield Case("accuracy", sums_in_parts, "i,i->", (ArraySpec((_LONG,), dtype, fill="tenth"),) * 2, full=True)
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


def sums_in_parts(case: Case, subject: Subject) -> None:
    """A long product of vectors in single precision has the error of a short one, on NumPy and on PyTorch's CPU."""
    if subject.framework.name not in ("numpy", "torch") or subject.device.partition(":")[0] not in ("", "cpu"):
        raise NotApplicable("only NumPy and PyTorch on the CPU promise this")
    hosts, arrays = subject.operands(case)
    expected = subject.expected(case, hosts)
    subject.judge(subject.call(case, arrays), replace(expected, terms=_COUNTED))


def promotes(case: Case, subject: Subject) -> None:
    """The result has the framework's promotion of the operands' dtypes; without one, the call is an error."""
    for operand in case.operands:
        subject.needs_dtype(operand.dtype)
    try:
        subject.result_dtype(case)
    except NotApplicable as not_promoted:
        _, arrays = subject.operands(case)
        try:
            result = subject.call(case, arrays)
        except (TypeError, ValueError, RuntimeError):
            return
        raise Failure(f"gives {subject.framework.dtype(result)}, though {not_promoted}") from not_promoted
    gives_the_plain_sum(case, subject)
