"""Time einsumx beside its peers on every installed framework: ``python benchmarks/run.py --help``.

Nothing is asserted about times. Every result is checked; a peer's that is wrong is shown as wrong, and its time is
not counted.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from itertools import groupby
from pathlib import Path

from contenders import FRAMEWORKS
from measure import Row, make_case, measure
from picture import picture
from problems import all_problems
from show import console, data, print_rows, print_spellings, print_summary

import einsumx


def main() -> None:
    """Measure what the command line asks for, print it, and write it where it says."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(framework.backend for framework in FRAMEWORKS))
    groups = list(all_problems(0))
    parser.add_argument("--backend", nargs="+", choices=names, default=names, help="frameworks; all by default")
    parser.add_argument("--group", nargs="+", choices=groups, default=groups, help="groups of problems")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only problems whose description has this in it")
    parser.add_argument("--quick", action="store_true", help="0.4 seconds of rounds a problem, not 2")
    parser.add_argument("--seed", type=int, default=0, help="of the group 'random': another seed, other problems")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw a picture there")
    asked = parser.parse_args()

    installed = einsumx.backends()
    chosen = [found for found in FRAMEWORKS if found.backend in asked.backend and installed[found.backend]]
    for framework in chosen:
        framework.start()
    rows: list[Row] = []
    for group in asked.group:
        problems = [problem for problem in all_problems(asked.seed)[group] if asked.filter in str(problem)]
        found: list[Row] = []
        for problem in problems:
            takers = [framework for framework in chosen if framework.takes(problem)]
            if not takers:
                continue
            case = make_case(problem)
            for framework in takers:
                with console.status(f"{framework.name}  {problem}"):
                    row = measure(framework, case, 0.4 if asked.quick else 2.0)
                if row is not None:
                    found.append(row)
        found.sort(key=lambda row: [framework.name for framework in chosen].index(row.framework))
        for _, one in groupby(found, key=lambda row: row.framework):
            print_rows(list(one))
        print_spellings(found)
        rows += found
    if not rows:
        parser.error("no problem fits, or none of the frameworks is installed")
    rows.sort(key=lambda row: [framework.name for framework in chosen].index(row.framework))
    print_summary(rows)
    if asked.json:
        asked.json.write_text(json.dumps(data(rows), indent=1) + "\n")
    if asked.svg:
        asked.svg.write_text(picture([data(rows)]))


if __name__ == "__main__":
    main()
