"""``accumulate=``: the dtype of products and sums, apart from that of the result; and exact sums of narrow integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from einsumx import BackendError
from einsumx.conformance.case import Case, examples, keywords, operands
from einsumx.conformance.checks import gives_the_plain_sum
from einsumx.conformance.features.limits import is_right_under_the_smallest_limit
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.refusals import is_refused
from einsumx.conformance.subject import Subject

FEATURES = {
    "accumulators": "accumulate= computes products and sums in its dtype, and rounds once; narrow integers are exact",
}

_EQUATIONS = examples("""
    ij,jk->ik         3,3000 3000,4
    i->               3000
    ij->j             3000,3
    i,i->             3000 3000
    ij,ij->i          3,3000 3,3000
    ij->ji            3,4
    ij,ij->ij         3,4 3,4
    bij,bjk->kib      2,3,900 2,900,4
    ii,i->            300,300 300
    ij,jk,kl->il      3,300 300,50 50,2
    ij,jk->k          30,90 90,4
    ij,jk->ik         3,1 900,4
    ij,jk->ik         3,0 0,4
""")
"""Sums that are long enough for roundings in another dtype to show, and other ops."""

_FLOATS = (
    ("float32", "float64", None),
    ("float32", "float64", "float64"),
    ("float32", "complex128", "complex64"),
    ("complex64", "complex128", None),
    ("float16", "float32", None),
    ("float16", "float64", None),
    ("float16", "float32", "float32"),
    ("bfloat16", "float32", None),
    ("bfloat16", "float64", None),
    ("bfloat16", "float32", "float32"),
    ("float64", "float64", None),
)
"""Dtypes of the operands, the sums and the result."""

_INTEGERS = (
    (("int8", "int8"), "int32", "int32"),
    (("int8", "int8"), "int32", None),
    (("int8", "int8"), "int64", "int16"),
    (("uint8", "uint8"), "int32", "int32"),
    (("uint8", "int8"), "int32", "int32"),
    (("uint8", "uint8"), "uint32", "uint32"),
    (("int16", "int16"), "int64", "int64"),
    (("int16", "int16"), "int32", "int32"),
    (("int32", "bool"), "int64", "int64"),
    (("bool", "bool"), "int32", "int32"),
    (("bool", "bool"), "int32", None),
)
"""Dtypes of the operands, the sums and the result."""

_PRODUCTS = examples("""
    ij,jk->ik         9,64 64,8
    ij,jk->ik         3,1024 1024,4
    ij,jk->ik         3,1025 1025,4
    ij,jk->ik         2,2500 2500,3
    bij,bjk->bki      2,3,600 2,600,4
    ij,kj->j          70,9 80,9
    ij,j->i           6,1500 1500
    ij,ij->ij         3,4 3,4
""")
"""Products of at most 1024 terms of int8 are exact in float32, and longer ones are not."""

_IN_BLOCKS = examples("""
    ij,jk->ik         3,40 40,4
    i,i->             60 60
    ij,jk,kl->il      3,20 20,5 5,2
""")
"""Sums whose smallest blocks are few."""

_PRODUCT = operands((3, 40), (40, 4))


def sums_of_the_largest(case: Case, subject: Subject) -> None:
    """Sums of equal products of the numbers that are farthest from 0."""
    limits = [np.iinfo(operand.dtype) for operand in case.operands]
    hosts = [np.full(spec.shape, info.min or info.max, spec.dtype) for spec, info in zip(case.operands, limits)]
    subject.result_dtype(case)
    expected = subject.expected(case, hosts)
    subject.judge(subject.call(case, subject.arrays(case, hosts)), expected)


def cases() -> Iterator[Case]:
    """The cases of this module's feature."""
    new = partial(Case, "accumulators")
    for number, (equation, shapes) in enumerate(_EQUATIONS):
        for dtype, accumulate, result in _FLOATS:
            specs, options = operands(*shapes, dtype=dtype), keywords(accumulate=accumulate, dtype=result)
            yield new(gives_the_plain_sum, equation, specs, options, full=number > 0)
    for number, (equation, shapes) in enumerate(_PRODUCTS):
        for dtypes, accumulate, result in _INTEGERS:
            options = keywords(accumulate=accumulate, dtype=result, casting="unsafe")
            specs = _whole(shapes, dtypes)
            full = number % 3 > 0 or (number > 0 and result != "int32")
            yield new(gives_the_plain_sum, equation, specs, options, full=full)
            if "bool" not in dtypes:
                yield new(sums_of_the_largest, equation, specs, options, "the largest", full=full)
    yield from _limited_cases()
    yield from _refused_cases()


def _whole(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> tuple[ArraySpec, ...]:
    fills = ["normal" if dtype == "bool" else "range" for dtype in dtypes]
    return tuple([ArraySpec(shape, dtype, fill=fill) for shape, dtype, fill in zip(shapes, dtypes, fills)])


def _limited_cases() -> Iterator[Case]:
    limited = partial(Case, "accumulators", is_right_under_the_smallest_limit, about="memory limit")
    for number, (equation, shapes) in enumerate(_IN_BLOCKS):
        for dtype, accumulate, result in _FLOATS[:-1]:
            options = keywords(accumulate=accumulate, dtype=result)
            full = number > 0 or dtype == "bfloat16" or result is not None
            yield limited(equation, operands(*shapes, dtype=dtype), options, full=full)
        for dtype in ("int8", "uint8"):
            options = keywords(accumulate="int32", dtype="int32")
            yield limited(equation, _whole(shapes, [dtype] * len(shapes)), options, full=number > 0)


def _refused_cases() -> Iterator[Case]:
    refused = partial(Case, "accumulators", is_refused, "ij,jk->ik", raises=BackendError)
    lost = "does not hold every value of operand 0, which has dtype float32"
    for accumulate in ("int32", "float16", "bfloat16"):
        yield refused(_PRODUCT, keywords(accumulate=accumulate), says=f"accumulate='{accumulate}' {lost}")
    whole = operands((3, 40), (40, 4), dtype="int16")
    yield refused(whole, keywords(accumulate="int8"), says="does not hold every value of operand 0")
    yield refused(whole, keywords(accumulate="int32", dtype="int64"), says="does not hold every value of the result")
    yield refused(whole, keywords(accumulate="float64"), says="is of another kind")
    yield refused(_PRODUCT, keywords(accumulate="complex64"), says="is of another kind")
