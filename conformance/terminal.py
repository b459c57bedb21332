"""What a run of the suite shows in a terminal: progress, a table of features, and what is wrong."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from einsumx.conformance.case import Outcome
from einsumx.conformance.results import STATUSES, Run, by_reason, counted, differences, features_of
from einsumx.terminal import terminal_width, timing

__all__ = ["differing", "lines_of", "print_table", "watched"]

_SHOWN = 5
"""Cases of a feature, or of a reason, that are named; of others there is the number."""

_STYLES = {"pass": "green", "fail": "bold red", "deviation": "yellow", "inapplicable": "dim"}


def watched(outcomes: Iterable[Outcome], name: str, total: int) -> Iterator[Outcome]:
    """The outcomes, with a bar that moves as they come, where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield from outcomes
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    failures = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=total, failed="")
        for outcome in outcomes:
            failures += outcome.status == "fail"
            progress.update(task, advance=1, failed=f"{failures} failed" if failures else "")
            yield outcome


def print_table(run: Run) -> None:
    """Print how many outcomes of each status each feature has."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("feature", no_wrap=True)
    for status in STATUSES:
        table.add_column(status, justify="right", no_wrap=True)
    for feature in features_of([run]):
        counts = counted(outcome for outcome in run.outcomes if outcome.feature == feature)
        cells = [Text(str(counts[status] or ""), _STYLES[status]) for status in STATUSES]
        table.add_row(Text(feature, _STYLES["fail"] if counts["fail"] else ""), *cells)
    console = Console(width=terminal_width(), highlight=False, markup=False, emoji=False)
    console.print(table)
    console.print()


def lines_of(run: Run) -> Iterator[str]:
    """What deviates and why, what fails and how to see it, and what it comes to."""
    for reason, outcomes in by_reason(_of(run, "deviation"), lambda outcome: outcome.reason).items():
        yield f"deviation: {reason}"
        yield from _cases([outcome.case for outcome in outcomes])
    for reason, outcomes in by_reason(_of(run, "inapplicable"), lambda outcome: outcome.message).items():
        yield f"does not apply: {reason} ({_number(len(outcomes))})"
    for outcome in _of(run, "fail"):
        yield f"\nFAILED {outcome.case}"
        yield textwrap.indent(outcome.message, "    ")
        if outcome.reproducer:
            yield textwrap.indent(outcome.reproducer, "    > ")
    counts = counted(run.outcomes)
    found = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    yield f"\n{run.name}: {found} of {_number(len(run.outcomes))} in {timing(run.seconds)}"


def differing(runs: Sequence[Run]) -> Iterator[str]:
    """In which cases two of several subjects differ, feature by feature."""
    found = sorted(differences(runs), key=lambda difference: features_of(runs).index(difference.feature))
    yield f"\n{', '.join(run.name for run in runs)} differ in {_number(len(found))}{':' if found else '.'}"
    for feature, group in groupby(found, key=lambda difference: difference.feature):
        several = list(group)
        yield f"{feature} ({len(several)})"
        for difference in several[:_SHOWN]:
            yield f"  {difference.case}"
            for status, subjects in difference.subjects.items():
                yield f"    {status}: {', '.join(subjects)}"
        if len(several) > _SHOWN:
            yield f"  and {len(several) - _SHOWN} more"


def _of(run: Run, status: str) -> list[Outcome]:
    return [outcome for outcome in run.outcomes if outcome.status == status]


def _cases(names: Sequence[str]) -> Iterator[str]:
    yield from (f"    {name}" for name in names[:_SHOWN])
    if len(names) > _SHOWN:
        yield f"    and {len(names) - _SHOWN} more"


def _number(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
