"""``verify``: replay a plan on shapes alone. A plan that contradicts itself never reaches a framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.ops import Op, Shape

if TYPE_CHECKING:
    from einsumx.ir.program import Program

__all__ = ["replay", "verify"]


def verify(plan: Program) -> dict[int, Shape]:
    """Check slots and shapes of every op, and the result's; returns the shape of every slot.

    What comes from outside is checked by :func:`einsumx.ir.meaning.check_plan`.

    Raises:
        EinsumxError: naming the op that does not fit.
    """
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    if plan.result not in shapes or plan.result < len(plan.operands):
        raise EinsumxError(f"plan of {excerpt(plan.equation)}: no op writes the result, slot %{plan.result}")
    if shapes[plan.result] != plan.shape:
        raise EinsumxError(
            f"plan of {excerpt(plan.equation)}: the result has shape {shapes[plan.result]}, not {plan.shape}"
        )
    return shapes


def replay(ops: Sequence[Op], operands: Sequence[Shape]) -> dict[int, Shape]:
    """The shape of every slot.

    Raises:
        EinsumxError: an op reads a slot that is not written yet, writes one that is, or does not fit its shapes.
    """
    shapes: dict[int, Shape] = dict(enumerate(operands))
    for op in ops:
        missing = [slot for slot in op.sources if slot not in shapes]
        if missing or op.out in shapes:
            raise EinsumxError(f"{excerpt(str(op))}: slot %{missing[0] if missing else op.out} out of turn")
        shapes[op.out] = op.result_shape([shapes[slot] for slot in op.sources])
    return shapes
