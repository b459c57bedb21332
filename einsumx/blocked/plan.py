"""The blocked plan that keeps a memory limit."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from einsumx.blocked.cost import Blocking, ResultFootprint
from einsumx.blocked.paths import along_paths
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.search import Search
from einsumx.blocked.stage_cost import Outline, StageCostModel
from einsumx.errors import MemoryLimitError, excerpt
from einsumx.ir.bind import SizedEquation
from einsumx.ir.text import quantity
from einsumx.runtime.caches import cached
from einsumx.runtime.calibration import calibrated
from einsumx.runtime.prepare import result_dtype, sized_equation
from einsumx.runtime.request import Contraction

__all__ = ["BlockedContraction", "blocked_program", "in_units", "least_limit", "too_small"]

_WORTH = 1.25
"""How much longer smaller blocks may take where the memory that they leave lets the next ones be read meanwhile."""


class BlockedContraction(NamedTuple):
    """What is asked of the planner of blocks; a key of its caches.

    Attributes:
        contraction: what is computed, on which device.
        limit: bytes that must not be exceeded.
        in_place: of each operand, whether it lies on the device, so that its blocks are views and count nothing.
        landing: what the result takes besides the blocks of it.
        read_rates: bytes a second at which each operand is read that does not lie there; empty for the rate of a copy.
        together: how many blocks are computed or held at once, and share what the result leaves of the limit.
        pieces: into how many the contraction is cut at least, where its sizes allow it.
    """

    contraction: Contraction
    limit: int
    in_place: tuple[bool, ...]
    landing: ResultFootprint
    read_rates: tuple[float, ...] = ()
    together: int = 1
    pieces: int = 1


def blocked_program(asked: BlockedContraction) -> BlockedProgram:
    """The contraction in blocks that stay within the limit.

    Raises:
        MemoryLimitError: there are none; the error names the smallest limit for which there are.
    """
    # An optimizer object may find another path the next time.
    optimize = asked.contraction.options.optimize
    plan = _blocked_program if isinstance(optimize, str | bool | tuple) else _blocked_program.__wrapped__
    return plan(asked)


def in_units(count: int) -> str:
    """Many bytes with a unit, rounded up, so that this much is enough.

    >>> in_units(19_200), in_units(1_342_177_281)
    ('', ' (1.35 GB)')
    """
    digits = len(str(count))
    if digits < 7:
        return ""
    step = 10 ** (digits - 3)
    return f" ({quantity(-(-count // step) * step, 'B')})"


def _of_result(smallest: int, fresh: int) -> str:
    """How much of a limit a fresh result takes, where that is most of it."""
    if 2 * fresh < smallest:
        return ""
    return f", of which {quantity(fresh, 'B')} hold the result, and do not count with out="


@cached("blocks")
def _blocked_program(asked: BlockedContraction) -> BlockedProgram:
    limit, in_place, landing, together, pieces = (
        asked.limit, asked.in_place, asked.landing, asked.together, asked.pieces
    )  # fmt: skip
    model = _model(asked)
    beside = landing.cut if together > 1 else 0
    share = (limit - beside) // together
    within = landing._replace(cut=landing.cut - beside)

    def blocked(outline: Outline, seconds: float) -> tuple[Blocking, bool]:
        search = Search(model, outline, within)
        serial, fits = search.block(share, pieces=pieces, seconds=seconds)
        if fits and serial.order and not all(in_place) and together == 1:
            ahead, fits_too = search.block(limit, read_ahead=True, pieces=pieces)
            if fits_too and ahead.seconds < _WORTH * serial.seconds:
                return ahead, True
        return serial, fits

    sized = model.equation
    found, fits = along_paths(model, asked.contraction.options.optimize, blocked)
    if not fits:
        raise too_small(limit, found.peak_bytes * together + beside, sized, fresh=0 if landing.beside else landing.cut)
    adapter, _, operands, device, options = asked.contraction
    dtype = result_dtype(adapter, operands, options)
    return BlockedProgram(sized, adapter.name, device, operands, dtype, model.dtype, limit, in_place, landing, found)


@cached("limits")
def least_limit(asked: BlockedContraction) -> int:
    """The smallest limit for which :func:`blocked_program` finds something; any that is enough, where ``limit`` is.

    It does not look for what is fastest, and so is the quicker answer to whether there is anything.
    """
    model = _model(asked)

    def blocked(outline: Outline, _: float) -> tuple[Blocking, bool]:
        found, fits = Search(model, outline, asked.landing).block(asked.limit, fastest=False)
        return (replace(found, seconds=0.0), True) if fits else (found, False)  # no other path can be faster

    return along_paths(model, asked.contraction.options.optimize, blocked)[0].peak_bytes


def too_small(
    limit: int, smallest: int, sized: SizedEquation, what: str = "this contraction", *, fresh: int = 0
) -> MemoryLimitError:
    """The error of a limit that cannot be kept; ``fresh`` are bytes of a result that ``out=`` may bring."""
    error = MemoryLimitError(
        f"{what} cannot be computed within {quantity(limit, 'B')}; the smallest memory_limit= is "
        f"{smallest} bytes{in_units(smallest)}{_of_result(smallest, fresh)}\n  {excerpt(sized.text)}"
    )
    error.smallest = smallest
    return error


def _model(asked: BlockedContraction) -> StageCostModel:
    """What the blocks of a contraction cost."""
    adapter, written, operands, device, options = asked.contraction
    sized = sized_equation(written, [operand.shape for operand in operands])
    dtype = result_dtype(adapter, operands, options)
    traits = calibrated(adapter, device)
    rates = asked.read_rates or (traits.rates.copy,) * len(operands)
    computed = dict(traits.widen).get(dtype, dtype)
    return StageCostModel(sized, operands, asked.in_place, rates, adapter, traits, device, computed)
