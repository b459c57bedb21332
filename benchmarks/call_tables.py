"""Tables of what ``calls.py`` measured, made from its JSON form, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from summary import Row, Table

from einsumx.errors import counted
from einsumx.ir.text import duration

TITLES = {
    "first": "{}: first calls, and repeated ones in brackets; medians",
    "growing": "{}: extra time of a call with a new size, and a repeated call in brackets; medians",
    "forms": "{}: warm calls on 4×4 in each form",
}


def call_tables(run: dict[str, Any]) -> Iterator[Table]:
    """A table for each group on each framework."""
    for (framework, group), members in groupby(run["calls"], key=lambda row: (row["framework"], row["group"])):
        rows = list(members)
        title = TITLES[group].format(framework)
        yield _forms(title, rows) if group == "forms" else _medians(title, rows)


def page_part(run: dict[str, Any]) -> str:
    """The date, the machine, the versions and the tables, for the documentation."""
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    settings = "".join(f", {name}={value}" for name, value in run["environment"].items())
    about = f"{run['date'][:10]}, {run['machine']}, {counted(run['cores'], 'core')}{settings}: {versions}."
    return "\n\n".join([about, *(table.markdown() for table in call_tables(run))])


def _medians(title: str, rows: Sequence[Row]) -> Table:
    """A row for each problem, a column for each contender; a dash where one does not compute it."""
    names = list(dict.fromkeys(row["contender"] for row in rows))
    times = {(row["problem"], row["contender"]): row for row in rows if row["first"] and row["warm"]}
    cells = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        found = [times.get((problem, name)) for name in names]
        cells.append((problem, *(_median(row) if row else "–" for row in found)))
    return Table(title, ("problems", *names), cells)


def _median(row: Row) -> str:
    """The median first call, or with growing sizes its time beyond that of a repeated call, and the repeated call."""
    subtracted = row["warm"] if row["group"] == "growing" else [0.0] * len(row["first"])
    first = median(first - less for first, less in zip(row["first"], subtracted))
    return f"{_signed(first)} ({duration(median(row['warm']))})"


def _signed(seconds: float) -> str:
    return duration(seconds) if seconds >= 0 else f"-{duration(-seconds)}"


def _forms(title: str, rows: Sequence[Row]) -> Table:
    """A row for each form; a dash where a contender raises or returns something else."""
    names = list(rows[0]["rounds"])
    cells = [(f"`{row['form']}`", *(_time(row, name) for name in names)) for row in rows]
    return Table(title, ("form", *names), cells)


def _time(row: Row, name: str) -> str:
    taken = row["rounds"][name]
    return duration(min(taken)) if taken else "–"
