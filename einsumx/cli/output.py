"""What several commands print: JSON, addresses, and words for shapes, rates and cores."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import json
from typing import Any

from einsumx import __version__
from einsumx.errors import counted
from einsumx.host.threads import core_count
from einsumx.ir.text import duration, quantity


def source_url() -> str:
    """The address of the repository that the package's metadata names."""
    from importlib.metadata import metadata

    urls = dict(str(url).split(", ", 1) for url in metadata("einsumx").get_all("Project-URL", []))
    return urls["Source"]


def page_url(page: str) -> str:
    """The address of a page of the documentation in that repository."""
    return f"{source_url()}/blob/v{__version__}/docs/{page}"


def print_json(data: dict[str, Any]) -> None:
    """Print an object as indented JSON."""
    print(json.dumps(data, indent=2, allow_nan=False))


def cores_text() -> str:
    """How many cores the process may use, in words."""
    return counted(core_count(), "core")


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
        return duration(value)
    return f"{quantity(value, '' if name in ('gemm', 'double', 'half', 'native', 'sweep') else 'B')}/s"
