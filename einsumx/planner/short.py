"""The short road: a small matrix product of two operands, planned without a search, which would take longer to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from einsumx.adapters.traits import Traits
from einsumx.dtypes import kind
from einsumx.ir import ops
from einsumx.ir.cost import CostModel
from einsumx.ir.layout import Pattern
from einsumx.ir.loops import natural_order, outer_loops
from einsumx.ir.ops import Op
from einsumx.planner.builder import cut
from einsumx.planner.pairwise import native_equation
from einsumx.planner.template import Elements, Labels

__all__ = ["ShortPair", "short_ops"]

_MOST = 4096
"""The most multiply-adds of a product that takes less time than a search for the best one."""

_ROWS = 3
"""How much longer a row of the framework's own kernel takes than the rates say, because few rows pay for the set-up of
NumPy's iterator, which starts anew after each sum.

Fitted to NumPy's times for 180 random pairs of up to 4096 steps, of which many have axes of size 2: the call chosen by
the estimates takes 1.04 times as long as the better of both (geometric mean) and at most 1.5 times, without this factor
1.09 and 3.4 times.
"""

Question: TypeAlias = Callable[[Elements], bool]


class ShortPair(NamedTuple):
    """Two operands without repeated labels, broadcast axes, and axes of size 1.

    Attributes:
        lhs, rhs: the labels of their axes.
        lhs_layout, rhs_layout: their layouts.
        output: the labels of the result.
    """

    lhs: Labels
    rhs: Labels
    lhs_layout: Pattern | None
    rhs_layout: Pattern | None
    output: Labels


class _Side(NamedTuple):
    """How a product reads an operand.

    Attributes:
        slot, labels: of the operand.
        loops: its free labels that become batch axes.
        rows: its free labels along its matrices.
        copied: whether it is copied first.
    """

    slot: int
    labels: Labels
    loops: Labels
    rows: Labels
    copied: bool


def _memory_labels(labels: Labels, pattern: Pattern | None) -> Labels | None:
    """The labels of an array without gaps, from the outermost in memory to the innermost; None for another array."""
    if not pattern:
        return labels if pattern is not None else None
    order: list[int] = []
    for axis, step in pattern:
        if step != 1:
            return None
        order.append(labels[axis])
    return tuple(order[::-1])


def _takes_short_road(traits: Traits, dtype: str) -> bool:
    """Whether the framework computes products of a dtype as the short road writes them."""
    return (
        traits.strided
        and traits.layout(dtype, True) == traits.layout(dtype, False) == "strided"
        and not traits.min_batch_axes
        and dtype in traits.matmul_dtypes
        and kind(dtype) in "fc"
    )


def short_ops(
    pair: ShortPair, size: Callable[[Labels], int], traits: Traits, dtype: str, decide: Callable[[Question], bool]
) -> tuple[list[Op], Labels] | None:
    """The ops of a product, from slot 2 on, and the order in which the last one has the labels of the result.

    Args:
        pair: the operands.
        size: states sizes in the ops.
        traits: of the framework.
        dtype: of the operands.
        decide: answers a question about sizes.

    Returns:
        None if the product is large, needs sums or takes no matmul, or an operand has gaps.
    """
    lhs, rhs, lhs_layout, rhs_layout, output = pair
    every = tuple(dict.fromkeys(lhs + rhs))
    if not _takes_short_road(traits, dtype) or not decide(lambda elements: elements[every] <= _MOST):
        return None
    lhs_memory, rhs_memory = _memory_labels(lhs, lhs_layout), _memory_labels(rhs, rhs_layout)
    if lhs_memory is None or rhs_memory is None:
        return None
    shared = [label for label in lhs if label in rhs]
    batch = tuple([label for label in output if label in shared])
    free = len(output) - len(batch)
    if len(shared) == len(batch) or len(lhs) + len(rhs) - 2 * len(shared) != free or (batch and not free):
        return None
    contracted = tuple([label for label in lhs_memory if label in rhs and label not in batch])
    most = traits.max_batch_axes
    room = free if most is None else most - len(batch)  # for batch axes of one operand alone
    if room < 0:
        return None
    sides = [_side(0, lhs, lhs_memory, rhs, contracted, room)]
    sides.append(_side(1, rhs, rhs_memory, lhs, contracted, room - len(sides[0].loops)))
    if _transposes(sides[::-1], batch, contracted, output) < _transposes(sides, batch, contracted, output):
        sides.reverse()
    calls, result = _product(sides, batch, contracted, size)
    axes = (*batch, *sides[0].loops, *sides[1].loops)
    is_one_matrix = not (axes or sides[0].copied or sides[1].copied)
    if not is_one_matrix and traits.rates.native and dtype in traits.native_dtypes:
        memory = [lhs_memory, rhs_memory]
        order = tuple(natural_order(memory, output))
        if decide(_is_native_faster(memory, order, axes, calls, CostModel(traits, dtype), traits.rates.matrix)):
            return [ops.Native(2, (0, 1), native_equation((lhs, rhs), order))], order
    return calls, result


def _side(slot: int, labels: Labels, memory: Labels, others: Labels, contracted: Labels, room: int) -> _Side:
    """An operand in place, if its contracted labels are a run in memory and a side of its matrices ends there.

    Args:
        slot, labels: of the operand.
        memory: its labels in memory order.
        others: the labels of the other operand.
        contracted: the contracted labels in the order of the product.
        room: the most free labels that can become batch axes.
    """
    start = memory.index(contracted[0])
    runs = cut(
        tuple([label for label in memory if label not in others]),
        lambda run, label: memory.index(label) == memory.index(run[-1]) + 1,
    )
    last = [run for run in runs if run[-1] == memory[-1]] or (runs[-1:] if memory[-1] == contracted[-1] else [])
    free = tuple([label for run in runs for label in run])
    if memory[start : start + len(contracted)] == contracted and (last or memory[-1] == contracted[-1]):
        rows = last[0] if last else ()
        loops = tuple([label for label in free if label not in rows])
        if len(loops) <= room:
            return _Side(slot, labels, loops, rows, copied=False)
    return _Side(slot, labels, (), free, copied=True)


def _transposes(sides: Sequence[_Side], batch: Labels, contracted: Labels, output: Labels) -> int:
    """The transposes of a product with the first side on the left, and of its result."""
    left, right = sides
    orders = (
        ((*batch, *left.loops, *left.rows, *contracted), left.labels),
        ((*batch, *right.loops, *contracted, *right.rows), right.labels),
        ((*batch, *left.loops, *right.loops, *left.rows, *right.rows), output),
    )
    return sum([order != labels for order, labels in orders])


def _product(
    sides: Sequence[_Side], batch: Labels, contracted: Labels, size: Callable[[Labels], int]
) -> tuple[list[Op], Labels]:
    """The ops of a matrix product with the first side on the left, and the order of its result."""
    calls: list[Op] = []
    left, right = sides
    axes = (*batch, *left.loops, *right.loops)
    slots = []
    for side, groups in ((left, (left.rows, contracted)), (right, (contracted, right.rows))):
        slot = side.slot
        order = (*batch, *side.loops, *groups[0], *groups[1])
        if order != side.labels:
            slot = _add(calls, ops.Transpose, slot, tuple([side.labels.index(label) for label in order]))
        if side.copied:
            slot = _add(calls, ops.Copy, slot, "its axes do not lie as a small product reads them")
        shape: list[Labels] = [(label,) if label in order else () for label in axes]
        shape += [group for group in groups if group or axes]  # without batch axes, a vector
        if any(len(labels) != 1 for labels in shape):
            slot = _add(calls, ops.Reshape, slot, tuple([size(labels) for labels in shape]))
        slots.append(slot)
    out = _add(calls, ops.Matmul, *slots)
    result = (*axes, *left.rows, *right.rows)
    if any(len(rows) != 1 and (rows or axes) for rows in (left.rows, right.rows)):
        _add(calls, ops.Reshape, out, tuple([size((label,)) for label in result]))
    return calls, result


def _is_native_faster(
    memory: Sequence[Labels], order: Labels, axes: Labels, calls: Sequence[Op], model: CostModel, matrix: float
) -> Question:
    """Whether the framework's own kernel, with its result in this order, takes less than the calls of a product.

    Args:
        memory: the labels of both operands in memory order.
        order: of the kernel's result.
        axes: the batch axes of the product.
        calls: its ops.
        model: prices both.
        matrix: seconds for each matrix of the product.
    """
    every = tuple(dict.fromkeys([label for labels in memory for label in labels]))
    loops, is_packed = outer_loops(memory, order)
    outer = tuple(loops)
    overhead = sum([model.overhead(op) for op in calls])

    def is_faster(elements: Elements) -> bool:
        seconds = model.einsum(elements[every], _ROWS * elements[outer], 2, is_packed)
        return seconds < overhead + elements[axes] * matrix

    return is_faster


def _add(calls: list[Op], op: Callable[..., Op], *arguments: object) -> int:
    slot = 2 + len(calls)
    calls.append(op(slot, *arguments))
    return slot
