"""Results as tables for the terminal, and as data for JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import summary
from measure import Row, copy_rate, gemm_rate
from names import EINSUMX
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from einsumx.host.threads import core_count
from einsumx.ir.text import duration, quantity
from einsumx.terminal import terminal_width

PACKAGES = (
    "einsumx numpy torch cupy cupy-cuda12x cupy-cuda13x cutensor-cu12 cutensor-cu13 jax jaxlib mxnet opt_einsum "
    "cotengra einsumt pytblis etops sesum"
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "EINSUMX_NUM_THREADS", "TBLIS_NUM_THREADS")
"""Environment variables for the number of threads."""

SETTINGS = ("XLA_FLAGS", "OPENBLAS_CORETYPE", "MXNET_ENGINE_TYPE", "EINSUMX_EFFORT")
"""Other environment variables that change times."""

console = Console(width=max(terminal_width(), 100), highlight=False, markup=False, emoji=False)


def print_rows(rows: Sequence[Row]) -> None:
    """Print a table of one group on one framework, and why some contenders have no times."""
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
            kind = "skipped, too slow" if note.startswith("skipped") else note
            notes.setdefault(f"{name} {kind}", []).append(row.problem.equation)
    for note, equations in notes.items():
        console.print(f"{note}: {' '.join(dict.fromkeys(equations))}", style="dim")
    console.print(_mean_line(rows))
    console.print()


def print_tables(tables: Iterable[summary.Table]) -> None:
    """Print the summaries of a run."""
    for each in tables:
        console.print(each.title, style="italic")
        table = Table(box=SIMPLE, pad_edge=False)
        for place, column in enumerate(each.columns):
            table.add_column(column, justify="right" if place else "left", no_wrap=bool(place))
        for row in each.rows:
            table.add_row(*row)
        console.print(table)


def print_reading(run: dict[str, Any]) -> None:
    """Print how to read the tables."""
    rates = f"{quantity(run['gemm_rate'])} multiply-adds of float32, {quantity(run['copy_rate'], 'B')} copied"
    console.print(
        f"Minima over rounds, each contender in its own steady state; cores: {run['cores']}; means are geometric.\n"
        "Ratio: the time of the best other einsum over einsumx's. By hand: the same for a hand-written line.\n"
        "After a product: each call comes right after an np.matmul, whose threads go on spinning.\n"
        f"Roofline: the least possible time at the machine's rates, over einsumx's time: {rates} a second."
    )


def _mean_line(rows: Sequence[Row]) -> str:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    lines = [row.by_hand for row in rows if row.by_hand is not None]
    line = "no ratios"
    if ratios:
        slower = sum(ratio < summary.EVEN for ratio in ratios)
        mean = summary.geometric_mean(ratios)
        line = f"mean {mean:.2f}x of {len(ratios)}, least {min(ratios):.2f}x, {slower} below {summary.EVEN}x"
    if lines:
        line += f"; by hand {summary.geometric_mean(lines):.2f}x of {len(lines)}, least {min(lines):.2f}x"
    return line


def _ratio(ratio: float | None) -> Text:
    if ratio is None:
        return Text("")
    return Text(f"{ratio:.2f}x", "green" if ratio >= 1.03 else "red" if ratio < summary.EVEN else "")


def about() -> dict[str, Any]:
    """Date, versions, machine and settings of a run, for JSON."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES.split():
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions,
        "machine": _processor(),
        "cores": core_count(),
        "environment": {name: os.environ[name] for name in (*THREADS, *SETTINGS) if name in os.environ},
    }


def data(rows: Sequence[Row]) -> dict[str, Any]:
    """A run for JSON: times in seconds, memory in bytes."""
    return {
        **about(),
        "gemm_rate": gemm_rate("float32"),
        "copy_rate": copy_rate(),
        "rows": [
            {
                "framework": row.framework,
                **asdict(row.problem),
                "seconds": row.seconds,
                "after_product": row.after_product,
                "spread": row.spread,
                "notes": row.notes,
                "best_peer": row.peer,
                "ratio": row.ratio,
                "by_hand": row.by_hand,
                "of_roofline": row.of_roofline,
                "floor": row.floor,
                "result_bytes": row.result_bytes,
                "multiply_adds": row.multiply_adds,
                "copied": row.copied,
            }
            for row in rows
        ],
    }


def _processor() -> str:
    """The processor's name if the system reports it, otherwise its architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
