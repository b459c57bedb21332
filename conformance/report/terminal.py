"""A run of the suite in the terminal: progress, a table of features, deviations and failures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from einsumx.conformance.case import Outcome
from einsumx.conformance.report.results import STATUSES, Run, count_statuses, differences, features_of, group_by
from einsumx.errors import counted
from einsumx.ir.text import duration
from einsumx.terminal import console, plain_table, progress

_MOST_NAMES = 5
"""The most cases that are named for a feature or reason; others are counted."""

_STYLES = {"pass": "green", "fail": "bold red", "deviation": "yellow", "inapplicable": "dim"}


def with_progress(outcomes: Iterable[Outcome], name: str, total: int) -> Iterator[Outcome]:
    """The outcomes, counted on standard error if that is a terminal."""
    failures = 0
    with progress(quiet=True) as announce:
        for number, outcome in enumerate(outcomes, 1):
            failures += outcome.status == "fail"
            announce(f"{name}  {number} of {total}{f', {failures} failed' if failures else ''}")
            yield outcome


def print_table(run: Run) -> None:
    """Print the number of outcomes of each status, for each feature."""
    from rich.text import Text

    table = plain_table("feature", *STATUSES, right=STATUSES)
    for feature in features_of([run]):
        counts = count_statuses(outcome for outcome in run.outcomes if outcome.feature == feature)
        cells = [Text(str(counts[status] or ""), _STYLES[status]) for status in STATUSES]
        table.add_row(Text(feature, _STYLES["fail"] if counts["fail"] else ""), *cells)
    out = console()
    out.print(table)
    out.print()


def run_lines(run: Run) -> Iterator[str]:
    """Deviations with their reasons, failures with their reproducers, and a summary."""
    for reason, outcomes in group_by(_of(run, "deviation"), lambda outcome: outcome.reason).items():
        yield f"deviation: {reason}"
        yield from (f"    {outcome.case}" for outcome in outcomes[:_MOST_NAMES])
        if len(outcomes) > _MOST_NAMES:
            yield f"    and {len(outcomes) - _MOST_NAMES} more"
    for reason, outcomes in group_by(_of(run, "inapplicable"), lambda outcome: outcome.message).items():
        yield f"does not apply: {reason} ({counted(len(outcomes), 'case')})"
    for message, (first, *others) in group_by(_of(run, "fail"), lambda outcome: outcome.message).items():
        yield f"\nFAILED {first.case}"
        yield textwrap.indent(message, "    ")
        if first.reproducer:
            yield textwrap.indent(first.reproducer, "    > ")
        yield from (f"FAILED {outcome.case}, in the same way" for outcome in others)
    counts = count_statuses(run.outcomes)
    summary = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    yield f"\n{run.name}: {summary} of {counted(len(run.outcomes), 'case')} in {duration(run.seconds)}"


def difference_lines(runs: Sequence[Run]) -> Iterator[str]:
    """The cases in which subjects differ, feature by feature."""
    by_feature = differences(runs)
    total = sum(map(len, by_feature.values()))
    yield f"\n{', '.join(run.name for run in runs)} differ in {counted(total, 'case')}{':' if total else '.'}"
    for feature, cases in by_feature.items():
        yield f"{feature} ({len(cases)})"
        for case, by_status in islice(cases.items(), _MOST_NAMES):
            yield f"  {case}"
            yield from (f"    {status}: {', '.join(names)}" for status, names in by_status.items())
        if len(cases) > _MOST_NAMES:
            yield f"  and {len(cases) - _MOST_NAMES} more"


def _of(run: Run, status: str) -> list[Outcome]:
    return [outcome for outcome in run.outcomes if outcome.status == status]
