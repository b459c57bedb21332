"""``execute``: a plan and an adapter become a function of the operands; one loop, each slot freed after its last use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from einsumx.adapter import Adapter, Array, Run
from einsumx.cost import last_uses
from einsumx.ops import Cast, Copy, Diagonal, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose
from einsumx.plan import Plan

__all__ = ["executable"]

Values = list[Any]


def executable(plan: Plan, adapter: Adapter) -> Run:
    """A function that runs ``plan`` on operands which fit it; it checks nothing."""
    dead = last_uses(plan)
    calls = tuple((_call(op, adapter), dead.get(index, ())) for index, op in enumerate(plan.ops))
    result = plan.result

    def run(operands: Sequence[Array]) -> Array:
        values: Values = list(operands)
        for call, spent in calls:
            values.append(call(values))
            for slot in spent:
                values[slot] = None
        return values[result]

    return adapter.prepare(run)


def _call(op: Op, adapter: Adapter) -> Callable[[Values], Array]:
    """One op as a function of the slots; slots are numbered in the order in which ops write them."""
    match op:
        case Transpose(_, src, axes):
            transpose = adapter.transpose
            return lambda values: transpose(values[src], axes)
        case Reshape(_, src, shape):
            reshape = adapter.reshape
            return lambda values: reshape(values[src], shape)
        case Diagonal(_, src, axis1, axis2):
            return lambda values: adapter.diagonal(values[src], axis1, axis2)
        case Copy(_, src):
            return lambda values: adapter.copy(values[src])
        case Cast(_, src, dtype):
            return lambda values: adapter.cast(values[src], dtype)
        case Sum(_, src, axes):
            return lambda values: adapter.sum(values[src], axes)
        case Multiply(_, lhs, rhs):
            multiply = adapter.multiply
            return lambda values: multiply(values[lhs], values[rhs])
        case Matmul(_, lhs, rhs, transpose_lhs, transpose_rhs):
            matmul = adapter.matmul
            return lambda values: matmul(values[lhs], values[rhs], transpose_lhs, transpose_rhs)
        case Native(_, operands, equation):
            return lambda values: adapter.native(equation, [values[slot] for slot in operands])
