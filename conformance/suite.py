"""All cases, and running them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter

import numpy as np

from einsumx.conformance.case import Case, Failure, NotApplicable, Outcome, Status, matches
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.features import derivatives, dtypes, faults, forms, layouts, numbers, sizes
from einsumx.conformance.options import Level
from einsumx.conformance.reproduce import reproducer
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "LISTED", "cases", "run", "stale"]

_MODULES = (forms, sizes, layouts, dtypes, numbers, derivatives, faults)

LISTED = "list of deviations"

FEATURES: dict[str, str] = {
    **{name: about for module in _MODULES for name, about in module.FEATURES.items()},
    LISTED: "Each entry of a subject's list of deviations is about a case",
}
"""What the contract promises, in the order of reports, with a sentence on each."""

_CRASHES = "not run: it would end the process, or never end"


def cases(level: Level = "full", select: str = "*") -> list[Case]:
    """The cases of a level whose ids match a pattern, as :func:`~einsumx.conformance.case.matches` has it.

    >>> [case.id for case in cases("quick", "diagonals/ii->i *")]
    ['diagonals/ii->i (3,3) float32', 'diagonals/ii->i (1,1) float32']
    """
    found = [
        case
        for module in _MODULES
        for case in module.cases()
        if (level == "full" or not case.full) and matches(case.id, select)
    ]
    return sorted(found, key=lambda case: list(FEATURES).index(case.feature))


def run(subject: Subject, cases: Iterable[Case], deviations: Sequence[Deviation] = ()) -> Iterator[Outcome]:
    """The outcome of each case on a subject, in turn.

    A failure that is listed among ``deviations`` is a deviation, and a listed case that passes is a failure.
    """
    for case in cases:
        listed = next((deviation for deviation in deviations if deviation.matches(case.id)), None)
        reason = listed.reason if listed else ""
        if listed and listed.crashes:
            yield Outcome(case.id, case.feature, case.dtype, "deviation", _CRASHES, reason)
            continue
        start = perf_counter()
        status, message = _judged(case, subject)
        seconds = perf_counter() - start
        if listed and status == "fail":
            status = "deviation"
        elif listed and status == "pass":
            status = "fail"
            message = f"passes, though it is listed as a deviation ({reason}): take it off the list"
        reason = reason if status == "deviation" else ""
        code = reproducer(case, subject) if status in ("fail", "deviation") else ""
        yield Outcome(case.id, case.feature, case.dtype, status, message, reason, seconds, code)


def stale(deviations: Sequence[Deviation]) -> Iterator[Outcome]:
    """A failure for each entry of a list of deviations that is about no case at all, of any level."""
    ids = [case.id for case in cases()]
    for listed in deviations:
        if not any(map(listed.matches, ids)):
            message = f"is listed as a deviation ({listed.reason}), but there is no such case: take it off the list"
            yield Outcome(listed.cases, LISTED, "", "fail", message)


def _judged(case: Case, subject: Subject) -> tuple[Status, str]:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of frameworks, about what the cases are made to provoke
            case.check(case, subject)
    except NotApplicable as reason:
        return "inapplicable", str(reason)
    except Failure as failure:
        return "fail", str(failure)
    except Exception as error:  # noqa: BLE001  whatever a subject raises is what there is to report
        return "fail", f"raised {type(error).__name__}: {_said(error)}"
    return "pass", ""


def _said(error: Exception) -> str:
    """The line of an error's message that says what is wrong; MXNet's begins with the places in its source."""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1].removeprefix(f"{type(error).__name__}: ") if lines[0].startswith("Traceback") else lines[0]
