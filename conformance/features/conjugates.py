"""``conj=``: operands of which the complex conjugates are contracted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from einsumx import EquationError
from einsumx.conformance.case import Case, examples, keywords, operands
from einsumx.conformance.checks import cotangent, expected_gradient, needs_gradients
from einsumx.conformance.features.limits import call_within_smallest
from einsumx.conformance.framework import Array, Function
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.refusals import is_refused
from einsumx.conformance.subject import Subject

FEATURES = {
    "conjugates": "conj= contracts the complex conjugates of some operands, also within limits, gradients and traces",
}

_ONE = examples("""
    ij->ji              3,4
    ij->ij              3,4
    ij->j               3,4
    ij->                3,4
    ii->i               3,3
    ->                  ()
""")

_PAIRS = examples("""
    ij,jk->ik           3,4 4,5
    ij,j->i             30,40 40
    i,i->               50 50
    i,j->ji             3 4
    ij,ij->ij           3,4 3,4
    bij,bjk->kib        2,3,4 2,4,5
    iij,jk->ik          3,3,4 4,2
    ijz,jk->ik          3,4,5 4,2
    ij,jk->ik           3,1 4,5
    ij,jk->ik           3,0 0,5
    ,i->i               () 3
""")

_MANY = examples("""
    ij,jk,kl->li        3,4 4,5 5,2
    ai,bi,ci->abc       3,2 4,2 5,2
    ij,jj,jk->ik        30,40 40,40 40,2
""")

_TRACED = ("jit", "compile")


def cases() -> Iterator[Case]:
    """The cases of this module's feature."""
    new = partial(Case, "conjugates", only_einsumx=True)
    for equation, shapes in _ONE:
        yield new(gives_the_sum_of_conjugates, equation, operands(*shapes, dtype="complex64"), keywords(conj=0))
    for number, (equation, shapes) in enumerate((*_PAIRS, *_MANY)):
        last = len(shapes) - 1
        for conj in dict.fromkeys([(0,), (last,), tuple(range(len(shapes)))]):
            specs, options = operands(*shapes, dtype="complex64"), keywords(conj=conj)
            yield new(gives_the_sum_of_conjugates, equation, specs, options)
            yield new(gives_the_same_under_a_limit, equation, specs, options, "memory limit", full=number > 0)
            yield new(gives_the_gradients, equation, specs, options, "gradients", full=number > 0)
            yield new(gives_the_gradients_under_a_limit, equation, specs, options, "limited", full=number > 0)
            yield new(is_traced, equation, specs, options, "traced", full=number > 0)
    product = partial(new, gives_the_sum_of_conjugates, "ij,jk->ik")
    for layout in ("F", "swapped", "sliced", "broadcast", "broadcast-last", "conjugated"):
        yield product(operands((3, 4), (4, 5), dtype="complex64", layout=layout), keywords(conj=(0, 1)))
        yield product(operands((3, 4), (4, 5), dtype="complex64", layout=layout), keywords(conj=1), full=True)
    for dtypes in (("complex128", "complex128"), ("float32", "complex64"), ("complex64", "float32"), ("float32",) * 2):
        specs = tuple(map(ArraySpec, ((3, 4), (4, 5)), dtypes))
        for positions in (0, [0, 1], -1):
            yield product(specs, keywords(conj=positions))
    whole = operands((3, 4), (4, 5), dtype="int32")
    yield product(whole, keywords(conj=(0, 1)))
    wide = keywords(conj=1, accumulate="complex128")
    yield product(operands((3, 4), (4, 5), dtype="complex64"), wide)
    added = operands((3, 5), (3, 4), (4, 5), dtype="complex64")
    yield product(added, keywords(conj=1, alpha=2, beta=0.5), function="addeinsum")
    yield from _refused_cases()


def _refused_cases() -> Iterator[Case]:
    refused = partial(Case, "conjugates", is_refused, "ij,jk->ik", operands((3, 4), (4, 5)), raises=EquationError)
    count = "the number of operands is 2"
    for conj in (2, -3, (0, 2)):
        yield refused(keywords(conj=conj), says=f"conj= has position .*{count}", only_einsumx=True)
    for conj in ((0, 0), (1, -1)):
        yield refused(keywords(conj=conj), says=f"twice; {count}", only_einsumx=True)
    for value in (True, (True,), 0.0, "first", (None,)):
        yield refused(keywords(conj=value), says="conj= must be the position of an operand", only_einsumx=True)


def _conjugated(case: Case) -> set[int]:
    """The positions of the operands that a case conjugates."""
    conj = dict(case.options)["conj"]
    count = len(case.operands) - (case.function == "addeinsum")
    return {position % count for position in ([conj] if isinstance(conj, int) else conj)}


def _conjugates(case: Case, hosts: Sequence[Any]) -> list[Any]:
    """The values that are contracted; for ``addeinsum``, those of the array that it adds to come first."""
    first = int(case.function == "addeinsum")
    chosen = _conjugated(case)
    return [host.conj() if place - first in chosen else host for place, host in enumerate(hosts)]


def gives_the_sum_of_conjugates(case: Case, subject: Subject) -> None:
    """The result is the plain sum of conjugated operands, which stay as they are."""
    hosts, arrays = subject.operands(case)
    expected = subject.expected(case, _conjugates(case, hosts))
    subject.judge(subject.call(case, arrays), expected)
    subject.judge_unchanged(arrays, hosts)


def gives_the_same_under_a_limit(case: Case, subject: Subject) -> None:
    """The same under the smallest memory limit."""
    hosts, arrays = subject.operands(case)
    expected = subject.expected(case, _conjugates(case, hosts))
    subject.judge(call_within_smallest(subject, partial(subject.call, case, arrays)), expected)
    subject.judge_unchanged(arrays, hosts)


def gives_the_gradients(case: Case, subject: Subject) -> None:
    """The gradient by every operand is right."""
    _judge_gradients(case, subject, subject.bound(case), subject.operands(case))


def gives_the_gradients_under_a_limit(case: Case, subject: Subject) -> None:
    """The same under the smallest memory limit."""
    needs_gradients(case, subject)
    if not subject.framework.differentiates_eagerly:
        raise NotApplicable(f"{subject.name} differentiates what is traced or lazy, which keeps no memory limit")
    hosts = case.values()
    values, weights = cotangent(case, subject, hosts)

    def gradients(memory_limit: int) -> list[Any]:
        function = partial(subject.bound(case), memory_limit=memory_limit)
        return subject.framework.gradients(function, subject.arrays(case, hosts), weights)

    _judge(case, subject, hosts, values, call_within_smallest(subject, gradients))


def is_traced(case: Case, subject: Subject) -> None:
    """A function that the framework traces and compiles is right, and so are its gradients."""
    transforms = [each for each in _TRACED if each in subject.framework.transforms]
    if not transforms:
        raise NotApplicable(f"{subject.framework.name} has no jit and no compile")
    hosts, arrays = subject.operands(case)
    function = subject.bound(case)

    def call(*operands: Array) -> Array:  # Paddle traces no objects that are called
        return function(*operands)

    traced = subject.framework.transformed(transforms[0], call)
    subject.judge(traced(*arrays), subject.expected(case, _conjugates(case, hosts)))
    _judge_gradients(case, subject, traced, (hosts, arrays))


def _judge_gradients(case: Case, subject: Subject, function: Function, given: tuple[list[Any], list[Array]]) -> None:
    needs_gradients(case, subject)
    hosts, arrays = given
    values, weights = cotangent(case, subject, hosts)
    _judge(case, subject, hosts, values, subject.framework.gradients(function, arrays, weights))


def _judge(case: Case, subject: Subject, hosts: list[Any], values: Any, gradients: Sequence[Array]) -> None:
    """Raise Failure unless each gradient is that by the conjugate, conjugated if the operand is."""
    chosen, contracted = _conjugated(case), _conjugates(case, hosts)
    for place, gradient in enumerate(gradients):
        expected = expected_gradient(place, case, subject, contracted, values)
        if place in chosen:
            expected = replace(expected, values=np.conj(expected.values))
        subject.judge(gradient, expected, f"the gradient by operand {place}")
