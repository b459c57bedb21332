"""Limits of patches: which calls they concern."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.base import Adapter, Signature
from einsumx.errors import MemoryLimitError
from einsumx.ir.cost import program_cost
from einsumx.ir.sizes import is_known
from einsumx.runtime.limits import Cap
from einsumx.runtime.prepare import from_signatures
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
