"""Output for terminals: tables and progress."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from einsumx.errors import EinsumxError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def terminal_width() -> int:
    """The terminal's columns, or 120 if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 120


def require_rich(instead: str) -> None:
    """Raise EinsumxError if rich is missing, before any work; ``instead`` is the option that needs no tables."""
    if find_spec("rich") is None:
        raise EinsumxError(f"tables need rich: pip install 'einsumx[cli]'; or pass {instead}")


def console() -> Console:
    """A console for standard output that prints text literally."""
    from rich.console import Console

    return Console(width=terminal_width(), highlight=False, markup=False, emoji=False)


def plain_table(*columns: str, right: Collection[str] = ()) -> Table:
    """An empty table without a frame, whose columns ``right`` have numbers."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, header_style="dim")
    for column in columns:
        is_number = column in right
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


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
