"""Programs that return a mantissa and an exponent."""

from __future__ import annotations

from dataclasses import replace

from einsumx.ir.cost import returns_view
from einsumx.ir.ops import Copy
from einsumx.ir.program import Program

__all__ = ["stripped"]


def stripped(program: Program) -> Program:
    """A program that returns a mantissa and an exponent, from one that returns the result.

    A result that would be a view of an operand becomes a copy, which is scaled.
    """
    ops, result = program.ops, program.result
    if returns_view(program):
        result = max([op.out for op in ops], default=len(program.operands) - 1) + 1
        ops = (*ops, Copy(result, program.result, "scaled"))
    return replace(program, ops=ops, result=result, strip_exponent=True)
