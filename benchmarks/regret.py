"""The estimate's regret: the time of the plan that the cost model prefers, over that of the best candidate.

``python benchmarks/regret.py --backend numpy torch --random 60 --seed 1 --json FILE`` times every candidate of each
problem in its own steady state, and prints how often and how far the estimate is wrong. A high regret means a wrong
estimate; where a peer is faster than all candidates, one is missing. With ``--classes 1000``, the problems are random
ones of the classes in ``benchmarks/problems.py``. ``benchmarks/fit.py`` fits the rates of the cost model to the times
in the file.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from contenders import FRAMEWORKS, Framework, Function
from names import EINSUMX
from problems import CLASSES, Problem, all_problems, class_problems, operands
from rich.table import Table
from show import console
from summary import geometric_mean

import einsumx
from einsumx.errors import counted
from einsumx.ir.cost import program_seconds
from einsumx.ir.text import brief_text, duration
from einsumx.measuring.steady import steady_times
from einsumx.measuring.trials import MARGIN
from einsumx.runtime.conversion import described, one_device
from einsumx.runtime.execute import run_of
from einsumx.runtime.front import contraction
from einsumx.runtime.measured import candidates_of
from einsumx.runtime.request import Request

WORST = 12
"""Problems with the highest regret that are listed."""

SHORT = 2e-5
"""Seconds of a call below which overhead alone decides; such problems are left out."""


def main() -> None:
    """Measure, print tables, and write the requested file."""
    options = _parser().parse_args()
    if options.classes:
        problems = list(class_problems(options.seed, options.classes))
        problems = [problem for problem in problems if not options.group or problem.group in options.group]
    else:
        groups = all_problems(options.seed, options.random)
        problems = [problem for name in options.group or groups for problem in groups[name] if not problem.gradient]
    problems = problems[:: options.every]
    rows: list[dict[str, Any]] = []
    for framework in FRAMEWORKS:
        if framework.backend in options.backend and einsumx.backends()[framework.backend] and not framework.jitted:
            framework.start()
            rows += _framework_rows(framework, problems, options)
    for name in dict.fromkeys(row["framework"] for row in rows):
        own = [row for row in rows if row["framework"] == name]
        console.print(table(name, own))
        console.print(group_table(name, own))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(framework.backend for framework in FRAMEWORKS))
    add = parser.add_argument
    add("--backend", nargs="+", choices=names, default=["numpy"], help="frameworks (default: numpy)")
    add("--group", nargs="+", choices=[*all_problems(count=0), *CLASSES], help="groups, or classes; all by default")
    add("--classes", type=int, default=0, metavar="N", help="N random problems of the classes, and no others")
    add("--every", type=int, default=1, metavar="N", help="only every Nth problem")
    add("--random", type=int, default=30, metavar="N", help="how many random problems (default: 30)")
    add("--seed", type=int, default=0, help="seed of the random problems")
    add("--most", type=int, default=12, metavar="N", help="candidates of a problem (default: 12)")
    add("--rounds", type=int, default=2, metavar="N", help="turns of each candidate (default: 2)")
    add("--json", type=Path, metavar="FILE", help="write all times to this file")
    return parser


def _framework_rows(framework: Framework, problems: Sequence[Problem], options: Namespace) -> Iterator[dict[str, Any]]:
    for problem in problems:
        if framework.takes(problem):
            with console.status(f"{framework.name}  {problem}"):
                row = measured(framework, problem, options.most, options.rounds)
            if row is not None:
                yield row


def _serves(function: Function, equation: str, arrays: Sequence[Any]) -> bool:
    """Whether a peer takes the operands: PyTorch's einsum takes one dtype alone."""
    try:
        function(equation, *arrays)
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def measured(framework: Framework, problem: Problem, most: int, rounds: int) -> dict[str, Any] | None:
    """The candidates and the peers of a problem with their times; None if the framework lacks such arrays."""
    adapter = framework.adapter
    try:
        arrays = framework.arrays(problem, operands(problem))
    except einsumx.BackendError:
        return None
    signatures = tuple(map(adapter.signature, arrays))
    described_operands = described(adapter, signatures)
    request, device = Request(problem.equation, ()), one_device(adapter, signatures)
    asked = contraction(request, adapter, described_operands, device)
    tried = candidates_of(asked, True, most)
    peers = {
        name: function
        for name, function in framework.einsums().items()
        if name != EINSUMX and _serves(function, problem.equation, arrays)
    }
    runs = [run_of(program, adapter) for program in tried.values()]
    runs += [partial(function, problem.equation) for function in peers.values()]
    times = steady_times(adapter, runs, arrays, rounds)
    # The least of many times is low by chance, so the estimate's choice and the best others are timed again.
    best = min(range(len(tried)), key=lambda place: min(times[place]))
    peer = min(range(len(tried), len(runs)), key=lambda place: min(times[place]), default=0)
    again = steady_times(adapter, [runs[0], runs[best], runs[peer]], arrays, rounds)
    return {
        "framework": framework.name,
        "group": problem.group,
        "problem": str(problem),
        "equation": problem.equation,
        "operands": [asdict(operand) for operand in described_operands],
        "best": best,
        "again": [min(seconds) for seconds in again[:2]],
        "peers": {name: min(seconds) for name, seconds in zip(peers, times[len(tried) :])},
        "best_peer": min(again[2]),
        "candidates": [
            {
                "path": selection.path,
                "steps": selection.steps,
                "plan": brief_text(program),
                "estimated": program_seconds(program, asked.place.traits),
                "seconds": min(seconds),
                "turns": seconds,
            }
            for (selection, program), seconds in zip(tried.items(), times)
        ],
    }


def regrets(rows: Sequence[dict[str, Any]]) -> list[float]:
    """For each problem, the time of the estimate's choice over that of the best candidate; 1 for near-ties."""
    ratios = [row["again"][0] / min(row["again"]) for row in rows]
    return [ratio if ratio > MARGIN else 1.0 for ratio in ratios]


def group_table(name: str, rows: Sequence[dict[str, Any]]) -> Table:
    """By group, the regret, and the best peer's time over that of the estimate's choice and of the best candidate."""
    shown = Table(title=f"{name}: regret, and the best peer's time over einsumx's, by group")
    for heading in ("group", "problems", "regret", "95 %", "worst", "over peer", "at 0.97", "worst", "best candidate"):
        shown.add_column(heading, justify="left" if heading == "group" else "right")
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group and row["candidates"][0]["seconds"] > SHORT]
        if own:
            values = sorted(regrets(own))
            gains = [row["best_peer"] / row["again"][0] for row in own]
            possible = [row["best_peer"] / min(row["again"]) for row in own]
            shown.add_row(
                group,
                str(len(own)),
                *[f"{value:.2f}" for value in (median(values), values[int(0.95 * len(values))], values[-1])],
                f"{geometric_mean(gains):.2f}",
                f"{sum(gain >= 0.97 for gain in gains) / len(gains):.0%}",
                *[f"{value:.2f}" for value in (min(gains), geometric_mean(possible))],
            )
    return shown


def table(name: str, rows: Sequence[dict[str, Any]]) -> Table:
    """The regret on a framework: its mean, how many problems are within bounds, and the worst problems."""
    rows = [row for row in rows if row["candidates"][0]["seconds"] > SHORT]
    values = regrets(rows)
    within = sum(value <= 1.25 for value in values) / max(len(values), 1)
    title = (
        f"{name}: regret {geometric_mean(values):.3f} on {counted(len(values), 'problem')}, {within:.0%} within 1.25"
    )
    shown = Table("regret", "estimate's choice", "best candidate", "problem", title=title)
    for value, row in sorted(zip(values, rows), key=lambda pair: -pair[0])[:WORST]:
        pair = zip((row["candidates"][0], row["candidates"][row["best"]]), row["again"])
        cells = [f"{each['plan']} ({duration(seconds)})" for each, seconds in pair]
        shown.add_row(f"{value:.2f}", *cells, row["problem"])
    return shown


if __name__ == "__main__":
    main()
