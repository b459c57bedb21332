"""The command line of ``einsumx conformance``. Importing this module imports no framework."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal, TypeAlias

Level: TypeAlias = Literal["quick", "full"]
LEVELS: tuple[Level, ...] = ("quick", "full")

ABOUT = """\
Judge einsumx on a backend, or any einsum function, with the conformance suite.
Each case tests one promise on one example. Each element of a result is
compared with its exact value, within the bound on rounding of its dtype.
"""

MORE = """\
examples:
  einsumx conformance --backend torch --device cuda:0 --level full
  einsumx conformance --callable numpy:einsum --callable torch:einsum
  einsumx conformance --callable opt_einsum:contract --backend torch
  einsumx conformance --all --json here.json --html here.html
  einsumx conformance --merge here.json there.json --html both.html

To judge some cases again, write their outcomes to a file with --case and
--json, and merge it with the file of all cases.

A case passes, fails, or does not apply because the framework lacks a feature.
A deviation is a failure that is listed for the subject with its reason. A
listed case that passes counts as a failure until it is taken off the list.

The exit status is 0 if nothing failed, 1 if something failed, 2 if the command
cannot be carried out, and 130 if it was interrupted.
"""


def _count(text: str) -> int:
    if (count := int(text)) < 0:
        raise ValueError("the number of problems must not be negative")
    return count


IMPORT: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "MODULE",
    "help": "first import this module, which calls einsumx.register; the current folder is searched too",
}
"""The option ``--import``, which other commands have too, as arguments of argparse's ``add_argument``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    group = parser.add_argument_group("subjects")
    group.add_argument("--import", **IMPORT)
    group.add_argument("--backend", action="append", default=[], metavar="NAME", help="einsumx on this backend")
    about = "this einsum function, on arrays of its own framework (else NumPy), or of each backend"
    group.add_argument("--callable", action="append", default=[], metavar="MODULE:NAME", help=about)
    group.add_argument("--device", default="", help="the arrays' device, such as cuda:0 (default: the framework's)")
    group.add_argument("--all", action="store_true", help="einsumx on every installed backend")
    group.add_argument("--merge", nargs="+", type=Path, metavar="FILE", help="judge nothing; read files of --json")

    group = parser.add_argument_group("cases")
    group.add_argument("--level", choices=LEVELS, default="quick", help="some or all of the cases (default: quick)")
    about = "random problems in each dtype (default: 10, or 100 in full)"
    group.add_argument("--random", type=_count, metavar="N", help=about)
    group.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the random problems (default: 0)")
    group.add_argument("--case", default="*", metavar="PATTERN", help="only cases whose names match; * is any text")
    group.add_argument("--list", action="store_true", help="judge nothing; print the names of the cases")

    group = parser.add_argument_group("reports")
    group.add_argument("--quiet", action="store_true", help="print no tables and no progress")
    for name, text in (
        ("json", "all outcomes, for --merge"),
        ("html", "a page with a matrix of features, subjects and dtypes"),
        ("markdown", "a matrix of features and subjects"),
    ):
        group.add_argument(f"--{name}", type=Path, metavar="FILE", help=text)
