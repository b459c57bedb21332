"""Measure what the README and docs/benchmarks.md say of speed, and write it there: ``nox -s speed`` runs it.

``python benchmarks/speed.py --write`` measures the installed frameworks on chemistry and on random problems of a seed
that nobody tuned einsumx to, and writes docs/benchmarks/speed.json and all that is made from it. If a framework needs
its own environment, measure it there with ``--json FILE``, and add it with ``--merge FILE``. ``--backend --merge
docs/benchmarks/speed.json --write`` measures nothing, and writes all again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from contenders import FRAMEWORKS, Framework
from picture import DRAWN
from problems import CLASSES, Problem, all_problems, class_problems
from results import DATA, Data, combined, write
from run import measured
from show import about, console, print_rows

import einsumx
from einsumx.measuring.machine import watched

EACH = 5
"""The random problems of each class."""

SEED = 7919
"""Of the random problems. Whoever has looked at their times, to make einsumx faster, takes another one."""


def main() -> None:
    """Measure, merge, and write."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(each.backend for each in FRAMEWORKS if each.name in DRAWN))
    add = parser.add_argument
    add("--backend", nargs="*", choices=names, default=names, help="frameworks; all that are installed by default")
    add("--seed", type=int, default=SEED, help=f"seed of the random problems (default: {SEED})")
    add("--seconds", type=float, default=0.1, help="of rounds for each problem (default: 0.1)")
    add("--quick", action="store_true", help="every fifth problem alone: a trial, whose figures say little")
    add("--merge", nargs="+", type=Path, default=[], metavar="FILE", help="data of other runs, whose figures count too")
    add("--json", type=Path, metavar="FILE", help="write all data to this file")
    add("--write", action="store_true", help="write the data, the pages and the picture of the project")
    options = parser.parse_args()
    drawn = class_problems(options.seed, EACH * len(CLASSES))
    everyday = sorted(drawn, key=lambda problem: [*CLASSES].index(problem.group))
    problems = [*all_problems(count=0)["chemistry"], *everyday][:: EACH if options.quick else 1]
    installed = einsumx.backends()
    frameworks = [each for each in FRAMEWORKS if each.backend in options.backend and installed[each.backend]]
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in options.merge]
    parts[:0] = [data_of(each, problems, options) for each in frameworks if each.name in DRAWN]
    if not parts:
        parser.error("none of these frameworks is installed")
    data = combined(parts)
    if options.json:
        options.json.write_text(text_of(data), encoding="utf-8")
    if options.write:
        DATA.write_text(text_of(data), encoding="utf-8")
        write(data)


def data_of(framework: Framework, problems: Sequence[Problem], options: Any) -> Data:
    """The data of one framework: the environment, ``einsumx compare``, and all problems."""
    compared = _compared(framework.backend, quick=options.quick)
    framework = replace(framework, tuned=False, spins=False)
    framework.start()
    with watched() as watch:
        rows = list(measured([framework], problems, options.seconds))
    print_rows(rows)
    for reason in watch.reasons:
        console.print(f"WARNING: the machine was busy: {reason}", style="bold yellow")
    run = {"framework": framework.name, **about(), "seed": options.seed, "busy": watch.reasons}
    results = [{"framework": row.framework, **_problem(row.problem), "seconds": _rounded(row.seconds)} for row in rows]
    return {"runs": [run], "compare": compared, "rows": results}


def _compared(backend: str, *, quick: bool) -> list[dict[str, Any]]:
    """The rows of ``einsumx compare``."""
    command = [sys.executable, "-m", "einsumx", "compare", "--json", "--backend", backend]
    done = subprocess.run([*command, *["--batch", "2"] * quick], check=True, stdout=subprocess.PIPE)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    kept = ("backend", "version", "equation", "native_seconds", "einsumx_seconds", "verdict", "error_per_bound")
    return [{key: _rounded({key: row[key]})[key] for key in kept} for row in rows]


def _problem(problem: Problem) -> dict[str, Any]:
    """What tells a problem from others; what is the same for all of them is left out."""
    return {key: value for key, value in asdict(problem).items() if value or key in ("layouts", "dtype")}


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: float(f"{each:.4g}") if isinstance(each, float) else each for key, each in values.items()}


def text_of(data: Data) -> str:
    """The data as JSON, with a line for each row."""
    return "".join(_lines(data))


def _lines(data: Data) -> Iterator[str]:
    for number, (key, rows) in enumerate(data.items()):
        yield f"{',' if number else '{'}\n{json.dumps(key)}: [\n"
        yield ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        yield "\n]"
    yield "\n}\n"


if __name__ == "__main__":
    main()
