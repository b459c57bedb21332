"""Which path a contraction takes under a memory limit: the one without it, or one that is faster in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from einsumx.blocked.cost import Blocking
from einsumx.blocked.stage_cost import Outline, StageCostModel
from einsumx.ir.bind import SizedEquation
from einsumx.ir.program import Path
from einsumx.planner.path import Optimize, find_path

__all__ = ["along_paths"]

_SECONDS, _TIMES = 0.1, 2.0
"""What a contraction takes more than the least that it can, for other paths to be looked at: seconds, and times.

To look at one takes tens of milliseconds where operands are few, and longer by about the square of their number.
"""

_MANY = 12
"""Operands beyond which dynamic programming takes too long, and other paths have to save more."""


def along_paths(
    model: StageCostModel, optimize: Optimize, blocked: Callable[[Outline, float], tuple[Blocking, bool]]
) -> tuple[Blocking, bool]:
    """The fastest blocking that fits, along any of a few paths, or else the smallest; and whether it fits.

    The best path without a limit may have values that are computed, or operands that are read, again and again where
    it is cut, while another has none. A path or an optimizer that the user asks for is taken as it is.

    Args:
        model: the contraction.
        optimize: as the user gave it.
        blocked: the blocking along a path, and whether it fits; from the seconds that one along another path takes.
    """
    reading = sum(
        0.0 if there else operand.nbytes / rate
        for operand, there, rate in zip(model.operands, model.lies_there, model.read_rates)
    )
    first = Outline(model, find_path(model.equation, optimize))
    best, fits = blocked(first, inf)
    if optimize not in (True, "auto") or len(first.path) < 2:
        return best, fits
    least = max(first.seconds, reading)
    spared = _SECONDS * max(1.0, len(model.operands) / _MANY) ** 2
    if fits and best.seconds <= max(least + spared, _TIMES * least):
        return best, fits
    others = [Outline(model, path) for path in dict.fromkeys(_thrifty(model.equation)) if path != first.path]
    for outline in sorted(others, key=lambda outline: outline.seconds):
        if fits and best.seconds <= max(outline.seconds, reading):
            break
        found, has_room = blocked(outline, best.seconds if fits else inf)
        if (found.seconds if has_room else inf, found.peak_bytes) < (best.seconds if fits else inf, best.peak_bytes):
            best, fits = found, has_room
    return best, fits


def _thrifty(equation: SizedEquation) -> Iterator[Path]:
    """Paths with small values, and plain ones."""
    count = len(equation.inputs)
    if count <= _MANY:
        from opt_einsum.paths import DynamicProgramming

        for what in ("size", "write"):
            yield find_path(equation, DynamicProgramming(minimize=what))
    yield find_path(equation, "greedy")
    yield find_path(equation, False)
    yield find_path(equation, [(left - 2, left - 1) for left in range(count, 1, -1)])
