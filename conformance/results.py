"""What runs of the suite found, as data: stored as JSON, put together from several environments, compared."""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from einsumx.adapters.registry import BUILTIN
from einsumx.conformance.case import Outcome, Status
from einsumx.conformance.frameworks import KNOWN
from einsumx.conformance.options import LEVELS, Level
from einsumx.conformance.subject import Subject
from einsumx.conformance.suite import FEATURES
from einsumx.ir.strict import Fields, made, parse
from einsumx.runtime.files import read_text, write_text

__all__ = [
    "STATUSES",
    "Difference",
    "Run",
    "by_reason",
    "counted",
    "differences",
    "features_of",
    "make_run",
    "merged",
    "not_judged",
    "read_runs",
    "write_runs",
]

STATUSES: tuple[Status, ...] = ("pass", "deviation", "fail", "inapplicable")
"""In the order of reports."""

_FORMAT = 1

_MOST_BYTES = 1 << 28
"""Of a file of runs: some times what all cases on all frameworks take."""

_FIELDS = Fields({"level": "|".join(LEVELS), "date": r"\d{4}-\d\d-\d\d[-+:.0-9TZ]{0,40}"})


@dataclass(frozen=True, slots=True)
class Run:
    """What the suite found of one subject, and where.

    Attributes:
        subject: its name.
        version: of the function's library.
        framework: whose arrays it was given.
        framework_version: of that.
        device: where the arrays were; empty for the framework's default.
        is_einsumx: whether einsumx was judged, and not a library's own function.
        level: of the cases.
        select: the pattern of the cases; ``*`` for all.
        einsumx: the version of einsumx, and so of the suite.
        python: the version of Python.
        platform: the operating system and the processor's kind.
        date: when it began, in UTC.
        seconds: that all cases took.
        outcomes: of each case, in order.
    """

    subject: str
    version: str
    framework: str
    framework_version: str
    device: str
    is_einsumx: bool
    level: str
    select: str
    einsumx: str
    python: str
    platform: str
    date: str
    seconds: float
    outcomes: tuple[Outcome, ...]

    @property
    def name(self) -> str:
        """The subject with what tells it from others: its version, and its device where one was asked for."""
        return " ".join(filter(None, (self.subject, self.version, self.device)))

    @property
    def failed(self) -> bool:
        """Whether any case failed that is not listed as a deviation."""
        return any(outcome.status == "fail" for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class Difference:
    """A case in which subjects differ.

    Attributes:
        case: its id.
        feature: of the case.
        subjects: by status, the names of the runs; those to which the case does not apply are left out.
    """

    case: str
    feature: str
    subjects: dict[Status, list[str]]


def make_run(subject: Subject, level: Level, select: str, outcomes: Iterable[Outcome]) -> Run:
    """Take the outcomes of a subject's cases, as they come, and note where and when that was."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    found = tuple(outcomes)
    return Run(
        subject=subject.name,
        version=subject.version,
        framework=subject.framework.name,
        framework_version=subject.framework.version,
        device=subject.device,
        is_einsumx=subject.is_einsumx,
        level=level,
        select=select,
        einsumx=version("einsumx"),
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        date=date,
        seconds=sum(outcome.seconds for outcome in found),
        outcomes=found,
    )


def not_judged(runs: Sequence[Run]) -> str:
    """What nobody may take to be among runs of einsumx: its backends that no run is of, and GPUs."""
    ours = [run for run in runs if run.is_einsumx]
    missing = [name for name in BUILTIN if name not in {run.subject for run in ours}]
    parts = [f"einsumx on {', '.join(missing)}"] * bool(missing)
    if not any(run.device.startswith(("cuda", "gpu")) or run.framework == "cupy" for run in ours):
        parts.append("anything on a GPU")
    return f"Not judged: {'; '.join(parts)}." if parts else ""


def features_of(runs: Sequence[Run]) -> list[str]:
    """The features that runs have outcomes of, in the order of reports; those of other versions come last."""
    found = dict.fromkeys(outcome.feature for run in runs for outcome in run.outcomes)
    return [name for name in FEATURES if name in found] + [name for name in found if name not in FEATURES]


def counted(outcomes: Iterable[Outcome]) -> dict[Status, int]:
    """How many outcomes there are of each status."""
    counts = Counter(outcome.status for outcome in outcomes)
    return {status: counts[status] for status in STATUSES}


def by_reason(outcomes: Iterable[Outcome], reason: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    """Outcomes grouped by what ``reason`` says of each, the largest group first."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(reason(outcome), []).append(outcome)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def differences(runs: Sequence[Run]) -> Iterator[Difference]:
    """The cases whose outcomes are not the same in all runs to which they apply."""
    found: dict[str, tuple[str, dict[Status, list[str]]]] = {}
    for run in runs:
        for outcome in run.outcomes:
            if outcome.status != "inapplicable":
                subjects = found.setdefault(outcome.case, (outcome.feature, {}))[1]
                subjects.setdefault(outcome.status, []).append(run.name)
    for case, (feature, subjects) in found.items():
        if len(subjects) > 1:
            yield Difference(case, feature, {status: subjects[status] for status in STATUSES if status in subjects})


def merged(runs: Iterable[Run]) -> list[Run]:
    """Runs of several environments, einsumx's first: of two of one subject in one version, the later."""
    found = {run.name: run for run in sorted(runs, key=lambda run: run.date)}
    order = list(dict.fromkeys([*KNOWN, *(run.framework for run in found.values())]))
    return sorted(found.values(), key=lambda run: (not run.is_einsumx, order.index(run.framework), run.name))


def write_runs(path: Path, runs: Sequence[Run]) -> None:
    """Store runs as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    data = {"format": _FORMAT, "runs": [asdict(run) for run in runs]}
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read_runs(path: Path) -> list[Run]:
    """Runs that :func:`write_runs` has stored.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.
    """
    try:
        data: Any = parse(read_text(path, _MOST_BYTES), _MOST_BYTES)
        if not isinstance(data, dict) or type(data.get("format")) is not int or not isinstance(data.get("runs"), list):
            raise ValueError("it has no format and no runs")
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is {data['format']}, not {_FORMAT}")
        if not data["runs"]:
            raise ValueError("it has no runs")
        runs = [made(Run, run, {"outcomes": partial(made, Outcome)}) for run in data["runs"]]
        for run in runs:
            _FIELDS.check(run)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} does not hold runs of the conformance suite: {error}") from None
    return runs
