"""How the commands read their arguments, and the options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from einsumx import dtypes
from einsumx.conformance.options import IMPORT
from einsumx.errors import EquationError, shown
from einsumx.ir.parse import parse_names, parse_sublists
from einsumx.runtime.limits import limit_bytes

_SHAPES = "sizes with commas, such as 64,100,8; - or () for a scalar"
_UNKNOWN = "; ? for a size that is not known"


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare --device and --json."""
    parser.add_argument("--device", default="", help="such as cuda; by default the framework's default")
    parser.add_argument("--json", action="store_true", help="print JSON, as described below")


def add_import(parser: argparse.ArgumentParser) -> None:
    """Declare --import."""
    parser.add_argument("--import", **IMPORT)


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Declare --dtype."""
    parser.add_argument("--dtype", type=_dtype, default="float32", help="of the operands (default: float32)")


def add_density(parser: argparse.ArgumentParser) -> None:
    """Declare --density."""
    about = "the share of elements that are not 0, for sparse arrays (default: 1)"
    parser.add_argument("--density", type=_density, default=1.0, metavar="SHARE", help=about)


def add_problem(parser: argparse.ArgumentParser, *, unknown: bool = False) -> None:
    """Declare an equation with the shapes and the dtype of its operands, the backend, and the path.

    Args:
        parser: of a command.
        unknown: whether sizes may be unknown.
    """
    parser.add_argument("equation", metavar="EQUATION", help="such as 'ab,bc->ca'; after -- if it starts with ->")
    add_shapes(parser, nargs="+", unknown=unknown)
    add_dtype(parser)
    parser.add_argument("--backend", default="numpy", metavar="NAME", help="the framework (default: numpy)")
    parser.add_argument(
        "--optimize",
        default="auto",
        metavar="NAME",
        help="how to find the path: auto, greedy, optimal, dp, cotengra, ... (default: auto)",
    )


def add_shapes(parser: argparse.ArgumentParser, nargs: str, *, unknown: bool = False) -> None:
    """Declare the shapes of the operands, after the equation; or first, if a text of names comes last."""
    about = f"{_SHAPES}{_UNKNOWN * unknown}; a text of names, 'row k, k col -> row col', comes after the shapes"
    parser.add_argument("shapes", nargs=nargs, action=_Shapes, const=unknown, metavar="SHAPE", help=about)


def _density(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a share; write a number above 0, up to 1")
    return share


class _Shapes(argparse.Action):
    """Stores the shapes; from ``64,100 100,8 "row k, k column -> row column"``, it also makes the equation."""

    def __call__(self, _: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *__: object) -> None:
        texts: list[str] = values
        try:
            if texts and "->" in (names := texts[-1]):
                texts = [namespace.equation, *texts[:-1]]
                namespace.equation = parse_sublists(*parse_names(names, len(texts))).text
            setattr(namespace, self.dest, [shape(text, self.const) for text in texts])
        except (argparse.ArgumentTypeError, EquationError) as error:
            raise argparse.ArgumentError(self, str(error)) from None


def shape(text: str, unknown: bool = False) -> tuple[int | None, ...]:
    """A shape in the notation of people or of plans; where sizes may be unknown, ``?`` stands for one.

    >>> shape("64,100,8"), shape("(5,)"), shape("7"), shape("-"), shape("()"), shape("?,3", True)
    ((64, 100, 8), (5,), (7,), (), (), (None, 3))
    """
    bare = text.strip()
    if bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip() or "-"
    sizes = [] if bare == "-" else [size.strip() for size in bare.removesuffix(",").split(",")]
    if not all(size.isdecimal() or (unknown and size == "?") for size in sizes):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a shape; write {_SHAPES}{_UNKNOWN * unknown}")
    return tuple([None if size == "?" else int(size) for size in sizes])


def count(text: str) -> int:
    """A positive integer."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a positive number")
    return int(text)


def amount(text: str) -> int:
    """An amount of memory in bytes."""
    try:
        return limit_bytes(text, lambda: None)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not an amount of memory; write 8GiB, 500MB, or bytes"
        ) from None


def file_ending_in(ending: str) -> Callable[[str], Path]:
    """An argument type for file names with an ending."""

    def path(text: str) -> Path:
        if Path(text).suffix.lower() != ending:
            raise argparse.ArgumentTypeError(f"{shown(text)} does not end in {ending}")
        return Path(text)

    return path


def _dtype(text: str) -> str:
    if dtypes.kind(text) == "O":
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a dtype; write float32, float64, bfloat16, complex64, int32, ..."
        )
    return text
