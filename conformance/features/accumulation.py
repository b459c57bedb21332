"""``alpha=`` and ``beta=``: multiples of a result, and their sums with what ``out=`` holds already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from einsumx import BackendError
from einsumx.conformance.case import ArraySpec, Case, Failure, NotApplicable, examples, keywords, operands
from einsumx.conformance.checks import needs_einsumx
from einsumx.conformance.features.limits import call_within_smallest
from einsumx.conformance.framework import Array
from einsumx.conformance.oracle import Expected, expect, expect_update
from einsumx.conformance.refusals import is_refused, needs_writeable_arrays
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "cases"]

FEATURES = {
    "alpha": "alpha= multiplies the result",
    "beta": "beta= multiplies what out= holds, and the result is added to it; 0 ignores what out= holds",
}

_EQUATIONS = examples("""
    ij,jk->ik        3,4 4,5
    ij,jk->ki        3,4 4,5
    ij->ji           3,4
    ij->i            3,4
    i,i->            4 4
    ij,ij->ij        3,4 3,4
    bij,bjk->bik     2,3,4 2,4,5
    bij,bjk->kib     2,3,4 2,4,5
    ijab,klab->ijkl  2,3,4,5 3,2,4,5
    ij,jk,kl->il     2,3 3,4 4,2
    ij,jk->ik        2,0 0,4 | 0,3 3,4
    ->               ()
    ij,jk->ik        2,3 1,4
""")
"""Results of products, with views behind them, and of other ops; without axes, without elements, and of empty sums."""

_PRODUCT = operands((3, 4), (4, 5))
_RESULT = ArraySpec((3, 5))


def multiplies(case: Case, subject: Subject) -> None:
    """A new result is a multiple of the plain sum, and shares no memory with an operand."""
    needs_einsumx(subject)
    hosts, arrays = subject.operands(case)
    result = subject.call(case, arrays)
    subject.judge(result, _expected(case, subject, hosts, None))
    subject.judge_unchanged(arrays, hosts)


def adds(case: Case, subject: Subject) -> None:
    """``out`` is returned, and holds the sum of both multiples; the operands are unchanged."""
    hosts, arrays = subject.operands(case)
    before, out = _out(case, subject)
    _returns(out, partial(subject.call, case, arrays, out=out))
    subject.judge(out, _expected(case, subject, hosts, before), "out")
    subject.judge_unchanged(arrays, hosts)


def adds_twice(case: Case, subject: Subject) -> None:
    """A second call with other factors adds with those."""
    adds(case, subject)
    other = {name: value + 1 for name, value in case.options}
    adds(replace(case, options=keywords(**other)), subject)


def adds_to_an_operand(case: Case, subject: Subject) -> None:
    """``out`` is the first operand, of which the sum needs the values from before the call."""
    needs_writeable_arrays(subject)
    needs_einsumx(subject)
    hosts, arrays = subject.operands(case)
    _returns(arrays[0], partial(subject.call, case, arrays, out=arrays[0]))
    subject.judge(arrays[0], _expected(case, subject, hosts, hosts[0]), "out")


def adds_under_the_smallest_limit(case: Case, subject: Subject) -> None:
    """Each block is added to ``out`` once, under the smallest memory limit."""
    needs_einsumx(subject)
    hosts, arrays = subject.operands(case)
    before, out = (None, None) if case.out is None else _out(case, subject)
    result = call_within_smallest(subject, partial(subject.call, case, arrays, out=out))
    subject.judge(result, _expected(case, subject, hosts, before))


def _out(case: Case, subject: Subject) -> tuple[Any, Array]:
    """The values of ``out=`` before the call, and the array that holds them."""
    needs_einsumx(subject)
    needs_writeable_arrays(subject)
    assert case.out is not None
    subject.needs_dtype(case.out.dtype)
    before = case.value(case.out, "out")
    return before, subject.framework.laid_out(before, case.out, subject.device)


def _returns(out: Array, call: Callable[[], Any]) -> None:
    if call() is not out:
        raise Failure("the function does not return out")


def _expected(case: Case, subject: Subject, hosts: list[Any], before: Any) -> Expected:
    """The plain sum and the values in ``out`` before the call, with the factors of the case."""
    options = dict(case.options)
    plain = subject.expected(case, hosts)
    dtype = plain.dtype if case.out is None else case.out.dtype
    return expect_update(plain, options.get("alpha", 1), before, options.get("beta", 0), dtype)


def _refuses(case: Case, subject: Subject) -> None:
    needs_einsumx(subject)
    is_refused(case, subject)


def _refuses_an_array(case: Case, subject: Subject) -> None:
    """A factor with axes is no number."""
    factor = subject.array(np.ones(2), "float32")
    _refuses(replace(case, options=keywords(alpha=factor)), subject)


def _refuses_a_huge_integer(case: Case, subject: Subject) -> None:
    """No float is as large as the factor."""
    _refuses(replace(case, options=keywords(beta=10**400)), subject)


def _takes_an_array_without_axes(case: Case, subject: Subject) -> None:
    """An array without axes counts as its value."""
    needs_einsumx(subject)
    if not subject.framework.has_values(subject.array(np.ones(()), "float32")):
        raise NotApplicable("the framework's arrays have no values")
    hosts, arrays = subject.operands(case)
    factor = subject.array(np.array(0.5), "float32")
    result = subject.call(case, arrays, alpha=factor)
    subject.judge(result, expect_update(subject.expected(case, hosts), 0.5, None, 0, "float32"))


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    yield from _alpha_cases()
    yield from _beta_cases()
    yield from _refused_cases()


def _alpha_cases() -> Iterator[Case]:
    alpha = partial(Case, "alpha")
    for equation, shapes in _EQUATIONS:
        yield alpha(multiplies, equation, operands(*shapes), keywords(alpha=-2.5))
        result = ArraySpec(expect(equation, *map(np.zeros, shapes)).values.shape)
        yield alpha(adds, equation, operands(*shapes), keywords(alpha=2.5), out=replace(result, fill="nan"))
    for factor in (0, 1, 3, True, 1.0, 1e-3):
        yield alpha(multiplies, "ij,jk->ik", _PRODUCT, keywords(alpha=factor))
        yield alpha(multiplies, "ij->ji", _PRODUCT[:1], keywords(alpha=factor), full=factor != 0)
    factors: dict[str, Any] = {"float64": 0.1, "complex64": 2 - 1j, "int8": 100, "uint8": -3, "int64": 2**62}
    for dtype, factor in factors.items():
        pair = operands((3, 4), (4, 5), dtype=dtype)
        yield alpha(multiplies, "ij,jk->ik", pair, keywords(alpha=factor))
        yield alpha(multiplies, "ij->i", pair[:1], keywords(alpha=factor), full=True)
    for truth in (0, 1):
        yield alpha(multiplies, "ij,jk->ik", operands((3, 4), (4, 5), dtype="bool"), keywords(alpha=truth))
    yield alpha(multiplies, "ij,jk->ik", operands((3, 4), (4, 5), dtype="float16", fill="exact"), keywords(alpha=0.5))
    yield alpha(multiplies, "ij,jk->ik", operands((3, 4), (4, 5), dtype="bfloat16", fill="exact"), keywords(alpha=0.5))
    yield alpha(multiplies, "ij,jk->ik", operands((3, 4), (4, 5), fill="nan"), keywords(alpha=0.0))
    yield alpha(adds_under_the_smallest_limit, "ij,jk->ik", _PRODUCT, keywords(alpha=-0.5), about="memory limit")
    yield alpha(_takes_an_array_without_axes, "ij,jk->ik", _PRODUCT, about="an array without axes")


def _beta_cases() -> Iterator[Case]:
    beta = partial(Case, "beta")
    both = keywords(alpha=2.5, beta=-0.5)
    for equation, shapes in _EQUATIONS:
        result = ArraySpec(expect(equation, *map(np.zeros, shapes)).values.shape)
        yield beta(adds, equation, operands(*shapes), both, out=result)
        yield beta(adds_under_the_smallest_limit, equation, operands(*shapes), both, out=result, about="memory limit")
    for first, second in ((1, 1), (1, 2.5), (-1.5, 1), (0, 1), (0.0, 0.5), (-1, 0), (1, 0)):
        options, room = keywords(alpha=first, beta=second), replace(_RESULT, fill="normal" if second else "nan")
        yield beta(adds, "ij,jk->ik", _PRODUCT, options, out=room)
        yield beta(adds, "ij->ij", operands((3, 5)), options, out=room, full=True)
    yield beta(adds_twice, "ij,jk->ik", _PRODUCT, both, out=_RESULT, about="other factors")
    yield beta(adds_twice, "ij,jk->ik", _PRODUCT, keywords(beta=2.0), out=_RESULT, about="other factors")
    for layout in ("F", "swapped", "sliced", "offset", "negative", "unaligned", "byteswapped"):
        yield beta(adds, "ij,jk->ik", _PRODUCT, both, out=replace(_RESULT, layout=layout))
        yield beta(adds, "ij->ij", operands((3, 5)), both, out=replace(_RESULT, layout=layout), full=True)
    for equation, shapes in examples("ij,jk->ik 4,4 4,4 \n ij->ji 4,4 \n ij,ij->ji 4,4 4,4 \n ij->ji 40,40"):
        yield beta(adds_to_an_operand, equation, operands(*shapes), both, about="out=operand 0")
    large = operands((300, 20), (20, 400))
    yield beta(adds, "ij,jk->ik", large, both, out=ArraySpec((300, 400)))
    yield beta(adds, "ij,jk->ik", large, both, out=ArraySpec((300, 400), layout="F"), full=True)
    for source, target, options in (
        ("float64", "float64", both),
        ("float32", "float64", both),
        ("float32", "complex64", keywords(alpha=2 - 1j, beta=1j)),
        ("complex64", "complex64", keywords(alpha=2 - 1j, beta=1j)),
        ("int8", "int8", keywords(alpha=3, beta=-100)),
        ("int32", "int64", keywords(alpha=2**40, beta=3)),
        ("bool", "bool", keywords(alpha=1, beta=1)),
        ("float16", "float16", keywords(alpha=0.5, beta=2)),
        ("bfloat16", "bfloat16", keywords(alpha=0.5, beta=2)),
    ):
        fill = "exact" if "16" in source or source != target else "normal"
        pair, room = operands((3, 4), (4, 5), dtype=source, fill=fill), ArraySpec((3, 5), target, fill=fill)
        yield beta(adds, "ij,jk->ik", pair, options, out=room)
        yield beta(adds, "ij->ij", (replace(pair[0], shape=(3, 5)),), options, out=room, full=True)
    narrow = keywords(alpha=0.5, beta=2, casting="same_kind")
    pair = operands((3, 4), (4, 5), dtype="float64", fill="exact")
    yield beta(adds, "ij,jk->ik", pair, narrow, out=replace(_RESULT, fill="exact"))


def _refused_cases() -> Iterator[Case]:
    beta = partial(Case, "beta", _refuses, "ij,jk->ik")
    alpha = partial(Case, "alpha", _refuses, "ij,jk->ik")
    yield beta(_PRODUCT, keywords(beta=2), raises=ValueError, says="beta=2 .*no out=")
    yield beta(_PRODUCT, keywords(beta="2"), out=_RESULT, raises=TypeError, says="beta= is a number, not '2'")
    yield beta(_PRODUCT, keywords(beta=1j), out=_RESULT, raises=BackendError, says="beta= is complex.*float32")
    yield alpha(_PRODUCT, keywords(alpha=1j), raises=BackendError, says="alpha= is complex.*float32")
    whole = operands((3, 4), (4, 5), dtype="int32")
    yield alpha(whole, keywords(alpha=0.5), raises=BackendError, says="alpha= is a float.*int32")
    truths = operands((3, 4), (4, 5), dtype="bool")
    yield alpha(truths, keywords(alpha=2), raises=BackendError, says="alpha= is 0 or 1")
    array = replace(alpha(_PRODUCT, raises=TypeError, says="alpha= is a number"), check=_refuses_an_array)
    yield replace(array, about="an array")
    huge = beta(_PRODUCT, out=_RESULT, raises=BackendError, says="an integer that float32 does not hold")
    yield replace(huge, check=_refuses_a_huge_integer, about="a huge integer")
