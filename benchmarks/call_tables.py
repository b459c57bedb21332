"""Tables of what ``calls.py`` measured, made from its JSON form, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median, quantiles
from typing import Any

from summary import Row, Table

from einsumx.terminal import timing

__all__ = ["call_tables"]

TITLES = {
    "first": "{}: first calls",
    "growing": "{}: extra time of a call with a new size, over the same call once more",
    "forms": "{}: warm calls in each form, and how many times faster than the framework's own einsum",
}


def call_tables(run: dict[str, Any]) -> Iterator[Table]:
    """A table for each group on each framework."""
    for (framework, group), members in groupby(run["calls"], key=lambda row: (row["framework"], row["group"])):
        rows = list(members)
        title = TITLES[group].format(framework)
        yield _forms(title, rows) if group == "forms" else _quartiles(title, rows)


def _quartiles(title: str, rows: Sequence[Row]) -> Table:
    """A row for each contender that computes a problem; the problem is in the first."""
    cells = []
    for problem, members in groupby(rows, key=lambda row: row["problem"]):
        times = {row["contender"]: _times(row) for row in members if len(row["first"]) > 1}
        warm = {row["contender"]: median(row["warm"]) for row in rows if row["problem"] == problem and row["warm"]}
        for place, (name, taken) in enumerate(times.items()):
            figures = (min(taken), *quantiles(taken, n=4, method="inclusive"), warm[name])
            ours = median(times.get("einsumx", [0.0]))
            ratio = f"{figures[2] / ours:.2f}" if ours > 0 and name != "einsumx" else ""
            cells.append(("" if place else problem, name, str(len(taken)), *map(_signed, figures), ratio))
    columns = ("problems", "contender", "number", "least", "25 %", "median", "75 %", "warm", "/ einsumx's")
    return Table(title, columns, cells)


def _times(row: Row) -> list[float]:
    """First calls; with growing sizes, their time beyond that of a repeated call."""
    subtracted = row["warm"] if row["group"] == "growing" else [0.0] * len(row["first"])
    return [first - less for first, less in zip(row["first"], subtracted)]


def _signed(seconds: float) -> str:
    return timing(seconds) if seconds >= 0 else f"-{timing(-seconds)}"


def _forms(title: str, rows: Sequence[Row]) -> Table:
    """A row for each form; a dash where a contender raises or returns something else."""
    names = list(rows[0]["rounds"])
    cells = []
    for row in rows:
        spread = max(median(taken) / min(taken) for taken in row["rounds"].values() if taken) - 1
        size = f"{row['size']}×{row['size']}"
        cells.append((f"`{row['form']}`", size, *(_time(row, name) for name in names), f"{spread:.0%}"))
    return Table(title, ("form", "size", *names, "spread"), cells)


def _time(row: Row, name: str) -> str:
    least = {name: min(taken) for name, taken in row["rounds"].items() if taken}
    if name not in least:
        return "–"
    ratio = f" {least[row['own']] / least[name]:.2f}x" if row["own"] in least and name != row["own"] else ""
    return timing(least[name]) + ratio
