"""``Semiring.einsum``: contractions with other functions in the place of sums and products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from einsumx import BackendError, Plan, Semiring
from einsumx.conformance.case import Case, Failure, examples, keywords, operands
from einsumx.conformance.checks import gives_the_plain_sum, judge_gradients_of, needs_gradients
from einsumx.conformance.features.derivatives import gives_second_derivatives, gives_the_gradients
from einsumx.conformance.features.forms import DIAGONALS, EQUATIONS, FEW
from einsumx.conformance.features.limits import is_right_under_the_smallest_limit
from einsumx.conformance.features.sizes import BROADCASTS, ZEROS
from einsumx.conformance.framework import DTYPES
from einsumx.conformance.kit.arrays import ArraySpec, rounded
from einsumx.conformance.refusals import is_refused
from einsumx.conformance.subject import Subject
from einsumx.semirings import boolean, log, max_plus, max_times, min_plus

FEATURES = {
    "semirings": "A semiring puts maxima, minima, log-sum-exps or truth values in the place of sums of products",
}

_MAX_MIN = Semiring("max-min", "maximum", "minimum")
_MIN_MAX = Semiring("min-max", "minimum", "maximum")
_MIN_TIMES = Semiring("min-times", "minimum", "multiply")
_REAL = (max_plus, min_plus, max_times, log, _MAX_MIN, _MIN_MAX, _MIN_TIMES)
_EVERY = (boolean, *_REAL)

_LARGER = examples("""
    ij,jk->ik           9,30 30,8 | 2,300 300,3 | 40,300 300,100
    bij,bjk->bik        20,3,4 20,4,2 | 300,4,40 300,40,30
""")
"""The last one of each has more terms than a block."""

_MORE_EQUATIONS = DIAGONALS[::2] + BROADCASTS[::3] + ZEROS[::3] + _LARGER

_FEW = (FEW[0], FEW[-1], FEW[1])

_DIFFERENTIATED = examples("""
    ij,jk->ik           3,4 4,5
    i,i->               5 5
    ij->i               3,4
    bij,bkj->bki        2,3,4 2,2,4
    ij,jk,kl->il        2,3 3,4 4,2
    iij,j->i            3,3,2 2
    ij,ij->i            1,4 3,4
    i,j->ij             2 3
    ij,jk->ik           2,0 0,3
""")


def has_the_infinities_of_the_formula(case: Case, subject: Subject) -> None:
    """Infinities and nan anywhere in the operands of one sum."""
    hosts = case.values()
    for place, host in enumerate(hosts):
        chosen = case.value(ArraySpec(host.shape, "uint8", fill="range"), f"infinities {place}")
        for number, mark in enumerate((np.inf, -np.inf, np.nan)):
            host[chosen % 12 == number] = mark
    _judge_with(case, subject, hosts)


def is_stable_with_large_offsets(case: Case, subject: Subject) -> None:
    """Terms whose exponentials are infinite or 0 in every dtype."""
    largest = 200.0 if case.dtype in ("float16", "bfloat16") else 5000.0
    _judge_with(case, subject, [host + sign * largest for host, sign in zip(case.values(), (1, -1, 1))])


def keeps_nan_to_itself(case: Case, subject: Subject) -> None:
    """One column has nan, and the exponentials of all terms are infinite."""
    lhs, rhs = case.values()
    rhs += 1000
    rhs[0, 0] = np.nan
    _judge_with(case, subject, [lhs, rhs])


def is_stable_where_terms_underflow(case: Case, subject: Subject) -> None:
    """A large element of every row meets a very small one of every column, so that all terms are small beside them."""
    lhs, rhs = case.values()
    lhs[..., 0] -= 5000
    rhs[0] += 4000
    rhs[1:] -= 2000
    _judge_with(case, subject, [lhs, rhs])


def has_no_terms_but_the_impossible(case: Case, subject: Subject) -> None:
    """Rows of minus infinities alone, and others where they never meet a finite element."""
    lhs, rhs = case.values()
    lhs[0] = -np.inf
    lhs[1, ::2] = -np.inf
    rhs[1::2, 1] = -np.inf
    _judge_with(case, subject, [lhs, rhs])


def is_right_as_an_expression(case: Case, subject: Subject) -> None:
    """The result of an expression whose last operand is a constant, twice."""
    hosts, arrays = subject.operands(case)
    *shapes, _ = [operand.shape for operand in case.operands]
    subject.function_of(case)  # which may not apply
    assert case.semiring is not None
    call = case.semiring.expression(case.equation, *shapes, arrays[-1])
    for _ in range(2):
        subject.judge(call(*arrays[:-1]), subject.expected(case, hosts))


def is_right_as_a_stored_plan(case: Case, subject: Subject) -> None:
    """A plan prints its semiring, and is read again from what is stored of it."""
    hosts, arrays = subject.operands(case)
    semiring, read = case.semiring, Plan.from_json(subject.call(case, arrays).to_json())
    if semiring is None or read.algebra != semiring.algebra or f" in {semiring.name} (" not in str(read):
        raise Failure(f"the plan does not say that it is in {semiring}: {str(read).splitlines()[0]}")
    subject.judge(read(*arrays), subject.expected(case, hosts))


def shares_the_gradients_of_ties(case: Case, subject: Subject) -> None:
    """Elements that attain a maximum together have equal parts of its gradient."""
    _judge_gradients(case, subject, [np.round(host) for host in case.values()])


def has_no_gradient_where_all_is_impossible(case: Case, subject: Subject) -> None:
    """A log-sum-exp of minus infinities has gradients of 0."""
    hosts = case.values()
    hosts[0][..., :] = np.where(np.arange(len(hosts[0])) == 0, -np.inf, 0)[:, None] + hosts[0]
    _judge_gradients(case, subject, hosts)


# -- values ---------------------------------------------------------------------------------------------------------


def _judge_with(case: Case, subject: Subject, values: list[Any]) -> None:
    hosts = [rounded(host, operand.dtype) for host, operand in zip(values, case.operands, strict=True)]
    subject.judge(subject.call(case, subject.arrays(case, hosts)), subject.expected(case, hosts))


def _judge_gradients(case: Case, subject: Subject, hosts: list[Any]) -> None:
    needs_gradients(case, subject)
    judge_gradients_of(subject.bound(case), case, subject, hosts, subject.arrays(case, hosts))


# -- cases ----------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """The cases of this module's feature."""
    yield from _plain_cases()
    yield from _dtype_and_layout_cases()
    yield from _hard_cases()
    yield from _other_calls()
    yield from _gradient_cases()
    yield from _refused_cases()


def _case(check: Callable[[Case, Subject], None], semiring: Semiring, example: Any, **about: Any) -> Case:
    """A case whose operands hold numbers that the semiring allows: those of products are not negative."""
    equation, shapes = example
    dtype, layout = about.pop("dtype", "bool" if semiring == boolean else "float32"), about.pop("layout", "C")
    fill = "positive" if semiring.multiply == "multiply" else "normal"
    specs = operands(*shapes, dtype=dtype, layout=layout, fill=fill)
    return Case("semirings", check, equation, specs, semiring=semiring, **about)


def _plain_cases() -> Iterator[Case]:
    for place, example in enumerate(EQUATIONS):
        for number, semiring in enumerate(_EVERY):
            if place == 0 or (place + number) % 2 == 0:
                full = place > 0 and (place + number) % 8 > 0
                yield _case(gives_the_plain_sum, semiring, example, full=full)
    for place, example in enumerate(_MORE_EQUATIONS):
        for number, semiring in enumerate(_EVERY):
            if semiring in (log, max_plus) or (place + number) % 3 == 0:
                yield _case(gives_the_plain_sum, semiring, example, full=semiring != log or place % 4 > 0)


def _dtype_and_layout_cases() -> Iterator[Case]:
    for place, example in enumerate(_FEW):
        for dtype in DTYPES:
            if dtype != "bool":
                full = place > 0 or dtype not in ("int32", "float32", "complex64")
                yield _case(gives_the_plain_sum, boolean, example, dtype=dtype, full=full)
        for semiring in _REAL:
            is_one_of_each = semiring in (max_plus, log, max_times)
            for dtype in ("float16", "bfloat16", "float64"):
                if place == 0 or is_one_of_each:
                    is_quick = place == 0 and (semiring == log or (is_one_of_each and dtype == "float64"))
                    yield _case(gives_the_plain_sum, semiring, example, dtype=dtype, full=not is_quick)
        for semiring in (min_plus, log, boolean):
            for layout in ("F", "sliced", "offset", "negative", "broadcast", "broadcast-last"):
                is_one_of_each = layout == "broadcast" or (semiring == log and layout in ("F", "sliced"))
                yield _case(gives_the_plain_sum, semiring, example, layout=layout, full=place > 0 or not is_one_of_each)
    pair = tuple(map(ArraySpec, ((3, 4), (4, 5)), ("float32", "float64")))
    for semiring in (max_plus, log):
        yield Case("semirings", gives_the_plain_sum, "ij,jk->ik", pair, semiring=semiring, full=True)
        whole = operands((3, 4), (4, 5), dtype="int32")
        options = keywords(dtype="float64")
        yield Case("semirings", gives_the_plain_sum, "ij,jk->ik", whole, options, semiring=semiring)


def _hard_cases() -> Iterator[Case]:
    pairs = examples("ij,jk->ik  6,5 5,7\n ij,ij->i  6,9 6,9\n ij->i  6,9\n i,j->ij  9 9")
    for place, example in enumerate(pairs):
        for number, semiring in enumerate(_REAL):
            for dtype in ("float32", "float64") if place == 0 else (("float32", "float64")[(place + number) % 2],):
                full = place > 0 or dtype == "float64"
                check = has_the_infinities_of_the_formula
                yield _case(check, semiring, example, dtype=dtype, about="infinities and nan", full=full)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        of_log = partial(_case, semiring=log, dtype=dtype, full=dtype in ("bfloat16", "float64"))
        for example in (pairs[0], _FEW[1], _FEW[2]):
            yield of_log(is_stable_with_large_offsets, example=example, about="large offsets")
        if dtype in ("float32", "float64"):
            yield of_log(keeps_nan_to_itself, example=pairs[0], about="nan beside large offsets")
            for example in pairs[:1]:
                yield of_log(is_stable_where_terms_underflow, example=example, about="terms underflow")
        yield of_log(has_no_terms_but_the_impossible, example=pairs[0], about="minus infinities")
        yield _case(
            has_no_terms_but_the_impossible, max_plus, pairs[0], dtype=dtype, about="minus infinities", full=True
        )


def _other_calls() -> Iterator[Case]:
    for place, example in enumerate(FEW):
        for number, semiring in enumerate(_EVERY):
            is_quick = (semiring == log and place % 2 == 0) or (place == 0 and semiring == min_plus)
            check, about = is_right_under_the_smallest_limit, "smallest memory limit"
            if is_quick or (place + number) % 2:
                yield _case(check, semiring, example, about=about, full=not is_quick)
            if place in (0, 3):
                twice, about = partial(check, times=2), "medium memory limit"
                yield _case(twice, semiring, example, about=about, full=place > 0 or semiring != log)
    for place, example in enumerate(_FEW[:2]):
        for semiring in _EVERY:
            full = place > 0 or semiring not in (boolean, log, _MAX_MIN)
            yield _case(is_right_as_an_expression, semiring, example, about="expression", full=full)
            yield _case(is_right_as_a_stored_plan, semiring, example, function="plan", about="stored", full=full)


def _gradient_cases() -> Iterator[Case]:
    for place, example in enumerate(_DIFFERENTIATED):
        for number, semiring in enumerate(_REAL):
            is_quick = (semiring == log and place % 2 == 0) or (semiring == max_plus and place in (0, 3))
            if semiring in (log, max_plus) or place == 0 or (place + number) % 2:
                yield _case(gives_the_gradients, semiring, example, about="gradients", full=not is_quick)
    for semiring in (log, max_plus):
        for dtype in ("float64", "float16", "bfloat16")[: 3 if semiring == log else 1]:
            yield _case(gives_the_gradients, semiring, _FEW[0], dtype=dtype, about="gradients", full=True)
    ties = examples("ij,jk->ik  5,4 4,5\n ij->i  3,9\n i,i->  9 9")
    for example in ties:
        for semiring in (max_plus, min_plus):
            full = semiring == min_plus
            yield _case(shares_the_gradients_of_ties, semiring, example, about="gradients of ties", full=full)
    for example in (ties[0], ties[1]):
        check = has_no_gradient_where_all_is_impossible
        yield _case(check, log, example, about="gradients of minus infinities")
    for place, example in enumerate(_DIFFERENTIATED[:5]):
        yield _case(gives_second_derivatives, log, example, about="second order", full=place > 0)
        yield _case(gives_second_derivatives, log, example, dtype="float64", about="second order", full=True)


def _refused_cases() -> Iterator[Case]:
    refused = partial(Case, "semirings", is_refused, "ij,jk->ik", raises=BackendError)
    shapes = ((3, 4), (4, 5))
    for dtype, why in (("int32", "has no infinity"), ("bool", "has no infinity"), ("complex64", "have no order")):
        for semiring in (max_plus, log):
            says = f"{semiring.name}.* does not compute in {dtype}, as .*{why}"
            yield refused(operands(*shapes, dtype=dtype), semiring=semiring, says=says)
    truths = partial(refused, operands(*shapes), semiring=boolean)
    says = "dtype bool, which casting='equiv' does not allow into an out= of float32"
    yield truths(keywords(casting="equiv"), says=says, out=ArraySpec((3, 5)))
    yield truths(keywords(dtype="float32"), says="computes in bool, not in float32; omit dtype=")
