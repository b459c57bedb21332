"""The command ``einsumx``.

``compare`` measures the installed frameworks, ``explain`` prints and draws a plan and its costs, ``profile`` times its
ops, ``calibrate`` measures the rates by which plans are chosen, ``conformance`` judges a backend, or any einsum
function, by the suite.

Exit status: 0 where all is well, 1 where ``compare`` or ``conformance`` found something wrong, 2 where what was asked
cannot be done.
"""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from einsumx import dtypes
from einsumx.adapters.registry import BUILTIN, backends, get_backend
from einsumx.api import plan
from einsumx.cli.calibrate import Calibration, calibrate
from einsumx.cli.compare import Absent, Problem, attention, compare, is_right, make_case
from einsumx.cli.profile import profile
from einsumx.cli.tables import (
    comparison_data,
    print_calibration,
    print_comparison,
    print_profile,
    profile_data,
)
from einsumx.conformance import options as conformance
from einsumx.errors import EinsumxError, shown
from einsumx.ir.cost import PlanCost
from einsumx.ir.ops import Native
from einsumx.ir.text import summary
from einsumx.plans import BlockedPlan, Plan, plan_cost
from einsumx.runtime.calibration import cache_folder, declared_rates, read_rates, stored_files
from einsumx.runtime.request import limit_bytes
from einsumx.terminal import terminal_width

__all__ = ["main"]

OK, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 130

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
and its peak memory. The framework need not be installed. With --memory-limit,
what is printed is how the contraction is cut into blocks that stay within it;
with --source, a function in plain code of the framework, without einsumx.
--svg and --html draw it besides: the tree of the contraction, what each call
takes and copies, and the memory that is alive meanwhile.
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

With --memory-limit, from shape and dtype on:
  memory_limit               in bytes
  cuts                       by label, into how many blocks it is cut, from the
                             outermost loop to the innermost
  blocks                     of the result
  operand_bytes              of each operand
  reads                      how often each operand is gone through
  read_bytes                 that are read of it in all; 0 if it is in memory
  peak_bytes                 the most that is alive at once besides operands
  seconds                    that it is expected to take
"""

_PROFILE = """\
Runs a plan op by op on random operands, and shows for each op how long it took,
how long the model by which plans are chosen takes it to be, and how near it
comes to the roofline: what arithmetic and memory take at least.
"""

_PROFILE_MORE = """\
Each op is timed again and again on arrays that stay where they are, until its
result is there, so that small arrays are in the processor's caches, and what a
framework would run at the same time runs one by one. JAX compiles plans as
wholes: the plan as a whole takes less than its ops do.

--json prints one object:
  equation, shapes, dtype    what was computed
  backend, device            where
  library, version           what did the work
  cores                      how many processor cores may be used
  rates                      of the backend: seconds, or bytes or multiply-adds
                             a second; see einsumx calibrate
  calibrated                 whether they were measured on this machine
  seconds                    median time of the plan as a whole
  predicted_seconds          of all ops, by the rates
  roofline_seconds           that arithmetic and memory take at least
  roofline_share             these over seconds; null where all is views
  ops                        an object a call: op, call (as explain prints it),
                             shape, dtype, seconds, predicted_seconds,
                             multiply_adds, bytes (read and written; 0 for a
                             view), flops_per_second, bytes_per_second,
                             roofline_seconds, roofline_share (null for a view)
"""

_CALIBRATE = """\
Measures how fast this machine is at what plans are made of, and stores it for
later processes, which then choose their plans by it. It takes some seconds a
backend, wants an otherwise idle machine, and is never needed: without it, the
rates that each backend declares are used.
"""

_CALIBRATE_MORE = """\
A calibration holds for one backend, kind of device, version of the framework
and number of threads (EINSUMX_NUM_THREADS, OMP_NUM_THREADS, ..., or the cores
that the process may use). It is a file in EINSUMX_CACHE, or else in the folder
einsumx where the platform has caches (XDG_CACHE_HOME or ~/.cache on Linux).
Rates are in seconds, or in bytes or multiply-adds a second. JAX compiles plans
as wholes: its rates are those of calls within such a whole.

--json prints one object:
  folder          where calibrations are stored
  calibrations    a list of objects:
    backend, device, framework, threads
                  what it holds for; framework is the framework's version
    declared      the rates that the backend declares
    measured      those that were measured; one that came out implausible, or
                  that must not be used, is not there
With --reset:
  folder          the same
  removed         the names of the files that were there
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (those of the process by default) and return its exit status.

    Raises:
        SystemExit: the arguments are not understood, or ask for help or the version.
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except (EinsumxError, MemoryError) as error:
        _announce("")
        print(f"einsumx {options.command}: error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads has seen enough; what is left to flush at exit goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("einsumx", description="One einsum for every array library.")
    parser.add_argument("--version", action="version", version=f"einsumx {version('einsumx')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def bare(name: str, text: str, more: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=text.partition(".")[0].replace("\n", " "),
            description=text,
            epilog=more,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def command(name: str, text: str, more: str) -> argparse.ArgumentParser:
        made = bare(name, text, more)
        made.add_argument("--device", default="", help="such as cuda; by default the framework's default")
        made.add_argument("--json", action="store_true", help="print JSON, as described below")
        return made

    found = command("compare", _COMPARE, _COMPARE_MORE)
    found.add_argument("--dtype", type=_dtype, default="float32", help="of the operands (default: float32)")
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
    found.add_argument("--dtype", type=_dtype, default="float32", help="of the operands (default: float32)")
    found.add_argument("equation", metavar="EQUATION", help="such as 'ab,bc->ca'; after -- where it starts with ->")
    found.add_argument("shapes", nargs="+", type=_shape, metavar="SHAPE", help=_SHAPES)
    found.add_argument("--backend", default="numpy", metavar="NAME", help="whose plan (default: numpy)")
    found.add_argument(
        "--optimize",
        default="auto",
        metavar="NAME",
        help="what finds the path: auto, greedy, optimal, dp, cotengra, ... (default: auto)",
    )
    found.add_argument(
        "--memory-limit",
        metavar="AMOUNT",
        type=_amount,
        help="what it may have in memory besides its operands, such as 8GiB or 500MB",
    )
    found.add_argument(
        "--stored", action="store_true", help="under a limit: operands are in files, and read block by block"
    )
    found.add_argument(
        "--source", action="store_true", help="print the plan as a function in plain code of the framework instead"
    )
    found.add_argument("--svg", metavar="FILE", type=_file(".svg"), help="draw the plan, as a picture")
    found.add_argument("--html", metavar="FILE", type=_file(".html"), help="the same with text and a table, as a page")
    found.set_defaults(run=_explain)

    found = command("profile", _PROFILE, _PROFILE_MORE)
    found.add_argument("--dtype", type=_dtype, default="float32", help="of the operands (default: float32)")
    found.add_argument("equation", metavar="EQUATION", help="such as 'ab,bc->ca'; after -- where it starts with ->")
    found.add_argument("shapes", nargs="+", type=_shape, metavar="SHAPE", help=_SHAPES)
    found.add_argument("--backend", default="numpy", metavar="NAME", help="what runs it (default: numpy)")
    found.add_argument("--optimize", default="auto", metavar="NAME", help="what finds the path (default: auto)")
    found.set_defaults(run=_profile)

    found = command("calibrate", _CALIBRATE, _CALIBRATE_MORE)
    found.add_argument(
        "--backend", nargs="+", action="extend", metavar="NAME", help="only these (default: all that are installed)"
    )
    either = found.add_mutually_exclusive_group()
    either.add_argument("--show", action="store_true", help="measure nothing, and show what is stored")
    either.add_argument("--reset", action="store_true", help="measure nothing, and remove what is stored")
    found.set_defaults(run=_calibrate)

    found = bare("conformance", conformance.ABOUT, conformance.MORE)
    conformance.add_arguments(found)
    found.set_defaults(run=_conformance)
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
        raise argparse.ArgumentTypeError(f"{shown(text)} is no shape; write {_SHAPES}")
    return tuple(map(int, sizes))


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no positive number")
    return int(text)


def _amount(text: str) -> int:
    try:
        return limit_bytes(text, lambda: None)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no amount of memory; write 8GiB, 500MB, or bytes") from None


def _file(ending: str) -> Callable[[str], Path]:
    """What takes the name of a file that has an ending."""

    def named(text: str) -> Path:
        path = Path(text)
        if path.suffix.lower() != ending:
            raise argparse.ArgumentTypeError(f"{shown(text)} does not end in {ending}")
        return path

    return named


def _dtype(text: str) -> str:
    if dtypes.kind(text) == "O":
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no dtype; write float32, float64, bfloat16, complex64, int32, ..."
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
        memory_limit=options.memory_limit,
        stored=options.stored,
    )
    if options.source and options.json:
        raise EinsumxError("--source prints code and --json prints JSON; leave one of them away")
    for path in filter(None, (options.svg, options.html)):
        try:
            found.draw().save(path)
        except OSError as error:
            raise EinsumxError(f"{path} cannot be written: {error.strerror}") from error
    if options.source:
        print(found.source(), end="")
        return OK
    if isinstance(found, BlockedPlan):
        if options.json:
            _print_json(_blocked_data(found))
        else:
            print(_folded(str(found)))
        return OK
    cost = plan_cost(found)
    if options.json:
        _print_json(_plan_data(found, cost))
        return OK
    totals = {
        **summary(cost),
        "generic kernel": "one or more calls of the framework's own einsum" if _is_generic(found) else "none",
    }
    width = max(map(len, totals))
    print(_folded(str(found)))
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


def _blocked_data(found: BlockedPlan) -> dict[str, Any]:
    return {
        "equation": found.equation.text,
        "backend": found.backend,
        "device": found.device,
        "shapes": [operand.shape for operand in found.operands],
        "shape": found.shape,
        "dtype": found.dtype,
        "memory_limit": found.limit,
        "cuts": found.cuts,
        "blocks": found.blocks,
        "operand_bytes": [operand.nbytes for operand in found.operands],
        "reads": found.reads,
        "read_bytes": found.read_bytes,
        "peak_bytes": found.peak_bytes,
        "seconds": found.seconds,
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
        _print_json(comparison_data(rows, options.dtype, options.device))
    else:
        print_comparison(rows, problems)
    if all(isinstance(row, Absent) for row in rows):
        raise EinsumxError(f"none of {', '.join(names)} could be compared here")
    return OK if all(map(is_right, rows)) else WRONG


def _require_rich() -> None:
    if find_spec("rich") is None:
        raise EinsumxError("tables need rich: pip install 'einsumx[cli]'; or ask for --json")


def _announce(text: str) -> None:
    """Tell a person who waits what is being measured, in a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


# -- profile --------------------------------------------------------------------------------------------------


def _profile(options: argparse.Namespace) -> int:
    if not options.json:
        _require_rich()
    problem = Problem(options.equation, tuple(options.shapes), options.dtype)
    found = profile(problem, options.backend, options.device, options.optimize, announce=_announce)
    _announce("")
    if options.json:
        _print_json(profile_data(found))
    else:
        print_profile(found)
    return OK


# -- calibrate ------------------------------------------------------------------------------------------------


def _calibrate(options: argparse.Namespace) -> int:
    if not (options.json or options.reset):
        _require_rich()
    if options.reset or options.show:
        return _stored(options)
    adapters = [get_backend(name) for name in options.backend or _calibratable()]
    found = [calibrate(adapter, options.device, _announce) for adapter in adapters]
    _announce("")
    return _print_calibrations(found, options.json)


def _calibratable() -> list[str]:
    """The installed backends that stand for one framework."""
    return [name for name, installed in backends().items() if installed and get_backend(name).module]


def _stored(options: argparse.Namespace) -> int:
    """Show or remove the calibrations that are stored, all or those asked for."""
    found = []
    paths = stored_files(options.backend or (), options.device.partition(":")[0])
    for path in paths:
        if options.reset:
            path.unlink(missing_ok=True)
            continue
        try:
            key, rates = read_rates(path)
            found.append(Calibration(key, declared_rates(get_backend(key.backend), key.device), rates))
        except (OSError, ValueError, EinsumxError) as error:
            print(f"{path} is not used: {error}", file=sys.stderr)
    if options.show:
        return _print_calibrations(found, options.json)
    if options.json:
        _print_json({"folder": str(cache_folder()), "removed": [path.name for path in paths]})
    else:
        print(f"{len(paths)} removed from {cache_folder()}")
    return OK


def _print_calibrations(found: Sequence[Calibration], as_json: bool) -> int:
    if as_json:
        data = [{**asdict(each.key), "declared": asdict(each.declared), "measured": each.measured} for each in found]
        _print_json({"folder": str(cache_folder()), "calibrations": data})
        return OK
    for each in found:
        print_calibration(each)
    print(f"{'stored' if found else 'nothing is stored'} in {cache_folder()}")
    return OK


# -- conformance ----------------------------------------------------------------------------------------------


def _conformance(options: argparse.Namespace) -> int:
    from einsumx.conformance.command import judge_all  # imports NumPy, which explaining a plan does not need

    return OK if judge_all(options) else WRONG


# -- what is printed ------------------------------------------------------------------------------------------


def _print_json(data: dict[str, Any]) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def _folded(text: str) -> str:
    """Lines that are too long for the terminal go on in the next, indented."""
    return "\n".join(
        textwrap.fill(line, max(terminal_width(), 20), subsequent_indent=" " * 8, break_long_words=False)
        for line in text.split("\n")
    )
