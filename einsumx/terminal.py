"""Formatting for terminals: their width, and durations."""

from __future__ import annotations

import os
import shutil
import sys

__all__ = ["terminal_width", "three_digits", "timing"]


def timing(seconds: float) -> str:
    """A duration with three digits and a unit.

    >>> timing(2.2519), timing(0.01499), timing(3.2e-6)
    ('2.25 s', '15.0 ms', '3.20 µs')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale * 0.9995:
            return f"{three_digits(seconds / scale)} {unit}"
    return f"{three_digits(seconds * 1e6)} µs"


def three_digits(number: float) -> str:
    """A number with at least three digits, without an exponent.

    >>> three_digits(2.2519), three_digits(14.99), three_digits(1234.5)
    ('2.25', '15.0', '1234')
    """
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}"


def terminal_width() -> int:
    """The terminal's columns, or 120 if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
