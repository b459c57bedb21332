"""The command ``einsumx``.

Exit status: 0 for success, 1 if ``compare`` or ``conformance`` found a wrong result or ``calibrate`` a machine too busy
to store all rates, 2 if the request cannot be carried out, 130 if it was interrupted.
"""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence

from einsumx import __version__
from einsumx.adapters.entry_points import import_modules
from einsumx.cli.commands import calibrate, compare, explain, new_backend, profile, tune, wisdom
from einsumx.conformance import options as conformance
from einsumx.errors import EinsumxError

OK, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (those of the process by default) and return its exit status.

    Raises:
        SystemExit: the arguments cannot be parsed, or ask for help or the version.
    """
    _print_every_letter()
    options = _parser().parse_args(arguments)
    try:
        import_modules(vars(options).get("import", ()))
        is_right: bool = options.run(options)
        sys.stdout.flush()
    except (EinsumxError, MemoryError) as error:
        print(f"einsumx {options.command}: error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has gone; without this, flushing at exit would fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return OK if is_right else WRONG


def _print_every_letter() -> None:
    """Print a letter that the output's encoding lacks, such as a Greek label, as an escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("einsumx", description="One einsum for every array library.")
    parser.add_argument("--version", action="version", version=f"einsumx {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, about: str, more: str, run: Callable[[argparse.Namespace], bool]) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=about.replace("\n", " ").rstrip(".").partition(". ")[0],
            description=about,
            epilog=more,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
        return command

    compare.add_arguments(add("compare", compare.ABOUT, compare.MORE, compare.run))
    explain.add_arguments(add("explain", explain.ABOUT, explain.MORE, explain.run))
    profile.add_arguments(add("profile", profile.ABOUT, profile.MORE, profile.run))
    tune.add_arguments(add("tune", tune.ABOUT, tune.MORE, tune.run))
    calibrate.add_arguments(add("calibrate", calibrate.ABOUT, calibrate.MORE, calibrate.run))
    wisdom.add_arguments(add("wisdom", wisdom.ABOUT, wisdom.MORE, wisdom.run))
    conformance.add_arguments(add("conformance", conformance.ABOUT, conformance.MORE, _conformance))
    new_backend.add_arguments(add("new-backend", new_backend.ABOUT, new_backend.MORE, new_backend.run))
    return parser


def _conformance(options: argparse.Namespace) -> bool:
    from einsumx.conformance.command import judge_all  # imports NumPy, which explaining a plan does not need

    return judge_all(options)
