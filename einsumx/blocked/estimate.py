"""What a plan takes on blocks of other sizes than it was lowered for: its amounts as products of label sizes.

The same ops are assumed to run. Where lowering would choose others, a sketch is off, and is made anew from a plan that
was lowered for those sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, TypeAlias

from einsumx.adapters.base import Adapter
from einsumx.adapters.traits import Traits
from einsumx.dtypes import itemsize
from einsumx.ir.cost import freed, layouts, op_cost, op_price, slot_dtypes
from einsumx.ir.ops import Expand, Op, Reshape, Zeros
from einsumx.ir.program import Program

__all__ = ["Amounts", "Estimate", "Sketch", "amounts", "axis_labels"]

Labels: TypeAlias = tuple[int, ...]


class _Axis(int):
    """The size of an axis, and the labels that it runs over; those of size 1 are left out."""

    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Amounts:
    """What an op takes, as products of the sizes of labels, which are in ascending order.

    Attributes:
        op: of a plan.
        operands: those of the contraction that its result depends on.
        made: the labels of the array that it makes, and bytes an element; None where it gives a view.
        workspace: labels of an array, and bytes an element of it, that its kernel allocates.
        time: seconds, from a number for each of ``priced``.
        priced: labels whose sizes are multiplied for such a number.
    """

    op: Op
    operands: frozenset[int]
    made: tuple[Labels, int] | None
    workspace: tuple[Labels, float]
    time: Callable[..., float]
    priced: tuple[Labels, ...]


class Estimate(NamedTuple):
    """What ops take.

    Attributes:
        seconds: of all of them.
        peak: the most bytes alive at once of what they make.
        tight: the labels of what is alive then.
    """

    seconds: float
    peak: int
    tight: frozenset[int]


def amounts(
    plan: Program, terms: Sequence[Labels], output: Labels, sizes: Sequence[int], adapter: Adapter, traits: Traits
) -> list[Amounts]:
    """What each op of a plan takes.

    Args:
        plan: lowered for blocks of these sizes.
        terms, output: the labels of the operands' axes, and of the result's.
        sizes: of the labels.
        adapter: of the framework that the plan is for.
        traits: of that framework, with the rates that predict times.
    """
    axes = _axes(plan, terms, output, sizes)
    labels = {slot: _labels_of(shape) for slot, shape in axes.items()}
    types = slot_dtypes(plan)
    lies = layouts(plan, axes, types)
    depends = {slot: frozenset([slot]) for slot in range(len(terms))}
    found = []
    for op in plan.ops:
        read = op.sources
        depends[op.out] = frozenset().union(*(depends[slot] for slot in read))
        cost = op_cost(op, axes, types[op.out], adapter.workspace(op, [lies[slot] for slot in read]))
        largest = max((*read, op.out), key=lambda slot: prod(axes[slot]))
        price = op_price(op, [lies[slot] for slot in read], lies[op.out], traits)
        found.append(
            Amounts(
                op,
                depends[op.out],
                (labels[op.out], itemsize(types[op.out])) if cost.allocated else None,
                (labels[largest], cost.workspace / max(prod(axes[largest]), 1)),
                price.time,
                tuple(_labels_of(amount) for amount in price.amounts),
            )
        )
    return found


def axis_labels(
    plan: Program, terms: Sequence[Labels], output: Labels, sizes: Sequence[int]
) -> dict[int, tuple[Labels, ...]]:
    """The labels that each axis of each slot runs over, as :func:`amounts` takes them; those of size 1 are left out.

    >>> import einsumx
    >>> found = einsumx.plan("ij,jk->ik", (2, 3), (3, 4))
    >>> axis_labels(found, ((0, 1), (1, 2)), (0, 2), (2, 3, 4))[2]
    ((0,), (2,))
    """
    axes = _axes(plan, terms, output, sizes)
    return {slot: tuple(axis.labels for axis in shape) for slot, shape in axes.items()}


def _axes(plan: Program, terms: Sequence[Labels], output: Labels, sizes: Sequence[int]) -> dict[int, tuple[_Axis, ...]]:
    """The labels that each axis of each slot runs over."""

    def axis(labels: Labels) -> _Axis:
        made = _Axis(prod(sizes[label] for label in labels))
        made.labels = tuple(label for label in labels if sizes[label] != 1)
        return made

    found = {
        slot: tuple(axis((label,) if size == sizes[label] else ()) for label, size in zip(term, operand.shape))
        for slot, (term, operand) in enumerate(zip(terms, plan.operands))
    }
    for op in plan.ops:
        shapes = [found[slot] for slot in op.sources]
        there = [label for shape in shapes for axis_ in shape for label in axis_.labels]
        match op:
            case Reshape():
                found[op.out] = tuple(map(axis, _regrouped(there, op.shape, sizes)))
            case Zeros():
                found[op.out] = tuple([axis((label,)) for label in output])
            case Expand():  # along labels of the result that no operand has data for
                missing = iter([label for label in output if sizes[label] > 1 and label not in there])
                found[op.out] = tuple(
                    old if old == size else axis((next(missing),)) for old, size in zip(shapes[0], op.shape)
                )
            case _:
                made = op.result_shape(shapes)  # of the axes that it was given, and of others of size 1
                found[op.out] = tuple(old if isinstance(old, _Axis) else axis(()) for old in made)
    return found


def _labels_of(axes: Sequence[int]) -> Labels:
    return tuple(sorted([label for axis in axes if isinstance(axis, _Axis) for label in axis.labels]))


def _regrouped(labels: Sequence[int], shape: Sequence[int], sizes: Sequence[int]) -> Iterator[Labels]:
    """The labels of the axes of a reshape."""
    left = list(labels)
    for size in shape:
        run: list[int] = []
        while prod(sizes[label] for label in run) < size:
            run.append(left.pop(0))
        yield tuple(run)


class Sketch:
    """Seconds and bytes of some of the ops of a plan, on blocks of any size.

    Args:
        plan: that the ops are of.
        parts: of the ops that are looked at; what others make is theirs.
        sizes: of the labels that the plan was lowered for.
    """

    def __init__(self, plan: Program, parts: Sequence[Amounts], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        numbers: dict[Labels, int] = {(): 0}

        def number(labels: Labels) -> int:
            return numbers.setdefault(labels, len(numbers))

        self._fixed = sum(part.time() for part in parts if not part.priced)
        self._times = [(part.time, [number(labels) for labels in part.priced]) for part in parts if part.priced]
        self._parts = parts
        self._freed: list[list[int]] = []
        if parts:
            some = replace(plan, ops=tuple(part.op for part in parts), result=parts[-1].op.out)
            self._freed = list(freed(some, [part.made is not None for part in parts]))
        made = {part.op.out: (number(part.made[0]), part.made[1]) for part in parts if part.made is not None}
        self._moments = [
            (
                place,
                made.get(part.op.out, (0, 0)),
                number(part.workspace[0]),
                part.workspace[1],
                [made[slot] for slot in gone if slot in made],
            )
            for place, (part, gone) in enumerate(zip(parts, self._freed))
        ]
        self._tight: dict[int, frozenset[int]] = {}
        self._products = list(numbers)

    def __call__(self, sizes: Sequence[int]) -> Estimate:
        """What the ops take where labels have these sizes."""
        amount = [prod([sizes[label] for label in labels]) for labels in self._products]
        seconds = self._fixed
        for time, factors in self._times:
            seconds += time(*[amount[number] for number in factors])
        held, peak, when = 0, 0, -1
        for place, (own, size), space, rate, gone in self._moments:
            held += amount[own] * size
            total = held + round(amount[space] * rate) if rate else held
            if total > peak:
                peak, when = total, place
            for number, size in gone:
                held -= amount[number] * size
        return Estimate(seconds, peak, self._labels_at(when))

    def _labels_at(self, when: int) -> frozenset[int]:
        """The labels of what is alive when an op has run, and of what it takes besides."""
        if when not in self._tight:
            there: dict[int, Labels] = {}
            found = frozenset[int]()
            for place, (part, gone) in enumerate(zip(self._parts[: when + 1], self._freed)):
                if part.made is not None:
                    there[part.op.out] = part.made[0]
                if place == when:
                    labels, rate = part.workspace
                    found = frozenset(labels if rate else ()).union(*there.values())
                for slot in gone:
                    there.pop(slot, None)
            self._tight[when] = found
        return self._tight[when]
