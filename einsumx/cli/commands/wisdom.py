"""``einsumx wisdom``: show, export, import or forget what was measured and stored."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from einsumx.adapters.registry import get_backend
from einsumx.cli.arguments import add_output
from einsumx.cli.output import print_json, rate_text, shapes_text
from einsumx.errors import EinsumxError, counted, shown, visible
from einsumx.host.environment import cache_folder
from einsumx.host.files import read_text, write_text
from einsumx.ir.strict import parse
from einsumx.ir.text import duration
from einsumx.measuring import store
from einsumx.measuring.calibration import read_rates
from einsumx.measuring.findings import Finding, read_finding
from einsumx.measuring.store import Origin, Row, Table
from einsumx.terminal import console, plain_table, require_rich

ABOUT = """\
Shows, exports, imports or forgets wisdom, which is what was measured: the plans
that the effort "measure" or einsumx.tune found to be the fastest, and the rates of
`einsumx calibrate`.
"""

MORE = """\
Wisdom holds for one version of einsumx and of the framework, one model of
processor or accelerator, and one BLAS. It is stored in a file in EINSUMX_CACHE,
or else in the folder einsumx in the platform's cache folder. Processes that run
go on with what they have read.

--json prints one object:
  folder          that of the file
With --show:
  plans, rates    lists of objects:
    backend, device, framework, einsumx, machine, engine
                  what it holds for: framework and einsumx are versions, engine
                  is NumPy's BLAS or the model of the accelerator
    key           of plans: the contraction; of rates: the number of threads
    value         of rates: an object of numbers; of plans:
      selection   path (null: the usual one) and, for each of its steps, the
                  name of the candidate; "" for the estimated one
      seconds     of the fastest candidate
      estimated   seconds of the candidate that estimates prefer
      tried       the number of candidates
      when        date and time in UTC
With --export, --import, --forget:
  count           how many of them
"""

_FORMAT = 1

_MOST_BYTES = 1 << 25
"""The largest file that is imported."""

_READERS: dict[Table, store.Reader] = {"plans": read_finding, "rates": read_rates}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_output(parser)
    about = "show, export or forget only these (default: all)"
    parser.add_argument("--backend", nargs="+", action="extend", metavar="NAME", help=about)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--show", action="store_true", help="show what is stored; the default")
    either.add_argument("--export", metavar="FILE", type=Path, help="write it to a file")
    either.add_argument("--import", metavar="FILE", type=Path, dest="import_", help="add what --export wrote")
    either.add_argument("--forget", action="store_true", help="remove it")


def run(options: argparse.Namespace) -> bool:
    """Show, export, import or forget. Returns True.

    Raises:
        EinsumxError: a file cannot be read or written, or was measured elsewhere.
    """
    folder, selected = cache_folder(), (options.backend or (), options.device.partition(":")[0])
    if options.export or options.import_ or options.forget:
        path: Path = options.export or options.import_
        try:
            if options.forget:
                count, done = sum(store.remove(table, *selected) for table in _READERS), f"removed from {folder}"
            elif options.export:
                count, done = _export(path, *selected), f"exported to {path}"
            else:
                count, done = _import(path), f"imported from {path}"
        except (OSError, ValueError) as error:
            raise EinsumxError(str(error)) from error
        if options.json:
            print_json({"folder": folder, "count": count})
        else:
            print(f"{counted(count, 'row')} {done}")
    elif options.json:
        print_json({"folder": folder, **_data(*selected)})
    else:
        require_rich("--json")
        tables = [store.read(table, reader, *selected) for table, reader in _READERS.items()]
        for origin in dict.fromkeys([row.origin for rows in tables for row in rows]):
            _print(origin, *[[row for row in rows if row.origin == origin] for rows in tables])
        print(f"{'stored' if any(tables) else 'nothing is stored'} in {folder}")
    return True


def _data(backends: Collection[str], device: str) -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = {}
    for table, reader in _READERS.items():
        rows = store.read(table, reader, backends, device)
        values = [asdict(row.value) if table == "plans" else row.value for row in rows]
        data[table] = [{**row.origin._asdict(), "key": row.key, "value": value} for row, value in zip(rows, values)]
    return data


def _export(path: Path, backends: Collection[str], device: str) -> int:
    data = _data(backends, device)
    try:
        write_text(path, json.dumps({"format": _FORMAT, **data}, indent=1) + "\n")
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    return sum(map(len, data.values()))


def _import(path: Path) -> int:
    """Store the rows of an exported file that hold for this machine and its software, and return their number.

    They replace rows about the same. Nothing is stored if one of them is malformed, or none holds here.
    """
    try:
        data = parse(read_text(path, _MOST_BYTES), _MOST_BYTES)
        if not isinstance(data, dict) or set(data) != {"format", *_READERS} or data["format"] != _FORMAT:
            raise ValueError(f"it has no wisdom of format {_FORMAT}")
        tables = {table: _rows(data[table], reader) for table, reader in _READERS.items()}
        origins = {row.origin for rows in tables.values() for row in rows}
        fitting = {origin for origin in origins if _holds(origin)}
        if origins and not fitting:
            raise ValueError(
                f"it was measured with another version of einsumx, processor or BLAS: {shown(', '.join(min(origins)))}"
            )
        for table, rows in tables.items():
            store.write(table, [row for row in rows if row.origin in fitting])
    except (OSError, RuntimeError, ValueError) as error:
        raise EinsumxError(f"{path} cannot be imported: {error}") from error
    return sum(row.origin in fitting for rows in tables.values() for row in rows)


def _rows(data: Any, reader: store.Reader) -> list[Row]:
    """The checked rows of a table, from a file."""
    if not isinstance(data, list) or len(data) > store.MOST_ROWS:
        raise ValueError(f"{shown(data)} is not a list of at most {store.MOST_ROWS} rows")
    rows = []
    for each in data:
        if not isinstance(each, dict) or set(each) != {*Origin._fields, "key", "value"}:
            raise ValueError(f"{shown(each)} is not a row")
        origin = Origin(*[each[name] for name in Origin._fields])
        row = store.check_row(Row(origin, each["key"], json.dumps(each["value"])))
        reader(row.key, row.value)
        rows.append(row)
    return rows


def _holds(origin: Origin) -> bool:
    try:
        adapter = get_backend(origin.backend)
    except EinsumxError:  # another process may know it
        return False
    return store.fits(origin, store.origin_of(adapter, "" if origin.device == "default" else origin.device))


def _print(origin: Origin, plans: list[Row], rates: list[Row]) -> None:
    machine = ", ".join(filter(None, (origin.machine, origin.engine, f"einsumx {origin.einsumx}")))
    out = console()
    out.print(visible(f"{origin.backend} {origin.framework} on {origin.device}, {machine}"), end="\n\n")
    for row in rates:
        texts = [f"{name} {rate_text(name, rate)}" for name, rate in row.value.items()]
        out.print(f"rates, threads: {row.key}; {', '.join(texts)}\n")
    if plans:
        numbers = ("time", "gain", "when")
        table = plain_table("equation", "sizes", "dtypes", "selected", *numbers, right=numbers)
        for row in plans:
            finding: Finding = row.value
            equation, sizes, _, dtypes, *_ = [*visible(row.key).split("; "), "", "", ""]
            gain = f"{finding.estimated / finding.seconds:.2f}×"
            selected, seconds = _selected(finding), duration(finding.seconds)
            table.add_row(equation, sizes, dtypes, selected, seconds, gain, finding.when[:10])
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
