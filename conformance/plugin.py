"""The suite under pytest: in the tests of a package that brings a backend, and on an installed einsumx.

In a test file::

    from einsumx.conformance.plugin import suite_test

    test_mylib_keeps_the_promises_of_einsumx = suite_test("mylib")

Without one::

    pytest -p einsumx.conformance.plugin --pyargs einsumx.conformance --einsumx-backend mylib

A case that fails says what is wrong and how to see it. One that does not apply is skipped, and a listed deviation is an
expected failure, each with its reason; a listed case that passes fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import pytest

from einsumx.conformance.case import Case, Outcome
from einsumx.conformance.deviations import deviations_of
from einsumx.conformance.options import LEVELS, Level
from einsumx.conformance.subject import Subject, subjects
from einsumx.conformance.suite import LISTED, cases, run, stale
from einsumx.errors import BackendError

__all__ = ["end_as", "suite_test"]

_Judged: TypeAlias = "Callable[[], Iterable[Outcome]]"


def suite_test(
    *backends: str,
    callables: Sequence[str] = (),
    device: str = "",
    level: Level = "quick",
    select: str = "*",
    random: int | None = None,
    seed: int = 0,
) -> Callable[[_Judged], None]:
    """A test function for pytest to collect: a test for each case of the suite on each subject.

    Args:
        backends: judges einsumx on these.
        callables: judges these functions, as ``module:name``, in the place of einsumx.
        device: where arrays are put; by default the framework's default.
        level: ``"quick"`` for some of the cases, ``"full"`` for all.
        select: a pattern of cases, as :func:`~einsumx.conformance.case.matches` has it.
        random: how many random problems in each dtype; by default what the level has.
        seed: of the random problems.

    Raises:
        BackendError: there is no such backend or function, or it cannot be used here.
    """
    found = subjects(backends, callables, device)
    parameters = list(_parameters(found, cases(level, select, random, seed), everything=select == "*"))

    @pytest.mark.parametrize("judged", parameters)
    def test(judged: _Judged) -> None:
        end_as(judged())

    return test


def end_as(outcomes: Iterable[Outcome]) -> None:
    """End a test as the outcome of a case says."""
    for outcome in outcomes:
        match outcome.status:
            case "fail":
                pytest.fail("\n".join(filter(None, (outcome.message, outcome.reproducer))), pytrace=False)
            case "deviation":
                pytest.xfail(outcome.reason)
            case "inapplicable":
                pytest.skip(outcome.message)


def _parameters(subjects: Iterable[Subject], selected: Sequence[Case], *, everything: bool) -> Iterator[Any]:
    """What each test calls for its outcomes, named after subject and case."""
    for subject in subjects:
        listed = deviations_of(subject)
        for case in selected:
            yield pytest.param(partial(run, subject, [case], listed), id=f"{subject.name} {case.id}")
        if everything:
            yield pytest.param(partial(stale, listed), id=f"{subject.name} {LISTED}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what the command line may say, to which ``--pyargs einsumx.conformance`` is held."""
    group = parser.getgroup("einsumx", "the conformance suite of einsumx")
    group.addoption("--einsumx-backend", action="append", default=[], metavar="NAME", help="einsumx on this backend")
    group.addoption(
        "--einsumx-callable",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="this einsum function, on arrays of its own framework, or of NumPy, or of each --einsumx-backend",
    )
    group.addoption("--einsumx-device", default="", metavar="DEVICE", help="where arrays are put, such as cuda:0")
    group.addoption("--einsumx-level", choices=LEVELS, default="quick", help="some or all of the cases")
    group.addoption("--einsumx-random", type=int, metavar="N", help="random problems in each dtype")
    group.addoption("--einsumx-seed", type=int, default=0, metavar="S", help="where the random problems begin")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the tests of ``einsumx.conformance.test_conformance``, from the command line."""
    if "einsumx_judged" in metafunc.fixturenames:
        option = metafunc.config.getoption
        backends, callables = option("--einsumx-backend"), option("--einsumx-callable")
        if not (backends or callables):
            raise pytest.Collector.CollectError(
                "say what to judge: --einsumx-backend NAME, or --einsumx-callable MODULE:NAME"
            )
        try:
            found = subjects(backends, callables, option("--einsumx-device"))
        except BackendError as error:
            raise pytest.Collector.CollectError(str(error)) from error
        selected = cases(option("--einsumx-level"), random=option("--einsumx-random"), seed=option("--einsumx-seed"))
        parameters = list(_parameters(found, selected, everything=True))
        metafunc.parametrize("einsumx_judged", parameters)
