"""The order of operands and axes in a product that a compiler makes of whole axes: ``dot_general`` of XLA.

XLA multiplies ``[batch, free, contracted]`` with ``[batch, contracted, free]``. It copies an operand with another order
of axes first, except that it reads a matrix transposed; and the result has the axes ``[batch, free, free]``.
"""

from __future__ import annotations

from einsumx.planner.builder import Builder, Labels, Term
from einsumx.planner.matmul import Pair, ResultUse

__all__ = ["dot_order", "loop_order"]


def dot_order(builder: Builder, pair: Pair) -> tuple[Term, Term, Labels]:
    """The first and the second operand of a product and the axis order of its result, for the fewest copied elements.

    The result of an inner step has the order in which the product makes it.
    """
    classes, target = pair.classes, pair.use.target(pair.classes.kept)
    larger = max((pair.lhs, pair.rhs), key=lambda term: builder.size(term.labels))
    batch, contracted = (
        tuple(label for label in order if label in group)
        for order, group in ((target or larger.labels, classes.batch), (larger.labels, classes.contracted))
    )
    candidates: list[tuple[tuple[int, int], tuple[Term, Term, Labels]]] = []
    for first, free, second, others in (
        (pair.lhs, classes.lhs_free, pair.rhs, classes.rhs_free),
        (pair.rhs, classes.rhs_free, pair.lhs, classes.lhs_free),
    ):
        made = (*batch, *free, *others)
        copied, turned = 0 if _is_ready(made, pair.use) else builder.size(made), 0
        for term, before, after in ((first, free, contracted), (second, contracted, others)):
            if term.labels == (*batch, *before, *after):
                continue
            if len(before) == len(after) == 1 and term.labels == (*batch, *after, *before):
                turned += builder.size(term.labels)
            else:
                copied += builder.size(term.labels)
        candidates.append(((copied, turned), (first, second, target or made)))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _is_ready(made: Labels, use: ResultUse) -> bool:
    """Whether a result is in the requested order, or as the next product reads it."""
    target = use.target(made)
    if target is not None:
        return target == made
    start, end, count = len(use.batch), len(made), len(use.contracted)
    is_batched = set(made[:start]) == set(use.batch)
    return is_batched and set(use.contracted) in (set(made[start : start + count]), set(made[end - count :]))


def loop_order(pair: Pair) -> Labels:
    """The axis order of an elementwise product; a loop reads its operands in any order.

    Transposes of operands beat one of the result, unless both are as large as the result.
    """
    lhs, rhs, classes = pair.lhs, pair.rhs, pair.classes
    target = pair.use.target(classes.kept)
    are_equal = not (classes.lhs_free or classes.rhs_free)
    if target is not None and (target == lhs.labels or not are_equal):
        return target
    return (*lhs.labels, *classes.rhs_free) if classes.lhs_free else rhs.labels
