"""Plans of contractions under a memory limit in traced programs, where the caller's arrays do not count."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import loops_of
from einsumx.blocked.cost import ResultFootprint
from einsumx.blocked.plan import blocked_program, too_small
from einsumx.blocked.program import BlockedContraction, BlockedProgram
from einsumx.blocked.stage_cost import kernels_of
from einsumx.dtypes import itemsize
from einsumx.errors import MemoryLimitError
from einsumx.ir.contraction import Contraction
from einsumx.ir.cost import op_costs
from einsumx.ir.program import Program
from einsumx.planner.lower import lower


def asked_in_trace(adapter: Adapter, contraction: Contraction, limit: int, is_path_free: bool) -> BlockedContraction:
    """What a traced call asks for, with the memory that counts there.

    Args:
        adapter: of the framework that traces it.
        contraction: what to compute.
        limit: bytes.
        is_path_free: whether other paths may be tried too.
    """
    in_place = (adapter.cpu.strided,) * len(contraction.operands)
    loops, size = loops_of(adapter), itemsize(contraction.dtype)
    whole, is_cast = prod(contraction.equation.shape) * size, contraction.compute_dtype != contraction.dtype
    landing = ResultFootprint(copied=size * is_cast, beside=loops.scalars)
    if loops.counts_results:
        landing = ResultFootprint(whole, whole * is_cast, beside=loops.scalars)
    return BlockedContraction(contraction, limit, in_place, landing, is_path_free=is_path_free, is_traced=True)


def unlimited_in_trace(adapter: Adapter, asked: BlockedContraction) -> Program | None:
    """The plan without blocks, if all its intermediates fit at once, whenever the compiler computes them."""
    contraction = asked.contraction
    program: Program = contraction.algebra.lowered(lower(contraction))
    costs = op_costs(program, kernels_of(adapter, asked), program.values)
    taken = sum([cost.workspace + (cost.allocated if cost.op.out != program.result else 0) for cost in costs])
    return program if taken + asked.landing.cut + asked.landing.beside <= asked.limit else None


def blocked_in_trace(adapter: Adapter, asked: BlockedContraction) -> BlockedProgram:
    """The blocks that a traced program computes in loops, without the memory that its compiler may leave unused.

    Raises:
        MemoryLimitError: no blocks are small enough.
    """
    filled = 1 - loops_of(adapter).gaps
    try:
        program = blocked_program(adapter, replace(asked, limit=int(asked.limit * filled)))
    except MemoryLimitError as error:
        smallest = ceil((error.smallest or 0) / filled) + 1
    else:
        return replace(program, limit=asked.limit)
    raise too_small(asked.limit, smallest, asked.contraction.equation)


def shown_in_trace(adapter: Adapter, asked: BlockedContraction) -> BlockedProgram:
    """The plan of a traced call as blocks; a single one, which copies no operand, where the limit allows that.

    Raises:
        MemoryLimitError: no blocks are small enough.
    """
    if unlimited_in_trace(adapter, asked) is not None:
        asked = replace(asked, in_place=(True,) * len(asked.in_place))
    return blocked_in_trace(adapter, asked)
