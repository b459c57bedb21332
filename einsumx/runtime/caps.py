"""Limits that calls do not name themselves: those of patches, and of contractions of sliding windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from einsumx.adapters.base import Adapter, Signature
from einsumx.errors import MemoryLimitError
from einsumx.ir.cost import program_cost
from einsumx.ir.operand import has_many_windows, span_bytes
from einsumx.ir.sizes import is_known
from einsumx.runtime.limits import Cap, MemoryLimit
from einsumx.runtime.prepare import Prepared, from_signatures
from einsumx.runtime.request import Request


def is_exceeded(cap: Cap, request: Request, adapter: Adapter, signatures: Sequence[Signature]) -> bool:
    """Whether the plan of a call would allocate more bytes at once, or no path fits into memory.

    With sizes that are not known, and for arrays that cannot be cut into blocks, it is not.

    Args:
        cap: the limit.
        request: the call without a limit; its own operands are not used.
        adapter: the framework's.
        signatures: of the operands.
    """
    try:
        program = from_signatures(request.named(adapter), adapter, signatures).program
    except MemoryLimitError:
        return True
    if adapter.blocks is None or not all(is_known(operand.shape) for operand in program.operands):
        return False
    cost = program_cost(program, adapter)
    return cost.peak_bytes - cost.input_bytes > cap.nbytes


def of_windows(prepared: Prepared, adapter: Adapter, signatures: Iterable[Signature]) -> MemoryLimit | None:
    """The limit for a contraction that would copy all windows of an array at once; None for all others.

    It runs in blocks then, which take less memory and no more time.
    """
    if adapter.blocks is None or adapter.gradients is not None or not adapter.cpu.strided:
        return None  # gradients take more memory in blocks
    operands = list(map(adapter.operand, signatures))
    if not any(map(has_many_windows, operands)):
        return None
    cost = program_cost(prepared.program, adapter)
    amount = cost.output_bytes + sum(map(span_bytes, operands)) + _ROOM
    return MemoryLimit(amount) if cost.peak_bytes - cost.input_bytes > amount else None


_ROOM = 1 << 24
"""Bytes for blocks."""
