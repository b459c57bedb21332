"""What einsumx does on a GPU, as a section of a page for each framework: ``nox -s gpu`` and ``nox -s gpu-quick``.

``python benchmarks/gpu.py --backend cupy docs/gpu.md`` replaces the section on CuPy. ``--quick`` ends within eight
minutes, with fewer cases and problems. ``--fake`` is as quick, and needs no GPU: CuPy is the fake in tests/standin, the
others run on the CPU, and the problems are tiny. The section says so. Each step is a process of its own, which is
ended after its share of the time: the page then has what the step found so far. A step that fails is a fault on the
page.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, TypeAlias
from xml.etree import ElementTree

import numpy as np
from contenders import GPUS, OWN_EINSUM, Framework
from measure import Row, measure, prepare
from names import EINSUMX, best_peer
from problems import Problem, all_problems
from show import about, console
from summary import Table, geometric_mean

import einsumx
from einsumx.adapters.facets import blocks_of
from einsumx.conformance.case import Outcome
from einsumx.conformance.frameworks import framework_of
from einsumx.conformance.report.results import count_statuses
from einsumx.conformance.subject import backend_subject
from einsumx.conformance.suite import cases, run
from einsumx.ir.text import duration, quantity

ROOT = Path(__file__).parent.parent
STANDIN = ROOT / "tests" / "standin"

QUICK_SECONDS = 420.0
"""Seconds of all steps together, if that is to be quick."""

LONGEST = 900.0
"""Seconds of a step otherwise."""

EVERYDAY, PER_GROUP = ("mlp", "pairs", "networks", "layouts", "dtypes"), 4
"""Groups of which some problems, evenly spaced, are timed beside all of attention."""

QUICK_PROBLEMS, COMPILED = 30, 5
"""How many of these are timed if that is to be quick, and how many in compiled functions."""

TINY = 6
"""The largest size of a label where there is no GPU."""

TESTS = ("tests/test_limit_gpu.py", "tests/test_torch_gpu.py")
"""The files with tests that need a GPU."""

COLUMNS, ROWS_OF_BLOCK = 1 << 12, 7
"""The columns of the matrix that does not fit, and after how many rows it repeats."""

LIMIT = 1 << 32
"""Bytes of the card that the contraction with that matrix may use, if a card has twice as many."""

CARD = 1 << 23
"""Bytes that count as the memory of a card where there is no GPU."""

COMPILED_LONG = ("compile", "large rank")
"""Features whose cases are judged last, because compilers may take a minute for one."""

MOST_FAULTS = 30


@dataclass
class Report:
    """The section of one framework.

    Attributes:
        framework: whose arrays are computed with.
        is_fake: whether there is no GPU.
        is_quick: whether a part of the cases and problems is enough.
        ran_on: the device, in words.
        parts: texts in Markdown.
        faults: a sentence on each.
    """

    framework: Framework
    is_fake: bool
    is_quick: bool
    ran_on: str = "nothing"
    parts: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def step(self, title: str, step: Step, seconds: float) -> None:
        """Run a step in a process, for at most so many seconds, and add its last text.

        The device, the texts and the faults of the section are those that the process sent before it ended.
        """
        console.print(f"{self.framework.name}: {title}")
        start = perf_counter()
        spawn = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
        receiving, sending = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_send, args=(title, step, self, sending))
        process.start()
        sending.close()
        text, is_late = "nothing.", False
        with suppress(EOFError):  # the process has ended
            while not is_late:
                if receiving.poll(max(0.0, start + seconds - perf_counter())):
                    self.ran_on, text, self.faults = receiving.recv()
                else:
                    is_late = True
                    process.kill()
        process.join()
        took = duration(perf_counter() - start)
        if is_late:
            text += f"\n\nStopped after {took}: what is missing was not done."
        elif process.exitcode:
            self.faults.append(f"{title}: the process ended with status {process.exitcode}")
        self.parts.append(f"**{title}**, in {took}: {text}")

    def markdown(self) -> str:
        """The section."""
        facts = about()
        versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
        run_at = f"{facts['date'][:10]}; {facts['machine']}; {versions}"
        faults = [f"- {fault}" for fault in self.faults[:MOST_FAULTS]] or ["None."]
        if len(self.faults) > MOST_FAULTS:
            faults.append(f"- and {len(self.faults) - MOST_FAULTS} more")
        head = f"## {self.framework.name}\n\nRan on {self.ran_on}. {run_at}."
        return "\n\n".join([head, *self.parts, "**Faults**", "\n".join(faults)])


Step: TypeAlias = Callable[[Report], Iterator[str]]
"""Finds something out, and yields its text so far, which may be longer each time."""


def _send(title: str, step: Step, report: Report, sending: Connection) -> None:
    """In the process of a step: send the device, each text and all faults."""
    report.ran_on, text = _device(report), "nothing."
    sending.send((report.ran_on, text, []))
    try:
        for text in step(report):
            sending.send((report.ran_on, text, report.faults))
    except Exception as error:  # noqa: BLE001  any error of a framework is a result to report
        report.faults.append(f"{title}: {type(error).__name__}: {error}".splitlines()[0])
        sending.send((report.ran_on, f"raised {type(error).__name__} after {text}", report.faults))


def _device(report: Report) -> str:
    """The device, in words."""
    adapter, device = report.framework.adapter, report.framework.device
    if report.is_fake:
        is_fake_cupy = report.framework.backend == "cupy"
        return "the fake of CuPy in tests/standin, not on a GPU" if is_fake_cupy else "the CPU, not on a GPU"
    try:
        adapter.synchronize(adapter.from_numpy(np.zeros(1, "float32"), device))
        return adapter.device_model(device) or f"a device without a name, {device}"
    except Exception as error:  # noqa: BLE001  the page says so
        return f"nothing, as there is no {device}: {type(error).__name__}: {error}".splitlines()[0]


# -- steps ------------------------------------------------------------------------------------------------------


def conformance(report: Report) -> Iterator[str]:
    """The conformance suite, on the last device, which is seldom the default."""
    backend, device = report.framework.backend, report.framework.device
    if device:
        found = framework_of(backend).devices()
        device = [device, *(name for name in found if name.partition(":")[0] not in ("cpu", "meta"))][-1]
    # XLA would compile the cases of level full for hours.
    selected = cases("quick" if report.is_quick or backend == "jax" else "full")
    Random(0).shuffle(selected)  # what is not done in time belongs to no feature in particular
    selected.sort(key=lambda case: case.feature in COMPILED_LONG)
    subject = backend_subject(backend, device)
    judged: list[Outcome] = []
    for outcome in run(subject, selected, subject.deviations):
        judged.append(outcome)
        if outcome.status == "fail":
            report.faults.append(f"{outcome.case}: {outcome.message}".splitlines()[0])
        counts = ", ".join(f"{count} {status}" for status, count in count_statuses(judged).items())
        yield f"{len(judged)} of {len(selected)} cases on {device or 'the CPU'}: {counts}."


def checks(report: Report) -> Iterator[str]:
    """The tests that need a GPU: memory limits, pinned buffers, streams, and two devices if there are two."""
    backend = report.framework.backend
    with TemporaryDirectory() as folder:
        path = Path(folder, "tests.xml")
        selected = ("-m", "gpu", "-k", backend, *TESTS)
        if report.is_fake and backend != "cupy":  # there is no fake of their devices
            _python("-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *selected, fails=[5])
            yield "collected alone."
            return
        _python("-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", str(path), *selected, fails=[1, 5])
        found = list(ElementTree.parse(path).iter("testcase"))
    skipped = 0
    for case in found:
        for outcome in case:
            message = outcome.get("message", "").splitlines()
            if outcome.tag in ("failure", "error"):
                report.faults.append(f"{case.get('name')}: {message[0] if message else outcome.tag}")
            skipped += outcome.tag == "skipped"
    yield f"{len(found)} tests, {skipped} skipped."


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


def limit(report: Report) -> Iterator[str]:
    """A contraction with an operand of twice the memory of the card, or of a few GB if that is to be quick."""
    adapter, device = report.framework.adapter, report.framework.device
    card = CARD if report.is_fake else blocks_of(adapter).free_bytes(device)
    if card is None:
        raise RuntimeError("the framework does not tell how much memory the device has")
    if report.is_quick:
        card = min(card, LIMIT)
    matrix = Repeating(2 * card // (4 * COLUMNS))
    factor = np.random.default_rng(0).uniform(0.5, 1, (COLUMNS, 64)).astype("float32")
    out = Checked(matrix.shape[0], factor)
    start = perf_counter()
    most = min(card // 2, LIMIT)
    within = einsumx.MemoryLimit(most, device=device)
    einsumx.einsum("ij,jk->ik", matrix, factor, backend=report.framework.backend, memory_limit=within, out=out)
    seconds = perf_counter() - start
    if not out.is_written.all() or out.worst > 1e-3:
        raise AssertionError(f"wrong result: {out.is_written.mean():.1%} written, relative error {out.worst:.1e}")
    rate = quantity(matrix.nbytes / seconds, "B")
    sizes = f"an operand of {quantity(matrix.nbytes, 'B')} under a limit of {quantity(most, 'B')}"
    yield f"{sizes}, {rate} a second."


def times(report: Report) -> Iterator[str]:
    """Einsumx beside the framework's own einsum and the other contenders, on everyday problems."""
    problems = _problems(report.framework)
    return _timed(report, _evenly(problems, QUICK_PROBLEMS) if report.is_quick else problems)


def compiled(report: Report) -> Iterator[str]:
    """Einsumx beside the framework's own einsum, in functions that ``torch.compile`` compiles with inductor."""
    compiling = replace(report.framework, peers=OWN_EINSUM, jitted=True)
    return _timed(replace(report, framework=compiling), _evenly(_problems(compiling), COMPILED))


def _timed(report: Report, problems: Sequence[Problem]) -> Iterator[str]:
    framework = report.framework
    framework.start()
    rows: list[Row] = []
    for done, problem in enumerate(map(_tiny, problems) if report.is_fake else problems, 1):
        if row := measure(framework, prepare(problem), 0.2):
            rows.append(row)
            report.faults += [f"{problem}: {name}: {note}" for name, note in row.notes.items() if name == EINSUMX]
        table = Table(_title(report), *_cells(rows))
        yield f"{done} of {len(problems)} problems.\n\n{table.markdown()}\n\n{_means(rows)}"


def _means(rows: Sequence[Row]) -> str:
    """How many times as long the best peer takes, by the geometric mean."""
    means = []
    for what, pairs in {"first": [row.first for row in rows], "later": [row.seconds for row in rows]}.items():
        ratios = [each[peer] / each[EINSUMX] for each in pairs if EINSUMX in each and (peer := best_peer(each))]
        if ratios:
            means.append(f"{geometric_mean(ratios):.2f} of {what} calls")
    order = "einsumx comes first, so its first calls also load the framework's kernels"
    return f"Geometric means of best peer / einsumx: {', '.join(means) or 'none'} ({order})."


def _title(report: Report) -> str:
    note = "; times of a fake mean nothing" if report.is_fake else ""
    return f"Seconds of the first call / the least of later calls, with their waits, on {report.ran_on}{note}"


def _cells(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    names = list(dict.fromkeys(name for row in rows for name in (*row.seconds, *row.notes)))
    cells = [
        (
            f"`{row.problem}`",
            *(_both(row, name) for name in names),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            quantity(row.copied, "B") if row.copied else "",
        )
        for row in rows
    ]
    return ("problem", *names, "best peer / einsumx", "copied by the plan"), cells


def _both(row: Row, name: str) -> str:
    """The times of a contender, or why it has none."""
    if name in row.seconds:
        return f"{duration(row.first[name])} / {duration(row.seconds[name])}"
    return row.notes.get(name, "").replace("|", " ")[:40]


def _problems(framework: Framework) -> list[Problem]:
    groups = all_problems(count=0)
    problems = [problem for problem in groups["attention"] if framework.takes(problem)]
    for group in EVERYDAY:
        problems += _evenly([problem for problem in groups[group] if framework.takes(problem)], PER_GROUP)
    return problems


def _evenly(problems: Sequence[Problem], count: int) -> list[Problem]:
    """At most so many of the problems, evenly spaced."""
    count = min(count, len(problems))
    return [problems[place * len(problems) // count] for place in range(count)]


def _tiny(problem: Problem) -> Problem:
    return replace(problem, shapes=tuple(tuple(min(size, TINY) for size in shape) for shape in problem.shapes))


def _python(*arguments: str, fails: Sequence[int]) -> None:
    """Run Python in the checkout.

    Raises:
        RuntimeError: it ended with an exit status that is neither 0 nor one of ``fails``.
        subprocess.TimeoutExpired: it did not end.
    """
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST - 60)
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


STEPS: dict[str, Step] = {
    "Memory limit": limit,
    "Times": times,
    "Times of compiled functions": compiled,
    "Tests for GPUs": checks,
    "Conformance": conformance,
}

SHARES: dict[Step, int] = {limit: 1, times: 2, compiled: 2, checks: 1, conformance: 3}
"""How the steps share the time, if that is to be quick."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps of each framework, and write its section after each."""
    options = _options(arguments)
    if options.fake:
        sys.path.insert(1, str(STANDIN))  # after this folder, which also has a names.py
        os.environ["PYTHONPATH"] = os.pathsep.join([str(STANDIN), os.environ.get("PYTHONPATH", "")])
        os.environ["JAX_PLATFORMS"] = "cpu"
    # On recent GPUs, JAX rounds the factors of float32 products to 11 bits by default.
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    page = options.page.read_text(encoding="utf-8")
    steps = [(report, title) for report in _reports(options) for title in _titles(report, options.quick)]
    shares = [SHARES[STEPS[title]] for _, title in steps]
    end = perf_counter() + QUICK_SECONDS
    for place, (report, title) in enumerate(steps):
        seconds = (end - perf_counter()) * shares[place] / sum(shares[place:]) if report.is_quick else LONGEST
        report.step(title, STEPS[title], seconds)
        page = with_section(page, report.framework.backend, report.markdown())
        options.page.write_text(page, encoding="utf-8")


def _reports(options: Namespace) -> Iterator[Report]:
    for name in options.backend or GPUS:
        framework = GPUS[name]
        if options.fake and name != "cupy":
            framework = replace(framework, device="")
        if find_spec(framework.adapter.module):
            yield Report(framework, options.fake, options.quick or options.fake)
        else:
            console.print(f"{framework.name} is not installed, and its section stays as it is.")


def _titles(report: Report, is_quick: bool) -> list[str]:
    """The steps of a framework."""
    left_out = [*([checks] if is_quick else []), *([] if report.framework.backend == "torch" else [compiled])]
    return [title for title, step in STEPS.items() if step not in left_out]


def _options(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="the page, such as docs/gpu.md")
    about = "a framework, once or more often (default: those that are installed)"
    parser.add_argument("--backend", action="append", choices=list(GPUS), help=about)
    parser.add_argument("--quick", action="store_true", help="end within eight minutes")
    parser.add_argument("--fake", action="store_true", help="run where there is no GPU, to see that the steps work")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
