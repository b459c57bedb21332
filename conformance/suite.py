"""All cases, and running them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Literal, TypeAlias

import numpy as np

from einsumx.conformance.case import Case, Failure, NotApplicable, Outcome, Status
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.features import dtypes, forms, layouts, numbers, sizes
from einsumx.conformance.reproduce import reproducer
from einsumx.conformance.subject import Subject

__all__ = ["FEATURES", "LEVELS", "Level", "cases", "run"]

Level: TypeAlias = Literal["quick", "full"]
LEVELS: tuple[Level, ...] = ("quick", "full")

_MODULES = (forms, sizes, layouts, dtypes, numbers)

FEATURES: dict[str, str] = {name: about for module in _MODULES for name, about in module.FEATURES.items()}
"""What the contract promises, in the order of reports, with a sentence on each."""


def cases(level: Level = "full", select: str = "*") -> list[Case]:
    """The cases of a level whose ids match a pattern of :mod:`fnmatch`.

    >>> [case.id for case in cases("quick", "diagonals/ii->i *")]
    ['diagonals/ii->i (3,3) float32', 'diagonals/ii->i (1,1) float32']
    """
    found = [
        case
        for module in _MODULES
        for case in module.cases()
        if (level == "full" or not case.full) and fnmatchcase(case.id, select)
    ]
    return sorted(found, key=lambda case: list(FEATURES).index(case.feature))


def run(subject: Subject, cases: Iterable[Case], deviations: Sequence[Deviation] = ()) -> Iterator[Outcome]:
    """The outcome of each case on a subject, in turn.

    A failure that is listed among ``deviations`` is a deviation, and a listed case that passes is a failure.
    """
    for case in cases:
        start = perf_counter()
        status, message = _judged(case, subject)
        seconds = perf_counter() - start
        listed = next((deviation for deviation in deviations if deviation.matches(case.id)), None)
        reason = ""
        if listed is not None and status == "fail":
            status, reason = "deviation", listed.reason
        elif listed is not None and status == "pass":
            status = "fail"
            message = (
                f"passes, though it is listed as a deviation ({listed.reason}): take {listed.cases!r} off the list"
            )
        code = reproducer(case, subject) if status in ("fail", "deviation") else ""
        yield Outcome(case.id, case.feature, case.dtype, status, message, reason, seconds, code)


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
        return "fail", f"raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return "pass", ""
