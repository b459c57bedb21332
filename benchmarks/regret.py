"""The estimate's regret: the time of the plan that the cost model prefers, over that of the best candidate.

``python benchmarks/regret.py --backend numpy torch --random 60 --seed 1 --json FILE`` times every candidate of each
problem in its own steady state, and prints how often and how far the estimate is wrong. A high regret means a wrong
estimate; if the best candidate is slow too, one is missing. ``benchmarks/fit.py`` fits the rates of the cost model to
the times in the file.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contenders import FRAMEWORKS, Framework
from problems import Problem, all_problems, operands
from rich.table import Table
from show import console
from summary import geometric_mean

import einsumx
from einsumx.ir.text import brief_text, duration
from einsumx.runtime.execute import executable
from einsumx.runtime.measured import candidates_of
from einsumx.runtime.prepare import described, one_device, setting_of
from einsumx.runtime.request import Contraction, Options
from einsumx.runtime.steady import steady_times
from einsumx.runtime.trials import MARGIN

__all__ = ["measured", "regrets", "table"]

WORST = 12
"""Problems with the highest regret that are listed."""

SHORT = 2e-5
"""Seconds of a call below which overhead alone decides; such problems are left out."""


def main() -> None:
    """Measure, print tables, and write the requested file."""
    options = _parser().parse_args()
    groups = all_problems(options.seed, options.random)
    problems = [problem for name in options.group or groups for problem in groups[name] if not problem.gradient]
    problems = problems[:: options.every]
    rows: list[dict[str, Any]] = []
    for framework in FRAMEWORKS:
        if framework.backend in options.backend and einsumx.backends()[framework.backend] and not framework.jitted:
            framework.start()
            rows += _framework_rows(framework, problems, options)
    for name in dict.fromkeys(row["framework"] for row in rows):
        console.print(table(name, [row for row in rows if row["framework"] == name]))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(framework.backend for framework in FRAMEWORKS))
    add = parser.add_argument
    add("--backend", nargs="+", choices=names, default=["numpy"], help="frameworks (default: numpy)")
    add("--group", nargs="+", choices=list(all_problems(count=0)), help="groups of problems; all by default")
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


def measured(framework: Framework, problem: Problem, most: int, rounds: int) -> dict[str, Any] | None:
    """The candidates of a problem with their times; None if the framework lacks such arrays, or there is no choice."""
    adapter = framework.adapter
    try:
        arrays = framework.arrays(problem, operands(problem))
    except einsumx.BackendError:
        return None
    signatures = tuple(map(adapter.signature, arrays))
    described_operands = described(adapter, signatures)
    contraction = Contraction(adapter, problem.equation, described_operands, one_device(adapter, signatures), Options())
    tried = candidates_of(contraction, *setting_of(contraction), most)
    if len(tried) < 2:
        return None
    runs = [executable(each.program, adapter) for each in tried]
    times = steady_times(adapter, runs, arrays, rounds)
    # The least of many times is low by chance, so the estimate's choice and the best candidate are timed again.
    best = min(range(len(runs)), key=lambda place: min(times[place]))
    again = steady_times(adapter, [runs[0], runs[best]], arrays, rounds)
    return {
        "framework": framework.name,
        "group": problem.group,
        "problem": str(problem),
        "equation": problem.equation,
        "operands": [asdict(operand) for operand in described_operands],
        "best": best,
        "again": [min(seconds) for seconds in again],
        "candidates": [
            {
                "path": each.selection.path,
                "steps": each.selection.steps,
                "plan": brief_text(each.program),
                "estimated": each.seconds,
                "seconds": min(seconds),
                "turns": seconds,
            }
            for each, seconds in zip(tried, times)
        ],
    }


def regrets(rows: Sequence[dict[str, Any]]) -> list[float]:
    """For each problem, the time of the estimate's choice over that of the best candidate; 1 for near-ties."""
    ratios = [row["again"][0] / min(row["again"]) for row in rows]
    return [ratio if ratio > MARGIN else 1.0 for ratio in ratios]


def table(name: str, rows: Sequence[dict[str, Any]]) -> Table:
    """The regret on a framework: its mean, how many problems are within bounds, and the worst problems."""
    rows = [row for row in rows if row["candidates"][0]["seconds"] > SHORT]
    values = regrets(rows)
    within = sum(value <= 1.25 for value in values) / max(len(values), 1)
    title = f"{name}: regret {geometric_mean(values):.3f} on {len(values)} problems, {within:.0%} within 1.25"
    shown = Table("regret", "estimate's choice", "best candidate", "problem", title=title)
    for value, row in sorted(zip(values, rows), key=lambda pair: -pair[0])[:WORST]:
        pair = zip((row["candidates"][0], row["candidates"][row["best"]]), row["again"])
        cells = [f"{each['plan']} ({duration(seconds)})" for each, seconds in pair]
        shown.add_row(f"{value:.2f}", *cells, row["problem"])
    return shown


if __name__ == "__main__":
    main()
