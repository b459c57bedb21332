"""``simplify``: remove ops that do nothing, and join views of views, so that lowering need not look around."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.ir.ops import Op


def simplify(ops: Sequence[Op], operands: Sequence[tuple[int, ...]], result: int) -> tuple[tuple[Op, ...], int]:
    """Join views of views, and remove no-ops and ops whose result is unused.

    Only views are joined, so that no copy moves. An op that makes the result from an operand stays even if it changes
    nothing, so that the result is never the operand itself.

    Args:
        ops: from lowering.
        operands: the operands' shapes, in slots ``0 .. n-1``.
        result: the slot of the result.

    Returns:
        The remaining ops, with slots numbered without gaps, and the slot of the result.

    >>> from einsumx.ir.ops import Reshape, Transpose
    >>> ops = [Reshape(1, 0, (2, 3)), Transpose(2, 1, (1, 0)), Transpose(3, 2, (1, 0))]
    >>> simplify(ops, [(6,)], 3)
    ((Reshape(out=1, src=0, shape=(2, 3)),), 1)
    """
    made: dict[int, Op] = {}  # by the slot that it writes
    shapes = dict(enumerate(operands))
    same: dict[int, int] = {}  # from the slot of a removed op to the slot that has its value
    for op in ops:
        if same:
            op = op.renamed(same)
        sources = op.sources
        source = sources[0]
        while source in made and (joined := op.joined(made[source])) is not None:
            op, sources = joined, joined.sources
            source = sources[0]
        if op.is_idle(shapes[source]) and not (op.out == result and source < len(operands)):
            same[op.out] = source
            continue
        shapes[op.out] = op.result_shape([shapes[slot] for slot in sources])
        made[op.out] = op
    return _renumbered(made, len(operands), same.get(result, result))


def _renumbered(made: dict[int, Op], operands: int, result: int) -> tuple[tuple[Op, ...], int]:
    """The ops that the result needs, in order, with slots numbered without gaps."""
    needed = {result}
    for out in sorted(made, reverse=True):
        if out in needed:
            needed.update(made[out].sources)
    names: dict[int, int] = {}
    kept: list[Op] = []
    number = operands
    for out, op in made.items():
        if out in needed:
            if number != out:
                names[out] = number
            kept.append(op.renamed(names) if names else op)
            number += 1
    return tuple(kept), names.get(result, result)
