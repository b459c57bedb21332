"""Plans a contraction in blocks that stay within a memory limit, or finds the smallest limit that is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import NamedTuple

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import blocks_of
from einsumx.blocked.boxes import Grid
from einsumx.blocked.cost import Blocking
from einsumx.blocked.program import BlockedContraction, BlockedProgram
from einsumx.blocked.search import Search
from einsumx.blocked.stage_cost import Outline
from einsumx.blocked.stage_programs import StagePrograms
from einsumx.caches import cached
from einsumx.dtypes import itemsize
from einsumx.errors import MemoryLimitError, excerpt
from einsumx.imports import imported
from einsumx.ir.bind import SizedEquation
from einsumx.ir.operand import Path
from einsumx.ir.text import quantity
from einsumx.planner.path import find_path
from einsumx.planner.search import pace_of

_WORTH = 1.25
"""How many times as long smaller blocks may take if the memory that they save allows reading ahead."""


def blocked_program(adapter: Adapter, request: BlockedContraction) -> BlockedProgram:
    """Cut a contraction into blocks that stay within the limit.

    Raises:
        BackendError: the framework's arrays keep no memory limit.
        MemoryLimitError: no blocks are small enough; the error names the smallest possible limit.
    """
    best: _Best = _best_blocking(adapter, request, fastest=True)
    limit, landing, shared = request.limit, request.landing, _shared_bytes(request)
    if not best.fits:
        fresh, smallest = 0 if landing.beside else landing.cut, best.blocking.peak_bytes
        raise too_small(limit, smallest * request.together + shared, request.contraction.equation, fresh=fresh)
    blocking, programs = best.blocking, best.programs
    grid = Grid(programs.contraction.equation.sizes, blocking)
    return BlockedProgram(
        programs.contraction, limit, request.in_place, landing, request.is_traced, blocking, programs, grid
    )


def least_limit(adapter: Adapter, request: BlockedContraction) -> int:
    """The smallest limit for which :func:`blocked_program` succeeds, or any sufficient one up to ``limit``.

    It does not look for the fastest blocks, so it is the quicker way to find out whether any fit.
    """
    best: _Best = _best_blocking(adapter, request, fastest=False)
    return best.blocking.peak_bytes


class _Best(NamedTuple):
    """The best blocking of a contraction, or else the smallest; whether it fits; and what runs on its blocks."""

    blocking: Blocking
    fits: bool
    programs: StagePrograms

    def is_better_than(self, other: _Best) -> bool:
        """Whether it fits and is faster, or is smaller if none fits."""
        mine, theirs = (
            (each.blocking.seconds if each.fits else inf, each.blocking.peak_bytes) for each in (self, other)
        )
        return mine < theirs


@cached("blocks")
def _best_blocking(adapter: Adapter, request: BlockedContraction, *, fastest: bool) -> _Best:
    blocks_of(adapter)  # raises, if it cannot keep a limit
    limit, landing, together = request.limit, request.landing, request.together
    shared = _shared_bytes(request)
    share, block_landing = (limit - shared) // together, landing._replace(cut=landing.cut - shared)

    def along(outline: Outline) -> _Best:
        search = Search(outline, block_landing)
        best, fits = search.block(share, pieces=request.pieces, fastest=fastest)
        if fits and not fastest:
            best = replace(best, seconds=0.0)  # no other path can be faster
        elif fits and best.order and not request.is_traced and not all(request.in_place) and together == 1:
            ahead, ahead_fits = search.block(limit, read_ahead=True, pieces=request.pieces)
            if ahead_fits and ahead.seconds < _WORTH * best.seconds:
                best = ahead
        return _Best(best, fits, search.programs(best))

    return _along_paths(adapter, request, along)


def _shared_bytes(request: BlockedContraction) -> int:
    """The bytes of the result that several blocks at once have in common."""
    return request.landing.cut if request.together > 1 else 0


# -- messages -----------------------------------------------------------------------------------------------------


def too_small(
    limit: int, smallest: int, sized: SizedEquation, subject: str = "this contraction", *, fresh: int = 0
) -> MemoryLimitError:
    """The error for a limit that is too small; ``fresh`` is the size in bytes of a result that ``out=`` could save."""
    of_result = f", of which {quantity(fresh, 'B')} are for the result and not needed with out="
    error = MemoryLimitError(
        f"{subject} cannot be computed within {quantity(limit, 'B')}; the smallest memory_limit= is "
        f"{smallest} bytes{in_units(smallest)}{of_result if 2 * fresh >= smallest else ''}\n  {excerpt(sized.text)}"
    )
    error.smallest = smallest
    return error


def in_units(count: int) -> str:
    """A large number of bytes with a unit, rounded up.

    >>> in_units(19_200), in_units(1_342_177_281)
    ('', ' (1.35 GB)')
    """
    digits = len(str(count))
    if digits < 7:
        return ""
    step = 10 ** (digits - 3)
    return f" ({quantity(-(-count // step) * step, 'B')})"


# -- paths --------------------------------------------------------------------------------------------------------

_SECONDS, _TIMES = 0.1, 2.0
"""Other paths are tried if a contraction takes longer than its lower bound by this many seconds and this many times.

Trying one takes tens of milliseconds for few operands, and grows with about the square of their number.
"""

_MANY = 12
"""Operands beyond which dynamic programming takes too long, and other paths have to save more."""


def _along_paths(adapter: Adapter, request: BlockedContraction, along: Callable[[Outline], _Best]) -> _Best:
    """The best blocking along any of a few paths; ``along`` gives that along one.

    When the path that is best without a limit is cut, some values may have to be recomputed, or operands reread, for
    every block. Another path may avoid this. A path or an optimizer that the user passes is kept.
    """
    contraction = request.contraction
    reading = sum(
        0.0 if in_place else operand.nbytes / request.read_rate(number)
        for number, (operand, in_place) in enumerate(zip(contraction.operands, request.in_place))
    )
    first = Outline(adapter, request, contraction.path)
    best = along(first)
    if not request.is_path_free or len(first.path) < 2:
        return best
    least = max(first.seconds, reading)
    spared = _SECONDS * max(1.0, len(contraction.operands) / _MANY) ** 2
    if best.fits and best.blocking.seconds <= max(least + spared, _TIMES * least):
        return best
    dtype, equation = contraction.compute_dtype, contraction.equation
    within = pace_of(contraction.place.traits, dtype)._replace(room=request.limit / itemsize(dtype))
    paths = dict.fromkeys([find_path(equation, pace=within), *_thrifty(equation)])
    others = [Outline(adapter, request, path) for path in paths if path != first.path]
    for outline in sorted(others, key=lambda outline: outline.seconds):
        if best.fits and best.blocking.seconds <= max(outline.seconds, reading):
            break
        other = along(outline)
        if other.is_better_than(best):
            best = other
    return best


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
