"""``Builder``: lowering appends ops to it, and it tracks the labels and strides of each value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from einsumx.ir import ops
from einsumx.ir.cost_model import CostModel
from einsumx.ir.layout import cut, merged_transpose
from einsumx.ir.ops import Op
from einsumx.ir.traits import Traits
from einsumx.planner.selection import BY_COST, Choosing
from einsumx.planner.terms import Labels, Term, native_equation

_LARGEST_COUNT = 2**63 - 1

_ARRANGING = (ops.Transpose, ops.First, ops.Diagonal, ops.Sum)


class Builder:
    """Appends ops and tracks the layout of their results.

    Args:
        sizes: of each label.
        traits: of the target framework.
        slots: the number of operands.
        choosing: among the candidates for each product.

    Attributes:
        slots: the number of slots: of operands and ops.
        is_tidy: whether all ops are needed, and none can be joined with another one.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        traits: Traits,
        slots: int,
        choosing: Choosing = BY_COST,
    ) -> None:
        self.sizes = sizes
        self.traits = traits
        self.ops: list[Op] = []
        self.choosing = choosing
        self.is_tidy = True
        self.slots = slots
        self._models: dict[str, CostModel] = {}

    def model(self, dtype: str) -> CostModel:
        """What ops in a dtype cost."""
        if dtype not in self._models:
            self._models[dtype] = CostModel(self.traits, dtype)
        return self._models[dtype]

    def size(self, labels: Sequence[int]) -> int:
        """The number of elements that ``labels`` span."""
        return prod(map(self.sizes.__getitem__, labels))

    def shape(self, labels: Sequence[int]) -> tuple[int, ...]:
        """The sizes of ``labels``."""
        sizes = self.sizes
        return tuple([sizes[label] for label in labels])

    def add(self, op: Callable[..., Op], *arguments: Any) -> int:
        """Append an op, made from its output slot and ``arguments``; returns that slot."""
        slot = self.slots
        self.slots += 1
        self.ops.append(op(slot, *arguments))
        return slot

    def extend(self, calls: Sequence[Op]) -> None:
        """Append ops whose slots follow those of the others."""
        self.ops += calls
        self.slots += len(calls)

    def settled(self, term: Term) -> Term:
        """The term in a slot that has the shape of its axes."""
        return term if term.flat is None else self.packed(self.reshape(term.slot, term.shape), term.labels)

    def native(self, terms: Sequence[Term], result: Labels) -> Term:
        """A call of the framework's own einsum, with its result in this order."""
        slots = tuple([term.slot for term in terms])
        equation = native_equation([term.labels for term in terms], result)
        return self.packed(self.add(ops.Native, slots, equation), result)

    def packed(self, slot: int, labels: Labels) -> Term:
        """A C-contiguous term."""
        return Term(slot, labels, None, self.sizes)

    def strided(self, slot: int, labels: Labels, strides: tuple[int, ...] | None) -> Term:
        """A term with strides; None for a C-contiguous one."""
        return Term(slot, labels, strides, self.sizes)

    def _apply(self, op: Callable[..., Op], term: Term, *arguments: Any) -> Term:
        """The result of an op on a term."""
        slot = self.add(op, term.slot, *arguments)
        added = self.ops[-1]
        labels = added.arranged(term.labels) if isinstance(added, _ARRANGING) else term.labels
        strides = added.result_strides(self.shape(term.labels), term.strides)
        return self.strided(slot, labels, strides)

    # -- one operand ------------------------------------------------------------------------------------

    def diagonal(self, term: Term) -> Term:
        """Replace the axes of each repeated label by their diagonal."""
        while len(set(term.labels)) < len(term.labels):
            first, second = next(
                (axis, term.labels.index(label, axis + 1))
                for axis, label in enumerate(term.labels)
                if label in term.labels[axis + 1 :]
            )
            reason = "" if self.traits.strided else "its diagonal, as the framework has no views of diagonals"
            term = self._apply(ops.Diagonal, term, first, second, reason)
        return term

    def first(self, term: Term, labels: Labels) -> Term:
        """Drop ``labels``, whose strides are 0."""
        if not labels:
            return term
        axes = tuple(axis for axis, label in enumerate(term.labels) if label in labels)
        return self._apply(ops.First, term, axes)

    def expand(self, term: Term, labels: Labels) -> Term:
        """Broadcast the array along new leading axes for ``labels``, with strides of 0."""
        if not labels:
            return term
        shape = self.shape(term.labels)
        slot = self.reshape(term.slot, ((1,) * len(labels)) + shape)
        out = self.add(ops.Expand, slot, (*self.shape(labels), *shape))
        return self.strided(out, (*labels, *term.labels), ((0,) * len(labels)) + term.strides)

    def drop(self, term: Term, axes: Sequence[int]) -> Term:
        """Drop ``axes``, each of size 1 in the array."""
        if not axes:
            return term
        kept = [axis for axis in range(len(term.labels)) if axis not in axes]
        labels = tuple(term.labels[axis] for axis in kept)
        slot = self.reshape(term.slot, self.shape(labels))
        return self.strided(slot, labels, tuple(term.strides[axis] for axis in kept))

    def sum(self, term: Term, labels: Sequence[int]) -> Term:
        """Sum over ``labels``; those of size 1 are only dropped."""
        if not labels:
            return term
        self.is_tidy = False
        ones = [axis for axis, label in enumerate(term.labels) if label in labels and self.sizes[label] == 1]
        term = self.drop(term, ones)
        labels = [label for label in labels if self.sizes[label] != 1]
        if not labels:
            return term
        if self.traits.strided:  # some frameworks keep the operand's memory order, so that must be C order
            term = self.permute(term, term.in_memory_order(term.labels))
        axes = tuple(axis for axis, label in enumerate(term.labels) if label in labels)
        return self._apply(ops.Sum, term, axes)

    def scale(self, term: Term, labels: Labels) -> Term:
        """The sum over ``labels``, which the term lacks, so that all summands are equal."""
        while labels:
            most = 1
            while most < len(labels) and self.size(labels[: most + 1]) <= _LARGEST_COUNT:
                most += 1
            term = self._apply(ops.Scale, term, self.size(labels[:most]))
            labels = labels[most:]
        return term

    def cast(self, term: Term, dtype: str) -> Term:
        """The term in another dtype, with the same memory order and no gaps."""
        cast = self._apply(ops.Cast, term, dtype)
        return cast if self.traits.strided else self.packed(cast.slot, cast.labels)

    def reshape(self, slot: int, shape: tuple[int, ...]) -> int:
        """The slot of a reshape that copies nothing."""
        return self.add(ops.Reshape, slot, shape)

    def permute(self, term: Term, labels: Labels, reason: str = "") -> Term:
        """The axes in the order of ``labels``: a view with strides, otherwise a copy for ``reason``."""
        if labels == term.labels:
            return term
        if self.traits.strided or self.traits.pairs_by_einsum:
            axes = tuple(map(term.labels.index, labels))
            if not self.traits.strided:
                return self._apply(ops.Transpose, term, axes, reason)
            slot = self.add(ops.Transpose, term.slot, axes)
            return Term(slot, labels, tuple([term.strides[axis] for axis in axes]), self.sizes, term.memory)
        slot, (before, axes) = term.slot, merged_transpose(term.labels, labels, self.sizes)
        if len(axes) > 1:
            slot = self.add(ops.Transpose, self.reshape(slot, before), axes, reason)
        return self.packed(self.reshape(slot, self.shape(labels)), labels)

    def pack(self, term: Term, labels: Labels, reason: str) -> Term:
        """The axes in the order of ``labels``, C-contiguous."""
        term = self.permute(term, labels, reason)
        if self.is_packed(term, labels):
            return term
        return self._apply(ops.Copy, term, reason)

    def is_packed(self, term: Term, labels: Labels) -> bool:
        """Whether the term, with its axes in the order of ``labels``, is C-contiguous."""
        return term.merged(labels) == 1

    def runs(self, term: Term, labels: Labels) -> list[Labels]:
        """``labels`` in memory order, as the longest runs that each merge into one axis."""
        return cut(term.in_memory_order(labels), lambda run, label: term.merged((*run, label)) is not None)
