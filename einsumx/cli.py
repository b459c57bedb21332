"""The command ``einsumx``: ``compare`` measures the installed frameworks, ``explain`` prints a plan and its costs.

Exit status: 0 where all is well, 1 where ``compare`` found a wrong result, 2 where what was asked cannot be done.
"""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Literal

from einsumx import dtypes
from einsumx.api import plan
from einsumx.compare import Absent, Failed, Measured, Problem, Row, attention, compare, make_case
from einsumx.cost import PlanCost, plan_cost
from einsumx.errors import EinsumxError
from einsumx.explain import plan_text, summary
from einsumx.ops import Native
from einsumx.plan import Plan
from einsumx.registry import BUILTIN, backends, get_backend

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["main"]

OK, WRONG, REFUSED = 0, 1, 2

_SHAPES = "sizes with commas, such as 64,100,8; - or () for a scalar"

_COMPARE = """\
Runs a contraction on every installed framework, by the framework's own einsum
and by einsumx in turn, and checks every element of einsumx's results against
numpy.einsum in wider arithmetic. Without an equation: the three attention
problems of apache/mxnet#18043, 8 heads of 128 units, 100 queries, 50 keys.
"""

_COMPARE_MORE = """\
The error is the largest of any element, over the bound on rounding that
einsumx promises: up to 1 is right. The exit status is 1 where a result is
wrong or einsumx fails, and 2 where nothing could be compared.

--json prints one object:
  einsumx, dtype, device  version, and what was asked for
  cores                   how many processor cores may be used
  right                   whether every result is right
  rows                    a list of objects, told apart by their status:
    backend               the framework
    status                "right", "wrong", "failed" (einsumx raised), "absent"
    reason                what is wrong, why it failed or is absent, why there
                          is no native time; else ""
    install               if absent: how to install it, or ""
                          and, if not absent:
    library, version      what did the work: array_api_strict for array_api
    equation, shapes      the problem
                          and, if not failed either:
    native_seconds        median time of the framework's own einsum, or null
    einsumx_seconds       median time of einsumx.einsum
    native_per_einsumx    their ratio, or null
    rounds                how many times each was timed
    error_per_bound       the largest error in units of the bound; null where
                          it is not finite
    ops                   the kinds of calls in the plan, in order
    generic_kernel        whether one of them is the framework's own einsum
"""

_EXPLAIN = """\
Prints the plan that einsumx would run, its arithmetic, what it copies and why,
and its peak memory. The framework need not be installed.
"""

_EXPLAIN_MORE = """\
--json prints one object:
  equation, backend, device  what was planned
  shapes                     of the operands
  shape, dtype               of the result
  path                       the operands that each pairwise contraction takes
  multiply_adds              of the whole plan; one is two floating-point
                             operations
  copied_bytes               written by copies and casts
  operand_bytes              of all operands together
  result_bytes               of the result
  peak_bytes                 the most that is alive at once: operands,
                             intermediates and result
  generic_kernel             whether a call is the framework's own einsum
  ops                        an object a call: op, out (the slot that it
                             writes), what it reads and how, shape, dtype,
                             multiply_adds, copied_bytes, allocated_bytes; the
                             operands are the first slots
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (those of the process by default) and return its exit status.

    Raises:
        SystemExit: the arguments are not understood, or ask for help or the version.
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (EinsumxError, MemoryError) as error:
        print(f"einsumx {options.command}: error: {error}", file=sys.stderr)
        return REFUSED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("einsumx", description="One einsum for every array library.")
    parser.add_argument("--version", action="version", version=f"einsumx {version('einsumx')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, more: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=text.partition(".")[0].replace("\n", " "),
            description=text,
            epilog=more,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.add_argument("--dtype", type=_dtype, default="float32", help="of the operands (default: float32)")
        made.add_argument("--device", default="", help="such as cuda; by default the framework's default")
        made.add_argument("--json", action="store_true", help="print JSON, as described below")
        return made

    found = command("compare", _COMPARE, _COMPARE_MORE)
    found.add_argument("equation", nargs="?", metavar="EQUATION", help="in place of the three problems")
    found.add_argument("shapes", nargs="*", type=_shape, metavar="SHAPE", help=_SHAPES)
    found.add_argument(
        "--backend",
        nargs="+",
        action="extend",
        metavar="NAME",
        help=f"compare only these, of {', '.join(BUILTIN)} and those that packages add (after the shapes)",
    )
    found.add_argument("--batch", type=_count, metavar="N", help="batch size of the three problems (default: 64)")
    found.add_argument("--rounds", type=_count, metavar="N", help="time each call N times (default: for a second)")
    found.set_defaults(run=_compare)

    found = command("explain", _EXPLAIN, _EXPLAIN_MORE)
    found.add_argument("equation", metavar="EQUATION", help="such as 'ab,bc->ca'; after -- where it starts with ->")
    found.add_argument("shapes", nargs="+", type=_shape, metavar="SHAPE", help=_SHAPES)
    found.add_argument("--backend", default="numpy", metavar="NAME", help="whose plan (default: numpy)")
    found.add_argument(
        "--optimize",
        default="auto",
        metavar="NAME",
        help="what finds the path: auto, greedy, optimal, dp, cotengra, ... (default: auto)",
    )
    found.set_defaults(run=_explain)
    return parser


def _shape(text: str) -> tuple[int, ...]:
    """A shape as people write it, and as plans print it.

    >>> _shape("64,100,8"), _shape("(5,)"), _shape("7"), _shape("-"), _shape("()")
    ((64, 100, 8), (5,), (7,), (), ())
    """
    bare = text.strip()
    if bare == "-":
        return ()
    if bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
        if not bare:
            return ()
    sizes = bare.removesuffix(",").split(",")
    if not all(size.strip().isdecimal() for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write {_SHAPES}")
    return tuple(map(int, sizes))


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _dtype(text: str) -> str:
    if dtypes.kind(text) == "O":
        raise argparse.ArgumentTypeError(
            f"{text!r} is no dtype; write float32, float64, bfloat16, complex64, int32, ..."
        )
    return text


# -- explain --------------------------------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> int:
    found = plan(
        options.equation,
        *options.shapes,
        backend=options.backend,
        device=options.device,
        dtypes=options.dtype,
        optimize=options.optimize,
    )
    cost = plan_cost(found)
    if options.json:
        _print_json(_plan_data(found, cost))
        return OK
    totals = {
        **summary(cost),
        "generic kernel": "one or more calls of the framework's own einsum" if _is_generic(found) else "none",
    }
    width = max(map(len, totals))
    print(_folded(plan_text(found)))
    print()
    print(_folded("\n".join(f"{name:<{width}}  {value}" for name, value in totals.items())))
    return OK


def _is_generic(found: Plan) -> bool:
    return any(isinstance(op, Native) for op in found.ops)


def _plan_data(found: Plan, cost: PlanCost) -> dict[str, Any]:
    return {
        "equation": found.equation,
        "backend": found.backend,
        "device": found.device,
        "dtype": found.dtype,
        "shapes": [operand.shape for operand in found.operands],
        "shape": found.shape,
        "path": found.path,
        "multiply_adds": cost.multiply_adds,
        "copied_bytes": cost.copied,
        "operand_bytes": cost.input_bytes,
        "result_bytes": cost.output_bytes,
        "peak_bytes": cost.peak_bytes,
        "generic_kernel": _is_generic(found),
        "ops": [
            {
                "op": type(op).__name__.lower(),
                **asdict(op),
                "shape": entry.shape,
                "dtype": entry.dtype,
                "multiply_adds": entry.multiply_adds,
                "copied_bytes": entry.copied,
                "allocated_bytes": entry.allocated,
            }
            for op, entry in zip(found.ops, cost.ops)
        ],
    }


# -- compare --------------------------------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> int:
    if options.equation is not None and options.batch is not None:
        raise EinsumxError("--batch is for the three problems; the shapes of your own equation say its batch size")
    names = options.backend or list(backends())
    for name in names:
        get_backend(name)
    if not options.json:
        _require_rich()  # before minutes are spent on measuring
    if options.equation is None:
        problems = attention(options.batch or 64, options.dtype)
    else:
        problems = (Problem(options.equation, tuple(options.shapes), options.dtype),)
    _announce("numpy.einsum computes what must come out")
    cases = [make_case(problem) for problem in problems]
    rows = list(compare(cases, names, device=options.device, rounds=options.rounds, announce=_announce))
    _announce("")
    if options.json:
        _print_json(_comparison_data(rows, options))
    else:
        _print_comparison(rows, problems)
    if all(isinstance(row, Absent) for row in rows):
        raise EinsumxError(f"none of {', '.join(names)} could be compared here")
    return OK if all(map(_is_right, rows)) else WRONG


def _require_rich() -> None:
    if find_spec("rich") is None:
        raise EinsumxError("tables need rich: pip install 'einsumx[cli]'; or ask for --json")


def _announce(text: str) -> None:
    """Tell a person who waits what is being measured, in a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


def _is_right(row: Row) -> bool:
    match row:
        case Measured():
            return not row.wrong
        case Failed():
            return False
        case Absent():
            return True


def _comparison_data(rows: Sequence[Row], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "einsumx": version("einsumx"),
        "dtype": options.dtype,
        "device": options.device,
        "cores": _cores(),
        "right": all(map(_is_right, rows)),
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


def _print_json(data: dict[str, Any]) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def _cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _print_comparison(rows: Sequence[Row], problems: Sequence[Problem]) -> None:
    from rich.console import Console

    console = Console(width=_width(), highlight=False, markup=False, emoji=False)
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
        "native": "none" if row.native_seconds is None else _time(row.native_seconds),
        "einsumx": _time(row.einsumx_seconds),
        "ratio": "" if row.ratio is None else f"{_three_digits(row.ratio)}x",
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
    right = sum(map(_is_right, rows))
    yield f"{right} of {len(rows)} results right" + (f", {len(rows) - right} WRONG." if right < len(rows) else ".")
    yield f"Generic einsum kernels called: {', '.join(generic) or 'none'}."
    cores = "1 core" if _cores() == 1 else f"{_cores()} cores"
    yield f"Times: medians of interleaved rounds on {cores}. Ratio: native over einsumx."
    yield "Error: the largest of any element, over the bound on rounding; up to 1 is right."


def _time(seconds: float) -> str:
    """Three digits and a unit.

    >>> _time(2.2519), _time(0.01499), _time(3.2e-6)
    ('2.25 s', '15.0 ms', '3.20 µs')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale * 0.9995:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds * 1e6)} µs"


def _three_digits(number: float) -> str:
    """At least three digits, never an exponent.

    >>> _three_digits(2.2519), _three_digits(14.99), _three_digits(1234.5)
    ('2.25', '15.0', '1234')
    """
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}"


def _width() -> int:
    """The terminal's columns; where the output goes elsewhere, enough for everything."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 120


def _folded(text: str) -> str:
    """Lines that are too long for the terminal go on in the next, indented."""
    return "\n".join(
        textwrap.fill(line, max(_width(), 20), subsequent_indent=" " * 8, break_long_words=False)
        for line in text.split("\n")
    )
