"""Derivatives of first and second order, and the addition of gradients to existing ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from einsumx.conformance.case import Case, cases_of, examples, keywords, operands
from einsumx.conformance.checks import cotangent, expected_gradient, judge_gradients_of, needs_gradients
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.kit.oracle import Expected, expect_gradient
from einsumx.conformance.semiring_oracle import terms_in
from einsumx.conformance.subject import Subject

FEATURES = {
    "gradients": "The derivative by every operand, contracted with a random cotangent",
    "added gradients": "Gradients are added to existing ones, if the framework supports that",
    "second order": "The derivative of a gradient",
}

_EQUATIONS = examples("""
    ij,jk->ik           2,3 3,4
    ij,j->i             2,3 3
    i,i->               4 4
    i,j->ji             4 3
    ij,ij->i            2,3 2,3
    bnid,bnjd->bnij     2,2,3,4 2,2,2,4
    bind,jnd->bnij      2,3,2,2 2,2,2
    ijk,ikl->jl         2,3,2 2,2,3
    abc,d->d            2,3,2 3
    ij,jk,kl->li        2,3 3,2 2,3
    i,i,i->             3 3 3
    ai,bi,ci->abc       2,3 3,3 4,3
    ij->                2,3
    ij->ji              2,3
    ij->ij              2,3
    ii->i               3,3
    ii->                3,3
    iij,j->i            3,3,2 2
    ...i,i...->...      2,3 3,2
    ...ij,...jk->...ik  2,1,2,3 3,3,2
    ,->                 () ()
    ij,ij->i            1,4 2,4
    ij,ij->ij           1,4 2,1
    ij,jk->ik           2,1 3,4
    bij,bjk->bik        1,2,3 3,3,4
    ij,jk->ki           2,0 0,3
    ij,jk->k            0,2 2,3
    i,j->j              0 3
    ij,i->ji            3,0 3
""")

_MORE_EQUATIONS = examples("""
    ij,jk->ki           2,3 3,4
    ji,kj->ik           3,2 4,3
    i,j->               4 3
    ij,i->ij            2,3 2
    ij,ij->ij           2,3 2,3
    ij,kj->             2,3 4,3
    nc,nc->n            50,3 50,3
    ijk,ikl->ijl        2,3,2 2,2,3
    bind,bjnd->bnij     2,3,2,2 2,2,2,2
    bnij,bjnc->binc     2,2,3,4 2,4,2,3
    bhqd,bhqkd->bhqk    2,1,3,2 2,1,3,4,2
    ecbfa,fd->abcde     2,3,2,4,2 4,3
    ab,bc,ca->          2,3 3,4 4,2
    i,i,i->i            4 4 4
    ij,ik,il,jkl->i     2,3 2,4 2,2 3,4,2
    i->                 5
    ij->j               2,3
    ijk->kj             2,3,4
    ->                  ()
    ,i->i               () 3
    iij->j              3,3,2
    iji->ij             3,2,3
    iiii->i             2,2,2,2
    iij,jkk->ik         2,2,3 3,2,2
    ii,ii->i            3,3 3,3
    ii,ij,jj->j         2,2 2,3 3,3
    ...ii->...i         2,3,3
    ...i->...           2,3,4
    ...i->i             2,4,3
    ...,...             2,1 3
    ...i,...->i         2,4,3 4
    ij,jk->ik           2,3 1,4
    bij,bjk->bik        3,2,3 1,3,4
    ij,ij->             1,4 2,1
    i,i->               3 1 | 1 1
    ij->i               2,1
    i,i,i->i            1 3 1
    ii,i->i             1,1 3
    ab,bc,bd->acd       3,4 1,3 4,2
    ijk,kl,jl->i        1,3,4 4,2 3,2
    ij,jk->ik           0,3 3,4 | 2,0 0,3
    i->                 0
    ij->i               3,0
    ij->j               3,0
    ii->i               0,0
    i,i->               0 1
    ij,kj->ik           128,64 130,64
    ji,jk->ik           64,128 64,130
    ij->j               300,400
""")

_FEW = examples("""
    ij,jk->ik           2,3 3,4
    bind,bjnd->bnij     2,3,2,2 2,2,2,2
    ij,ij->i            1,4 2,4
    ij,jk,kl->li        2,3 3,2 2,3
    iij,j->i            3,3,2 2
    ij->j               2,3
""")

_TWICE = examples("""
    i,i->       4 4
    ij,kj->ik   2,3 2,3
    ij,jk->ik   3,3 3,3
    ij,ji->     3,3 3,3
    ij,ij->i    2,3 2,3
    i,i,i->i    4 4 4
""")

_SECOND_ORDER = examples("""
    ij,jk->ik           2,3 3,4
    i,i->               4 4
    bnid,bnjd->bnij     2,2,3,4 2,2,2,4
    ij,ij->i            1,4 2,4
    iij,j->i            3,3,2 2
    ij,jk,kl->li        2,3 3,2 2,3
    bind,jnd->bnij      2,3,2,2 2,2,2
    i,j->ij             2 3
    ai,bi,ci->abc       2,3 3,3 2,3
    ab,bc,bd->acd       3,4 1,3 4,2
    ...i,i...->...      2,3 3,2
    ij,jk->ki           2,0 0,3
    ,->                 () ()
""")


def cases() -> Iterator[Case]:
    """The cases of this module's features."""
    gradients = partial(cases_of, "gradients", gives_the_gradients)
    yield from gradients(_EQUATIONS)
    yield from gradients(_MORE_EQUATIONS, full=True)
    for dtype in ("float16", "bfloat16", "float64", "complex64", "complex128"):
        yield from gradients(_FEW, dtype=dtype, quick=["ij,jk->ik"])
    product = partial(Case, "gradients", gives_the_gradients, "ij,jk->ik")
    for dtypes in (("float32", "complex64"), ("complex64", "float32"), ("float16", "float32"), ("float32", "float64")):
        yield product(tuple(map(ArraySpec, ((2, 3), (3, 4)), dtypes)), full=True)
    for layout in ("F", "swapped", "sliced", "offset", "broadcast", "broadcast-last", "negated"):
        yield from gradients(_FEW, layout=layout, quick=["bind,bjnd->bnij"])
    for layout in ("conjugated", "broadcast"):
        yield product(operands((2, 3), (3, 4), dtype="complex64", layout=layout), full=True)
    check, about = gives_the_sum_of_the_gradients_by_one_operand, "one array for all"
    yield from cases_of("gradients", check, _TWICE, about=about, quick=["i,i->"])

    added = partial(cases_of, "added gradients", adds_gradients)
    yield from added(_FEW)
    yield from added([example for example in (*_EQUATIONS, *_MORE_EQUATIONS) if example not in _FEW], full=True)
    for equation, shapes in _FEW[::3]:
        yield Case("added gradients", adds_gradients, equation, operands(*shapes), keywords(optimize=True), full=True)

    second = partial(Case, "second order", gives_second_derivatives)
    for place, (equation, shapes) in enumerate(_SECOND_ORDER):
        yield second(equation, operands(*shapes), full=place >= 6)
        if equation in ("ij,jk->ik", "ij,jk,kl->li"):
            yield second(equation, operands(*shapes, dtype="float64"), full=True)
    for layout in ("F", "broadcast"):
        yield second("bij,bjk->bik", operands((2, 3, 4), (2, 4, 2), layout=layout), full=True)


def gives_the_gradients(case: Case, subject: Subject) -> None:
    """The gradient by every operand is right, for a random cotangent."""
    needs_gradients(case, subject)
    judge_gradients_of(subject.bound(case), case, subject, *subject.operands(case))


def gives_the_sum_of_the_gradients_by_one_operand(case: Case, subject: Subject) -> None:
    """If one array is every operand, its gradient is the sum of the gradients by each operand."""
    needs_gradients(case, subject)
    count, framework = len(case.operands), subject.framework
    hosts = case.values()[:1] * count
    (array, *_) = subject.arrays(case, hosts)
    function = subject.bound(case)
    values, direction = cotangent(case, subject, hosts)
    (gradient,) = framework.gradients(lambda operand: function(*[operand] * count), [array], direction)
    parts = [expected_gradient(place, case, subject, hosts, values) for place in range(count)]
    subject.judge(gradient, _plus(*parts), "the gradient by the one array")


def adds_gradients(case: Case, subject: Subject) -> None:
    """Gradients are added to existing ones, if the framework supports that."""
    needs_gradients(case, subject)
    framework = subject.framework
    if not framework.adds_gradients:
        raise NotApplicable(f"{framework.name} does not add gradients to existing ones")
    hosts, arrays = subject.operands(case)
    values, direction = cotangent(case, subject, hosts)
    before = [
        case.value(ArraySpec(operand.shape, operand.dtype), f"gradient {place}")
        for place, operand in enumerate(case.operands)
    ]
    existing = [subject.array(each, operand.dtype) for each, operand in zip(before, case.operands)]
    sums = framework.added_gradients(subject.bound(case), arrays, direction, existing)
    for place, (gradient, each) in enumerate(zip(sums, before, strict=True)):
        expected = expected_gradient(place, case, subject, hosts, values)
        expected = _plus(expected, Expected(each, abs(each), 1, 1, expected.dtype))
        subject.judge(gradient, expected, f"the sum with the gradient by operand {place}")


def gives_second_derivatives(case: Case, subject: Subject) -> None:
    """The gradient by each operand, contracted with a random direction, has the right gradients by all operands."""
    needs_gradients(case, subject)
    framework = subject.framework
    if not framework.second_order:
        raise NotApplicable(f"{framework.name} does not differentiate gradients")
    hosts, arrays = subject.operands(case)
    values, array = cotangent(case, subject, hosts)
    for by, operand in enumerate(case.operands):
        direction = case.value(replace(operand, layout="C"), f"direction {by}")
        along = subject.array(direction, operand.dtype)
        gradients = framework.second_gradients(subject.bound(case), arrays, array, by, along)
        for place, gradient in enumerate(gradients):
            expected = _expected_second(case, subject, hosts, values, (by, direction), place)
            subject.judge(gradient, expected, f"the gradient by operand {place} of that by operand {by}")


def _expected_second(
    case: Case, subject: Subject, hosts: list[Any], values: Any, along: tuple[int, Any], place: int
) -> Expected:
    """The derivative by an operand of the gradient by another one, contracted with a direction.

    The plain sum is linear in each operand. So this is the gradient of the plain sum with the direction in place of the
    other operand, and zeros by that operand itself.
    """
    by, direction = along
    if case.semiring:
        terms = terms_in(case.semiring, str(case.equation), hosts, subject.result_dtype(case))
        return terms.second(by, values, direction, place)
    expected = expect_gradient(place, values, *case.arguments([*hosts[:by], direction, *hosts[by + 1 :]]))
    if place != by:
        return expected
    zeros = np.zeros(case.operands[by].shape, expected.values.dtype)
    return replace(expected, values=zeros, magnitude=zeros)


def _plus(*parts: Expected) -> Expected:
    """The expected sum of several results."""
    return replace(
        parts[0],
        values=sum(part.values for part in parts),
        magnitude=sum(part.magnitude for part in parts),
        terms=sum(part.terms for part in parts),
        operands=max(part.operands for part in parts),
    )
