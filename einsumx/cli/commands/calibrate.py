"""``einsumx calibrate``: measure, show or remove the rates of the planner's cost model."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from einsumx.adapters.registry import backends, get_backend
from einsumx.cli.arguments import add_import, add_output
from einsumx.cli.calibrate import Calibration, calibrate
from einsumx.cli.output import console, plain_table, print_json, progress, require_rich
from einsumx.errors import EinsumxError
from einsumx.ir.text import quantity
from einsumx.runtime.calibration import cache_folder, declared, read_rates, stored_files
from einsumx.terminal import timing

__all__ = ["ABOUT", "MORE", "add_arguments", "run"]

ABOUT = """\
Measures the rates of this machine that the planner's cost model uses, and
stores them for later processes. It takes some seconds per backend, and needs
an otherwise idle machine: on a busy one it waits and tries again, three times
in all, and then stores nothing. It is optional: by default, plans use the
rates that each backend declares.
"""

MORE = """\
A calibration holds for one backend, kind of device, version of the framework
and number of threads (EINSUMX_NUM_THREADS, OMP_NUM_THREADS, ..., or the cores
that the process may use). It is a file in EINSUMX_CACHE, or else in the folder
einsumx in the platform's cache folder (XDG_CACHE_HOME or ~/.cache on Linux).
Rates are in seconds, or in bytes or multiply-adds a second. JAX compiles whole
plans: its rates are those of calls within a compiled plan.

The exit status is 1 if the machine was too busy to store the rates of a
backend. Free the machine, or store them anyway with --force.

--json prints one object:
  folder          where calibrations are stored
  calibrations    a list of objects:
    backend, device, framework, threads
                  what it holds for; framework is the framework's version
    declared      the rates that the backend declares
    measured      the measured rates, without implausible or unusable ones
    disturbances  sentences on what kept the machine busy meanwhile
    stored        whether later processes use the measured rates
With --reset:
  folder          the same
  removed         the names of the files that were removed
"""

_MEANINGS = {
    "call": "a call, before any work",
    "view": "a reshape that copies nothing",
    "matrix": "a matrix of a batched product, before any work",
    "gemm": "multiply-adds of a large product",
    "double": "the same in float64",
    "half": "the same in float16",
    "stream": "bytes of sums and elementwise products",
    "copy": "bytes of copies in long runs",
    "permute": "bytes of copies that move the innermost axis",
    "run": "a contiguous run of a copy, besides its bytes",
    "native": "multiply-adds of the framework's own einsum",
    "sweep": "the same, sweeping through one operand",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_output(parser)
    add_import(parser)
    parser.add_argument(
        "--backend", nargs="+", action="extend", metavar="NAME", help="only these (default: all that are installed)"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--show", action="store_true", help="show the stored rates, without measuring")
    either.add_argument("--force", action="store_true", help="measure once, and store the rates of a busy machine, too")
    either.add_argument("--reset", action="store_true", help="remove the stored rates, without measuring")


def run(options: argparse.Namespace) -> bool:
    """Measure, show or remove calibrations. Returns whether the machine was quiet enough to store all of them.

    Raises:
        EinsumxError: a backend cannot be calibrated, or the cache folder cannot be written.
    """
    if not (options.json or options.reset):
        require_rich()
    paths = stored_files(options.backend or (), options.device.partition(":")[0])
    if options.reset:
        _remove(paths, options.json)
    elif options.show:
        _show(list(_readable(paths)), options.json)
    else:
        # A backend without a module stands for many libraries, with rates of their own.
        installed = [name for name, is_installed in backends().items() if is_installed and get_backend(name).module]
        adapters = [get_backend(name) for name in options.backend or installed]
        with progress(quiet=options.json) as announce:
            calibrations = [calibrate(adapter, options.device, announce, force=options.force) for adapter in adapters]
        _show(calibrations, options.json)
        return all(calibration.is_stored for calibration in calibrations)
    return True


def _remove(paths: Sequence[Path], as_json: bool) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
    if as_json:
        print_json({"folder": str(cache_folder()), "removed": [path.name for path in paths]})
    else:
        print(f"{len(paths)} removed from {cache_folder()}")


def _readable(paths: Sequence[Path]) -> Iterator[Calibration]:
    """The calibrations in files; reports files that cannot be used on standard error."""
    for path in paths:
        try:
            key, rates = read_rates(path)
            yield Calibration(key, declared(get_backend(key.backend), key.device).rates, rates)
        except (OSError, ValueError, EinsumxError) as error:
            print(f"{path} is not used: {error}", file=sys.stderr)


def _show(calibrations: Sequence[Calibration], as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(cache_folder()), "calibrations": list(map(_data, calibrations))})
        return
    for calibration in calibrations:
        _print_table(calibration)
        _print_disturbances(calibration)
    stored = [calibration.key.backend for calibration in calibrations if calibration.is_stored]
    which = f"{', '.join(stored)}: " if 0 < len(stored) < len(calibrations) else ""
    print(f"{which}stored in {cache_folder()}" if stored else f"nothing is stored in {cache_folder()}")


def _data(calibration: Calibration) -> dict[str, Any]:
    return {
        **asdict(calibration.key),
        "declared": asdict(calibration.declared),
        "measured": calibration.measured,
        "disturbances": calibration.disturbances,
        "stored": calibration.is_stored,
    }


def _print_disturbances(calibration: Calibration) -> None:
    """Print why the rates mean little, if other work disturbed the measurement."""
    if not calibration.disturbances:
        return
    if calibration.is_stored:
        outcome = "These rates are stored all the same, as --force asks."
    else:
        outcome = "These rates are not stored. Run it again when nothing else computes, or store them with --force."
    reasons = "; ".join(calibration.disturbances)
    console().print(f"WARNING: the machine was busy: {reasons}. {outcome}\n", style="bold yellow")


def _print_table(calibration: Calibration) -> None:
    key = calibration.key
    table = plain_table()
    for column in ("rate", "declared", "measured"):
        table.add_column(column, justify="left" if column == "rate" else "right", no_wrap=True)
    table.add_column("")
    for name, meaning in _MEANINGS.items():
        declared, measured = getattr(calibration.declared, name), calibration.measured.get(name)
        if declared:
            table.add_row(name, _rate(name, declared), "" if measured is None else _rate(name, measured), meaning)
    out = console()
    threads = "1 thread" if key.threads == 1 else f"{key.threads} threads"
    out.print(f"{key.backend} {key.framework} on {key.device}, {threads}\n")
    out.print(table)
    out.print()


def _rate(name: str, value: float) -> str:
    """A rate with its unit.

    >>> _rate("call", 2.5e-6), _rate("gemm", 98.7e9), _rate("copy", 14e9)
    ('2.50 µs', '98.7 G/s', '14 GB/s')
    """
    if name in ("call", "view", "matrix", "run"):
        return timing(value) if value >= 1e-7 else f"{value * 1e9:.3g} ns"
    return f"{quantity(value, '' if name in ('gemm', 'double', 'half', 'native', 'sweep') else 'B')}/s"
