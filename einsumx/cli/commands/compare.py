"""``einsumx compare``: the frameworks' own einsum and einsumx side by side, as a table or as JSON."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from einsumx import __version__
from einsumx.adapters.entry_points import import_options
from einsumx.adapters.registry import BUILTIN, backends, get_backend
from einsumx.cli.arguments import add_density, add_dtype, add_import, add_output, add_shapes, count
from einsumx.cli.output import cores_text, page_url, print_json, shapes_text
from einsumx.cli.side_by_side import (
    Absent,
    Failed,
    Measured,
    Problem,
    Row,
    attention,
    compare,
    is_right,
    is_tie,
    make_trial,
)
from einsumx.errors import EinsumxError
from einsumx.host.threads import core_count
from einsumx.ir.text import duration, three_digits
from einsumx.runtime.equations import sized_equation
from einsumx.terminal import console, plain_table, progress, require_rich

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ABOUT = """\
Runs a contraction on every installed framework, by the framework's own einsum
and by einsumx in turn, and checks every element of einsumx's results against
numpy.einsum in wider arithmetic. Without an equation: the three attention
problems of apache/mxnet#18043, 8 heads of 128 units, 100 queries, 50 keys.
"""

MORE = """\
Differences below 10 % are noise and count as ties. Each function is timed in
turns of its own, after threads of the other one have stopped spinning; the
times are the least of all turns. Where the machine was busy meanwhile, a
warning says why, a row has a ? instead of a verdict, and the summary does not
count it.
The error is the largest of any element, over the bound on rounding that
einsumx promises: up to 1 is right. The exit status is 1 if a result is wrong
or einsumx fails, and 2 if nothing could be compared.

--json prints one object:
  einsumx, dtype, device  version and request
  cores                   how many processor cores may be used
  right                   whether every result is right
  warnings                a sentence on each row that is not conclusive
  rows                    a list of objects, told apart by their status:
    backend               the framework
    status                "right", "wrong", "failed" (einsumx raised), "absent"
    reason                why it is wrong, failed or absent, or why there is no
                          native time; else ""
    install               if absent: how to install it, or ""
                          and, if not absent:
    library, version      the library that computed: array_api_strict for
                          array_api
    equation, shapes      the problem
                          and, if not failed either:
    native_seconds        least time of the framework's own einsum, or null
    einsumx_seconds       least time of einsumx.einsum
    native_per_einsumx    their ratio, or null
    verdict               "faster", "tie", "slower", or "not conclusive" if the
                          machine was busy; "" without a native time
    rounds                how many turns each had
    spread                the median over the least of the turns' times
    disturbances          sentences on what kept the machine busy
    error_per_bound       the largest error in units of the bound; null if it
                          is not finite
    ops                   the kinds of calls in the plan, in order
    generic_kernel        whether one of them is the framework's own einsum
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_output(parser)
    add_import(parser)
    add_dtype(parser)
    add_density(parser)
    parser.add_argument("equation", nargs="?", metavar="EQUATION", help="instead of the three problems")
    add_shapes(parser, nargs="*")
    parser.add_argument(
        "--backend",
        nargs="+",
        action="extend",
        metavar="NAME",
        help=f"compare only these, of {', '.join(BUILTIN)} and those that packages add (after the shapes)",
    )
    parser.add_argument("--batch", type=count, metavar="N", help="batch size of the three problems (default: 64)")
    parser.add_argument(
        "--rounds",
        type=count,
        metavar="N",
        help="turns of each function (default: for 1.6 s; 3 at least, if that takes less than 10 s)",
    )


def run(options: argparse.Namespace) -> bool:
    """Measure and print. Returns whether all results are right.

    Raises:
        EinsumxError: the request is wrong, or nothing could be compared.
    """
    if options.equation is not None and options.batch is not None:
        raise EinsumxError("--batch is for the three problems; the shapes of your own equation say its batch size")
    if options.equation is not None and not options.shapes:
        raise EinsumxError("an equation needs shapes; write einsumx compare 'ij,jk->ik' 2,3 3,4")
    names = options.backend or list(backends())
    for name in names:
        get_backend(name)
    if not options.json:
        require_rich("--json")
    if options.equation is None:
        problems = [
            replace(problem, density=options.density) for problem in attention(options.batch or 64, options.dtype)
        ]
    else:
        problems = [Problem(options.equation, tuple(options.shapes), options.dtype, options.density)]
    for problem in problems:
        sized_equation(problem.equation, problem.shapes)  # reject mistakes before any work
    with progress(quiet=options.json) as announce:
        announce("computing the expected results with numpy.einsum")
        with ThreadPoolExecutor(core_count()) as pool:
            trials = list(pool.map(make_trial, problems))
        rows = list(compare(trials, names, device=options.device, rounds=options.rounds, announce=announce))
    if options.json:
        print_json(_data(rows, options))
    else:
        print_comparison(rows, problems)
    if all(isinstance(row, Absent) for row in rows):
        raise EinsumxError(f"none of {', '.join(names)} can be compared here; install one of them")
    return all(map(is_right, rows))


def _warnings(rows: Sequence[Row]) -> list[str]:
    """A sentence on each row that a busy machine disturbed."""
    return [
        f"{row.backend}, {row.problem.equation}: {'; '.join(row.disturbances)}"
        for row in rows
        if isinstance(row, Measured) and row.disturbances
    ]


# -- JSON -------------------------------------------------------------------------------------------------------


def _data(rows: Sequence[Row], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "einsumx": __version__,
        "dtype": options.dtype,
        "device": options.device,
        "cores": core_count(),
        "right": all(map(is_right, rows)),
        "warnings": _warnings(rows),
        "rows": list(map(_row_data, rows)),
    }


def _row_data(row: Row) -> dict[str, Any]:
    if isinstance(row, Absent):
        return {"backend": row.backend, "status": "absent", "reason": row.reason, "install": row.install}
    data = {
        "backend": row.backend,
        "status": "failed",
        "reason": "",
        "library": row.library,
        "version": row.version,
        "equation": row.problem.equation,
        "shapes": row.problem.shapes,
    }
    if isinstance(row, Failed):
        return {**data, "reason": row.reason}
    return {
        **data,
        "status": "wrong" if row.wrong else "right",
        "reason": row.wrong or row.note,
        "native_seconds": row.native_seconds,
        "einsumx_seconds": row.einsumx_seconds,
        "native_per_einsumx": row.ratio,
        "verdict": row.verdict,
        "rounds": row.rounds,
        "spread": row.spread,
        "disturbances": row.disturbances,
        "error_per_bound": row.error if math.isfinite(row.error) else None,
        "ops": row.ops,
        "generic_kernel": row.uses_generic_kernel,
    }


# -- the table --------------------------------------------------------------------------------------------------


def print_comparison(rows: Sequence[Row], problems: Sequence[Problem]) -> None:
    """Print the problems, warnings, a table of the measurements, absent frameworks, a summary, and what to try next."""
    out = console()
    width = max(len(problem.equation) for problem in problems)
    for problem in problems:
        out.print(f"{problem.equation:<{width}}  {shapes_text(problem.shapes)}  {problem.dtype}")
    out.print()
    present = [row for row in rows if not isinstance(row, Absent)]
    warnings = _warnings(rows)
    if warnings:
        out.print(
            f"WARNING: the machine was busy in {len(warnings)} of {len(present)} rows, which are marked with a ?. "
            "Run it again when nothing else computes.",
            style="bold yellow",
        )
        for warning in warnings:
            out.print(f"  {warning}")
        out.print()
    if present:
        _print_rows(out, present, several=len(problems) > 1)
        out.print()
    absent = {row.backend: row for row in rows if isinstance(row, Absent)}
    width = max(map(len, absent), default=0)
    for name, row in absent.items():
        how = f": {row.install}" if row.install else ""
        out.print(f"{name:<{width}}  {row.reason}{how}", soft_wrap=True)
    if absent:
        out.print()
    for remark in _remarks(present):
        out.print(remark)
    if present:
        out.print("\nTry next:")
        for line in _next_steps(present[0]):
            out.print(f"  {line}")


def _print_rows(out: Console, rows: Sequence[Measured | Failed], several: bool) -> None:
    """A table with the columns that fit the console; two lines a row if even the most important ones do not."""
    sections = [[_cells(row) for row in group] for _, group in groupby(rows, key=lambda row: row.backend)]
    columns = [column for column in sections[0][0] if several or column != "equation"]
    unlimited = out.options.update(max_width=10_000)
    for dropped in ("", "calls", "error"):
        columns = [column for column in columns if column != dropped]
        table = _table(sections, columns)
        if out.measure(table, options=unlimited).maximum <= out.width:
            out.print(table)
            return
    for row in (row for section in sections for row in section):
        out.print(f"{row['framework']}  {row['equation']}  {row['result']}")
        out.print(f"  native {row['native']}, einsumx {row['einsumx']}, ratio {row['ratio']}, error {row['error']}")


def _table(sections: Sequence[Sequence[dict[str, str]]], columns: Sequence[str]) -> Table:
    """A section per framework: its name in the first row, and its version in the second if there is one."""
    from rich.text import Text

    headings = ["" if column == "result" else column for column in columns]
    table = plain_table(*headings, right=("native", "einsumx", "ratio", "error"))
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
    """The text of a row by column."""
    cells = {"framework": f"{row.library} {row.version}".rstrip(), "equation": row.problem.equation}
    if isinstance(row, Failed):
        return {**cells, "native": "", "einsumx": "", "ratio": "", "error": "", "result": "FAILED", "calls": ""}
    return {
        **cells,
        "native": "none" if row.native_seconds is None else duration(row.native_seconds),
        "einsumx": duration(row.einsumx_seconds),
        "ratio": _ratio(row),
        "error": f"{row.error:.1g}",
        "result": "WRONG" if row.wrong else "right",
        "calls": ", ".join(dict.fromkeys(row.ops)),
    }


def _ratio(row: Measured) -> str:
    """The ratio of a row, or the verdict that it is a tie; with a ? if it is not conclusive."""
    if row.ratio is None:
        return ""
    if row.verdict == "tie":
        return "tie"
    return f"{three_digits(row.ratio)}x{' ?' if row.disturbances else ''}"


def _remarks(rows: Sequence[Measured | Failed]) -> Iterator[str]:
    """Messages about single rows, the summary, and how to read the table."""
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
    yield f"{sum(map(is_right, rows))} of {len(rows)} results right."
    timed = [row for row in measured if row.verdict]
    if timed:
        yield _summary(timed)
    generic = [f"{row.backend} ({row.problem.equation})" for row in measured if row.uses_generic_kernel]
    yield f"Generic einsum kernels called: {', '.join(generic) or 'none'}."
    yield f"Times: the least of several turns on {cores_text()}. Ratio: native over einsumx."
    yield "Error: the largest of any element, over the bound on rounding; up to 1 is right."


def _summary(rows: Sequence[Measured]) -> str:
    """The gain of einsumx on each framework, in the rows that are conclusive."""
    clear = [row for row in rows if row.verdict != "not conclusive"]
    if not clear:
        return "Not conclusive: the machine was busy in every row."
    gains = [_gain([*group]) for _, group in groupby(clear, key=lambda row: row.library)]
    text = f"einsumx is {', '.join(gains)} (geometric means)."
    if len(clear) == len(rows):
        return f"On this machine, {text}"
    count = len(rows) - len(clear)
    return f"Not conclusive in {count} of {len(rows)} rows, as the machine was busy. In the others, {text}"


def _gain(rows: Sequence[Measured]) -> str:
    """How fast einsumx is on one framework, beside its own einsum."""
    ratio = geometric_mean(row.ratio for row in rows if row.ratio is not None)
    how = "as fast" if is_tie(ratio) else f"{three_digits(ratio)} times as fast"
    return f"{how} as {rows[0].library}'s own einsum"


def _next_steps(row: Measured | Failed) -> Iterator[str]:
    """Commands and pages that a new user may try next."""
    problem = row.problem
    shapes = [",".join(map(str, sizes)) or "-" for sizes in problem.shapes]
    dtype = ["--dtype", problem.dtype] if problem.dtype != "float32" else []
    options = [*import_options(), "--backend", row.backend, *dtype]
    separator = ["--"] if problem.equation.startswith("-") else []
    command = ["einsumx", "explain", *options, *separator, problem.equation, *shapes]
    yield f"{shlex.join(command)}"
    yield f'with einsumx.patched("{row.backend}"): ...   (your existing calls run einsumx)'
    yield page_url("tutorial.md")
