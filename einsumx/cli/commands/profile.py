"""``einsumx profile``: the time of each op of a plan next to the cost model's prediction and the roofline."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from einsumx.adapters.entry_points import import_options
from einsumx.cli.arguments import add_density, add_import, add_output, add_problem
from einsumx.cli.op_times import OpProfile, Profile, profile
from einsumx.cli.output import cores_text, print_json, shapes_text
from einsumx.cli.side_by_side import Problem
from einsumx.host.threads import core_count
from einsumx.ir.text import duration, quantity
from einsumx.terminal import console, plain_table, progress, require_rich

_APART = 1.25
"""Times that differ by more than this factor get a remark."""

ABOUT = """\
Runs a plan op by op on random operands, and shows for each op its time, the
time that the planner's cost model predicts, and how near it comes to the
roofline: the least time that arithmetic and memory allow.
"""

MORE = """\
Each op is repeated on the same arrays until its result is complete, and the
least time counts. A warning says if the machine was busy meanwhile. Small
arrays are therefore in the processor's caches, and ops that a framework would
overlap run one by one. JAX compiles whole plans: the plan takes less time than
the sum of its ops.

--json prints one object:
  equation, shapes, dtype,
  density                    the problem
  backend, device            where it ran
  library, version           the library that computed
  cores                      how many processor cores may be used
  rates                      of the backend: seconds, or bytes or multiply-adds
                             a second; see einsumx calibrate
  calibrated                 whether they were measured on this machine
  disturbances               sentences on what kept the machine busy meanwhile
  seconds                    least time of the whole plan
  predicted_seconds          of all ops, from the rates
  roofline_seconds           the least time for arithmetic and memory
  roofline_share             roofline_seconds over seconds; null if all ops are
                             views
  ops                        an object per call: op, call (as explain prints
                             it), shape, dtype, seconds, predicted_seconds,
                             multiply_adds, bytes (read and written; 0 for a
                             view), flops_per_second, bytes_per_second,
                             roofline_seconds, roofline_share (null for a view)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_problem(parser)
    add_density(parser)
    add_output(parser)
    add_import(parser)


def run(options: argparse.Namespace) -> bool:
    """Measure and print. Returns True.

    Raises:
        EinsumxError: the request is wrong, or the framework is missing.
    """
    if not options.json:
        require_rich("--json")
    problem = Problem(options.equation, tuple(options.shapes), options.dtype, options.density)
    with progress(quiet=options.json) as announce:
        measured = profile(problem, options.backend, options.device, options.optimize, announce=announce)
    if options.json:
        print_json(_data(measured))
    else:
        print_profile(measured)
    return True


def _data(measured: Profile) -> dict[str, Any]:
    return {
        "equation": measured.program.equation,
        "shapes": measured.problem.shapes,
        "dtype": measured.problem.dtype,
        "density": measured.problem.density,
        "backend": measured.program.backend,
        "device": measured.device,
        "library": measured.library,
        "version": measured.version,
        "cores": core_count(),
        "rates": asdict(measured.rates),
        "calibrated": measured.is_calibrated,
        "disturbances": measured.disturbances,
        "seconds": measured.seconds,
        "predicted_seconds": measured.predicted,
        "roofline_seconds": measured.floor,
        "roofline_share": measured.share,
        "ops": [
            {
                "op": op.op.name,
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
            for op in measured.ops
        ],
    }


def print_profile(measured: Profile) -> None:
    """Print the problem, a table of the ops, and how to read it."""
    from rich.text import Text

    out = console()
    problem = measured.problem
    stored = f", {problem.density:.3g} of the elements not 0" if problem.density < 1 else ""
    out.print(f"{measured.program.equation}  {shapes_text(problem.shapes)}  {problem.dtype}{stored}")
    where = f" on {measured.device}" if measured.device else ""
    out.print(f"{measured.library} {measured.version}{where}, {cores_text()}\n")
    if measured.disturbances:
        reasons = "; ".join(measured.disturbances)
        out.print(
            f"WARNING: the machine was busy, so these times mean little: {reasons}. "
            "Run it again when nothing else computes.\n",
            style="bold yellow",
        )
    numbers = ("measured", "predicted", "rate", "of roofline")
    table = plain_table("call", *numbers, right=numbers)
    slowest = max((op.seconds for op in measured.ops), default=0.0)
    for op in measured.ops:
        style = "bold" if op.seconds == slowest else "" if op.floor else "dim"
        cells = (op.call, duration(op.seconds), duration(op.predicted), _rate(op), _percent(op.share))
        table.add_row(*(Text(cell, style) for cell in cells))
    table.add_section()
    table.add_row("one by one", duration(measured.sum_of_ops), duration(measured.predicted), "", "")
    table.add_row("the plan as a whole", duration(measured.seconds), "", "", _percent(measured.share))
    out.print(table)
    out.print()
    for remark in _remarks(measured):
        out.print(remark)


def _remarks(measured: Profile) -> Iterator[str]:
    """How to read the roofline, and why times may not add up or exceed the roofline."""
    rates = measured.rates
    memory = quantity(max(rates.stream, rates.copy), "B")
    yield "Roofline: the least time for arithmetic or memory, whichever takes longer, at"
    yield f"{quantity(rates.gemm)} multiply-adds of float32 and {memory} a second."
    source = "were measured on this machine" if measured.is_calibrated else "are declared for a common machine"
    yield f"These rates, which also predict the times, {source}."
    if not measured.is_calibrated:
        options = " ".join([*import_options(), "--backend", measured.program.backend])
        yield f"`einsumx calibrate {options}` measures those of this machine."
    if measured.sum_of_ops > _APART * measured.seconds:
        yield "Ops take longer one by one: each is called, waited for and, if the framework compiles,"
        yield "compiled alone, so that a view may become a copy."
    if measured.seconds > _APART * measured.sum_of_ops:
        yield "The plan as a whole takes longer than its ops: alone, they find their operands in caches."
    if any(op.share is not None and op.share > 1 for op in measured.ops):
        yield "More than 100 %: caches are faster than memory, or the machine is faster than these rates."


def _rate(op: OpProfile) -> str:
    """The rate of an op's bottleneck: arithmetic or memory."""
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
