"""The list of all cases, and the loop that runs them on a subject."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter

import numpy as np

from einsumx.conformance.case import Case, Outcome, Status, as_expression
from einsumx.conformance.checks import failure_of
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.features import (
    accumulators,
    addeinsum,
    argmax,
    autocast,
    conjugates,
    derivatives,
    devices,
    dtypes,
    errors,
    exponents,
    forms,
    layouts,
    limits,
    randomized,
    results,
    scale,
    semirings,
    sizes,
    tracing,
)
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.conformance.options import Level
from einsumx.conformance.reproduce import reproducer
from einsumx.conformance.subject import Subject
from einsumx.errors import EinsumxError

_MODULES = (
    forms,
    sizes,
    layouts,
    dtypes,
    results,
    addeinsum,
    accumulators,
    conjugates,
    argmax,
    exponents,
    semirings,
    devices,
    derivatives,
    tracing,
    autocast,
    scale,
    limits,
    errors,
)

LISTED = "list of deviations"

RANDOM: dict[Level, int] = {"quick": 10, "full": 100}
"""The default number of random problems in each dtype."""

FEATURES: dict[str, str] = {
    **{name: about for module in (*_MODULES, randomized) for name, about in module.FEATURES.items()},
    LISTED: "Each entry of a subject's list of deviations matches a case",
}
"""The features of the contract in the order of reports, each with a description."""

_CRASHES = "not run: it would crash the process or never end"


def cases(level: Level = "full", select: str = "*", random: int | None = None, seed: int = 0) -> list[Case]:
    """The cases of a level whose ids match a pattern.

    Args:
        level: ``"quick"`` for a selection of the cases, ``"full"`` for all.
        select: the pattern, in the syntax of :func:`~einsumx.conformance.case.as_expression`.
        random: the number of random problems in each dtype; by default :data:`RANDOM`.
        seed: the seed of the random problems.

    Raises:
        EinsumxError: there are none.

    >>> [case.id for case in cases("quick", "diagonals/ii->i *")]
    ['diagonals/ii->i (3,3) float32', 'diagonals/ii->i (1,1) float32']
    """
    drawn = tuple((case.id, case) for case in randomized.cases(RANDOM[level] if random is None else random, seed))
    at_level = [(name, case) for name, case in _named() + drawn if level == "full" or not case.full]
    expression = as_expression(select)
    selected = [case for name, case in at_level if expression.match(name)]
    if not selected:
        raise EinsumxError(f"no case of the level {level} is called {select!r}; einsumx conformance --list shows them")
    return sorted(selected, key=lambda case: list(FEATURES).index(case.feature))


def _named() -> tuple[tuple[str, Case], ...]:
    """The cases that are not random, each with its id, which takes longer to write than to match."""
    return tuple((case.id, case) for module in _MODULES for case in module.cases())


def run(subject: Subject, cases: Iterable[Case], deviations: Sequence[Deviation] = ()) -> Iterator[Outcome]:
    """Run cases on a subject and yield their outcomes.

    A failure that is listed in ``deviations`` becomes a deviation. A listed case that passes becomes a failure, unless
    its entry says that it deviates only sometimes.
    """
    for case in cases:
        listed = next((deviation for deviation in deviations if deviation.matches(case.id)), None)
        reason = listed.reason if listed else ""
        if listed and listed.crashes:
            yield Outcome(case.id, case.feature, case.dtype, "deviation", _CRASHES, reason)
            continue
        start = perf_counter()
        status, message, shown_by = _judge(case, subject)
        seconds = perf_counter() - start
        if listed and status == "fail":
            status = "deviation"
        elif listed and status == "pass" and not listed.sometimes:
            status = "fail"
            message = f"passes, though it is listed as a deviation ({reason}): take it off the list"
        reason = reason if status == "deviation" else ""
        code = reproducer(shown_by, subject) if status in ("fail", "deviation") else ""
        yield Outcome(case.id, case.feature, case.dtype, status, message, reason, seconds, code)


def stale_entries(deviations: Sequence[Deviation]) -> Iterator[Outcome]:
    """A failure for each listed pattern that no case of any level matches."""
    ids = [case.id for case in cases()]
    for listed in deviations:
        for pattern, expression in listed.patterns.items():
            if not any(map(expression.match, ids)):
                message = f"there is no such case, though it is listed ({listed.reason}): take it off the list"
                yield Outcome(pattern, LISTED, "", "fail", message)


def unshown_entries(deviations: Sequence[Deviation], outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """A failure for each entry that deviates only sometimes, and in none of the outcomes of level full."""
    deviating = [outcome.case for outcome in outcomes if outcome.status == "deviation"]
    for listed in deviations:
        if listed.sometimes and not any(map(listed.matches, deviating)):
            message = f"all of these pass, though they are listed ({listed.reason}): take them off the list"
            yield Outcome(" ".join(listed.patterns), LISTED, "", "fail", message)


def _judge(case: Case, subject: Subject) -> tuple[Status, str, Case]:
    """A case's status, its message, and the case that shows the failure."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # frameworks warn of values and calls that cases use on purpose
            failure = failure_of(case, subject)
    except NotApplicable as reason:
        return "inapplicable", str(reason), case
    if failure is None:
        return "pass", "", case
    return "fail", str(failure), failure.shown_by or case
