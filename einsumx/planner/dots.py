"""The order of operands and axes in products that a compiler makes of whole axes, as XLA does.

XLA's ``dot_general`` multiplies ``[batch, free, contracted]`` with ``[batch, contracted, free]``. It copies an operand
with another order of axes first, except that it reads a matrix transposed. The result has the axes
``[batch, free, free]``.
"""

from __future__ import annotations

from itertools import product

from einsumx.planner.builder import Builder
from einsumx.planner.matmul import Classes, Pair
from einsumx.planner.terms import Labels, ResultUse, Term

__all__ = ["dot_order", "loop_order"]

_TRANSPOSED = 0.1
"""The cost of reading a matrix transposed, relative to a copy."""


def dot_order(builder: Builder, pair: Pair) -> tuple[Term, Term, Labels]:
    """The first and the second operand of a product and the axis order of its result, for the fewest copied elements.

    The result of an inner step has the order in which the product makes it.
    """
    lhs, rhs, classes = pair.lhs, pair.rhs, pair.classes
    swapped = Classes(classes.batch, classes.contracted, classes.rhs_free, classes.lhs_free)
    target = pair.use.target(classes.kept)
    choices: list[tuple[Term, Term, Labels]] = []
    copied: list[float] = []
    for (first, second, own), order in product(((lhs, rhs, classes), (rhs, lhs, swapped)), (lhs.labels, rhs.labels)):
        batch = tuple(label for label in target or order if label in own.batch)
        contracted = tuple(label for label in order if label in own.contracted)
        made = (*batch, *own.lhs_free, *own.rhs_free)
        weights = (
            (first.labels, _copied(first, batch, own.lhs_free, contracted)),
            (second.labels, _copied(second, batch, contracted, own.rhs_free)),
            (made, 0 if _is_ready(made, pair.use) else 1),
        )
        choices.append((first, second, target or made))
        copied.append(sum([weight * builder.size(labels) for labels, weight in weights]))
    return choices[copied.index(min(copied))]


def _copied(term: Term, batch: Labels, rows: Labels, cols: Labels) -> float:
    """The share of an operand ``[batch, rows, cols]`` that counts as copied."""
    if term.labels == (*batch, *rows, *cols):
        return 0
    return _TRANSPOSED if len(rows) == len(cols) == 1 and term.labels == (*batch, *cols, *rows) else 1


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
