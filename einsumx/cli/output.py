"""What all commands share on the terminal: JSON, a console for tables, and progress."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from einsumx.errors import EinsumxError
from einsumx.host.threads import core_count
from einsumx.ir.text import quantity
from einsumx.terminal import terminal_width, timing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "console",
    "cores_text",
    "page_url",
    "plain_table",
    "print_json",
    "progress",
    "rate_text",
    "require_rich",
    "shapes_text",
    "source_url",
]


def source_url() -> str:
    """The address of the repository that the package's metadata names."""
    from importlib.metadata import metadata

    urls = dict(str(url).split(", ", 1) for url in metadata("einsumx").get_all("Project-URL", []))
    return urls["Source"]


def page_url(page: str) -> str:
    """The address of a page of the documentation in that repository."""
    from importlib.metadata import version

    return f"{source_url()}/blob/v{version('einsumx')}/docs/{page}"


def print_json(data: dict[str, Any]) -> None:
    """Print an object as indented JSON."""
    print(json.dumps(data, indent=2, allow_nan=False))


def require_rich() -> None:
    """Raise EinsumxError if rich is missing, before time is spent on measuring."""
    if find_spec("rich") is None:
        raise EinsumxError("tables need rich: pip install 'einsumx[cli]'; or ask for --json")


def console() -> Console:
    """A console for standard output that prints text literally."""
    from rich.console import Console

    return Console(width=terminal_width(), highlight=False, markup=False, emoji=False)


def plain_table() -> Table:
    """An empty table without a frame."""
    from rich.box import SIMPLE
    from rich.table import Table

    return Table(box=SIMPLE, pad_edge=False, show_edge=False, header_style="dim")


def cores_text() -> str:
    """How many cores the process may use, in words."""
    return "1 core" if core_count() == 1 else f"{core_count()} cores"


def shapes_text(shapes: tuple[tuple[int, ...], ...]) -> str:
    """Shapes as plans print them.

    >>> shapes_text(((2, 3), (4,), ()))
    '(2,3) (4) ()'
    """
    return " ".join(f"({','.join(map(str, shape))})" for shape in shapes)


def rate_text(name: str, value: float) -> str:
    """A rate of the cost model with its unit.

    >>> rate_text("call", 2.5e-6), rate_text("gemm", 98.7e9), rate_text("copy", 14e9)
    ('2.50 µs', '98.7 G/s', '14 GB/s')
    """
    if name in ("call", "view", "matrix", "run"):
        return timing(value) if value >= 1e-7 else f"{value * 1e9:.3g} ns"
    return f"{quantity(value, '' if name in ('gemm', 'double', 'half', 'native', 'sweep') else 'B')}/s"


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A function that shows on standard error what happens now.

    A terminal shows the latest text only, with the elapsed time, and erases it at the end; elsewhere each text is a
    line.

    Args:
        quiet: show nothing if standard error is no terminal, as programs that read JSON expect.
    """
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield (lambda _: None) if quiet else (lambda text: print(text, file=sys.stderr, flush=True))
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text: bar.update(task, description=text)
