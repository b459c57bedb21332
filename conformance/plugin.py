"""The suite as pytest tests, for the tests of a package with a backend.

In a test file::

    from einsumx.conformance.plugin import suite_test

    test_mylib_keeps_the_promises_of_einsumx = suite_test("mylib")

A failure shows its message and a reproducer. A case that does not apply is skipped, and a listed deviation is an
expected failure, both with their reasons. A listed case that passes fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import pytest

from einsumx.conformance.case import Case, Outcome
from einsumx.conformance.options import Level
from einsumx.conformance.subject import Subject, subjects
from einsumx.conformance.suite import LISTED, cases, run, stale_entries

RunCase: TypeAlias = "Callable[[], Iterable[Outcome]]"
"""Runs a case and yields its outcome."""


def suite_test(
    *backends: str,
    callables: Sequence[str] = (),
    device: str = "",
    level: Level = "quick",
    select: str = "*",
    random: int | None = None,
    seed: int = 0,
) -> Callable[[RunCase], None]:
    """A parametrized test function, with one test per case and subject.

    Args:
        backends: the backends of einsumx to judge, or of the arrays for ``callables``.
        callables: functions to judge instead of einsumx, as ``module:name``.
        device: the device of the arrays; by default the framework's default.
        level: ``"quick"`` for some of the cases, ``"full"`` for all.
        select: a pattern of cases, in the syntax of :func:`~einsumx.conformance.case.as_expression`.
        random: the number of random problems in each dtype; by default the level's.
        seed: the seed of the random problems.

    Raises:
        BackendError: there is no such backend or function, or it cannot be used here.
        EinsumxError: no case matches ``select``.
    """
    selected = cases(level, select, random, seed)
    judged = subjects(backends, callables, device)

    @pytest.mark.parametrize("run_case", list(parameters(judged, selected, everything=select == "*")))
    def test(run_case: RunCase) -> None:
        report(run_case())

    return test


def report(outcomes: Iterable[Outcome]) -> None:
    """Fail, xfail or skip a test for the outcome of its case."""
    for outcome in outcomes:
        match outcome.status:
            case "fail":
                pytest.fail("\n".join(filter(None, (outcome.message, outcome.reproducer))), pytrace=False)
            case "deviation":
                pytest.xfail(outcome.reason)
            case "inapplicable":
                pytest.skip(outcome.message)


def parameters(subjects: Iterable[Subject], selected: Sequence[Case], *, everything: bool) -> Iterator[Any]:
    """The parameter of each test, whose id names subject and case."""
    for subject in subjects:
        listed = subject.deviations
        for case in selected:
            yield pytest.param(partial(run, subject, [case], listed), id=f"{subject.name} {case.id}")
        if everything:
            yield pytest.param(partial(stale_entries, listed), id=f"{subject.name} {LISTED}")
