"""``einsumx explain``: print or draw a plan and its costs, without running it."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import textwrap
from dataclasses import replace
from typing import Any, cast

from einsumx.adapters.registry import get_backend
from einsumx.api import plan_of
from einsumx.cli.arguments import add_import, add_output, add_problem, amount, file_ending_in, shape
from einsumx.cli.output import print_json
from einsumx.errors import EinsumxError, counted
from einsumx.ir import ops
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.operand import Operand
from einsumx.ir.text import in_columns, summary
from einsumx.plans import BlockedPlan, ChunkedPlan, Plan, as_chunked_plan, plan_cost
from einsumx.runtime.equations import sized_equation
from einsumx.runtime.front import contraction
from einsumx.runtime.request import Request
from einsumx.semirings import BUILTIN
from einsumx.terminal import terminal_width
from einsumx.tuning import ESTIMATED, choice_text

ABOUT = """\
Prints the plan that einsumx would run, its arithmetic, what it copies and why,
and its peak memory. The framework need not be installed. With --memory-limit,
prints how the contraction is tiled to stay within the limit; with --source, a
function in plain code of the framework, without einsumx. --svg and --html also
draw the plan: the contraction tree, the cost of each call, and memory over time.
"""

MORE = """\
--json prints one object:
  equation, backend, device  the request
  shapes                     of the operands
  shape, dtype               of the result
  path                       the operands of each pairwise contraction
  multiply_adds              of the whole plan; one is two floating-point
                             operations
  copied_bytes               written by copies and casts
  operand_bytes              of all operands together
  result_bytes               of the result
  peak_bytes                 the most memory alive at once: operands,
                             intermediates and result
  generic_kernel             whether a call is the framework's own einsum
  choice                     whether the plan was estimated or measured, when,
                             and what that gained
  ops                        an object per call: op, out (the slot that it
                             writes), its sources and parameters, shape, dtype,
                             multiply_adds, copied_bytes, allocated_bytes; the
                             operands are the first slots

With --memory-limit, from shape and dtype on:
  memory_limit               in bytes
  cuts                       the number of blocks by label, from the outermost
                             loop to the innermost
  blocks                     of the result
  operand_bytes              of each operand
  reads                      how often each operand is read as a whole
  read_bytes                 bytes read from each; 0 if it is in memory
  peak_bytes                 the most memory alive at once besides operands
  seconds                    expected time

With --backend dask, from shape and dtype on:
  path                       the operands of each pairwise contraction
  chunks                     of the result, along each axis
  tasks                      besides those of the operands
  moved_bytes                the most bytes that may move between workers
  largest_chunk_bytes        of operands, result and values between
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_problem(parser, unknown=True)
    add_output(parser)
    add_import(parser)
    parser.add_argument(
        "--chunks",
        nargs="+",
        type=shape,
        metavar="SIZES",
        help="for --backend dask: the size of chunks along each axis, for each operand; by default a chunk for each",
    )
    parser.add_argument(
        "--accumulate", metavar="DTYPE", help="the dtype of products and sums, such as float64 (default: the result's)"
    )
    parser.add_argument(
        "--memory-limit",
        metavar="AMOUNT",
        type=amount,
        help="memory besides the operands, such as 8GiB or 500MB",
    )
    parser.add_argument(
        "--stored", action="store_true", help="under a limit: operands are in files, and read block by block"
    )
    parser.add_argument(
        "--out",
        action="store_true",
        help="as with out=: the result is written to an array; under a limit, to a file",
    )
    parser.add_argument(
        "--semiring",
        choices=sorted(BUILTIN),
        metavar="NAME",
        help=f"what sums and products mean: {', '.join(BUILTIN)}",
    )
    parser.add_argument(
        "--source", action="store_true", help="print the plan as a function in plain code of the framework instead"
    )
    parser.add_argument("--svg", metavar="FILE", type=file_ending_in(".svg"), help="draw the plan as a picture")
    parser.add_argument(
        "--html", metavar="FILE", type=file_ending_in(".html"), help="write a page with the picture and the text"
    )


def run(options: argparse.Namespace) -> bool:
    """Print the plan. Returns True.

    Raises:
        EinsumxError: the request is wrong, or a picture cannot be written.
    """
    if options.backend == "dask" or options.chunks:
        return _explain_chunks(options)
    if options.memory_limit is None and options.stored:
        raise EinsumxError("--stored has an effect only with --memory-limit")
    algebra = BUILTIN[options.semiring].algebra if options.semiring else PLUS_TIMES
    request = Request(
        options.equation,
        options.shapes,
        out=sized_equation(options.equation, options.shapes).shape if options.out else None,
        accumulate=options.accumulate,
        optimize=options.optimize,
        backend=options.backend,
        memory_limit=options.memory_limit,
        algebra=algebra,
    )
    planned = cast("Plan | BlockedPlan", plan_of(request, options.device, options.dtype, options.stored))
    if options.source and options.json:
        raise EinsumxError("--source prints code and --json prints JSON; pass one of them")
    for path in filter(None, (options.svg, options.html)):
        try:
            planned.draw().save(path)
        except OSError as error:
            raise EinsumxError(f"{path} cannot be written: {error.strerror}") from error
    if options.source:
        print(planned.source(), end="")
    elif options.json:
        data = _blocked_data(planned) if isinstance(planned, BlockedPlan) else _plan_data(planned, options.optimize)
        print_json(data)
    else:
        print(_folded(str(planned)))
        if not isinstance(planned, BlockedPlan):
            print(f"\n{_folded(_totals(planned, options.optimize))}")
    return True


_NOT_IN_CHUNKS = ("memory_limit", "stored", "out", "source", "svg", "html", "device")
"""The options that are not for contractions of Dask arrays."""


def _explain_chunks(options: argparse.Namespace) -> bool:
    from einsumx.backends.dask.choices import program_of_sizes

    if options.backend != "dask":
        raise EinsumxError("--chunks is for Dask arrays; pass --backend dask")
    for name in _NOT_IN_CHUNKS:
        if getattr(options, name):
            raise EinsumxError(f"--{name.replace('_', '-')} is not for Dask arrays; omit it")
    chunks = options.chunks or options.shapes
    if len(chunks) != len(options.shapes):
        raise EinsumxError(
            f"--chunks has {counted(len(chunks), 'entry', 'entries')} for {counted(len(options.shapes), 'operand')}; "
            "pass one for each"
        )
    equation = sized_equation(options.equation, options.shapes)
    if 0 in equation.sizes:
        raise EinsumxError("a summed label has size 0, so the result is zeros and there is nothing to plan")
    numpy, described = get_backend("numpy"), tuple([Operand(shape, options.dtype) for shape in options.shapes])
    algebra = BUILTIN[options.semiring].algebra if options.semiring else PLUS_TIMES
    request = Request(options.equation, (), accumulate=options.accumulate, optimize=options.optimize, algebra=algebra)
    asked = contraction(request.named(numpy), numpy, described, "")
    program = program_of_sizes(equation, chunks, (asked.dtype, asked.compute_dtype), options.optimize)
    planned = as_chunked_plan(replace(program, algebra=algebra))
    if options.json:
        print_json(_chunked_data(planned))
    else:
        print(_folded(str(planned)))
    return True


def _is_generic(plan: Plan) -> bool:
    """Whether a call is the framework's own einsum although that is not its product."""
    traits = get_backend(plan.backend).traits(plan.device)
    return any(isinstance(op, ops.Native) and traits.einsum_factor(op.equation) is None for op in plan.ops)


def _totals(plan: Plan, optimize: str) -> str:
    kernel = "one or more calls of the framework's own einsum" if _is_generic(plan) else "none"
    totals = {**summary(plan_cost(plan)), "generic kernel": kernel}
    choice = choice_text(plan, optimize)
    if choice != ESTIMATED:
        totals["choice"] = choice
    return in_columns(list(totals.items()), "")


def _plan_data(plan: Plan, optimize: str) -> dict[str, Any]:
    cost = plan_cost(plan)
    return {
        "equation": plan.equation,
        "backend": plan.backend,
        "device": plan.device,
        "dtype": plan.dtype,
        "shapes": [operand.shape for operand in plan.operands],
        "shape": plan.shape,
        "path": plan.path,
        "multiply_adds": cost.multiply_adds,
        "copied_bytes": cost.copied,
        "operand_bytes": cost.input_bytes,
        "result_bytes": cost.output_bytes,
        "peak_bytes": cost.peak_bytes,
        "generic_kernel": _is_generic(plan),
        "choice": choice_text(plan, optimize),
        "ops": [
            {
                "op": op.name,
                **op.fields,
                "shape": entry.result.shape,
                "dtype": entry.result.dtype,
                "multiply_adds": entry.multiply_adds,
                "copied_bytes": entry.copied,
                "allocated_bytes": entry.allocated,
            }
            for op, entry in zip(plan.ops, cost.ops)
        ],
    }


def _blocked_data(plan: BlockedPlan) -> dict[str, Any]:
    return {
        "equation": plan.equation,
        "backend": plan.backend,
        "device": plan.device,
        "shapes": [operand.shape for operand in plan.operands],
        "shape": plan.shape,
        "dtype": plan.dtype,
        "memory_limit": plan.limit,
        "cuts": plan.cuts,
        "blocks": plan.blocks,
        "operand_bytes": [operand.nbytes for operand in plan.operands],
        "reads": plan.reads,
        "read_bytes": plan.read_bytes,
        "peak_bytes": plan.peak_bytes,
        "seconds": plan.seconds,
    }


def _chunked_data(plan: ChunkedPlan) -> dict[str, Any]:
    return {
        "equation": plan.equation.text,
        "backend": "dask",
        "shapes": plan.equation.shapes,
        "shape": plan.shape,
        "dtype": plan.dtype,
        "path": plan.path,
        "chunks": plan.chunks,
        "tasks": plan.tasks,
        "moved_bytes": plan.moved_bytes,
        "largest_chunk_bytes": plan.largest_chunk_bytes,
    }


def _folded(text: str) -> str:
    """Wrap lines at the width of the terminal, with an indent."""
    return "\n".join(
        textwrap.fill(line, max(terminal_width(), 20), subsequent_indent=" " * 8, break_long_words=False)
        for line in text.split("\n")
    )
