"""Time einsumx and its peers on every installed framework: ``python benchmarks/run.py --help``.

Every result is checked; the time of a peer with a wrong result is not counted. Nothing is asserted about times.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from contenders import FRAMEWORKS, Framework
from measure import Row, measure, prepare
from problems import Problem, all_problems
from show import THREADS, console, data, print_reading, print_rows, print_tables
from summary import comparison, summaries

import einsumx
from einsumx.host.files import read_text
from einsumx.ir.strict import parse


def main() -> None:
    """Measure, print tables, and write the requested files."""
    parser = _parser()
    options = parser.parse_args()
    before = _read(parser, options.compare) if options.compare else None
    if options.threads:
        _restart_with(options.threads)
    installed = einsumx.backends()
    chosen = [each for each in FRAMEWORKS if each.backend in options.backend and installed[each.backend]]
    for framework in chosen:
        framework.start()
    groups = all_problems(options.seed, options.random or 30)
    names = options.group or (["random"] if options.random else list(groups))
    rows: list[Row] = []
    for group in names:
        problems = [problem for problem in groups[group] if options.filter in str(problem)]
        group_rows = sorted(measured(chosen, problems, options.seconds), key=lambda row: _place(chosen, row))
        for _, framework_rows in groupby(group_rows, key=lambda row: row.framework):
            print_rows(list(framework_rows))
        rows = sorted([*rows, *group_rows], key=lambda row: _place(chosen, row))
        if options.json and rows:  # whatever happens to the next group
            options.json.write_text(json.dumps(data(rows), indent=1) + "\n")
    if not rows:
        parser.error("no problem matches, or none of the frameworks is installed")
    run = data(rows)
    print_tables(summaries(run))
    if before:
        print_tables(comparison(run, before))
    print_reading(run)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(framework.backend for framework in FRAMEWORKS))
    add = parser.add_argument
    add("--backend", nargs="+", choices=names, default=names, help="frameworks; all by default")
    add("--group", nargs="+", choices=list(all_problems(count=0)), help="groups of problems; all by default")
    add("--filter", default="", metavar="TEXT", help="only problems whose description contains TEXT")
    add("--random", type=int, metavar="N", help="N random problems, instead of all groups unless --group is used")
    add("--seed", type=int, default=0, help="seed of the random problems")
    add("--seconds", type=float, default=0.5, help="time for each problem (default: 0.5)")
    add("--quick", dest="seconds", action="store_const", const=0.2, help="the same as --seconds 0.2")
    add("--threads", type=int, metavar="N", help="let every framework use N threads, on N cores")
    add("--json", type=Path, metavar="FILE", help="write all results to this file")
    add("--compare", type=Path, metavar="OLD.json", help="show what became slower or faster since that run")
    return parser


def _read(parser: ArgumentParser, path: Path) -> dict[str, Any]:
    """A run that ``--json`` wrote; errors show before minutes are spent."""
    try:
        run = parse(read_text(path, 1 << 28), 1 << 28)
        if not isinstance(run, dict) or not isinstance(run.get("rows"), list):
            raise ValueError("it has no rows")
    except (OSError, ValueError) as error:
        parser.error(f"{path} does not hold a run of the benchmarks: {error}")
    return run


def _restart_with(threads: int) -> None:
    """Restart this process with the environment variables for a number of threads, read by frameworks at import."""
    variables = {name: str(threads) for name in THREADS}
    if all(os.environ.get(name) == value for name, value in variables.items()):
        return
    if hasattr(os, "sched_setaffinity"):  # for frameworks that count the cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ.update(variables)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def measured(chosen: Sequence[Framework], problems: Sequence[Problem], seconds: float) -> Iterator[Row]:
    """A row for each problem on each framework that takes it."""
    for problem in problems:
        frameworks = [framework for framework in chosen if framework.takes(problem)]
        if not frameworks:
            continue
        prepared = prepare(problem)
        for framework in frameworks:
            with console.status(f"{framework.name}  {problem}"):
                row = measure(framework, prepared, seconds)
            if row is not None:
                yield row


def _place(chosen: list[Framework], row: Row) -> int:
    return [framework.name for framework in chosen].index(row.framework)


if __name__ == "__main__":
    main()
