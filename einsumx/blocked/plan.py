"""Plans a contraction in blocks that stay within a memory limit, or finds the smallest limit that is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import NamedTuple

from einsumx.adapters.facets import blocks_of
from einsumx.blocked.cost import Blocking, ResultFootprint
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.search import Search
from einsumx.blocked.stage_cost import Outline, StageCostModel
from einsumx.caches import cached
from einsumx.dtypes import itemsize
from einsumx.errors import MemoryLimitError, excerpt
from einsumx.imports import imported
from einsumx.ir.bind import SizedEquation
from einsumx.ir.operand import Path
from einsumx.ir.text import quantity
from einsumx.measuring.calibration import traits_in
from einsumx.planner.path import Optimize, find_path
from einsumx.planner.search import pace_of
from einsumx.runtime.prepare import computed_dtype, result_dtype, sized_equation
from einsumx.runtime.request import Described

_WORTH = 1.25
"""How many times as long smaller blocks may take if the memory that they save allows reading ahead."""


class BlockedContraction(NamedTuple):
    """A contraction to be cut into blocks; a key of the planner's caches.

    Attributes:
        contraction: the contraction, with the device.
        limit: the memory limit in bytes.
        in_place: whether each operand is already on the device; blocks of it are views and take no memory.
        landing: the memory needed to store the result.
        read_rates: bytes a second for operands that are read; None, or no tuple at all, for the rate of a copy.
        together: how many blocks are computed or held at once, and share the memory that the result leaves.
        pieces: the least number of pieces to cut the contraction into, if its sizes allow it.
    """

    contraction: Described
    limit: int
    in_place: tuple[bool, ...]
    landing: ResultFootprint
    read_rates: tuple[float | None, ...] = ()
    together: int = 1
    pieces: int = 1


def blocked_program(request: BlockedContraction) -> BlockedProgram:
    """Cut a contraction into blocks that stay within the limit.

    Raises:
        MemoryLimitError: no blocks are small enough; the error names the smallest possible limit.
    """
    # An optimizer object may find another path the next time.
    optimize = request.contraction.options.optimize
    program = _blocked_program if isinstance(optimize, str | bool | tuple) else _blocked_program.__wrapped__
    return program(request)


@cached("blocks")
def _blocked_program(request: BlockedContraction) -> BlockedProgram:
    limit, in_place, landing, together = request.limit, request.in_place, request.landing, request.together
    model = _model(request)
    shared_result = landing.cut if together > 1 else 0
    share = (limit - shared_result) // together
    block_landing = landing._replace(cut=landing.cut - shared_result)

    def blocked(outline: Outline) -> tuple[Blocking, bool]:
        search = Search(model, outline, block_landing)
        serial, fits = search.block(share, pieces=request.pieces)
        if fits and serial.order and not all(in_place) and together == 1:
            ahead, ahead_fits = search.block(limit, read_ahead=True, pieces=request.pieces)
            if ahead_fits and ahead.seconds < _WORTH * serial.seconds:
                return ahead, True
        return serial, fits

    sized = model.equation
    best, fits = _along_paths(model, request.contraction.options.optimize, limit, blocked)
    if not fits:
        fresh = 0 if landing.beside else landing.cut
        raise too_small(limit, best.peak_bytes * together + shared_result, sized, fresh=fresh)
    adapter, _, operands, device, options = request.contraction
    dtype = result_dtype(adapter, operands, options)
    return BlockedProgram(
        sized, adapter.name, device, operands, dtype, model.dtype, limit, in_place, landing, best, options.algebra,
    )  # fmt: skip


@cached("limits")
def least_limit(request: BlockedContraction) -> int:
    """The smallest limit for which :func:`blocked_program` succeeds, or any sufficient one up to ``limit``.

    It does not look for the fastest blocks, so it is the quicker way to find out whether any fit.
    """
    model = _model(request)

    def blocked(outline: Outline) -> tuple[Blocking, bool]:
        smallest, fits = Search(model, outline, request.landing).block(request.limit, fastest=False)
        return (replace(smallest, seconds=0.0), True) if fits else (smallest, False)  # no other path can be faster

    return _along_paths(model, request.contraction.options.optimize, request.limit, blocked)[0].peak_bytes


def _model(request: BlockedContraction) -> StageCostModel:
    """The cost model of a contraction.

    Raises:
        BackendError: the framework's arrays keep no memory limit.
    """
    adapter, written, operands, device, options = request.contraction
    blocks_of(adapter)  # raises, if it cannot keep a limit
    sized = sized_equation(written, [operand.shape for operand in operands])
    traits = traits_in(options.algebra, adapter, device)
    rates = tuple(rate or traits.rates.copy for rate in request.read_rates or (None,) * len(operands))
    computed = computed_dtype(sized, operands, options, result_dtype(adapter, operands, options), traits)
    return StageCostModel(sized, operands, request.in_place, rates, adapter, traits, device, computed, options.algebra)


# -- messages -----------------------------------------------------------------------------------------------------


def too_small(
    limit: int, smallest: int, sized: SizedEquation, subject: str = "this contraction", *, fresh: int = 0
) -> MemoryLimitError:
    """The error for a limit that is too small; ``fresh`` is the size in bytes of a result that ``out=`` could save."""
    of_result = f", of which {quantity(fresh, 'B')} hold the result, and do not count with out="
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


def _along_paths(
    model: StageCostModel, optimize: Optimize, limit: int, blocked: Callable[[Outline], tuple[Blocking, bool]]
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
    pace = pace_of(model.traits, model.dtype)
    first = Outline(model, find_path(model.equation, optimize, pace=pace))
    best, fits = blocked(first)
    if optimize not in (True, "auto") or len(first.path) < 2:
        return best, fits
    least = max(first.seconds, reading)
    spared = _SECONDS * max(1.0, len(model.operands) / _MANY) ** 2
    if fits and best.seconds <= max(least + spared, _TIMES * least):
        return best, fits
    within = pace._replace(room=limit / itemsize(model.dtype))
    paths = dict.fromkeys([find_path(model.equation, pace=within), *_thrifty(model.equation)])
    others = [Outline(model, path) for path in paths if path != first.path]
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
