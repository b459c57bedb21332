"""``verify``: replay a program on shapes, so that an inconsistent one never reaches a framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.ops import Op, Shape

if TYPE_CHECKING:
    from einsumx.ir.program import Program


def verify(program: Program) -> dict[int, Shape]:
    """Check the slots and shapes of every op and of the result; returns the shape of every slot.

    Raises:
        EinsumxError: naming the op that does not fit.
    """
    shapes = replay(program.ops, [operand.shape for operand in program.operands])
    if program.result not in shapes or program.result < len(program.operands):
        raise EinsumxError(f"plan of {excerpt(program.written)}: no op writes the result, slot %{program.result}")
    if shapes[program.result] != program.shape:
        raise EinsumxError(
            f"plan of {excerpt(program.written)}: the result has shape {shapes[program.result]}, not {program.shape}"
        )
    return shapes


def replay(ops: Sequence[Op], operands: Sequence[Shape]) -> dict[int, Shape]:
    """The shape of every slot.

    Raises:
        EinsumxError: an op reads a slot that is not written yet, writes one that is, or does not fit the shapes.
    """
    shapes: dict[int, Shape] = dict(enumerate(operands))
    for op in ops:
        try:
            sources = [shapes[slot] for slot in op.sources]
        except KeyError as missing:
            raise EinsumxError(f"{excerpt(str(op))}: slot %{missing} out of turn") from None
        if op.out in shapes:
            raise EinsumxError(f"{excerpt(str(op))}: slot %{op.out} out of turn")
        shapes[op.out] = op.result_shape(sources)
    return shapes
