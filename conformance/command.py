"""The command ``einsumx conformance``, which is also ``python -m einsumx.conformance``."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from einsumx.conformance.case import Case, Outcome
from einsumx.conformance.deviations import Deviation
from einsumx.conformance.options import Level
from einsumx.conformance.report.markdown import markdown
from einsumx.conformance.report.page import page, template
from einsumx.conformance.report.results import Run, make_run, merge, read_runs, write_runs
from einsumx.conformance.report.terminal import difference_lines, print_table, run_lines, with_progress
from einsumx.conformance.subject import Subject, installed_backends, subjects
from einsumx.conformance.suite import cases, run, stale_entries, unshown_entries
from einsumx.errors import BackendError, EinsumxError, visible
from einsumx.host.files import write_text
from einsumx.terminal import require_rich


def judge_all(options: argparse.Namespace) -> bool:
    """Carry out the command line, and return whether all cases passed.

    Raises:
        EinsumxError: it cannot be carried out.
    """
    if options.list:
        print(*(case.id for case in _selected(options)), sep="\n")
        return True
    _check_reports(options)
    runs = []
    for finished in _merged(options) if options.merge else _judged(options):
        if not options.quiet:
            print_table(finished)
        print(*map(_printable, run_lines(finished)), sep="\n", flush=True)
        runs.append(finished)
    if len(runs) > 1 and not options.quiet:
        print(*map(_printable, difference_lines(runs)), sep="\n")
    try:
        for path, report in ((options.html, page), (options.markdown, markdown)):
            if path:
                write_text(path, report(runs))
        if options.json:
            write_runs(options.json, runs)
    except OSError as error:
        raise EinsumxError(str(error)) from error
    return not any(run.failed for run in runs)


def _check_reports(options: argparse.Namespace) -> None:
    """Raise EinsumxError before the first case if a report could not be made after the last."""
    if not options.quiet:
        require_rich("--quiet")
    if options.html:
        template()
    for path in (options.json, options.html, options.markdown):
        if path and not path.parent.is_dir():
            raise EinsumxError(f"there is no folder {path.parent}")


def _printable(text: str) -> str:
    """The text with escapes for control characters, because it may come from somebody else's file."""
    return "\n".join(map(visible, text.split("\n")))


def _merged(options: argparse.Namespace) -> list[Run]:
    if options.backend or options.callable or options.all:
        raise EinsumxError("--merge judges nothing: leave out --backend, --callable and --all")
    try:
        return merge(chain.from_iterable(map(read_runs, options.merge)))
    except (OSError, ValueError) as error:
        raise EinsumxError(str(error)) from error


def _subjects(options: argparse.Namespace) -> list[Subject]:
    named = subjects(options.backend, options.callable, options.device)
    installed = list(_usable(options)) if options.all else []
    if not (named or installed):
        raise EinsumxError("say what to judge: --backend NAME, --callable MODULE:NAME, or --all")
    return named + installed


def _usable(options: argparse.Namespace) -> Iterator[Subject]:
    """Einsumx on every installed backend; one that cannot be used here, as without a driver, is named and left out."""
    for name in installed_backends():
        try:
            yield from subjects([name], (), options.device)
        except BackendError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)


def _selected(options: argparse.Namespace) -> list[Case]:
    return cases(options.level, options.case, options.random, options.seed)


def _judged(options: argparse.Namespace) -> Iterator[Run]:
    selected = _selected(options)
    for subject in _subjects(options):
        listed = subject.deviations
        outcomes = run(subject, selected, listed)
        if not options.quiet:
            outcomes = with_progress(outcomes, subject.name, len(selected))
        if options.case == "*":
            outcomes = _with_list(outcomes, listed, options.level)
        yield make_run(subject, options.level, options.case, outcomes)


def _with_list(outcomes: Iterable[Outcome], listed: Sequence[Deviation], level: Level) -> Iterator[Outcome]:
    """The outcomes of all cases of a level, followed by failures of the list of deviations."""
    finished = []
    for outcome in outcomes:
        finished.append(outcome)
        yield outcome
    yield from stale_entries(listed)
    if level == "full":
        yield from unshown_entries(listed, finished)
