"""``Lowering``: the ops of a contraction as they are written, and the labels and strides of each value.

How a pair is computed depends on how arrays lie in memory, so each kind has a subclass, in a module of its own:
:mod:`~einsumx.planner.strided_lowering`, :mod:`~einsumx.planner.packed_lowering`, and :mod:`~einsumx.planner.einsum`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from einsumx.ir import ops
from einsumx.ir.cost_model import CostModel
from einsumx.ir.layout import contiguous
from einsumx.ir.loops import outer_loops
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Op
from einsumx.ir.traits import Traits
from einsumx.planner.array_calls import Calls, Sizes
from einsumx.planner.orders import product_order
from einsumx.planner.selection import Candidate
from einsumx.planner.terms import Labels, ResultUse, Term, joined, native_equation, repeated

seconds_of = attrgetter("seconds")
"""The estimated time of a candidate."""

_LARGEST_COUNT = 2**63 - 1

_ARRANGING = (ops.Transpose, ops.First, ops.Diagonal, ops.Sum)


class Pair(NamedTuple):
    """Two terms to contract, neither of which has summed labels that the other one lacks.

    Attributes:
        lhs, rhs: the terms.
        batch, contracted, lhs_free, rhs_free: their labels, in four classes.
        dtype: of the computation.
        use: how the result is used.
        sums: the dtype of the sums of products, if it is another one.
    """

    lhs: Term
    rhs: Term
    batch: Labels
    contracted: Labels
    lhs_free: Labels
    rhs_free: Labels
    dtype: str
    use: ResultUse
    sums: str = ""

    @property
    def kept(self) -> Labels:
        """The labels of the result, in the requested order if there is one."""
        kept = (*self.batch, *self.lhs_free, *self.rhs_free)
        return self.use.target(kept) or kept


def listed(labels: Labels) -> str:
    """The numbers of labels.

    >>> listed((3, 1))
    '3.1'
    """
    return ".".join(map(str, labels))


class Lowering:
    """Appends ops and tracks the layout of their results.

    Args:
        sizes: of each label.
        traits: of the target framework.
        slots: the number of operands.
        names: of the candidates for the steps, see :class:`~einsumx.planner.selection.Selection`; with any, the
            candidates are listed.

    Attributes:
        slots: the number of slots: of operands and ops.
        listed: the candidates for each step so far.
    """

    has_views: ClassVar[bool] = False
    """Whether transposes and diagonals are views."""

    def __init__(self, sizes: Sequence[int], traits: Traits, slots: int, names: Sequence[str] = ()) -> None:
        self.sizes, self.traits, self.slots = sizes, traits, slots
        self.ops: list[Op] = []
        self.listed: list[list[Candidate]] = []
        self.names = names
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
        return tuple(map(self.sizes.__getitem__, labels))

    def long(self, labels: Sequence[int]) -> list[int]:
        """``labels`` without those of size 1."""
        return [label for label in labels if self.sizes[label] != 1]

    def term(self, slot: int, labels: Labels, strides: tuple[int, ...] | None = None) -> Term:
        """The term in a slot; C-contiguous without strides."""
        return Term(slot, labels, strides, self.sizes)

    def add(self, op: Callable[..., Op], *arguments: Any) -> int:
        """Append an op, made from its output slot and ``arguments``; returns that slot."""
        slot = self.slots
        self.slots += 1
        self.ops.append(op(slot, *arguments))
        return slot

    def append(
        self, calls: Calls, sizes: Sizes, slots: Sequence[int], threads: ops.Threads = "", sums: str = ""
    ) -> int:
        """Append the ops of calls for sizes of their labels; returns the slot of the result.

        Args:
            calls, sizes: the calls, and the size of each of their labels.
            slots: of the operands.
            threads, sums: of products of matrices, see :class:`~einsumx.ir.ops.Matmul`.
        """
        added = calls.ops(sizes, slots, self.slots)
        if threads or sums:
            added = [replace(op, threads=threads, sums=sums) if isinstance(op, ops.Matmul) else op for op in added]
        self.ops += added
        self.slots += len(added)
        return self.slots - 1 if added else slots[0]

    def _apply(self, op: Callable[..., Op], term: Term, *arguments: Any) -> Term:
        """The result of an op on a term."""
        term = self.settled(term)
        slot = self.add(op, term.slot, *arguments)
        added = self.ops[-1]
        labels = added.arranged(term.labels) if isinstance(added, _ARRANGING) else term.labels
        return self.term(slot, labels, added.result_strides(term.shape, term.strides))

    # -- one operand ------------------------------------------------------------------------------------

    def read(self, slot: int, labels: Labels, operand: Operand) -> Term:
        """An operand with each label once, without the axes of size 1 that broadcast."""
        return self.diagonal(self.without_ones(slot, labels, operand))

    def without_ones(self, slot: int, labels: Labels, operand: Operand) -> Term:
        """An operand without the axes of size 1 that broadcast."""
        term = self.term(slot, labels, operand.strides or contiguous(operand.shape))
        return self.drop(term, [axis for axis, size in enumerate(operand.shape) if size != term.shape[axis]])

    def distinct(self, term: Term, needed: frozenset[int], dtype: str) -> Term:
        """A term in dtype ``dtype`` with each label once; nothing needs labels that are not in ``needed``."""
        return term

    def diagonal(self, term: Term) -> Term:
        """Replace the axes of each repeated label by their diagonal."""
        reason = "" if self.has_views else "its diagonal, as the framework has no views of diagonals"
        while axes := repeated(term.labels):
            term = self._apply(ops.Diagonal, term, *axes, reason)
        return term

    def settled(self, term: Term) -> Term:
        """The term in a slot that has the shape of its axes."""
        return term if term.flat is None else self.reshape(term.slot, term.labels)

    def reshape(self, slot: int, labels: Labels) -> Term:
        """A C-contiguous value with an axis for each label; nothing is copied."""
        return self.term(self.add(ops.Reshape, slot, self.shape(labels)), labels)

    def first(self, term: Term, labels: Collection[int]) -> Term:
        """Drop ``labels``, whose strides are 0."""
        axes = tuple([axis for axis, label in enumerate(term.labels) if label in labels])
        return self._apply(ops.First, term, axes) if axes else term

    def expand(self, term: Term, labels: Labels) -> Term:
        """Broadcast the array along new leading axes for ``labels``, with strides of 0."""
        if not labels:
            return term
        slot = self.add(ops.Reshape, term.slot, (1,) * len(labels) + term.shape)
        out = self.add(ops.Expand, slot, (*self.shape(labels), *term.shape))
        return self.term(out, (*labels, *term.labels), (0,) * len(labels) + term.strides)

    def drop(self, term: Term, axes: Sequence[int]) -> Term:
        """Drop ``axes``, each of size 1 in the array."""
        if not axes:
            return term
        kept = [axis for axis in range(len(term.labels)) if axis not in axes]
        labels = tuple([term.labels[axis] for axis in kept])
        return self.term(self.reshape(term.slot, labels).slot, labels, tuple([term.strides[axis] for axis in kept]))

    def sum(self, term: Term, labels: Sequence[int]) -> Term:
        """Sum over ``labels``; those of size 1 are only dropped."""
        if not labels:
            return term
        term = self.drop(
            term, [axis for axis, label in enumerate(term.labels) if label in labels and self.sizes[label] == 1]
        )
        labels = [label for label in labels if self.sizes[label] != 1]
        if not labels:
            return term
        term = self.permute(term, term.memory)  # some frameworks keep the operand's memory order
        return self._apply(ops.Sum, term, tuple([axis for axis, label in enumerate(term.labels) if label in labels]))

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
        return self._apply(ops.Cast, term, dtype)

    def permute(self, term: Term, labels: Labels, reason: str = "") -> Term:
        """The axes in the order of ``labels``: a view, or else a copy for ``reason``."""
        if labels == term.labels:
            return term
        axes = tuple(map(term.labels.index, labels))
        return self._apply(ops.Transpose, term, axes, "" if self.has_views else reason)

    def pack(self, term: Term, labels: Labels, reason: str) -> Term:
        """The axes in the order of ``labels``, C-contiguous."""
        term = self.permute(term, labels, reason)
        return term if term.merged(labels) == 1 else self._apply(ops.Copy, term, reason)

    # -- pairs ------------------------------------------------------------------------------------------

    def contract(self, lhs: Term, rhs: Term, keep: frozenset[int], dtype: str, use: ResultUse, sums: str = "") -> Term:
        """Contract two terms without repeated labels, summing over the labels that are not in ``keep``.

        The other arguments are those of :class:`Pair`.
        """
        shared = set(lhs.labels).intersection(rhs.labels)
        ones = [label for label in shared if self.sizes[label] == 1]
        for labels in ({*lhs.labels, *rhs.labels} - shared, ones):
            summed = [label for label in labels if label not in keep]
            if summed:
                lhs, rhs = [self.sum(term, [label for label in term.labels if label in summed]) for term in (lhs, rhs)]
        common = [label for label in lhs.labels if label in shared]
        pair = Pair(
            lhs,
            rhs,
            batch=tuple([label for label in common if label in keep]),
            contracted=tuple([label for label in common if label not in keep]),
            lhs_free=tuple([label for label in lhs.labels if label not in shared]),
            rhs_free=tuple([label for label in rhs.labels if label not in shared]),
            dtype=dtype,
            use=use,
            sums=sums,
        )
        return self.product(pair)

    def product(self, pair: Pair) -> Term:
        """The pair by the kernels that take its dtype."""
        traits, dtype = self.traits, pair.dtype
        through = dict(traits.matmul_through).get(dtype)
        if dtype in traits.matmul_dtypes:
            return self.chosen(pair)
        if through is not None:
            lhs, rhs = self.cast(pair.lhs, through), self.cast(pair.rhs, through)
            return self.cast(self.chosen(pair._replace(lhs=lhs, rhs=rhs, dtype=through)), dtype)
        return self.own_einsum(pair) if dtype in traits.native_dtypes else self.multiply_and_sum(pair)

    def chosen(self, pair: Pair) -> Term:
        """The pair by the selected candidate, or else by the one that the cost model prefers."""
        if self.names:
            found = list(self.candidates(pair, every=True))
            self.listed[-1] += found
            selected = self.names[len(self.listed) - 1 : len(self.listed)]  # none for steps without a name
            for candidate in found:
                if candidate.name in selected:
                    return candidate.write()
        return min(self.candidates(pair, every=False), key=seconds_of).write()

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """The ways to compute a pair in a dtype in which matrices can be multiplied; only that, if it has ``sums``.

        Args:
            pair: the terms.
            every: with names, and also those that the cost model never prefers to another one.
        """
        raise NotImplementedError

    # -- elementwise ------------------------------------------------------------------------------------

    def multiply(self, pair: Pair) -> Term:
        """A broadcasting product, which sums nothing."""
        order, reasons = product_order(pair.lhs, pair.rhs, pair.use, self.traits, pair.dtype)
        sides = [
            self.pack(term, tuple(filter(term.labels.__contains__, order)), reason) if reason else term
            for term, reason in zip((pair.lhs, pair.rhs), reasons)
        ]
        return self.term(self.add(ops.Multiply, *[self._aligned(side, order) for side in sides]), order)

    def multiply_and_sum(self, pair: Pair) -> Term:
        """An elementwise product and its sum: in memory order if both have all axes, else the summed axes last."""
        order = (*pair.kept, *pair.contracted) if pair.lhs_free or pair.rhs_free else pair.lhs.memory
        out = self.add(ops.Multiply, self._aligned(pair.lhs, order), self._aligned(pair.rhs, order))
        return self.sum(self.term(out, order), pair.contracted)

    def _aligned(self, term: Term, order: Labels) -> int:
        """The slot of ``term`` with its axes in ``order`` and axes of size 1 for missing labels."""
        reason = "its axes in the order of the product"
        term = self.permute(self.settled(term), tuple(filter(term.labels.__contains__, order)), reason)
        if term.labels == order:
            return term.slot
        first = next((place for place, label in enumerate(order) if label in term.labels), len(order))
        shape = tuple([self.sizes[label] if label in term.labels else 1 for label in order[first:]])
        return self.add(ops.Reshape, term.slot, shape) if shape != term.shape else term.slot

    # -- the framework's own einsum ---------------------------------------------------------------------

    def native(self, terms: Sequence[Term], result: Labels) -> Term:
        """A call of the framework's own einsum, with its result in this order."""
        slots = tuple([self.settled(term).slot for term in terms])
        equation = native_equation([term.labels for term in terms], result)
        return self.term(self.add(ops.Native, slots, equation), result)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the framework's own einsum."""
        raise NotImplementedError

    def takes_labels(self, pair: Pair) -> bool:
        """Whether the framework's own einsum takes so many labels."""
        return len(pair.kept) + len(pair.contracted) <= self.traits.native_max_labels

    def einsum_seconds(self, terms: Sequence[Term], result: Labels, dtype: str) -> float:
        """The time of the framework's own einsum of terms, whose result has these labels."""
        memory = [term.memory for term in terms]
        steps = self.size(tuple(dict.fromkeys(joined(memory))))
        loops = outer_loops([self.long(labels) for labels in memory], self.long(result))
        rows, fills = self.size(loops.outer), self.size(loops.filled)
        return self.model(dtype).einsum(steps, rows, fills, loops.count, len(terms), loops.is_packed)
