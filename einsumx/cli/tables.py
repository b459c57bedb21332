"""What ``einsumx compare``, ``profile`` and ``calibrate`` show: tables for people, and data for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Literal

from einsumx.cli.calibrate import Calibration
from einsumx.cli.compare import Absent, Failed, Measured, Problem, Row, is_right
from einsumx.cli.profile import OpProfile, Profile
from einsumx.ir.text import quantity
from einsumx.runtime.threads import core_count
from einsumx.terminal import terminal_width, three_digits, timing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "comparison_data",
    "print_calibration",
    "print_comparison",
    "print_profile",
    "profile_data",
]


def comparison_data(rows: Sequence[Row], dtype: str, device: str) -> dict[str, Any]:
    """A comparison for JSON; the help of ``einsumx compare`` says what the keys mean."""
    return {
        "einsumx": version("einsumx"),
        "dtype": dtype,
        "device": device,
        "cores": core_count(),
        "right": all(map(is_right, rows)),
        "rows": list(map(_row_data, rows)),
    }


def _row_data(row: Row) -> dict[str, Any]:
    match row:
        case Absent(backend, reason, install):
            return {"backend": backend, "status": "absent", "reason": reason, "install": install}
        case Failed():
            return {
                "backend": row.backend,
                "status": "failed",
                "reason": row.reason,
                "library": row.library,
                "version": row.version,
                "equation": row.problem.equation,
                "shapes": row.problem.shapes,
            }
        case Measured():
            return {
                "backend": row.backend,
                "status": "wrong" if row.wrong else "right",
                "reason": row.wrong or row.note,
                "library": row.library,
                "version": row.version,
                "equation": row.problem.equation,
                "shapes": row.problem.shapes,
                "native_seconds": row.native_seconds,
                "einsumx_seconds": row.einsumx_seconds,
                "native_per_einsumx": row.ratio,
                "rounds": row.rounds,
                "error_per_bound": row.error if math.isfinite(row.error) else None,
                "ops": row.ops,
                "generic_kernel": row.uses_generic_kernel,
            }


def print_comparison(rows: Sequence[Row], problems: Sequence[Problem]) -> None:
    """Print what was asked, a table of what was measured, what is absent, and how to read it."""
    from rich.console import Console

    console = Console(width=terminal_width(), highlight=False, markup=False, emoji=False)
    width = max(len(problem.equation) for problem in problems)
    for problem in problems:
        shapes = " ".join(f"({','.join(map(str, shape))})" for shape in problem.shapes)
        console.print(f"{problem.equation:<{width}}  {shapes}  {problem.dtype}")
    console.print()
    measured = [row for row in rows if not isinstance(row, Absent)]
    if measured:
        _print_rows(console, measured, several=len(problems) > 1)
        console.print()
    absent = {row.backend: row for row in rows if isinstance(row, Absent)}
    width = max(map(len, absent), default=0)
    for name, row in absent.items():
        how = f": {row.install}" if row.install else ""
        console.print(f"{name:<{width}}  {row.reason}{how}", soft_wrap=True)
    if absent:
        console.print()
    for remark in _remarks(measured):
        console.print(remark)


def _print_rows(console: Console, rows: Sequence[Measured | Failed], several: bool) -> None:
    """A table with as many columns as the console is wide enough for; where it is too narrow, two lines a row."""
    sections = [[_cells(row) for row in group] for _, group in groupby(rows, key=lambda row: row.backend)]
    columns = [column for column in sections[0][0] if several or column != "equation"]
    unlimited = console.options.update(max_width=10_000)
    for column in ("", "calls", "error"):
        columns = [kept for kept in columns if kept != column]
        table = _table(sections, columns)
        if console.measure(table, options=unlimited).maximum <= console.width:
            console.print(table)
            return
    for row in chain(*sections):
        console.print(f"{row['framework']}  {row['equation']}  {row['result']}")
        console.print(f"  native {row['native']}, einsumx {row['einsumx']}, ratio {row['ratio']}, error {row['error']}")


def _table(sections: Sequence[Sequence[dict[str, str]]], columns: Sequence[str]) -> Table:
    """A section a framework, with its name in the first row, and its version in the second if there is one."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, header_style="dim")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in ("native", "einsumx", "ratio", "error") else "left"
        table.add_column("" if column == "result" else column, justify=justify, no_wrap=True)
    for section in sections:
        name = section[0]["framework"]
        labels = [name] if len(section) == 1 else [*name.split(" ", 1), *[""] * len(section)]
        for row, label in zip(section, labels):
            styles = {"result": "green" if row["result"] == "right" else "bold red", "einsumx": "bold"}
            cells = {**row, "framework": label}
            table.add_row(*(Text(cells[column], styles.get(column, "")) for column in columns))
        if len(section) > 1:
            table.add_section()
    return table


def _cells(row: Measured | Failed) -> dict[str, str]:
    """A row in words, by column."""
    start = {"framework": f"{row.library} {row.version}".rstrip(), "equation": row.problem.equation}
    if isinstance(row, Failed):
        return {**start, "native": "", "einsumx": "", "ratio": "", "error": "", "result": "FAILED", "calls": ""}
    return {
        **start,
        "native": "none" if row.native_seconds is None else timing(row.native_seconds),
        "einsumx": timing(row.einsumx_seconds),
        "ratio": "" if row.ratio is None else f"{three_digits(row.ratio)}x",
        "error": f"{row.error:.1g}",
        "result": "WRONG" if row.wrong else "right",
        "calls": ", ".join(dict.fromkeys(row.ops)),
    }


def _remarks(rows: Sequence[Measured | Failed]) -> Iterator[str]:
    """What the table has no room for, what it comes to, and how to read it."""
    if not rows:
        return
    for row in rows:
        where = f"{row.backend}, {row.problem.equation}"
        if isinstance(row, Failed):
            yield f"{where}: einsumx failed: {row.reason}"
        elif row.wrong:
            yield f"{where}: {row.wrong}"
    measured = [row for row in rows if isinstance(row, Measured)]
    yield from dict.fromkeys(f"{row.backend} has no native time: {row.note}" for row in measured if row.note)
    generic = [f"{row.backend} ({row.problem.equation})" for row in measured if row.uses_generic_kernel]
    right = sum(map(is_right, rows))
    yield f"{right} of {len(rows)} results right."
    yield f"Generic einsum kernels called: {', '.join(generic) or 'none'}."
    yield f"Times: medians of interleaved rounds on {_cores()}. Ratio: native over einsumx."
    yield "Error: the largest of any element, over the bound on rounding; up to 1 is right."


def profile_data(found: Profile) -> dict[str, Any]:
    """A profile for JSON; the help of ``einsumx profile`` says what the keys mean."""
    return {
        "equation": found.plan.equation,
        "shapes": found.problem.shapes,
        "dtype": found.problem.dtype,
        "backend": found.plan.backend,
        "device": found.device,
        "library": found.library,
        "version": found.version,
        "cores": core_count(),
        "rates": asdict(found.rates),
        "calibrated": found.is_calibrated,
        "seconds": found.seconds,
        "predicted_seconds": found.predicted,
        "roofline_seconds": found.floor,
        "roofline_share": found.share,
        "ops": [
            {
                "op": type(op.op).__name__.lower(),
                "call": op.call,
                "shape": op.shape,
                "dtype": op.dtype,
                "seconds": op.seconds,
                "predicted_seconds": op.predicted,
                "multiply_adds": op.multiply_adds,
                "bytes": op.nbytes,
                "flops_per_second": op.flops,
                "bytes_per_second": op.nbytes / op.seconds,
                "roofline_seconds": op.floor,
                "roofline_share": op.share,
            }
            for op in found.ops
        ],
    }


def print_profile(found: Profile) -> None:
    """Print what was run, a table of its ops, and how to read it."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=terminal_width(), highlight=False, markup=False, emoji=False)
    shapes = " ".join(f"({','.join(map(str, shape))})" for shape in found.problem.shapes)
    console.print(f"{found.plan.equation}  {shapes}  {found.problem.dtype}")
    where = f" on {found.device}" if found.device else ""
    console.print(f"{found.library} {found.version}{where}, {_cores()}\n")
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("call", overflow="fold")
    for column in ("measured", "predicted", "rate", "of roofline"):
        table.add_column(column, justify="right", no_wrap=True)
    slowest = max((op.seconds for op in found.ops), default=0.0)
    for op in found.ops:
        style = "bold" if op.seconds == slowest else "" if op.floor else "dim"
        cells = (op.call, timing(op.seconds), timing(op.predicted), _op_rate(op), _percent(op.share))
        table.add_row(*(Text(cell, style) for cell in cells))
    table.add_section()
    each = sum(op.seconds for op in found.ops)
    table.add_row("one by one", timing(each), timing(found.predicted), "", "")
    table.add_row("the plan as a whole", timing(found.seconds), "", "", _percent(found.share))
    console.print(table)
    console.print()
    rates = found.rates
    console.print("Roofline: what arithmetic or memory takes at least, whichever is longer, at")
    memory = quantity(max(rates.stream, rates.copy), "B")
    console.print(f"{quantity(rates.gemm)} multiply-adds of float32 and {memory} a second.")
    source = "measured on this machine" if found.is_calibrated else "declared for a common one"
    console.print(f"These rates, by which times are predicted too, are {source}.")
    if not found.is_calibrated:
        console.print(f"`einsumx calibrate --backend {found.plan.backend}` measures those of this machine.")
    for remark in _profile_remarks(found):
        console.print(remark)


_APART = 1.25
"""How many times as long one time is as another, to be remarked upon."""


def _profile_remarks(found: Profile) -> Iterator[str]:
    """What to make of times that do not add up, and of more than all of the roofline."""
    each = sum(op.seconds for op in found.ops)
    if each > _APART * found.seconds:
        yield "Ops take longer one by one: each is called, waited for and, where the framework compiles,"
        yield "compiled alone, so that a view may be a copy then."
    if found.seconds > _APART * each:
        yield "The plan as a whole takes longer than its ops: alone, they find what they read in caches."
    if any(op.share is not None and op.share > 1 for op in found.ops):
        yield "More than 100 %: caches are faster than memory, or the machine is faster than these rates."


def _op_rate(op: OpProfile) -> str:
    """What an op achieves of that which holds it up: arithmetic or memory."""
    if not op.floor:
        return "view"
    if op.arithmetic >= op.traffic:
        return f"{quantity(op.flops, 'FLOP')}/s"
    return f"{quantity(op.nbytes / op.seconds, 'B')}/s"


def _percent(share: float | None) -> str:
    """A share with two digits at least.

    >>> _percent(0.0283), _percent(0.513), _percent(1.2), _percent(None)
    ('2.8 %', '51 %', '120 %', '')
    """
    if share is None:
        return ""
    return f"{share * 100:.1f} %" if share < 0.0995 else f"{share * 100:.0f} %"


def _cores() -> str:
    return "1 core" if core_count() == 1 else f"{core_count()} cores"


_MEANINGS = {
    "call": "a call, before any work",
    "view": "a reshape that copies nothing",
    "matrix": "a matrix of a batched product, before any work",
    "gemm": "multiply-adds of a large product",
    "stream": "bytes of sums and elementwise products",
    "copy": "bytes of copies in long runs",
    "permute": "bytes of copies that move the innermost axis",
    "run": "a contiguous run of a copy, besides its bytes",
    "native": "multiply-adds of the framework's own einsum",
    "sweep": "the same, sweeping through one operand",
}


def print_calibration(found: Calibration) -> None:
    """Print the rates of a backend, as declared and as measured."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    key = found.key
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, header_style="dim")
    for column in ("rate", "declared", "measured"):
        table.add_column(column, justify="left" if column == "rate" else "right", no_wrap=True)
    table.add_column("")
    for name, meaning in _MEANINGS.items():
        declared, measured = getattr(found.declared, name), found.measured.get(name)
        if declared:
            table.add_row(name, _rate(name, declared), "" if measured is None else _rate(name, measured), meaning)
    console = Console(width=terminal_width(), highlight=False, markup=False, emoji=False)
    threads = "1 thread" if key.threads == 1 else f"{key.threads} threads"
    console.print(f"{key.backend} {key.framework} on {key.device}, {threads}\n")
    console.print(table)
    console.print()


def _rate(name: str, value: float) -> str:
    """A rate with its unit.

    >>> _rate("call", 2.5e-6), _rate("gemm", 98.7e9), _rate("copy", 14e9)
    ('2.50 µs', '98.7 G/s', '14 GB/s')
    """
    if name in ("call", "view", "matrix", "run"):
        return timing(value) if value >= 1e-7 else f"{value * 1e9:.3g} ns"
    return f"{quantity(value, '' if name in ('gemm', 'native', 'sweep') else 'B')}/s"
