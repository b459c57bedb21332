"""``simplify``: ops that do nothing, or that a neighbour can do along with its own work, are taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from einsumx.ir.ops import (
    Expand,
    Op,
    Reshape,
    Transpose,
    renamed,
    sources,
)
from einsumx.ir.verify import result_shape

__all__ = ["simplify"]


def simplify(ops: Sequence[Op], operands: Sequence[tuple[int, ...]], result: int) -> tuple[tuple[Op, ...], int]:
    """The same result by fewer ops: views of views are one view, no-ops and unread ops are gone.

    Only views are joined, so no copy that lowering placed on purpose is moved. The result stays a value of its
    own: an op that makes it from an operand is kept even where it changes nothing.

    Args:
        ops: as lowering wrote them.
        operands: the operands' shapes, in slots ``0 .. n-1``.
        result: the slot of the result.

    Returns:
        The ops that are left, their slots numbered without gaps, and the slot of the result.

    >>> ops = [Reshape(1, 0, (2, 3)), Transpose(2, 1, (1, 0)), Transpose(3, 2, (1, 0))]
    >>> simplify(ops, [(6,)], 3)
    ((Reshape(out=1, src=0, shape=(2, 3)),), 1)
    """
    made: dict[int, Op] = {}  # by the slot it writes
    shapes = dict(enumerate(operands))
    same: dict[int, int] = {}  # a slot whose op is gone, and the slot that has its value
    for op in ops:
        op = _joined(renamed(op, same), made)
        read = sources(op)
        if _is_idle(op, shapes[read[0]]) and not (op.out == result and read[0] < len(operands)):
            same[op.out] = read[0]
            continue
        shapes[op.out] = result_shape(op, [shapes[slot] for slot in read])
        made[op.out] = op
    return _renumbered(made, len(operands), same.get(result, result))


def _joined(op: Op, made: dict[int, Op]) -> Op:
    """A view of a view, read from where the first one reads."""
    match op, made.get(sources(op)[0]):
        case Reshape(), Reshape() as before:
            return _joined(Reshape(op.out, before.src, op.shape), made)
        case Transpose(reason=""), Transpose(reason="") as before:
            axes = tuple(before.axes[axis] for axis in op.axes)
            return _joined(Transpose(op.out, before.src, axes), made)
        case _:
            return op


def _is_idle(op: Op, shape: tuple[int, ...]) -> bool:
    match op:
        case Reshape() | Expand():
            return op.shape == shape
        case Transpose():
            return op.axes == tuple(range(len(op.axes)))
        case _:
            return False


def _renumbered(made: dict[int, Op], operands: int, result: int) -> tuple[tuple[Op, ...], int]:
    """The ops that the result needs, in order, their slots without gaps."""
    needed = {result}
    for out in sorted(made, reverse=True):
        if out in needed:
            needed.update(sources(made[out]))
    names: dict[int, int] = {}
    kept: list[Op] = []
    for out, op in made.items():
        if out in needed:
            op = renamed(op, names)
            number = operands + len(kept)
            if number != out:
                names[out] = number
                op = replace(op, out=number)
            kept.append(op)
    return tuple(kept), names.get(result, result)
