"""``einsum`` under a memory limit: operands are read block by block, and so is the result written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from einsumx.adapter import Adapter, Array
from einsumx.blocked import BlockedPlan, Blocks, Place, compute, contracting
from einsumx.blocking import Stage
from einsumx.dtypes import check_casting
from einsumx.errors import BackendError
from einsumx.executors import Crew, Values
from einsumx.limit import MemoryLimit, blocked_plan, limit_bytes
from einsumx.prepare import Options, Written, result_dtype, sized_equation
from einsumx.progress import Journal, Progress, reported
from einsumx.rates import calibrated
from einsumx.reading import Reader
from einsumx.registry import get_backend, owner
from einsumx.sources import Source, framework_of, sources
from einsumx.targets import Target, landing, target

__all__ = ["Limited", "plan_within", "run_blocks"]


@dataclass(frozen=True, slots=True)
class Limited:
    """A contraction that is ready to run under a limit.

    Attributes:
        plan: how it is cut.
        adapter: of the framework that computes.
        sources: how each operand is read.
        target: where the result goes.
        journal: where the blocks that are done are written down; None where they are not.
        crew: who computes blocks; None for the caller alone.
    """

    plan: BlockedPlan
    adapter: Adapter
    sources: tuple[Source, ...]
    target: Target
    journal: Journal | None = None
    crew: Crew | None = None


def plan_within(
    written: Written,
    given: Sequence[Any],
    options: Callable[[Adapter], Options],
    limit: MemoryLimit,
    *,
    backend: str | None = None,
    device: str = "",
    out: Any = None,
    order: str = "K",
    resume: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    beside: int = 0,
) -> Limited:
    """How a contraction of these operands runs under a limit; nothing is computed or written but the journal's start.

    Raises:
        EinsumxError: as :func:`einsumx.einsum` does.
        ValueError: ``order`` or ``resume`` make no sense here.
    """
    crew = Crew(executor) if executor is not None else None
    adapter, operands = framework_of(given, get_backend(backend) if backend is not None else None)
    for array in operands:
        if owner(array) is adapter:
            adapter.check_eager(array)
    asked = options(adapter)
    check_casting(asked.casting)
    found, device = sources(operands, adapter, device)
    described = tuple(source.operand for source in found)
    dtype = result_dtype(adapter, described, asked)
    traits = calibrated(adapter, device)
    for name in (dtype, *(operand.dtype for operand in described)):
        if traits.dtypes is not None and name not in traits.dtypes:
            raise BackendError(f"{adapter.name}: einsum computes in no dtype {name!r}")
    order = _order(order, out, adapter, operands)
    shape = sized_equation(written, [operand.shape for operand in described]).shape
    lands, late = landing(out, given, adapter, shape, dict(traits.widen).get(dtype, dtype), dtype, order)
    plan = blocked_plan(
        adapter,
        written,
        described,
        device,
        asked,
        limit_bytes(limit, adapter.free_bytes(device)),
        [source.lies_there for source in found],
        lands._replace(beside=beside),
        [source.read_rate or traits.rates.copy for source in found],
        together=crew.together if crew is not None else 1,
        pieces=crew.pieces if crew is not None else 1,
    )
    goes = target(plan, adapter, given, out, order, asked.casting, late)
    if resume is None:
        return Limited(plan, adapter, tuple(found), goes, None, crew)
    if late or not goes.outlives:
        raise ValueError(
            "resume= goes on with an out= that outlives the process, a memory map or a stored array, and that shares "
            "no memory with an operand"
        )
    return Limited(plan, adapter, tuple(found), goes, Journal(resume, plan), crew)


def _order(order: str, out: Any, adapter: Adapter, operands: Sequence[Any]) -> str:
    """The memory order of a fresh result: ``"C"``, ``"F"``, or ``"K"`` for any."""
    order = str(order).upper()
    if order not in ("K", "C", "F", "A"):
        raise ValueError(f"order must be one of 'K', 'C', 'F', 'A', not {order!r}")
    if order != "K" and out is not None:
        raise ValueError(f"order={order!r} asks for a new array, but out= brings one; leave one of them away")
    if order != "K" and not adapter.cpu.memory_order:
        raise BackendError(f"{adapter.name} arrays have no memory order to choose; leave order= away")
    if order == "A":
        return "F" if all(map(adapter.is_fortran, operands)) else "C"
    return order


def run_blocks(limited: Limited, progress: Progress = False) -> Array:
    """Run a blocked plan, and write each block of the result where it belongs.

    Args:
        limited: the plan, and what it reads and writes.
        progress: how far it is is told there: in runs of a stage, or in pieces that a crew has computed.
    """
    plan, adapter, journal, crew = limited.plan, limited.adapter, limited.journal, limited.crew
    outline = Blocks(plan, contracting(plan, adapter), adapter.add)
    done = journal.done if journal is not None else ()
    left = {number: place for number, place in enumerate(outline.places()) if number not in done}
    if crew is None:
        values = _one_by_one(limited, left, progress)
    else:
        values = crew.values(plan, adapter, limited.sources, left, progress)
    with closing(values):
        for number, block in values:
            limited.target.put(outline.box(left[number]), block)
            del block
            if journal is not None:
                limited.target.flush()
                journal.add(number)
    if journal is not None:
        journal.finish()
    return limited.target.done()


def _one_by_one(limited: Limited, left: Mapping[int, Place], progress: Progress) -> Values:
    """The blocks at the places that are left, while the next ones are read."""
    plan, adapter = limited.plan, limited.adapter
    reads = Blocks.reads(plan, left.values()) if plan.blocking.order else None
    with (
        reported(progress, lambda: Blocks.steps(plan, left.values())) as step,
        Reader(limited.sources, reads, plan.blocking.read_ahead) as read,
    ):
        run = contracting(plan, adapter)

        def contract(stage: Stage, arrays: Sequence[Array]) -> Array:
            value = run(stage, arrays)
            step()
            return value

        blocks = Blocks(plan, contract, adapter.add)
        for number, place in left.items():
            yield number, compute(blocks.value(place), read)
