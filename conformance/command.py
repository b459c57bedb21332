"""What ``einsumx conformance`` does, which is also ``python -m einsumx.conformance``."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain

from einsumx.conformance.case import Case, Outcome
from einsumx.conformance.deviations import Deviation, deviations_of
from einsumx.conformance.junit import junit
from einsumx.conformance.markdown import markdown
from einsumx.conformance.options import Level
from einsumx.conformance.page import page
from einsumx.conformance.results import Run, make_run, merged, read_runs, write_runs
from einsumx.conformance.subject import Subject, installed_backends, subjects
from einsumx.conformance.suite import cases, run, stale, unshown
from einsumx.conformance.terminal import differing, lines_of, print_table, watched
from einsumx.errors import EinsumxError
from einsumx.runtime.files import write_text

__all__ = ["judge_all"]


def judge_all(options: argparse.Namespace) -> bool:
    """Do what the command line asks, and say whether all is right.

    Raises:
        EinsumxError: it cannot be done.
    """
    if options.list:
        print(*(case.id for case in _selected(options)), sep="\n")
        return True
    if not (options.quiet or find_spec("rich")):
        raise EinsumxError("tables need rich: pip install 'einsumx[cli]'; or ask for --quiet")
    for path in (options.json, options.junit, options.html, options.markdown):
        if path and not path.parent.is_dir():  # before minutes are spent
            raise EinsumxError(f"there is no folder {path.parent}")
    runs = []
    for found in _merged(options) if options.merge else _judged(options):
        if not options.quiet:
            print_table(found)
        print(*map(_printable, lines_of(found)), sep="\n", flush=True)
        runs.append(found)
    if len(runs) > 1 and not options.quiet:
        print(*map(_printable, differing(runs)), sep="\n")
    try:
        for path, written in ((options.junit, junit), (options.html, page), (options.markdown, markdown)):
            if path:
                write_text(path, written(runs))
        if options.json:
            write_runs(options.json, runs)
    except OSError as error:
        raise EinsumxError(str(error)) from error
    return not any(run.failed for run in runs)


_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def _printable(text: str) -> str:
    """The text without what a terminal would take for a command: it may come from a file of somebody else's."""
    return text.translate(_CONTROLS)


def _merged(options: argparse.Namespace) -> list[Run]:
    if options.backend or options.callable or options.all:
        raise EinsumxError("--merge judges nothing: leave out --backend, --callable and --all")
    try:
        return merged(chain.from_iterable(map(read_runs, options.merge)))
    except (OSError, ValueError) as error:
        raise EinsumxError(str(error)) from error


def _subjects(options: argparse.Namespace) -> list[Subject]:
    found = subjects(options.backend, options.callable, options.device)
    if options.all:
        found += subjects(installed_backends(), (), options.device)
    if not found:
        raise EinsumxError("say what to judge: --backend NAME, --callable MODULE:NAME, or --all")
    return found


def _selected(options: argparse.Namespace) -> list[Case]:
    return cases(options.level, options.case, options.random, options.seed)


def _judged(options: argparse.Namespace) -> Iterator[Run]:
    selected = _selected(options)
    if not selected:
        raise EinsumxError(f"no case of the level {options.level} is called {options.case!r}; --list shows them")
    for subject in _subjects(options):
        listed = deviations_of(subject)
        outcomes = run(subject, selected, listed)
        if not options.quiet:
            outcomes = watched(outcomes, subject.name, len(selected))
        if options.case == "*":
            outcomes = _with_list(outcomes, listed, options.level)
        yield make_run(subject, options.level, options.case, outcomes)


def _with_list(outcomes: Iterable[Outcome], listed: Sequence[Deviation], level: Level) -> Iterator[Outcome]:
    """The outcomes of all cases of a level, and what is wrong with the list of deviations."""
    found = []
    for outcome in outcomes:
        found.append(outcome)
        yield outcome
    yield from stale(listed)
    if level == "full":
        yield from unshown(listed, found)
