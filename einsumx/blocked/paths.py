"""Chooses the path of a contraction under a memory limit: the usual one, or one that is faster in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf

from einsumx.blocked.cost import Blocking
from einsumx.blocked.stage_cost import Outline, StageCostModel
from einsumx.imports import imported
from einsumx.ir.bind import SizedEquation
from einsumx.ir.program import Path
from einsumx.planner.path import Optimize, find_path

__all__ = ["along_paths"]

_SECONDS, _TIMES = 0.1, 2.0
"""Other paths are tried if a contraction takes longer than its lower bound by this many seconds and this many times.

Trying one takes tens of milliseconds for few operands, and grows with about the square of their number.
"""

_MANY = 12
"""Operands beyond which dynamic programming takes too long, and other paths have to save more."""


def along_paths(
    model: StageCostModel, optimize: Optimize, blocked: Callable[[Outline], tuple[Blocking, bool]]
) -> tuple[Blocking, bool]:
    """The fastest blocking that fits along any of a few paths, or else the smallest; and whether it fits.

    When the path that is best without a limit is cut, some values may have to be recomputed, or operands reread, for
    every block. Another path may avoid this. A path or an optimizer that the user passes is kept.
    ``blocked`` gives the blocking along a path and whether it fits.
    """
    reading = sum(
        0.0 if in_place else operand.nbytes / rate
        for operand, in_place, rate in zip(model.operands, model.in_place, model.read_rates)
    )
    first = Outline(model, find_path(model.equation, optimize))
    best, fits = blocked(first)
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
        other, other_fits = blocked(outline)
        if (other.seconds if other_fits else inf, other.peak_bytes) < (best.seconds if fits else inf, best.peak_bytes):
            best, fits = other, other_fits
    return best, fits


def _thrifty(equation: SizedEquation) -> Iterator[Path]:
    """Paths with small intermediate values, and the simplest ones."""
    count = len(equation.inputs)
    if count <= _MANY:
        dynamic_programming = imported("opt_einsum.paths").DynamicProgramming
        optimizers = [dynamic_programming(minimize="size")]
        with suppress(KeyError):  # opt_einsum 3.3 has no such objective
            optimizers.append(dynamic_programming(minimize="write"))
        for optimizer in optimizers:
            yield find_path(equation, optimizer)
    yield find_path(equation, "greedy")
    yield find_path(equation, False)
    yield find_path(equation, [(left - 2, left - 1) for left in range(count, 1, -1)])
