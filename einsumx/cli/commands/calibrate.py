"""``einsumx calibrate``: measure the rates of the planner's cost model."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from einsumx.adapters.registry import backends, get_backend
from einsumx.cli.arguments import add_import, add_output
from einsumx.cli.output import print_json, rate_text
from einsumx.cli.rate_measurement import Calibration, calibrate
from einsumx.errors import counted
from einsumx.host.environment import cache_folder
from einsumx.terminal import console, plain_table, progress, require_rich

ABOUT = """\
Measures the rates of this machine that the planner's cost model uses, and
stores them for later processes; `einsumx wisdom` shows and forgets them. It takes some seconds per backend, and needs
an otherwise idle machine: on a busy one it waits and tries again, three times
in all, and then stores nothing. It is optional: by default, plans use the
rates that each backend declares.
"""

MORE = """\
A calibration holds for one backend, version of the framework and of einsumx,
machine, kind of device and number of threads (EINSUMX_NUM_THREADS,
OMP_NUM_THREADS, ..., or the cores that the process may use).
Rates are in seconds, or in bytes or multiply-adds a second. JAX compiles whole
plans: its rates are those of calls within a compiled plan.

The exit status is 1 if the machine was too busy to store the rates of a
backend. Free the machine, or store them anyway with --force.

--json prints one object:
  folder          where calibrations are stored
  calibrations    a list of objects:
    backend, device, framework, einsumx, machine, engine, threads
                  what it holds for: framework and einsumx are versions, engine
                  is NumPy's BLAS or the model of the accelerator
    declared      the rates that the backend declares
    measured      the measured rates, without implausible or unusable ones
    disturbances  sentences on what kept the machine busy meanwhile
    stored        whether later processes use the measured rates
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
    parser.add_argument("--force", action="store_true", help="measure once, and store the rates of a busy machine, too")


def run(options: argparse.Namespace) -> bool:
    """Measure rates. Returns whether the machine was quiet enough to store all of them.

    Raises:
        EinsumxError: a backend cannot be calibrated, or the cache folder cannot be written.
    """
    if not options.json:
        require_rich("--json")
    # A backend without a module stands for many libraries, with rates of their own.
    installed = [name for name, is_installed in backends().items() if is_installed and get_backend(name).module]
    adapters = [get_backend(name) for name in options.backend or installed]
    with progress(quiet=options.json) as announce:
        calibrations = [calibrate(adapter, options.device, announce, force=options.force) for adapter in adapters]
    _show(calibrations, options.json)
    return all(calibration.is_stored for calibration in calibrations)


def _show(calibrations: Sequence[Calibration], as_json: bool) -> None:
    if as_json:
        print_json({"folder": cache_folder(), "calibrations": list(map(_data, calibrations))})
        return
    for calibration in calibrations:
        _print_table(calibration)
        _print_disturbances(calibration)
    kept = [calibration.origin.backend for calibration in calibrations if calibration.is_stored]
    which = f"{', '.join(kept)}: " if 0 < len(kept) < len(calibrations) else ""
    print(f"{which}stored in {cache_folder()}" if kept else f"nothing is stored in {cache_folder()}")


def _data(calibration: Calibration) -> dict[str, Any]:
    return {
        **calibration.origin._asdict(),
        "threads": calibration.threads,
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
    origin, threads = calibration.origin, calibration.threads
    table = plain_table("rate", "declared", "measured", "", right=("declared", "measured"))
    for name, meaning in _MEANINGS.items():
        declared, measured = getattr(calibration.declared, name), calibration.measured.get(name)
        if declared:
            table.add_row(
                name, rate_text(name, declared), "" if measured is None else rate_text(name, measured), meaning
            )
    out = console()
    number = counted(threads, "thread")
    out.print(f"{origin.backend} {origin.framework} on {origin.device}, {number}, {origin.machine}\n")
    out.print(table)
    out.print()
