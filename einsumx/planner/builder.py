"""What lowering writes with: ops in order, and for every slot its labels and where its data lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from einsumx.adapters.traits import Traits
from einsumx.ir.layout import contiguous, merged_stride
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
)

__all__ = ["Builder", "Labels", "Term", "cut"]

Labels = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """A value while it is being planned: its slot, a label an axis, a stride (in elements) an axis."""

    slot: int
    labels: Labels
    strides: tuple[int, ...]

    def stride(self, label: int) -> int:
        """The stride of a label's axis."""
        return self.strides[self.labels.index(label)]

    def in_memory_order(self, labels: Sequence[int]) -> Labels:
        """``labels`` from the outermost in memory to the innermost."""
        places = {label: (-abs(stride), axis) for axis, (label, stride) in enumerate(zip(self.labels, self.strides))}
        return tuple(sorted(labels, key=places.__getitem__))


_LARGEST_COUNT = 2**63 - 1


class Builder:
    """Appends ops and keeps track of the layout that each gives.

    Args:
        sizes: the size of each label.
        traits: of the framework that is lowered for.
        slots: how many slots are taken by operands.
    """

    def __init__(self, sizes: Sequence[int], traits: Traits, slots: int) -> None:
        self.sizes = sizes
        self.traits = traits
        self.ops: list[Op] = []
        self._slots = slots

    def size(self, labels: Sequence[int]) -> int:
        """The number of elements that ``labels`` span."""
        return prod([self.sizes[label] for label in labels])

    def shape(self, labels: Sequence[int]) -> tuple[int, ...]:
        """The sizes of ``labels``."""
        return tuple([self.sizes[label] for label in labels])

    def new_slot(self) -> int:
        """The number of the next slot to be written."""
        self._slots += 1
        return self._slots - 1

    def packed(self, slot: int, labels: Labels) -> Term:
        """A term that lies C-contiguous."""
        return Term(slot, labels, contiguous(self.shape(labels)))

    def _made(self, op: Op, term: Term, labels: Labels) -> Term:
        """What an op makes of a term, with the labels of its axes."""
        self.ops.append(op)
        strides = op.result_strides(self.shape(term.labels), term.strides)
        return self.packed(op.out, labels) if strides is None else Term(op.out, labels, strides)

    # -- one operand ------------------------------------------------------------------------------------

    def diagonal(self, term: Term) -> Term:
        """Make every label that stands twice one axis, its diagonal."""
        while len(set(term.labels)) < len(term.labels):
            first, second = next(
                (axis, term.labels.index(label, axis + 1))
                for axis, label in enumerate(term.labels)
                if label in term.labels[axis + 1 :]
            )
            reason = "" if self.traits.strided else "its diagonal, as the framework has no views of diagonals"
            op = Diagonal(self.new_slot(), term.slot, first, second, reason)
            term = self._made(op, term, op.arranged(term.labels))
        return term

    def first(self, term: Term, labels: Labels) -> Term:
        """Drop ``labels``, along which the array repeats itself in place: their strides are 0."""
        if not labels:
            return term
        axes = tuple(axis for axis, label in enumerate(term.labels) if label in labels)
        op = First(self.new_slot(), term.slot, axes)
        return self._made(op, term, op.arranged(term.labels))

    def expand(self, term: Term, labels: Labels) -> Term:
        """Repeat the array along new axes for ``labels``, which come first, in place."""
        if not labels:
            return term
        shape = self.shape(term.labels)
        slot = self.reshape(term.slot, ((1,) * len(labels)) + shape)
        out = self.new_slot()
        self.ops.append(Expand(out, slot, (*self.shape(labels), *shape)))
        return Term(out, (*labels, *term.labels), ((0,) * len(labels)) + term.strides)

    def drop(self, term: Term, axes: Sequence[int]) -> Term:
        """Drop ``axes``, each of size 1 in the array."""
        if not axes:
            return term
        kept = [axis for axis in range(len(term.labels)) if axis not in axes]
        labels = tuple(term.labels[axis] for axis in kept)
        slot = self.reshape(term.slot, self.shape(labels))
        return Term(slot, labels, tuple(term.strides[axis] for axis in kept))

    def sum(self, term: Term, labels: Sequence[int]) -> Term:
        """Sum over ``labels``; those of size 1 are only dropped."""
        ones = [axis for axis, label in enumerate(term.labels) if label in labels and self.sizes[label] == 1]
        term = self.drop(term, ones)
        labels = [label for label in labels if self.sizes[label] != 1]
        limit = self.traits.max_sum_axes
        while labels and limit is not None and len(term.labels) > limit:
            term = self._fused_sum(term, labels, limit)
            labels = [label for label in labels if label in term.labels]
        if not labels:
            return term
        if self.traits.strided:  # some frameworks give sums the order of their operand: in memory order it is C
            term = self.permute(term, term.in_memory_order(term.labels))
        axes = tuple(axis for axis, label in enumerate(term.labels) if label in labels)
        op = Sum(self.new_slot(), term.slot, axes)
        return self._made(op, term, op.arranged(term.labels))

    def _fused_sum(self, term: Term, labels: Sequence[int], limit: int) -> Term:
        """One sum of at most ``limit`` fused axes, the first that hold some of ``labels``."""
        runs = [(summed, tuple(run)) for summed, run in groupby(term.labels, lambda label: label in labels)]
        if len(runs) > limit:
            rest = tuple(label for _, run in runs[limit - 1 :] for label in run)
            runs = [*runs[: limit - 1], (False, rest)]
        slot = self.reshape(term.slot, tuple(self.size(run) for _, run in runs))
        out = self.new_slot()
        self.ops.append(Sum(out, slot, tuple(axis for axis, (summed, _) in enumerate(runs) if summed)))
        kept = tuple(label for summed, run in runs if not summed for label in run)
        return self.packed(self.reshape(out, self.shape(kept)), kept)

    def scale(self, term: Term, labels: Sequence[int]) -> Term:
        """The sum over ``labels``, which the term has not: all that is summed is equal."""
        count = 1
        for number, label in enumerate(labels, 1):
            count *= self.sizes[label]
            if number < len(labels) and count * self.sizes[labels[number]] <= _LARGEST_COUNT:
                continue
            term, count = self._made(Scale(self.new_slot(), term.slot, count), term, term.labels), 1
        return term

    def cast(self, term: Term, dtype: str) -> Term:
        """Another dtype; the copy keeps the order of the axes in memory, without gaps."""
        made = self._made(Cast(self.new_slot(), term.slot, dtype), term, term.labels)
        return made if self.traits.strided else self.packed(made.slot, made.labels)

    def reshape(self, slot: int, shape: tuple[int, ...]) -> int:
        """The slot of a reshape that copies nothing."""
        out = self.new_slot()
        self.ops.append(Reshape(out, slot, shape))
        return out

    def permute(self, term: Term, labels: Labels, reason: str = "") -> Term:
        """The axes in the order of ``labels``: a view where there are strides, else a copy with a reason."""
        if labels == term.labels:
            return term
        if self.traits.strided:
            axes = tuple(term.labels.index(label) for label in labels)
            return self._made(Transpose(self.new_slot(), term.slot, axes), term, labels)
        return self._permuted_copy(term, labels, reason)

    def pack(self, term: Term, labels: Labels, reason: str) -> Term:
        """The axes in the order of ``labels``, C-contiguous."""
        term = self.permute(term, labels, reason)
        if self.is_packed(term, labels):
            return term
        return self._made(Copy(self.new_slot(), term.slot, reason), term, labels)

    def is_packed(self, term: Term, labels: Labels) -> bool:
        """Whether ``labels``, all those of ``term``, lie C-contiguous in that order."""
        strides = tuple(term.stride(label) for label in labels)
        shape = self.shape(labels)
        return all(size == 1 or found == wanted for size, found, wanted in zip(shape, strides, contiguous(shape)))

    def merged(self, term: Term, labels: Labels) -> int | None:
        """The one stride of ``labels`` read as a single axis, None where they don't merge."""
        return merged_stride(self.shape(labels), tuple(term.stride(label) for label in labels))

    def runs(self, term: Term, labels: Labels) -> list[Labels]:
        """``labels`` in memory order, cut into the longest runs that merge into one axis each."""
        return cut(term.in_memory_order(labels), lambda run, label: self.merged(term, (*run, label)) is not None)

    def _permuted_copy(self, term: Term, labels: Labels, reason: str) -> Term:
        """A permutation where transposes copy.

        Neighbours that stay together are fused first, and more axes than one transpose takes are moved in several.
        """
        order = term.labels
        slot = term.slot
        for target in _stages(order, labels, self.traits.max_transpose_axes, self.sizes):
            blocks = _blocks(order, target, self.sizes)
            axes = tuple(sorted(range(len(blocks)), key=lambda block: order.index(blocks[block][0])))
            before = tuple(self.size(blocks[axis]) for axis in axes)
            position = {block: place for place, block in enumerate(axes)}
            if len(blocks) > 1:
                slot = self.reshape(slot, before)
                out = self.new_slot()
                moved = tuple(position[block] for block in range(len(blocks)))
                self.ops.append(Transpose(out, slot, moved, reason))
                slot = out
            order = target
        return self.packed(self.reshape(slot, self.shape(labels)), labels)

    # -- two operands -----------------------------------------------------------------------------------

    def multiply(self, lhs: int, rhs: int) -> int:
        """The slot of an elementwise product."""
        out = self.new_slot()
        self.ops.append(Multiply(out, lhs, rhs))
        return out

    def matmul(self, lhs: int, rhs: int, transpose_lhs: bool, transpose_rhs: bool, inner_batch: bool) -> int:
        """The slot of a matrix product."""
        out = self.new_slot()
        self.ops.append(Matmul(out, lhs, rhs, transpose_lhs, transpose_rhs, inner_batch))
        return out

    def native(self, operands: tuple[int, ...], equation: str) -> int:
        """The slot of a call to the framework's own einsum."""
        out = self.new_slot()
        self.ops.append(Native(out, operands, equation))
        return out


def cut(labels: Labels, continues: Callable[[Labels, int], bool]) -> list[Labels]:
    """``labels`` cut into runs, each as long as its next label ``continues`` it.

    >>> cut((1, 2, 4, 5), lambda run, label: label == run[-1] + 1)
    [(1, 2), (4, 5)]
    """
    runs: list[Labels] = []
    for label in labels:
        if runs and continues(runs[-1], label):
            runs[-1] = (*runs[-1], label)
        else:
            runs.append((label,))
    return runs


def _blocks(order: Labels, target: Labels, sizes: Sequence[int]) -> list[Labels]:
    """Runs of labels that stay neighbours, in the target's order; labels of size 1 stick to any run."""
    blocks: list[list[int]] = []
    place = {label: position for position, label in enumerate(label for label in order if sizes[label] != 1)}
    for label in target:
        if sizes[label] == 1:
            continue
        if blocks and place[label] == place[blocks[-1][-1]] + 1:
            blocks[-1].append(label)
        else:
            blocks.append([label])
    return [tuple(block) for block in blocks]


def _stages(order: Labels, target: Labels, limit: int | None, sizes: Sequence[int]) -> Iterator[Labels]:
    """Orders on the way to ``target``, so that each is reached by one transpose of at most ``limit`` axes."""
    if limit is None or len(_blocks(order, target, sizes)) <= limit:
        yield target
        return
    # Bring blocks of the target into place from the left, as many at a time as the limit allows: what is
    # taken out leaves gaps, and the runs between them are axes too.
    done: Labels = ()
    while order != target:
        taken = len(done)
        best = target[: taken + 1]
        for end in range(taken + 1, len(target) + 1):
            candidate = (*target[:end], *(label for label in order if label not in target[:end]))
            if len(_blocks(order, candidate, sizes)) > limit:
                break
            best = target[:end]
        done = best
        order = (*done, *(label for label in order if label not in done))
        yield order
