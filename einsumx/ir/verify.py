"""``verify``: replay a plan on shapes alone. A plan that contradicts itself never reaches a framework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, TypeVar

from einsumx.errors import EinsumxError, excerpt
from einsumx.ir.layout import broadcast
from einsumx.ir.ops import (
    Cast,
    Copy,
    Diagonal,
    Expand,
    First,
    Matmul,
    Multiply,
    Native,
    Op,
    Reshape,
    Scale,
    Sum,
    Transpose,
    Zeros,
    sources,
)

if TYPE_CHECKING:
    from einsumx.ir.program import Program

__all__ = ["between", "replay", "result_shape", "verify"]

Shape = tuple[int, ...]

_Axis = TypeVar("_Axis")


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
        missing = [slot for slot in sources(op) if slot not in shapes]
        if missing or op.out in shapes:
            raise EinsumxError(f"{excerpt(str(op))}: slot %{missing[0] if missing else op.out} out of turn")
        shapes[op.out] = result_shape(op, [shapes[slot] for slot in sources(op)])
    return shapes


def result_shape(op: Op, shapes: Sequence[Shape]) -> Shape:
    """The shape that ``op`` makes of its sources' shapes.

    Raises:
        EinsumxError: the shapes do not fit the op.

    >>> result_shape(Matmul(2, 0, 1, transpose_rhs=True), [(4, 2, 3), (4, 5, 3)])
    (4, 2, 5)
    """

    def need(condition: bool) -> None:
        if not condition:
            raise EinsumxError(f"{excerpt(str(op))} does not fit shapes {excerpt(', '.join(map(str, shapes)))}")

    match op:
        case Transpose():
            (shape,) = shapes
            need(sorted(op.axes) == list(range(len(shape))))
            return tuple(shape[axis] for axis in op.axes)
        case Reshape():
            (shape,) = shapes
            need(prod(shape) == prod(op.shape))
            return op.shape
        case Expand():
            (shape,) = shapes
            need(len(shape) == len(op.shape) and all(a in (1, b) for a, b in zip(shape, op.shape)))
            return op.shape
        case First():
            (shape,) = shapes
            gone = set(op.axes)
            need(gone <= set(range(len(shape))) and all(shape[axis] > 0 for axis in gone))
            return tuple(size for axis, size in enumerate(shape) if axis not in gone)
        case Diagonal():
            (shape,) = shapes
            pair = {op.axis1, op.axis2}
            need(len(pair) == 2 and pair <= set(range(len(shape))) and shape[op.axis1] == shape[op.axis2])
            return (*(size for axis, size in enumerate(shape) if axis not in pair), shape[op.axis1])
        case Copy() | Cast():
            return shapes[0]
        case Sum():
            (shape,) = shapes
            gone = set(op.axes)
            need(len(gone) == len(op.axes) and gone <= set(range(len(shape))))
            return tuple(size for axis, size in enumerate(shape) if axis not in gone)
        case Scale():
            need(op.count > 0)
            return shapes[0]
        case Zeros():
            need(any(0 in shape for shape in shapes))
            return op.shape
        case Multiply():
            lhs, rhs = shapes
            rank = max(len(lhs), len(rhs))
            lhs, rhs = (1,) * (rank - len(lhs)) + lhs, (1,) * (rank - len(rhs)) + rhs
            need(all(a == b or 1 in (a, b) for a, b in zip(lhs, rhs)))
            return broadcast(lhs, rhs)
        case Matmul(inner_batch=True):
            need(all(len(shape) >= 3 for shape in shapes))
            return between(result_shape(replace(op, inner_batch=False), list(map(between, shapes))))
        case Matmul():
            lhs, rhs = shapes
            if min(len(lhs), len(rhs)) == 1:
                need(max(len(lhs), len(rhs)) <= 2 and not (op.transpose_lhs or op.transpose_rhs) and lhs[-1] == rhs[0])
                return (*lhs[:-1], *rhs[1:])
            need(len(lhs) == len(rhs) >= 2 and all(a == b or 1 in (a, b) for a, b in zip(lhs[:-2], rhs[:-2])))
            rows, inner = lhs[:-3:-1] if op.transpose_lhs else lhs[-2:]
            other, cols = rhs[:-3:-1] if op.transpose_rhs else rhs[-2:]
            need(inner == other)
            return (*broadcast(lhs[:-2], rhs[:-2]), rows, cols)
        case Native():
            inputs, _, output = op.equation.partition("->")
            terms = inputs.split(",")
            need("".join(terms).isalpha() or not any(terms))  # it goes into text that is run
            need(len(terms) == len(shapes) and all(len(term) == len(shape) for term, shape in zip(terms, shapes)))
            sizes = {label: size for term, shape in zip(terms, shapes) for label, size in zip(term, shape)}
            need(all(sizes[label] == size for term, shape in zip(terms, shapes) for label, size in zip(term, shape)))
            need(set(output) <= set(sizes) and len(set(output)) == len(output))
            return tuple(sizes[label] for label in output)


def between(shape: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """A shape with the first axis of its matrices and the axis before, or between, in each other's places."""
    return (*shape[:-3], shape[-2], shape[-3], shape[-1])
