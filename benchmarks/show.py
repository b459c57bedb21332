"""What was measured as tables for people and as data for JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from math import exp, log
from typing import Any

from contenders import EINSUMX
from measure import Row, copy_rate, gemm_rate
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from einsumx.explain import quantity
from einsumx.rates import core_count
from einsumx.report import duration, terminal_width

__all__ = ["console", "data", "geometric_mean", "print_rows", "print_spellings", "print_summary"]

PACKAGES = "einsumx numpy torch jax jaxlib mxnet opt_einsum cotengra einsumt"
THREADS = "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS XLA_FLAGS EINSUMX_NUM_THREADS"

console = Console(width=max(terminal_width(), 100), highlight=False, markup=False, emoji=False)


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of which a ratio and its inverse leave nothing.

    >>> geometric_mean([0.5, 2.0, 8.0])
    2.0
    """
    return round(exp(sum(map(log, ratios)) / len(ratios)), 12)


def print_rows(rows: Sequence[Row]) -> None:
    """A table of one group on one framework, and why some contenders have no times."""
    if not rows:
        return
    table = Table(
        box=SIMPLE, pad_edge=False, title=f"{rows[0].framework}: {rows[0].problem.group}", title_justify="left"
    )
    table.add_column("problem", no_wrap=False, ratio=1)
    for column in ("einsumx", "best peer", "ratio", "by hand", "roofline", "copied"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("which peer", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.problem),
            duration(row.seconds[EINSUMX]) if EINSUMX in row.seconds else Text("FAILED", "bold red"),
            duration(row.seconds[row.peer]) if row.peer else "none",
            _ratio(row.ratio),
            _ratio(row.by_hand),
            "" if row.of_roofline is None else f"{row.of_roofline:.0%}",
            quantity(row.copied, "B") if row.copied else "",
            row.peer or "",
        )
    console.print(table)
    notes: dict[str, list[str]] = {}
    for row in rows:
        for name, note in row.notes.items():
            kind = "skipped, hopeless" if note.startswith("skipped") else note
            notes.setdefault(f"{name} {kind}", []).append(row.problem.equation)
    for note, equations in notes.items():
        console.print(f"{note}: {' '.join(dict.fromkeys(equations))}", style="dim")
    console.print(_mean_line(rows))
    console.print()


def print_spellings(rows: Sequence[Row]) -> None:
    """For each contraction that was spelled in several ways, how much slower the slowest spelling is."""
    for (framework, family), group in groupby(rows, key=lambda row: (row.framework, row.problem.family)):
        spelled = list(group)
        names = [name for name in spelled[0].seconds if all(name in row.seconds for row in spelled)]
        if family and len(spelled) > 1:
            times = {name: [row.seconds[name] for row in spelled] for name in names}
            spread = ", ".join(f"{name} {max(found) / min(found):.2f}" for name, found in times.items())
            console.print(f"{framework}  {family}  slowest over fastest of {len(spelled)} spellings: {spread}")
    console.print()


def print_summary(rows: Sequence[Row]) -> None:
    """A line a framework and group, and how to read them."""
    for (framework, group), found in groupby(rows, key=lambda row: (row.framework, row.problem.group)):
        console.print(f"{framework:<12} {group:<10} {_mean_line(list(found))}")
    rates = f"{quantity(gemm_rate('float32'))} multiply-adds of float32, {quantity(copy_rate(), 'B')} copied"
    console.print(
        f"\nMedians of interleaved rounds on {core_count()} cores; means are geometric.\n"
        "Ratio: the time of the best other einsum over einsumx's. By hand: that of a line written for the problem.\n"
        f"Roofline: the part of einsumx's time that the machine's rates explain: {rates} a second."
    )


def _mean_line(rows: Sequence[Row]) -> str:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    lines = [row.by_hand for row in rows if row.by_hand is not None]
    found = "no ratios"
    if ratios:
        behind = sum(ratio < 0.97 for ratio in ratios)
        found = f"mean {geometric_mean(ratios):.2f}x of {len(ratios)}, least {min(ratios):.2f}x, {behind} below 0.97x"
    return found + (f"; by hand {geometric_mean(lines):.2f}x of {len(lines)}, least {min(lines):.2f}x" if lines else "")


def _ratio(ratio: float | None) -> Text:
    if ratio is None:
        return Text("")
    return Text(f"{ratio:.2f}x", "green" if ratio >= 1.03 else "red" if ratio < 0.97 else "")


def data(rows: Sequence[Row]) -> dict[str, Any]:
    """Everything for JSON: times in seconds, memory in bytes."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES.split():
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions,
        "machine": platform.machine(),
        "cores": core_count(),
        "environment": {name: os.environ[name] for name in THREADS.split() if name in os.environ},
        "gemm_rate": gemm_rate("float32"),
        "copy_rate": copy_rate(),
        "rows": [
            {
                "framework": row.framework,
                **asdict(row.problem),
                "seconds": row.seconds,
                "notes": row.notes,
                "best_peer": row.peer,
                "ratio": row.ratio,
                "by_hand": row.by_hand,
                "of_roofline": row.of_roofline,
                "multiply_adds": row.multiply_adds,
                "copied": row.copied,
            }
            for row in rows
        ],
    }
