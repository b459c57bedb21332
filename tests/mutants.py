"""Mutation testing: small faults are made in the source, one at a time, and the tests have to notice each.

    python tests/mutants.py --number 80 --seed 1 --json mutants.json
    python tests/mutants.py --number 80 --seed 1 --again mutants.json -- --einsumx-level full

The first command runs every test once to learn which lines each test runs, then judges each mutant by the tests that
run the changed line, until one fails. A line that only imports run is judged by all tests. Tests that fail without a
mutant judge none. The second command judges only the mutants that survived before. Arguments after ``--`` go to pytest.
pytest-cov must be installed.

Tools such as mutmut and cosmic-ray need the source in the folder of its import name, unlike ``backends/`` here.
"""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

import coverage

ROOT = Path(__file__).parents[1]
SOURCES = (
    *(f"einsumx/{package}" for package in ("planner", "ir", "runtime", "blocked", "streaming")),
    *("backends/numpy", "backends/torch"),
)
LEFT_OUT = shutil.ignore_patterns(".git", ".nox", "__pycache__", "build", "dist", "site", "*.egg-info")
LONGEST = 600
"""Seconds after which a mutant that never ends counts as noticed."""

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True)
class Mutant:
    """One change of the source: a file of the checkout, the place of the node that is replaced, and its new text."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.text}"

    def apply(self, source: str) -> str:
        """The source with the change."""
        lines = source.encode().splitlines(keepends=True)
        before = b"".join(lines[: self.line - 1]) + lines[self.line - 1][: self.column]
        after = lines[self.end_line - 1][self.end_column :] + b"".join(lines[self.end_line :])
        return (before + self.text.encode() + after).decode()


def changes(node: ast.AST) -> Iterator[ast.AST | str]:
    """What a node becomes in each of its mutants."""
    match node:
        case ast.Compare(left, [operator, *others], comparators) if type(operator) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(operator)](), *others], comparators)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(operator)](), right)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name]), arguments, [] if CALLS[name] == "list" else keywords)
        case ast.Expr(ast.Call()):
            yield "pass"
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None"


def visited(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose changes can matter: no annotations, decorators, formatted strings or imports for types."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            if isinstance(child, ast.AST) and not for_types and not isinstance(child, ast.JoinedStr):
                yield from visited(child)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    for node in visited(ast.parse(path.read_text(encoding="utf-8"))):
        for change in changes(node):
            text = change if isinstance(change, str) else f"({ast.unparse(change)})"
            name = path.relative_to(ROOT).as_posix()
            yield Mutant(name, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text)


def drawn(number: int, seed: int) -> list[Mutant]:
    """So many mutants of the whole source; the same for the same source and seed."""
    paths = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return random.Random(seed).sample([mutant for path in paths for mutant in mutants_of(path)], number)


def run_pytest(tree: Path, *options: str, limit: float | None = None) -> int:
    """The exit status of pytest in a copy of the checkout, on that copy's source; 1 if it takes too long."""
    every = "not gpu and not package"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", every, *options]
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'tests'}"}
    with (tree / "pytest.log").open("w") as log:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 1


def lines_of_tests(tree: Path, arguments: list[str]) -> dict[str, dict[int, list[str]]]:
    """The tests that run each line of each file; one that only imports run has the test ``""``."""
    options = [f"--cov={source}" for source in SOURCES]
    failed = tree / "failed.txt"
    options += ["-p", "mutants", f"--failed-tests={failed}", "--cov-context=test", "--cov-report=", "-n", "auto"]
    run_pytest(tree, *options, *arguments)
    left_out = set(failed.read_text(encoding="utf-8").splitlines())
    print(*(f"fails without any mutant, and is left out: {test}" for test in sorted(left_out)), sep="\n")
    data = coverage.CoverageData(str(tree / ".coverage"))
    data.read()
    found = {}
    for file in data.measured_files():
        lines = data.contexts_by_lineno(file)
        tests = {line: sorted({name.partition("|")[0] for name in names} - left_out) for line, names in lines.items()}
        found[Path(file).relative_to(tree).as_posix()] = tests
    return found


def survives(mutant: Mutant, tests: list[str], tree: Path, arguments: list[str]) -> bool:
    """Whether no test notices the mutant, which is in the copy only meanwhile."""
    path = tree / mutant.file
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(source), encoding="utf-8")
    selection = tree / "selection.json"
    selection.write_text(json.dumps(tests))
    options = ["-x", "-p", "mutants", f"--only-these={selection}"]
    files = sorted({test.partition("::")[0] for test in tests if test})
    try:
        return run_pytest(tree, *options, *arguments, *([] if "" in tests else files), limit=LONGEST) == 0
    finally:
        path.write_text(source, encoding="utf-8")


def pytest_addoption(parser) -> None:
    """This module is the plugin, too, by which pytest runs the tests of one mutant."""
    parser.addoption("--only-these", type=Path, help="a JSON list of tests to run, in random order")
    parser.addoption("--failed-tests", type=Path, help="write the names of the tests that fail to this file")


def pytest_collection_modifyitems(config, items) -> None:
    """Keep the tests that are asked for, in an order in which tests of different kinds come early."""
    if not (path := config.getoption("--only-these")):
        return
    wanted = set(json.loads(path.read_text()))
    if "" not in wanted:
        items[:] = [item for item in items if item.nodeid in wanted]
    random.Random(0).shuffle(items)


def pytest_sessionfinish(session) -> None:
    """Write the names of the tests that failed."""
    path, reporter = (
        session.config.getoption("--failed-tests"),
        session.config.pluginmanager.get_plugin("terminalreporter"),
    )
    if path and reporter:  # the processes of pytest-xdist have none
        failed = [report.nodeid for kind in ("failed", "error") for report in reporter.stats.get(kind, ())]
        path.write_text("\n".join(failed), encoding="utf-8")


def main() -> None:
    """Judge the mutants, two or more at a time, and print those that survive."""
    arguments, others = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, others = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=80, help="how many mutants (default: 80)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--again", type=Path, help="a file of --json: judge only the survivors in it")
    parser.add_argument("--json", type=Path, help="write the survivors to this file")
    options = parser.parse_args(arguments)
    chosen = drawn(options.number, options.seed)
    if options.again:
        chosen = [Mutant(**mutant) for mutant in json.loads(options.again.read_text())]
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            trees.put(Path(shutil.copytree(ROOT, Path(folder, str(number)), symlinks=True, ignore=LEFT_OUT)))
        first = trees.get()
        tests = lines_of_tests(first, others)
        trees.put(first)

        def judge(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                return survives(mutant, tests.get(mutant.file, {}).get(mutant.line, [""]), tree, others)
            finally:
                trees.put(tree)

        survivors = []
        with ThreadPoolExecutor(workers) as pool:
            for mutant, survived in zip(chosen, pool.map(judge, chosen)):
                print("survived" if survived else "noticed ", mutant, flush=True)
                survivors += [mutant] * survived
    print(f"{len(chosen)} mutants, {len(chosen) - len(survivors)} noticed")
    if options.json:
        options.json.write_text(json.dumps(list(map(asdict, survivors)), indent=1))


if __name__ == "__main__":
    main()
