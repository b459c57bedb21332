"""``execute``: plan and adapter become a function of the operands; one loop, each slot freed after its last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from einsumx.adapter import Adapter, Array, Run
from einsumx.cost import last_uses
from einsumx.ops import Cast, Copy, Diagonal, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose, sources
from einsumx.plan import Plan

__all__ = ["executable"]

Values: TypeAlias = list[Any]
Call: TypeAlias = Callable[[Sequence[Any]], Array]


def executable(plan: Plan, adapter: Adapter, constants: Mapping[int, Array] | None = None) -> Run:
    """A function that runs ``plan`` on operands which fit it; it checks nothing.

    Args:
        plan: lowered for the adapter's framework.
        adapter: executes the ops.
        constants: operands that are known already, by position. What depends on them alone is computed here,
            once, and the function takes the other operands only.
    """
    known: Values = [None] * (len(plan.operands) + len(plan.ops))
    late = list(range(len(plan.ops)))
    if constants:
        late = _fold(plan, adapter, constants, known)
    given = [slot for slot in range(len(plan.operands)) if slot not in (constants or {})]
    dead = last_uses(plan)
    calls = tuple((plan.ops[index].out, _call(plan.ops[index], adapter), dead.get(index, ())) for index in late)
    result = plan.result

    def loop(operands: Sequence[Array]) -> Array:
        values = known.copy()
        for slot, operand in zip(given, operands):
            values[slot] = operand
        for out, call, spent in calls:
            values[out] = call(values)
            for slot in spent:
                values[slot] = None
        return values[result]

    # A single call reads the operands alone, and its result is the plan's.
    run = calls[0][1] if len(calls) == 1 and not constants else loop
    if plan.shape:
        return adapter.prepare(run, plan)
    return adapter.prepare(lambda operands: adapter.element(run(operands)), plan)


def _fold(plan: Plan, adapter: Adapter, constants: Mapping[int, Array], known: Values) -> list[int]:
    """Compute what depends on constants alone into ``known``; the indices of the ops that are left."""
    ready = set(constants)
    early: list[Op] = []
    late: list[int] = []
    for index, op in enumerate(plan.ops):
        if ready.issuperset(sources(op)):
            ready.add(op.out)
            early.append(op)
        else:
            late.append(index)
    read_later = {slot for index in late for slot in sources(plan.ops[index])}
    kept = sorted(ready & read_later)
    calls = [(op.out, _call(op, adapter)) for op in early]

    def fold(operands: Sequence[Array]) -> list[Array]:
        values = known.copy()
        for slot, operand in zip(sorted(constants), operands):
            values[slot] = operand
        for out, call in calls:
            values[out] = call(values)
        return [values[slot] for slot in kept]

    folded = adapter.prepare(fold, plan)([constants[slot] for slot in sorted(constants)])
    for slot, value in zip(kept, folded):
        known[slot] = value
    return late


def _call(op: Op, adapter: Adapter) -> Call:
    """One op as a function of the slots."""
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
