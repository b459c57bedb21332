"""``einsum`` under a memory limit: operands are read block by block, and so is the result written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from einsumx.adapter import Adapter, Array
from einsumx.blocked import BlockedPlan, Blocks, compute
from einsumx.blocking import Stage
from einsumx.dtypes import check_casting
from einsumx.limit import MemoryLimit, blocked_plan, limit_bytes
from einsumx.prepare import Options, Written, arrays_of, prepare
from einsumx.registry import get_backend
from einsumx.sources import Source, is_stored, sources

__all__ = ["plan_within", "run_blocks"]


def plan_within(
    written: Written,
    given: Sequence[Any],
    options: Callable[[Adapter], Options],
    limit: MemoryLimit,
    *,
    backend: str | None = None,
    device: str = "",
    out: Any = None,
) -> tuple[BlockedPlan, Adapter, list[Source]]:
    """How a contraction of these operands runs under a limit, and how each is read."""
    adapter, operands = _framework(list(given), get_backend(backend) if backend is not None else None)
    asked = options(adapter)
    check_casting(asked.casting)
    found = sources(operands, adapter, device)
    plan = blocked_plan(
        adapter,
        written,
        tuple(source.operand for source in found),
        device,
        asked,
        limit_bytes(limit, adapter.free_bytes(device)),
        [source.lies_there for source in found],
        out is not None,
    )
    return plan, adapter, found


def _framework(given: list[Any], wanted: Adapter | None) -> tuple[Adapter, list[Any]]:
    """The framework that computes, and the operands as its plain arrays, but for those that are only stored."""
    stored = {slot: array for slot, array in enumerate(given) if is_stored(array)}
    arrays = [array for slot, array in enumerate(given) if slot not in stored]
    if not arrays:
        return wanted or get_backend("numpy"), given
    adapter, plain = arrays_of(arrays, wanted)
    rest = iter(plain)
    return adapter, [stored[slot] if slot in stored else next(rest) for slot in range(len(given))]


def run_blocks(plan: BlockedPlan, adapter: Adapter, operands: Sequence[Source], out: Any = None) -> Array:
    """Run a blocked plan; into ``out``, where it is given."""

    def contract(stage: Stage, arrays: Sequence[Array]) -> Array:
        options = Options(plan.compute_dtype, "unsafe", stage.path)
        return adapter.plain(prepare(adapter, stage.equation, arrays, options).run(*arrays))

    blocks = Blocks(plan, contract, adapter.add)
    target = adapter.dtype_name(out.dtype) if out is not None else plan.dtype
    whole = out is None and not plan.blocking.root.nest
    result = out if out is not None or whole else adapter.empty(plan.shape, plan.dtype, plan.device)
    for place in blocks.places():
        box = blocks.box(place)
        block = compute(blocks.value(place), lambda number, box: operands[number].read(box))
        if plan.compute_dtype != target:
            block = adapter.cast(block, target)
        if whole:
            return block if plan.shape else adapter.element(block)
        result = adapter.put(result, box, block)
        del block
    return result
