"""``einsum_frexp``: a mantissa and an exponent of 2, for results that no float holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from einsumx import BackendError, FrexpResult
from einsumx.adapters.operand_types import type_name
from einsumx.conformance.case import Case, Failure, examples, operands
from einsumx.conformance.checks import judge_gradients, needs_gradients
from einsumx.conformance.features.limits import call_within_smallest
from einsumx.conformance.framework import Array
from einsumx.conformance.kit.oracle import Expected
from einsumx.conformance.refusals import is_refused
from einsumx.conformance.subject import Subject

FEATURES = {
    "exponents": "einsum_frexp returns a mantissa and an exponent; scaling by powers of two rounds nothing",
}

_EQUATIONS = examples("""
    ij,jk->ik           6,5 5,7 | 6,1 5,7
    ij,kj->ki           6,5 7,5
    ij->j               6,5
    ij->ji              6,5
    ij->                6,5
    ii->                5,5
    iij->ij             4,4,5
    i,j->ij             6 5
    i,i->               7 7
    ij,ij->ij           3,4 3,4
    bij,bjk->bik        2,3,4 2,4,3
    ij,jk,kl->il        6,5 5,4 4,3
    ij,jk,kl,lm->mi     3,5 5,4 4,3 3,2
    ab,bc,cd,da->       3,4 4,3 3,4 4,3
""")

_FEW = ("ij,jk->ik", "ij->ji", "ij,jk,kl->il")

_POWERS = {"float16": 9, "bfloat16": 110, "float32": 110, "complex64": 110, "float64": 900, "complex128": 900}
"""For each dtype, a power of two whose products with itself are out of its range."""


def beyond_the_range(case: Case, subject: Subject, limited: bool = False) -> None:
    """Operands multiplied by large or small powers of two have the mantissa of those that are not.

    If ``limited``, by blocks with exponents of their own, and sums of blocks, under the smallest memory limit.
    """
    power = -_POWERS[case.dtype] if case.about.endswith("small") else _POWERS[case.dtype]
    hosts = case.values()
    scaled = [np.asarray(host * host.dtype.type(2.0**power), host.dtype) for host in hosts]  # which is exact
    arrays = subject.arrays(case, scaled)
    call = partial(subject.call, case, arrays)
    mantissa, exponent = _pair(call_within_smallest(subject, call) if limited else call())
    expected = _shifted(subject.expected(case, hosts), exponent - power * len(hosts))
    subject.judge(mantissa, expected, "the mantissa")
    values = np.asarray(subject.framework.values(mantissa))
    largest = max(np.abs(values.real).max(), np.abs(values.imag).max())
    if not 0.5 <= largest <= 1:
        raise Failure(f"the largest part of the mantissa is {largest}, which is not in [0.5, 1)")
    subject.judge_unchanged(arrays, scaled)


def gradients_of_the_mantissa(case: Case, subject: Subject) -> None:
    """The gradients of the mantissa are those of the result, divided by the power of two."""
    needs_gradients(case, subject)
    hosts, arrays = subject.operands(case)
    _, exponent = subject.call(case, arrays)
    bound = subject.bound(case)

    def mantissa(*arrays: Array) -> Array:
        return bound(*arrays)[0]

    dtype = subject.result_dtype(case)
    shape = subject.expected(case, hosts).values.shape
    ones = np.ones(shape, dtype)
    gradients = subject.framework.gradients(mantissa, arrays, subject.array(ones, dtype))
    judge_gradients(case, subject, hosts, np.asarray(ones * 2.0**-exponent, dtype), gradients)


def zeros(case: Case, subject: Subject) -> None:
    """Zero has the mantissa 0 and the exponent 0, however large the factors are."""
    hosts, arrays = subject.operands(case)
    hosts = [hosts[0] * 0, *hosts[1:]]
    arrays = subject.arrays(case, hosts)
    mantissa, exponent = _pair(subject.call(case, arrays))
    subject.judge(mantissa, subject.expected(case, hosts))
    if exponent != 0:
        raise Failure(f"zeros have the exponent {exponent}, not 0")


def not_finite(case: Case, subject: Subject) -> None:
    """Infinities and nan are in the mantissa, and the other elements have the exponent."""
    hosts = [np.array([3.0, np.inf, -np.inf, np.nan, 0.0], case.dtype), np.full(5, 2.0, case.dtype)]
    mantissa, exponent = _pair(subject.call(case, subject.arrays(case, hosts)))
    subject.judge(mantissa, _shifted(subject.expected(case, hosts), 3))
    if exponent != 3:
        raise Failure(f"the exponent is {exponent}, not 3, by which 6 is 0.75")


def _pair(result: Any) -> tuple[Array, int]:
    """The mantissa and the exponent that a call returned."""
    if not isinstance(result, FrexpResult):
        raise Failure(f"the result is a {type_name(type(result))}, not a mantissa and an exponent")
    mantissa, exponent = result
    if type(exponent) is not int:
        raise Failure(f"the exponent is a {type_name(type(exponent))}, not an int")
    return mantissa, exponent


def _shifted(expected: Expected, exponent: int) -> Expected:
    """Expected values divided by ``2**exponent``, in which nothing is rounded."""
    factor = np.longdouble(2.0) ** -exponent
    values, magnitude = (np.asarray(array * factor) for array in (expected.values, expected.magnitude))
    return replace(expected, values=values, magnitude=magnitude)


_case = partial(Case, "exponents", function="einsum_frexp")


def cases() -> Iterator[Case]:
    """The cases of this module's feature."""
    new, limited = (partial(_case, check) for check in (beyond_the_range, partial(beyond_the_range, limited=True)))
    for equation, shapes in _EQUATIONS:
        for dtype in _POWERS:
            dtypes = ("float16", "float32", "float64", "complex64") if equation == "ij,jk->ik" else ("float32",)
            full = equation not in _FEW or dtype not in (("float32",) if (6, 1) in shapes else dtypes)
            for about in ("large", "small"):
                specs = operands(*shapes, dtype=dtype)
                yield new(equation, specs, about=about, full=full)
                if dtype in ("float32", "float64", "bfloat16"):
                    yield limited(equation, specs, about=f"memory limit, {about}", full=full)
        for layout in ("F", "sliced", "broadcast"):
            full = equation != "ij,jk->ik" or (6, 1) in shapes
            yield new(equation, operands(*shapes, layout=layout), about="large", full=full)
        for dtype in ("float32", "float64", "complex64"):
            specs, full = operands(*shapes, dtype=dtype), dtype != "float32" or equation not in _FEW
            yield _case(gradients_of_the_mantissa, equation, specs, about="gradients", full=full)
    for dtype in ("float32", "float64"):
        full = dtype != "float32"
        for equation, shapes in examples("ij,jk->ik  3,4 4,2 | 3,0 0,2\n i,i->  5 5\n i->i  5"):
            yield _case(zeros, equation, operands(*shapes, dtype=dtype, fill="large"), about="zeros", full=full)
        yield _case(not_finite, "i,i->i", operands((5,), (5,), dtype=dtype), about="not finite", full=full)
    for dtype in ("int32", "int64", "uint8", "bool"):
        whole, says = operands((3, 4), (4, 2), dtype=dtype), f"which {dtype} cannot hold"
        yield _case(is_refused, "ij,jk->ik", whole, raises=BackendError, says=says)
