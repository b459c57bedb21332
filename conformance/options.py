"""What the command line of ``einsumx conformance`` may say; importing it imports no framework."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["ABOUT", "LEVELS", "MORE", "Level", "add_arguments"]

Level: TypeAlias = Literal["quick", "full"]
LEVELS: tuple[Level, ...] = ("quick", "full")

ABOUT = """\
Judges einsumx on a backend, or any einsum function, by the conformance suite.
Each case is one promise on one example; results are held to exact values, or
to the bound on rounding of their dtype, element by element.
"""

MORE = """\
examples:
  einsumx conformance --backend torch --device cuda:0 --level full
  einsumx conformance --callable numpy:einsum --callable torch:einsum
  einsumx conformance --callable opt_einsum:contract --backend torch
  einsumx conformance --all --json here.json --html here.html
  einsumx conformance --merge here.json there.json --html both.html

A case passes, fails, or does not apply (the framework has no such thing). A
deviation is a failure that is listed for the subject with its reason; a listed
case that passes is a failure, until it is taken off the list.

The exit status is 0 where nothing failed, 1 where something did, 2 where what
was asked cannot be done, and 130 where it was interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command line may say."""
    what = parser.add_argument_group("what is judged")
    what.add_argument("--backend", action="append", default=[], metavar="NAME", help="einsumx on this backend")
    what.add_argument("--all", action="store_true", help="einsumx on every backend that is installed")
    what.add_argument(
        "--callable",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="this einsum function, on arrays of its own framework, or of NumPy, or of each --backend",
    )
    what.add_argument("--device", default="", help="where arrays are put, such as cuda:0 (default: the framework's)")
    what.add_argument(
        "--merge", nargs="+", type=Path, metavar="FILE", help="judge nothing: read what --json has written"
    )

    which = parser.add_argument_group("by which cases")
    which.add_argument("--level", choices=LEVELS, default="quick", help="some or all of the cases (default: quick)")
    which.add_argument("--case", default="*", metavar="PATTERN", help="those of such a name, in which * is any text")
    which.add_argument(
        "--random", type=_count, metavar="N", help="random problems in each dtype (default: 20 in quick, 100 in full)"
    )
    which.add_argument("--seed", type=int, default=0, metavar="S", help="where the random problems begin (default: 0)")
    which.add_argument("--list", action="store_true", help="judge nothing: print the names of the cases")

    how = parser.add_argument_group("how it is reported")
    how.add_argument("--quiet", action="store_true", help="print no tables and no progress")
    for name, text in (
        ("json", "all outcomes, which --merge reads"),
        ("junit", "JUnit's XML"),
        ("html", "a page with a matrix of features, subjects and dtypes"),
        ("markdown", "a matrix of features and subjects"),
    ):
        how.add_argument(f"--{name}", type=Path, metavar="FILE", help=text)


def _count(text: str) -> int:
    if (count := int(text)) < 0:
        raise ValueError("a number of problems is not negative")
    return count
