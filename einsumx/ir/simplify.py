"""``simplify``: ops that do nothing, or that a neighbour can do along with its own work, are taken out."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.ir.ops import Op

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
        op = _joined(op.renamed(same), made)
        read = op.sources
        if op.is_idle(shapes[read[0]]) and not (op.out == result and read[0] < len(operands)):
            same[op.out] = read[0]
            continue
        shapes[op.out] = op.result_shape([shapes[slot] for slot in read])
        made[op.out] = op
    return _renumbered(made, len(operands), same.get(result, result))


def _joined(op: Op, made: dict[int, Op]) -> Op:
    """A view of a view, read from where the first one reads."""
    joined = op.joined(made.get(op.sources[0]))
    return op if joined is None else _joined(joined, made)


def _renumbered(made: dict[int, Op], operands: int, result: int) -> tuple[tuple[Op, ...], int]:
    """The ops that the result needs, in order, their slots without gaps."""
    needed = {result}
    for out in sorted(made, reverse=True):
        if out in needed:
            needed.update(made[out].sources)
    names: dict[int, int] = {}
    kept: list[Op] = []
    for out, op in made.items():
        if out in needed:
            number = operands + len(kept)
            if number != out:
                names[out] = number
            kept.append(op.renamed(names))
    return tuple(kept), names.get(result, result)
