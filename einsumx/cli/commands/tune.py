"""``einsumx tune``: time the candidates for a contraction of random operands, and remember the fastest one."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse

from einsumx.cli.arguments import add_density, add_import, add_output, add_problem, count
from einsumx.cli.op_times import random_arrays
from einsumx.cli.output import print_json
from einsumx.cli.side_by_side import Problem
from einsumx.ir.text import brief_text
from einsumx.terminal import progress
from einsumx.tuning import Tuning, tune

ABOUT = """\
Runs up to 8 plans of a contraction on random operands, prints how long each
takes, and remembers the fastest one: later calls of the contraction run it. On a
busy machine nothing is remembered. `einsumx wisdom` shows and forgets what is
remembered.
"""

MORE = """\
--json prints one object:
  tried          an object for each plan: plan (what it copies and computes),
                 estimated and measured seconds; the first is the one that the
                 cost model prefers
  chosen         the position of the fastest
  gain           how many times as fast it is as the first
  is_remembered  whether later calls run it
  doubts         what else the machine did meanwhile
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_problem(parser)
    add_density(parser)
    add_output(parser)
    add_import(parser)
    parser.add_argument("--accumulate", metavar="DTYPE", help="the dtype of products and sums (default: the result's)")
    parser.add_argument("--rounds", type=count, default=3, help="how often each plan takes its turn (default: 3)")


def run(options: argparse.Namespace) -> bool:
    """Tune, and print what was tried. Returns True.

    Raises:
        EinsumxError: the request is wrong, or the framework is missing.
    """
    problem = Problem(options.equation, tuple(options.shapes), options.dtype, options.density)
    with progress(quiet=options.json) as announce:
        announce(f"times the plans of {problem.equation}")
        arrays = random_arrays(options.backend, problem, options.device)
        keywords = {"optimize": options.optimize, "rounds": options.rounds, "accumulate": options.accumulate}
        tuning = tune(problem.equation, *arrays, **keywords)
    if options.json:
        print_json(_data(tuning))
    else:
        print(tuning)
    return True


def _data(tuning: Tuning) -> dict[str, object]:
    return {
        "tried": [
            {"plan": brief_text(each.plan), "estimated": each.estimated, "measured": each.seconds}
            for each in tuning.tried
        ],
        "chosen": tuning.chosen,
        "gain": tuning.gain,
        "is_remembered": tuning.is_remembered,
        "doubts": list(tuning.doubts),
    }
