"""Time einsumx beside its peers on every installed framework: ``python benchmarks/run.py --help``.

Nothing is asserted about times. Every result is checked; a peer's that is wrong is shown as wrong, and its time is
not counted.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from contenders import FRAMEWORKS, Framework
from measure import Row, measure, prepare
from picture import picture
from problems import Problem, all_problems
from show import THREADS, console, data, print_reading, print_rows, print_tables
from summary import comparison, summaries

import einsumx
from einsumx.ir.strict import parse
from einsumx.runtime.files import read_text


def main() -> None:
    """Measure what the command line asks for, print it, and write it where it says."""
    parser = _parser()
    asked = parser.parse_args()
    before = _read(parser, asked.compare) if asked.compare else None
    if asked.threads:
        _restart_with(asked.threads)
    installed = einsumx.backends()
    chosen = [found for found in FRAMEWORKS if found.backend in asked.backend and installed[found.backend]]
    for framework in chosen:
        framework.start()
    groups = all_problems(asked.seed, asked.random or 30)
    names = asked.group or (["random"] if asked.random else list(groups))
    rows: list[Row] = []
    for group in names:
        problems = [problem for problem in groups[group] if asked.filter in str(problem)]
        found = sorted(_measured(chosen, problems, asked.seconds), key=lambda row: _place(chosen, row))
        for _, one in groupby(found, key=lambda row: row.framework):
            print_rows(list(one))
        rows += found
    if not rows:
        parser.error("no problem fits, or none of the frameworks is installed")
    rows.sort(key=lambda row: _place(chosen, row))
    run = data(rows)
    print_tables(summaries(run))
    if before:
        print_tables(comparison(run, before))
    print_reading(run)
    if asked.json:
        asked.json.write_text(json.dumps(run, indent=1) + "\n")
    if asked.svg:
        asked.svg.write_text(picture([run]))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(framework.backend for framework in FRAMEWORKS))
    add = parser.add_argument
    add("--backend", nargs="+", choices=names, default=names, help="frameworks; all by default")
    add("--group", nargs="+", choices=list(all_problems(count=0)), help="groups of problems; all by default")
    add("--filter", default="", metavar="TEXT", help="only problems whose description has this in it")
    add("--random", type=int, metavar="N", help="N problems by chance, in place of all groups unless --group is given")
    add("--seed", type=int, default=0, help="of the problems by chance: another seed, other problems")
    add("--seconds", type=float, default=1.0, help="of rounds for each problem (default: 1)")
    add("--quick", dest="seconds", action="store_const", const=0.2, help="the same as --seconds 0.2")
    add("--threads", type=int, metavar="N", help="let every framework use N threads, on N cores")
    add("--json", type=Path, metavar="FILE", help="write everything there")
    add("--svg", type=Path, metavar="FILE", help="draw a picture there")
    add("--compare", type=Path, metavar="OLD.json", help="show what became slower or faster since that run")
    return parser


def _read(parser: ArgumentParser, path: Path) -> dict[str, Any]:
    """A run that ``--json`` wrote, before minutes are spent."""
    try:
        found = parse(read_text(path, 1 << 28), 1 << 28)
        if not isinstance(found, dict) or not isinstance(found.get("rows"), list):
            raise ValueError("it has no rows")
    except (OSError, ValueError) as error:
        parser.error(f"{path} does not hold a run of the benchmarks: {error}")
    return found


def _restart_with(threads: int) -> None:
    """Start anew in an environment of so many threads, which frameworks read when they are imported."""
    wanted = {name: str(threads) for name in THREADS}
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        return
    if hasattr(os, "sched_setaffinity"):  # for frameworks that count the cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ.update(wanted)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def _measured(chosen: list[Framework], problems: list[Problem], seconds: float) -> Iterator[Row]:
    for problem in problems:
        takers = [framework for framework in chosen if framework.takes(problem)]
        if not takers:
            continue
        case = prepare(problem)
        for framework in takers:
            with console.status(f"{framework.name}  {problem}"):
                row = measure(framework, case, seconds)
            if row is not None:
                yield row


def _place(chosen: list[Framework], row: Row) -> int:
    return [framework.name for framework in chosen].index(row.framework)


if __name__ == "__main__":
    main()
