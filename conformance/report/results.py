"""Runs of the suite as data: stored as JSON, merged from several environments, and compared."""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from einsumx import __version__
from einsumx.adapters.registry import BUILTIN
from einsumx.conformance.case import Outcome, Status
from einsumx.conformance.frameworks import KNOWN
from einsumx.conformance.options import Level
from einsumx.conformance.subject import Subject
from einsumx.conformance.suite import FEATURES
from einsumx.host.files import read_text, write_text
from einsumx.ir.strict import parse, read

STATUSES: tuple[Status, ...] = ("pass", "deviation", "fail", "inapplicable")
"""All statuses, in the order of reports."""

_FORMAT = 1

_MOST_BYTES = 1 << 28
"""The largest file that is read: several times the size of all cases on all frameworks."""


@dataclass(frozen=True, slots=True)
class Run:
    """The outcomes of one subject, and the environment in which it was judged.

    Attributes:
        subject: the subject's name.
        version: the version of the function's library.
        framework: the framework of the arrays.
        framework_version: the framework's version.
        device: the device of the arrays; empty for the framework's default.
        is_einsumx: whether the subject is einsumx, not a library's own function.
        level: the level of the cases.
        select: the pattern of the cases; ``*`` for all.
        einsumx: the version of einsumx, and so of the suite.
        python: the version of Python.
        platform: the operating system and the machine type.
        date: the start in UTC.
        seconds: the total time of all cases.
        outcomes: one per case, in order.
    """

    subject: str
    version: str
    framework: str
    framework_version: str
    device: str
    is_einsumx: bool
    level: Level
    select: str
    einsumx: str
    python: str
    platform: str
    date: Annotated[str, r"\d{4}-\d\d-\d\d[-+:.0-9TZ]{0,40}"]
    seconds: float
    outcomes: tuple[Outcome, ...]

    @property
    def name(self) -> str:
        """The subject with its version, and its device unless that is the default."""
        return " ".join(filter(None, (self.subject, self.version, self.device)))

    @property
    def failed(self) -> bool:
        """Whether any case failed; deviations do not count."""
        return any(outcome.status == "fail" for outcome in self.outcomes)


def make_run(subject: Subject, level: Level, select: str, outcomes: Iterable[Outcome]) -> Run:
    """Collect a subject's outcomes as they arrive, and record the environment."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    finished = tuple(outcomes)
    return Run(
        subject=subject.name,
        version=subject.version,
        framework=subject.framework.name,
        framework_version=subject.framework.version,
        device=subject.device,
        is_einsumx=subject.is_einsumx,
        level=level,
        select=select,
        einsumx=__version__,
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        date=date,
        seconds=sum(outcome.seconds for outcome in finished),
        outcomes=finished,
    )


def not_judged(runs: Sequence[Run]) -> str:
    """A sentence on the backends of einsumx that the runs lack, and on GPUs if no run used one; otherwise empty."""
    ours = [run for run in runs if run.is_einsumx]
    missing = [name for name in BUILTIN if name not in {run.subject for run in ours}]
    parts = [f"einsumx on {', '.join(missing)}"] * bool(missing)
    if not any(run.device.startswith(("cuda", "gpu")) or run.framework == "cupy" for run in ours):
        parts.append("anything on a GPU")
    return f"Not judged: {'; '.join(parts)}." if parts else ""


def features_of(runs: Sequence[Run]) -> list[str]:
    """The features of the runs' outcomes in the order of reports; features of other versions of the suite come last."""
    names = dict.fromkeys(outcome.feature for run in runs for outcome in run.outcomes)
    return [name for name in FEATURES if name in names] + [name for name in names if name not in FEATURES]


def count_statuses(outcomes: Iterable[Outcome]) -> Counter[Status]:
    """The number of outcomes of each status."""
    return Counter(outcome.status for outcome in outcomes)


def group_by(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    """Outcomes grouped by ``key``, the largest group first."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def differences(runs: Sequence[Run]) -> dict[str, dict[str, dict[Status, list[str]]]]:
    """The cases whose outcomes differ between the runs to which they apply.

    By feature and case, the names of the runs of each status.
    """
    names: dict[tuple[str, str], dict[Status, list[str]]] = {}
    for run in runs:
        for outcome in run.outcomes:
            if outcome.status != "inapplicable":
                by_status = names.setdefault((outcome.feature, outcome.case), {})
                by_status.setdefault(outcome.status, []).append(run.name)
    differing: dict[str, dict[str, dict[Status, list[str]]]] = {feature: {} for feature in features_of(runs)}
    for (feature, case), by_status in names.items():
        if len(by_status) > 1:
            differing[feature][case] = {status: by_status[status] for status in STATUSES if status in by_status}
    return {feature: cases for feature, cases in differing.items() if cases}


def merge(runs: Iterable[Run]) -> list[Run]:
    """Runs of several environments, einsumx's first.

    Of several runs of one subject and version, the latest stays. If a run of all cases precedes one of some cases, the
    outcomes of the latter replace those of the same cases.
    """
    latest: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.date):
        before = latest.get(run.name)
        if before is not None and before.select == "*" != run.select:
            run = _judged_again(before, run)
        latest[run.name] = run
    order = list(dict.fromkeys([*KNOWN, *(run.framework for run in latest.values())]))
    return sorted(latest.values(), key=lambda run: (not run.is_einsumx, order.index(run.framework), run.name))


def _judged_again(before: Run, run: Run) -> Run:
    """A run of all cases, with the outcomes of a later run of some of them."""
    new = {outcome.case: outcome for outcome in run.outcomes}
    outcomes = tuple(new.pop(outcome.case, outcome) for outcome in before.outcomes)
    seconds = before.seconds + run.seconds
    return replace(run, level=before.level, select="*", seconds=seconds, outcomes=(*outcomes, *new.values()))


def write_runs(path: Path, runs: Sequence[Run]) -> None:
    """Store runs as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    data = {"format": _FORMAT, "runs": [asdict(run) for run in runs]}
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read_runs(path: Path) -> list[Run]:
    """Read runs that :func:`write_runs` stored.

    Raises:
        OSError: the file cannot be read.
        ValueError: it does not hold runs.
    """
    try:
        data: Any = parse(read_text(path, _MOST_BYTES), _MOST_BYTES)
        if not isinstance(data, dict) or type(data.get("format")) is not int or not isinstance(data.get("runs"), list):
            raise ValueError("it has no format and no runs")
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is {data['format']}, not {_FORMAT}")
        if not data["runs"]:
            raise ValueError("it has no runs")
        runs = [read(Run, run) for run in data["runs"]]
    except ValueError as error:
        raise ValueError(f"{path} does not hold runs of the conformance suite: {error}") from None
    return runs
