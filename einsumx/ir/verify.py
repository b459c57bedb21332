"""``verify``: check a program on shapes, so that an inconsistent one never reaches a framework."""

from __future__ import annotations

from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.program import Program


def verify(program: Program) -> None:
    """Check the slots and shapes of every op and of the result.

    Raises:
        EinsumxError: naming the op that does not fit.
    """
    values, result = program.values, program.result
    if not len(program.operands) <= result < len(values):
        raise EinsumxError(f"plan of {excerpt(program.written)}: no op writes the result, slot %{result}")
    if values[result].shape != program.shape:
        raise EinsumxError(
            f"plan of {excerpt(program.written)}: the result has shape {values[result].shape}, not {program.shape}"
        )
