"""Everything that a GPU has to show, for one framework, as a section of a page: ``nox -s gpu``.

``python benchmarks/gpu.py --backend cupy docs/gpu.md`` replaces the section on CuPy. With ``--fake``, the same steps
run where there is no GPU, CuPy on the fake in tests/standin and the others on the CPU, with fewer cases and on tiny
problems: that shows that the steps work, and the section says so. Every step that fails is a fault on the page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from xml.etree import ElementTree

import numpy as np
from contenders import GPUS, Framework
from measure import Row, measure, prepare
from problems import Problem, all_problems
from show import about, console
from summary import Table, geometric_mean

import einsumx
from einsumx.adapters.facets import blocks_of
from einsumx.conformance.frameworks import framework_of
from einsumx.conformance.report.results import count_statuses, read_runs
from einsumx.errors import counted
from einsumx.ir.text import duration, quantity

ROOT = Path(__file__).parent.parent
STANDIN = ROOT / "tests" / "standin"

LEVELS = {"jax": "quick"}
"""Where not all cases are judged: XLA would compile their calls for hours."""

FAKE_CASES = "forms/*"
"""The cases that are judged where there is no GPU."""

EVERYDAY, PER_GROUP = ("mlp", "pairs", "networks", "layouts", "dtypes"), 4
"""Groups of which some problems, evenly spaced, are timed beside all of attention."""

TINY = 6
"""How many problems are timed where there is no GPU."""

TESTS = ("tests/test_limit_gpu.py", "tests/test_torch_gpu.py")
"""The files with tests that need a GPU."""

COLUMNS, ROWS_OF_BLOCK = 1 << 12, 7
"""The columns of the matrix that does not fit, and after how many rows it repeats."""

LIMIT = 1 << 32
"""Bytes of the card that the contraction with that matrix may use, if a card has twice as many."""

CARD = 1 << 25
"""Bytes that count as the memory of a card on the CPU."""

MOST_FAULTS = 30

LONGEST = 900.0
"""Seconds of a step in a process of its own."""


@dataclass
class Report:
    """The section of one framework.

    Attributes:
        framework: whose arrays are computed with.
        is_fake: whether there is no GPU.
        parts: texts in Markdown.
        faults: a sentence on each.
    """

    framework: Framework
    is_fake: bool
    parts: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def ran_on(self) -> str:
        """The device, in words."""
        backend = self.framework.backend
        if self.is_fake:
            return "the fake of CuPy in tests/standin, not on a GPU" if backend == "cupy" else "the CPU, not on a GPU"
        adapter, device = self.framework.adapter, self.framework.device
        try:
            adapter.synchronize(adapter.from_numpy(np.zeros(1, "float32"), device))
            return adapter.device_model(device) or f"a device without a name, {device}"
        except Exception as error:  # noqa: BLE001  the page says so
            return f"nothing, as there is no {device}: {type(error).__name__}: {error}".splitlines()[0]

    def step(self, title: str, run: Callable[[Report], str]) -> None:
        """Add what a step writes, or its error as a fault."""
        console.print(f"{self.framework.name}: {title}")
        start = perf_counter()
        try:
            text = run(self)
        except Exception as error:  # noqa: BLE001  any error of a framework is a result to report
            text = f"raised {type(error).__name__}"
            self.faults.append(f"{title}: {type(error).__name__}: {error}".splitlines()[0])
        self.parts.append(f"**{title}**, in {duration(perf_counter() - start)}: {text}")

    def markdown(self) -> str:
        """The section."""
        run = about()
        versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
        faults = [f"- {fault}" for fault in self.faults[:MOST_FAULTS]] or ["None."]
        if len(self.faults) > MOST_FAULTS:
            faults.append(f"- and {len(self.faults) - MOST_FAULTS} more")
        head = f"## {self.framework.name}\n\nRan on {self.ran_on}. {run['date'][:10]}; {run['machine']}; {versions}."
        return "\n\n".join([head, *self.parts, "**Faults**", "\n".join(faults)])


# -- steps ------------------------------------------------------------------------------------------------------


def conformance(report: Report) -> str:
    """The conformance suite, in a process of its own, on the last device, which is seldom the default."""
    backend, device = report.framework.backend, report.framework.device
    if device:
        found = framework_of(backend).devices()
        device = [device, *(name for name in found if name.partition(":")[0] not in ("cpu", "meta"))][-1]
    level = "quick" if report.is_fake else LEVELS.get(backend, "full")
    selected = ("--case", FAKE_CASES) if report.is_fake else ()
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        where = ("--device", device) if device else ()
        arguments = ("--backend", backend, *where, "--level", level, *selected, "--quiet", "--json", str(path))
        _python("-m", "einsumx.conformance", *arguments, fails=[1])
        (run,) = read_runs(path)
    counts = count_statuses(run.outcomes)
    report.faults += [f"{each.case}: {each.message}" for each in run.outcomes if each.status == "fail"]
    what = ", ".join(filter(None, (f"level {level}", *selected[1:], device)))
    return f"{what}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count)


def checks(report: Report) -> str:
    """The tests that need a GPU: memory limits, pinned buffers, streams, and two devices if there are two."""
    backend = report.framework.backend
    with TemporaryDirectory() as folder:
        path = Path(folder, "tests.xml")
        selected = ("-m", "gpu", "-k", backend, *TESTS)
        if report.is_fake and backend != "cupy":  # there is no fake of their devices
            _python("-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *selected, fails=[5])
            return "collected alone"
        _python("-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", str(path), *selected, fails=[1, 5])
        cases = list(ElementTree.parse(path).iter("testcase"))
    skipped = 0
    for case in cases:
        for outcome in case:
            message = outcome.get("message", "").splitlines()
            if outcome.tag in ("failure", "error"):
                report.faults.append(f"{case.get('name')}: {message[0] if message else outcome.tag}")
            skipped += outcome.tag == "skipped"
    return f"{counted(len(cases), 'test')}, {skipped} skipped"


class Repeating:
    """A matrix on the host of which only a few rows exist: row i, column j has the value ``i % 7 + j % 5``."""

    dtype = np.dtype("float32")

    def __init__(self, rows: int) -> None:
        self.shape = rows, COLUMNS
        block = min(rows, LIMIT // (4 * COLUMNS))  # at least the rows of a block, which is a view then
        rows_of, columns_of = (np.arange(block) % ROWS_OF_BLOCK, np.arange(COLUMNS) % 5)
        self._rows = np.add.outer(rows_of.astype(self.dtype), columns_of.astype(self.dtype))
        self.nbytes = rows * COLUMNS * self.dtype.itemsize

    def __getitem__(self, box: tuple[slice, slice]) -> Any:
        (start, stop, _), columns = box[0].indices(self.shape[0]), box[1]
        whole = len(self._rows) - ROWS_OF_BLOCK
        parts = [self._rows[:0, columns]] if start >= stop else []
        while start < stop:
            first = start % ROWS_OF_BLOCK
            count = min(stop - start, whole)
            parts.append(self._rows[first : first + count, columns])
            start += count
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Checked:
    """An ``out=`` that compares what is written with the product of :class:`Repeating` and ``factor``."""

    dtype = np.dtype("float32")

    def __init__(self, rows: int, factor: Any) -> None:
        self.shape, self.worst = (rows, factor.shape[1]), 0.0
        self.is_written = np.zeros(self.shape, bool)  # a block is written again after memory ran out
        few = np.add.outer(np.arange(ROWS_OF_BLOCK), np.arange(COLUMNS) % 5)
        self._expected = few @ factor.astype("float64")

    def __getitem__(self, box: Any) -> Any:
        raise NotImplementedError("it is only written")

    def __setitem__(self, box: tuple[slice, slice], block: Any) -> None:
        rows = np.arange(*box[0].indices(self.shape[0])) % ROWS_OF_BLOCK
        expected = self._expected[rows][:, box[1]]
        self.is_written[box] = True
        self.worst = max(self.worst, float(np.abs(block / expected - 1).max(initial=0)))


def limit(report: Report) -> str:
    """A contraction with an operand twice as large as the memory of the card."""
    adapter, device = report.framework.adapter, report.framework.device
    card = blocks_of(adapter).free_bytes(device) if device else CARD
    if card is None:
        raise RuntimeError("the framework does not tell how much memory the device has")
    matrix = Repeating(2 * card // (4 * COLUMNS))
    factor = np.random.default_rng(0).uniform(0.5, 1, (COLUMNS, 64)).astype("float32")
    out = Checked(matrix.shape[0], factor)
    start = perf_counter()
    within = einsumx.MemoryLimit(min(card // 2, LIMIT), device=device)
    einsumx.einsum("ij,jk->ik", matrix, factor, backend=report.framework.backend, memory_limit=within, out=out)
    seconds = perf_counter() - start
    if not out.is_written.all() or out.worst > 1e-3:
        raise AssertionError(f"wrong result: {out.is_written.mean():.1%} written, relative error {out.worst:.1e}")
    rate = quantity(matrix.nbytes / seconds, "B")
    return f"{quantity(matrix.nbytes, 'B')} under a limit of {quantity(min(card // 2, LIMIT), 'B')}, {rate} a second"


def times(report: Report) -> str:
    """Einsumx beside the framework's own einsum and the other contenders, on everyday problems."""
    framework = report.framework
    framework.start()
    problems = all_problems(count=0)["tiny"][:TINY] if report.is_fake else _problems(framework)
    rows = [row for problem in problems if (row := measure(framework, prepare(problem), 0.2)) is not None]
    for row in rows:
        report.faults += [f"{row.problem}: {name}: {note}" for name, note in row.notes.items() if name == "einsumx"]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if not ratios:
        raise RuntimeError("no contender has a time beside einsumx's")
    table = Table(_title(report), *_cells(rows))
    mean = f"Geometric mean of {len(ratios)}: {geometric_mean(ratios):.2f}."
    return f"{counted(len(rows), 'problem')}\n\n{table.markdown()}\n\n{mean}"


def _title(report: Report) -> str:
    note = "; times of a fake mean nothing" if report.is_fake else ""
    return f"Least seconds of a call with its wait, on {report.ran_on}{note}"


def _cells(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    names = list(dict.fromkeys(name for row in rows for name in (*row.seconds, *row.notes)))
    cells = [
        (
            f"`{row.problem}`",
            *(duration(row.seconds[name]) if name in row.seconds else row.notes.get(name, "")[:40] for name in names),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            quantity(row.copied, "B") if row.copied else "",
        )
        for row in rows
    ]
    return ("problem", *names, "best peer / einsumx", "copied by the plan"), cells


def _problems(framework: Framework) -> Iterator[Problem]:
    groups = all_problems(count=0)
    for group in ("attention", *EVERYDAY):
        problems = [problem for problem in groups[group] if framework.takes(problem)]
        yield from problems if group == "attention" else problems[:: max(1, len(problems) // PER_GROUP)][:PER_GROUP]


def _python(*arguments: str, fails: Sequence[int]) -> None:
    """Run Python in the checkout.

    Raises:
        RuntimeError: it ended with an exit status that is neither 0 nor one of ``fails``.
        subprocess.TimeoutExpired: it did not end.
    """
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST)
    if done.returncode not in (0, *fails):
        lines = (done.stderr or done.stdout).strip().splitlines() or [""]
        raise RuntimeError(f"{' '.join(arguments[:2])} ended with status {done.returncode}: {lines[-1]}")


# -- the page ---------------------------------------------------------------------------------------------------


def with_section(page: str, name: str, section: str) -> str:
    """The page with a section between the marks of that name.

    Raises:
        ValueError: the page lacks the marks.

    >>> with_section("a <!-- cupy --> old <!-- end of cupy --> z", "cupy", "new").splitlines()[2:]
    ['new', '', '<!-- end of cupy --> z']
    """
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, start, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not (start and end):
        raise ValueError(f"the page lacks the lines {first!r} and {last!r}")
    return f"{before}{first}\n\n{section}\n\n{last}{after}"


STEPS: dict[str, Callable[[Report], str]] = {
    "Conformance": conformance,
    "Tests for GPUs": checks,
    "An operand twice the memory of the card": limit,
    "Times": times,
}


def main(arguments: Sequence[str] | None = None) -> Report:
    """Run the steps and write the section."""
    options = _options(arguments)
    framework = GPUS[options.backend]
    if options.fake and options.backend == "cupy":
        sys.path.insert(0, str(STANDIN))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(STANDIN), os.environ.get("PYTHONPATH", "")])
    elif options.fake:
        framework = replace(framework, device="")
    # On recent GPUs, JAX rounds the factors of float32 products to 11 bits by default.
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    page = options.page.read_text(encoding="utf-8")
    report = Report(framework, options.fake)
    with_section(page, options.backend, "")  # before minutes are spent
    for title, step in STEPS.items():
        report.step(title, step)
    options.page.write_text(with_section(page, options.backend, report.markdown()), encoding="utf-8")
    return report


def _options(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="the page, such as docs/gpu.md")
    parser.add_argument("--backend", required=True, choices=list(GPUS))
    parser.add_argument("--fake", action="store_true", help="run where there is no GPU, to see that the steps work")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
