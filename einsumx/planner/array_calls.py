"""Array calls that hold for all sizes: the labels of operands and their order in memory decide them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from einsumx.ir.layout import Pattern, cut, merged_runs
from einsumx.ir.ops import Copy, Native, Op, Reshape, Sum, Transpose
from einsumx.ir.program import Arranged, Slots, arranged
from einsumx.planner.terms import Groups, Labels, native_equation

Fate: TypeAlias = Literal[
    "view", "sum", "einsum", "multiply", "multiply and sum", "matmul", "matmul in loops", "matmul of copies",
    "diagonal", "cast", "zeros",
]  # fmt: skip
"""How a product is computed, or what happens to an operand before, or instead."""

Sizes: TypeAlias = Sequence[int]
"""Of each label."""


class Laid(NamedTuple):
    """The labels of an array, and how they lie in memory, for all sizes but 0.

    Attributes:
        labels: of its axes, all different.
        pattern: see :data:`~einsumx.ir.layout.Pattern`; empty for C order.
        flat: the labels of each axis before a reshape, if these are not one an axis: several, or none for size 1. Only
            an array in C order has axes of several labels.
    """

    labels: Labels
    pattern: Pattern = ()
    flat: Groups | None = None

    @property
    def axes(self) -> Groups:
        """The labels of each axis, before a reshape to one label an axis."""
        return singles(self.labels) if self.flat is None else self.flat

    @property
    def inward(self) -> list[tuple[int, int]]:
        """The labels from the innermost in memory to the outermost, with their steps."""
        if not self.pattern:
            return [(label, 1) for label in reversed(self.labels)]
        return [(self.labels[axis], step) for axis, step in self.pattern]

    @property
    def memory(self) -> Labels:
        """The labels from the outermost in memory to the innermost."""
        if not self.pattern:
            return self.labels
        return tuple([self.labels[axis] for axis, _ in reversed(self.pattern)])

    @property
    def has_gaps(self) -> bool:
        """Whether it is not contiguous in the order of its axes in memory."""
        return any(step != 1 for _, step in self.pattern)

    def follows(self, outer: int, inner: int) -> bool:
        """Whether a label lies right inside of another one, without a gap, so that they are one axis."""
        order = self.inward
        place = [label for label, _ in order].index(outer)
        return place > 0 and order[place][1] == 1 and order[place - 1][0] == inner

    def merges(self, labels: Labels) -> bool:
        """Whether labels are one axis."""
        return all(self.follows(outer, inner) for outer, inner in pairwise(labels))

    def is_plain(self, labels: Labels) -> bool:
        """Whether the strides of labels are positive, and none is inside of another axis."""
        return all(step in (1, 2) for axis, step in self.pattern if self.labels[axis] in labels)

    def in_memory_order(self, labels: Collection[int]) -> Labels:
        """``labels`` from the outermost in memory to the innermost."""
        return tuple([label for label in self.memory if label in labels])

    def runs(self, labels: Collection[int]) -> list[Labels]:
        """``labels`` in memory order, as the longest runs that each are one axis."""
        return cut(self.in_memory_order(labels), lambda run, label: self.follows(run[-1], label))

    def without(self, ones: Labels) -> Laid:
        """The array without some labels, whose axes have size 1."""
        kept = without(self.labels, ones)
        if kept == self.labels:
            return self
        flat = tuple([without(axis, ones) for axis in self.axes])
        places = {self.labels.index(label): place for place, label in enumerate(kept)}
        pattern = tuple([(places[axis], step) for axis, step in self.pattern if axis in places])
        is_in_order = pattern == tuple([(axis, 1) for axis in reversed(range(len(kept)))])
        return Laid(kept, () if is_in_order else pattern, flat)

    def merged(self, labels: Labels) -> int | None:
        """1 if these are its innermost labels in memory, in this order and without gaps, or none; otherwise None."""
        if not labels:
            return 1
        if self.memory[len(self.memory) - len(labels) :] != labels:
            return None
        return None if any(step != 1 for _, step in self.pattern[: len(labels)]) else 1


def without(labels: Labels, others: Labels) -> Labels:
    """The labels that are not among others."""
    return tuple([label for label in labels if label not in others]) if others else labels


def renamed(array: Laid, names: Mapping[int, int] | Sequence[int]) -> Laid:
    """An array with other labels."""
    flat = array.flat
    if flat is not None:
        flat = tuple([tuple(map(names.__getitem__, axis)) for axis in flat])
    return Laid(tuple(map(names.__getitem__, array.labels)), array.pattern, flat)


class Step(NamedTuple):
    """An array call for all sizes.

    Attributes:
        op: the call, with the operands in slots 0 and 1; the shape of a reshape is a placeholder.
        sources: the axes of its sources.
        axes: those of its result, if it is a reshape.
    """

    op: Op
    sources: tuple[Groups, ...]
    axes: Groups | None = None

    def sized(self, sizes: Sizes) -> Op:
        """The op for sizes of the labels."""
        if self.axes is None:
            return self.op
        (source,) = self.op.sources
        return Reshape(self.op.out, source, shape_of(self.axes, sizes))


class Calls:
    """The array calls that compute a product in one way, for all sizes.

    Args:
        arrays: the operands, if no calls come first.
        before: calls that come first.

    Attributes:
        fate: the name of the way, such as "matmul".
        steps: the calls.
        axes: those of the array in each slot.
        result: the labels of the result.
        flat: as :attr:`Laid.flat`.
        is_loud: an op may warn about infinities and nan.
    """

    __slots__ = ("_delivered", "_longer", "_order", "_slots", "axes", "fate", "flat", "is_loud", "result", "steps")

    def __init__(self, arrays: Sequence[Laid], before: Calls | None = None) -> None:
        self.fate: Fate = "view"
        self.is_loud = False
        self.result: Labels = ()
        self.flat: Groups | None = None
        self._delivered: Calls | None = None
        self._longer: dict[tuple[Labels, Labels | None], Calls] = {}
        self._order: Arranged | None = None
        self._slots: tuple[Slots, ...] | None = None
        if before is None:
            self.steps: list[Step] = []
            self.axes: list[Groups] = [array.axes for array in arrays]
        else:
            self.steps, self.axes = before.steps[:], before.axes[:]

    def add(self, op: Op, sources: tuple[int, ...], axes: Groups) -> int:
        """Append a call, which writes the next slot; returns that.

        Args:
            op: the call.
            sources: the slots that it reads.
            axes: those of its result.
        """
        own = self.axes
        self.steps.append(Step(op, tuple([own[source] for source in sources])))
        own.append(axes)
        return len(own) - 1

    def reshape(self, slot: int, axes: Groups) -> int:
        """The slot of an array with other axes."""
        return slot if self.axes[slot] == axes else self.reshaped(slot, axes)

    def reshaped(self, slot: int, axes: Groups) -> int:
        """The slot of a reshaped array, also if it has these axes; two reshapes after each other are one."""
        own = self.axes
        if self.steps and slot == len(own) - 1 and self.steps[-1].axes is not None:
            (slot,) = self.steps.pop().op.sources
            own.pop()
        self.steps.append(Step(Reshape(len(own), slot, ()), (own[slot],), axes))
        own.append(axes)
        return len(own) - 1

    def transpose(self, slot: int, labels: Labels, order: Labels) -> int:
        """The slot of an array with one axis for each label, in another order."""
        if labels == order:
            return slot
        op = Transpose(len(self.axes), slot, tuple(map(labels.index, order)))
        return self.add(op, (slot,), tuple(zip(order)))

    def moved(self, slot: int, labels: Labels, order: Labels, reason: str) -> int:
        """The slot of an array in C order with its labels in another order: a copy with the fewest axes, if any."""
        if labels == order:
            return slot
        runs, axes = merged_runs(labels, order)
        slot = self.reshape(slot, runs)
        return self.add(Transpose(len(self.axes), slot, axes, reason), (slot,), tuple(map(runs.__getitem__, axes)))

    def copy(self, slot: int, reason: str) -> int:
        """The slot of a copy in C order."""
        return self.add(Copy(len(self.axes), slot, reason), (slot,), self.axes[slot])

    def summed(self, slot: int, array: Laid, needed: Collection[int]) -> tuple[int, Laid]:
        """The sum over the labels that are not needed: of axes in memory order, as the result has that order."""
        labels, memory = array.labels, array.memory
        if set(labels).issubset(needed):
            return slot, array
        slot = self.transpose(self.reshape(slot, singles(labels)), labels, memory)
        kept = tuple([label for label in memory if label in needed])
        gone = tuple([axis for axis, label in enumerate(memory) if label not in needed])
        return self.add(Sum(len(self.axes), slot, gone), (slot,), singles(kept)), Laid(kept)

    def summed_after(self, labels: Labels, needed: Labels) -> Calls:
        """End in the sum of the last array over the labels that are not needed."""
        self.summed(len(self.axes) - 1, Laid(labels), needed)
        return self.ended("multiply and sum", tuple([label for label in labels if label in needed]))

    def native(self, slots: tuple[int, int], arrays: tuple[Laid, Laid], result: Labels) -> Calls:
        """End in a call of the framework's own einsum."""
        lhs, rhs = [
            slot if array.flat is None else self.reshape(slot, singles(array.labels))
            for slot, array in zip(slots, arrays)
        ]
        equation = native_equation([array.labels for array in arrays], result)
        self.add(Native(len(self.axes), (lhs, rhs), equation), (lhs, rhs), singles(result))
        return self.ended("einsum", result)

    def ended(self, fate: Fate, result: Labels) -> Calls:
        """The calls, with their fate, and the labels of the last one's result."""
        self.fate, self.result, self.is_loud = fate, result, fate not in _SILENT
        axes = self.axes[-1]
        self.flat = None if axes == singles(result) else axes
        return self

    def with_ones(self, kept: Labels, order: Labels | None) -> Calls:
        """The calls with all labels that are kept: those of size 1 at their places in an order, or first."""
        ones = without(kept, self.result)
        if not ones:
            return self
        calls = self._longer.get((ones, order))
        if calls is None:
            calls = self._longer[ones, order] = self._with_ones(ones, order)
        return calls

    def _with_ones(self, ones: Labels, order: Labels | None) -> Calls:
        calls, result = Calls((), self), (*ones, *self.result)
        if order is not None and without(order, ones) == self.result:
            result = order
        axes = tuple([axis or (label,) for axis, label in zip(calls.axes[-1], result)])
        if axes == singles(result) and len(axes) == len(calls.axes[-1]):  # axes of size 1 are in their places
            calls.axes[-1] = axes
        return calls.ended(self.fate, result)

    def delivered(self, output: Labels) -> Calls:
        """The calls that end in the result of a contraction: an axis for each label, in the order of the output."""
        if self._delivered is None:
            if self.steps and self.flat is None and self.result == output:
                self._delivered = self
                return self
            calls = self._delivered = Calls((), self)
            slot = len(self.axes) - 1
            if self.flat is not None or self.result == output:
                # A result is never the operand itself, though it may be a view.
                slot = calls.reshaped(slot, singles(self.result))
            calls.transpose(slot, self.result, output)
            calls.fate, calls.result, calls.is_loud = self.fate, output, self.is_loud
        return self._delivered

    @property
    def slots(self) -> tuple[Slots, ...]:
        """What each call writes and reads."""
        if self._slots is None:
            self._slots = tuple([(step.op.out, step.op.sources) for step in self.steps])
        return self._slots

    @property
    def order(self) -> Arranged | None:
        """How the calls lead from the operands to the result, if they are those of one step."""
        if self._order is None:
            operands = len(self.axes) - len(self.steps)
            self._order = arranged(self.slots, tuple(range(operands)), len(self.axes) - 1)
        return self._order

    def laid(self, names: Sequence[int]) -> Laid:
        """The result, with names for the labels."""
        return renamed(Laid(self.result, (), self.flat), names)

    def ops(self, sizes: Sizes, slots: Sequence[int], start: int) -> list[Op]:
        """The ops for sizes of the labels.

        Args:
            sizes: of each label.
            slots: those of the operands.
            start: the slot of the first op.
        """
        names = dict(enumerate([*slots, *range(start, start + len(self.steps))]))
        return [step.sized(sizes).renamed(names) for step in self.steps]


_SILENT = frozenset(("view", "sum", "einsum", "diagonal", "zeros"))
"""The fates in which no op may warn about infinities and nan."""


def singles(labels: Labels) -> Groups:
    """An axis for each label."""
    return tuple(zip(labels))


def shape_of(axes: Groups, sizes: Sizes) -> tuple[int, ...]:
    """The shape of an array with these axes.

    >>> shape_of(((0,), (1, 2), ()), (4, 5, 6))
    (4, 30, 1)
    """
    shape = []
    for axis in axes:  # without a function for each: the kernels of a first call ask for many shapes
        size = 1
        for label in axis:
            size *= sizes[label]
        shape.append(size)
    return tuple(shape)


def span(labels: Iterable[int], sizes: Sizes) -> int:
    """The number of elements that labels span."""
    count = 1
    for label in labels:
        count *= sizes[label]
    return count
