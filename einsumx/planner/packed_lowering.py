"""Pairs of terms without strides, by the same calls as those of :mod:`~einsumx.planner.packed`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from einsumx.ir.layout import merged_transpose
from einsumx.ir.ops import Matmul, Reshape, Transpose
from einsumx.ir.traits import Traits
from einsumx.planner.array_calls import Calls, Laid
from einsumx.planner.lowering import Lowering, Pair
from einsumx.planner.packed import PackedRecipe, recipe_of
from einsumx.planner.rules import rules_of
from einsumx.planner.selection import Candidate
from einsumx.planner.terms import Labels, Term


class PackedLowering(Lowering):
    """Appends ops whose results are all C-contiguous."""

    def __init__(self, sizes: Sequence[int], traits: Traits, slots: int, names: Sequence[str] = ()) -> None:
        super().__init__(sizes, traits, slots, names)
        self._settled: dict[int, Term] = {}

    def settled(self, term: Term) -> Term:
        """The term in a slot that has the shape of its axes, which was made right after the term itself."""
        return term if term.flat is None else self._settled[term.slot]

    def drop(self, term: Term, axes: Sequence[int]) -> Term:
        """Drop ``axes``, each of size 1 in the array; the next op may read it as it is."""
        short = super().drop(term, axes)
        if short is term or len(set(term.labels)) < len(term.labels):
            return short
        array = Laid(term.labels, (), term.flat).without(tuple([term.labels[axis] for axis in axes]))
        self._settled[term.slot] = short
        return Term(term.slot, array.labels, None, self.sizes, array.flat)

    def permute(self, term: Term, labels: Labels, reason: str = "") -> Term:
        """The axes in the order of ``labels``, by a copy whose axes are as few as possible."""
        if labels == term.labels:
            return term
        slot, (before, axes) = term.slot, merged_transpose(term.labels, labels, self.sizes)
        if len(axes) > 1:
            slot = self.add(Transpose, self.add(Reshape, slot, before), axes, reason)
        return self.reshape(slot, labels)

    def product(self, pair: Pair) -> Term:
        """The pair by the kernels that take its dtype, and elementwise where matrices are slow."""
        recipe, rules = self._recipe(pair), rules_of(self.traits, pair.dtype)
        order = recipe.order(self.sizes, rules)
        if order is not None:
            ends = [order[len(order) - len(term.labels) :] for term in (pair.lhs, pair.rhs)]
            lhs, rhs = [self.settled(term) if term.labels == end else term for term, end in zip(pair[:2], ends)]
            pair = pair._replace(lhs=lhs, rhs=rhs)
            return self._written(pair, self._recipe(pair).in_order(order))
        if recipe.is_fused(rules):
            return self._written(pair, recipe.fastest(self.sizes, rules).fused())
        return super().product(pair)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the framework's own einsum, of three axes if it has too many."""
        if self.takes_labels(pair):
            return super().own_einsum(pair)
        way = self._recipe(pair).fastest(self.sizes, rules_of(self.traits, pair.dtype))
        return self._written(pair, way.fused())

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, and the own einsum."""
        recipe, rules, names = self._recipe(pair), rules_of(self.traits, pair.dtype), range(len(self.sizes))
        for way in recipe.all_ways(rules) if every else [recipe.fastest(self.sizes, rules)]:
            name, seconds = way.name(names) if every else "", way.seconds(self.sizes, rules)
            yield Candidate(name, seconds, way.kind, partial(self._written, pair, way.calls(rules)))
        yield from self.einsums(pair)

    def _recipe(self, pair: Pair) -> PackedRecipe:
        lhs, rhs = [Laid(term.labels, (), term.flat) for term in (pair.lhs, pair.rhs)]
        ones = tuple([label for label in pair.kept if self.sizes[label] == 1])
        return recipe_of(lhs, rhs, pair.use, pair.kept, ones)

    def _written(self, pair: Pair, calls: Calls) -> Term:
        """Append the ops of a product."""
        added = calls.ops(self.sizes, (pair.lhs.slot, pair.rhs.slot), self.slots)
        self.ops += [replace(op, sums=pair.sums) if pair.sums and isinstance(op, Matmul) else op for op in added]
        self.slots += len(added)
        slot = self.slots - 1
        if calls.flat is not None:
            self._settled[slot] = self.reshape(slot, calls.result)
        return Term(slot, calls.result, None, self.sizes, calls.flat)
