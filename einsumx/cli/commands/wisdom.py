"""``einsumx wisdom``: show, export, import or forget the measurements that the effort ``"measure"`` keeps."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from einsumx.cli.arguments import add_output
from einsumx.cli.output import console, plain_table, print_json, require_rich, shapes_text
from einsumx.errors import EinsumxError, visible
from einsumx.runtime import wisdom, wisdom_files
from einsumx.runtime.calibration import cache_folder
from einsumx.runtime.wisdom_files import Finding, Origin
from einsumx.terminal import timing

__all__ = ["ABOUT", "MORE", "add_arguments", "run"]

ABOUT = """\
Shows, exports, imports or forgets wisdom. With the effort "measure", einsumx runs
several candidate plans on the first call and keeps the fastest; wisdom is what
it keeps for later processes.
"""

MORE = """\
Wisdom holds for one version of einsumx and of the framework, one model of
processor or accelerator, and one BLAS. It is in files in EINSUMX_CACHE, or
else in the folder einsumx in the platform's cache folder. Processes that run
go on with what they have read.

--json prints one object:
  folder          where wisdom is stored
With --show:
  wisdom          a list of objects, one per file:
    format, einsumx, backend, device, framework, processor, cores, blas,
    accelerator   what it holds for; framework is the framework's version
    findings      an object per contraction, by its key:
      selection   path (null: the usual one) and, for each of its steps, the
                  name of the candidate; "" for the estimated one
      seconds     of the fastest candidate
      estimated   seconds of the candidate that estimates prefer
      tried       the number of candidates
      when        date and time in UTC
With --export, --import:
  file, findings  the file, and the number of findings
With --forget:
  removed         the names of the files that were removed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_output(parser)
    parser.add_argument(
        "--backend", nargs="+", action="extend", metavar="NAME", help="show or forget only these (default: all)"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--show", action="store_true", help="show what is stored; the default")
    either.add_argument("--export", metavar="FILE", type=Path, help="write what holds for this machine to a file")
    either.add_argument("--import", metavar="FILE", type=Path, dest="import_", help="add what --export wrote")
    either.add_argument("--forget", action="store_true", help="remove what is stored")


def run(options: argparse.Namespace) -> bool:
    """Show, export, import or forget. Returns True.

    Raises:
        EinsumxError: a file cannot be read or written, or was measured elsewhere.
    """
    folder = str(cache_folder())
    if options.export or options.import_:
        path: Path = options.export or options.import_
        count = _transfer(path, is_export=options.export is not None)
        if options.json:
            print_json({"folder": folder, "file": str(path), "findings": count})
        else:
            print(f"{count} {'exported to' if options.export else 'imported from'} {path}")
    elif options.forget:
        removed = wisdom.forget(options.backend or (), options.device)
        if options.json:
            print_json({"folder": folder, "removed": [path.name for path in removed]})
        else:
            print(f"{len(removed)} removed from {folder}")
    elif options.json:
        parts = [{**asdict(origin), "findings": _data(findings)} for origin, findings in _readable(options)]
        print_json({"folder": folder, "wisdom": parts})
    else:
        require_rich()
        stored = list(_readable(options))
        for origin, findings in stored:
            _print_table(origin, findings)
        print(f"{'stored' if stored else 'nothing is stored'} in {folder}")
    return True


def _transfer(path: Path, *, is_export: bool) -> int:
    try:
        return wisdom.export_to(path) if is_export else wisdom.import_from(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise EinsumxError(f"{path} is not {'exported' if is_export else 'imported'}: {error}") from error


def _readable(options: argparse.Namespace) -> Iterator[tuple[Origin, dict[str, Finding]]]:
    """The contents of files; reports files that cannot be used on standard error."""
    for path in wisdom_files.stored_files(options.backend or (), options.device.partition(":")[0]):
        try:
            yield wisdom_files.read_file(path)
        except (OSError, ValueError) as error:
            print(f"{path} is not used: {error}", file=sys.stderr)


def _data(findings: dict[str, Finding]) -> dict[str, Any]:
    return {key: asdict(finding) for key, finding in findings.items()}


def _print_table(origin: Origin, findings: dict[str, Finding]) -> None:
    table = plain_table()
    for column in ("equation", "sizes", "dtypes", "selected", "time", "gain", "when"):
        is_short = column in ("time", "gain", "when")
        table.add_column(column, justify="right" if is_short else "left", no_wrap=is_short, overflow="fold")
    for key, finding in findings.items():
        equation, sizes, _, dtypes, *_ = [*visible(key).split("; "), "", "", ""]
        gain = f"{finding.estimated / finding.seconds:.2f}×"
        table.add_row(equation, sizes, dtypes, _selected(finding), timing(finding.seconds), gain, finding.when[:10])
    out = console()
    machine = ", ".join(filter(None, (origin.processor, origin.accelerator, origin.blas)))
    out.print(f"{origin.backend} {origin.framework} on {origin.device}, {machine}\n")
    out.print(table)
    out.print()


def _selected(finding: Finding) -> str:
    """The path, if it is another one, and the names of the steps' candidates.

    >>> from einsumx.planner.selection import Selection
    >>> _selected(Finding(Selection(((0, 1), (0, 1)), ("", "copy lhs")), 1.0, 2.0, 5, "2026-01-31T12:00:00Z"))
    '(0,1) (0,1): estimate, copy lhs'
    """
    names = ", ".join(name or "estimate" for name in finding.selection.steps)
    if finding.selection.path is None:
        return names
    return f"{shapes_text(finding.selection.path)}: {names}"
