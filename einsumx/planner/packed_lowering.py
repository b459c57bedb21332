"""Pairs of terms without strides, by the same calls as those of :mod:`~einsumx.planner.packed`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from einsumx.ir.layout import merged_transpose
from einsumx.ir.ops import Reshape, Transpose
from einsumx.planner.array_calls import Calls, Laid
from einsumx.planner.clear import ones_of
from einsumx.planner.lowering import Lowering, Pair
from einsumx.planner.packed import PackedRecipe, recipe_of
from einsumx.planner.rules import rules_of
from einsumx.planner.selection import Candidate
from einsumx.planner.terms import Labels, Term


class PackedLowering(Lowering):
    """Appends ops whose results are all C-contiguous."""

    def permute(self, term: Term, labels: Labels, reason: str = "") -> Term:
        """The axes in the order of ``labels``, by a copy whose axes are as few as possible."""
        if labels == term.labels:
            return term
        slot, (before, axes) = term.slot, merged_transpose(term.labels, labels, self.sizes)
        if len(axes) > 1:
            slot = self.add(Transpose, self.add(Reshape, slot, before), axes, reason)
        return self.reshape(slot, labels)

    def sum(self, term: Term, labels: Sequence[int]) -> Term:
        """Sum over ``labels``; those of size 1 are only dropped."""
        array, kept = _laid(term), tuple([label for label in term.labels if label not in labels])
        calls = Calls([array])
        _, summed = calls.summed(0, array.without(ones_of(self.sizes)), kept)
        return self._result(calls.ended("sum", summed.labels).with_ones(kept, kept), [term])

    def product(self, pair: Pair) -> Term:
        """The pair by the kernels that take its dtype, and elementwise where matrices are slow."""
        calls = self._recipe(pair).elementwise(self.sizes, rules_of(self.traits, pair.dtype))
        return super().product(pair) if calls is None else self._written(pair, calls)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the framework's own einsum, of three axes if it has too many."""
        if self.takes_labels(pair):
            return self.native((pair.lhs, pair.rhs), pair.kept)
        way = self._recipe(pair).fastest(self.sizes, rules_of(self.traits, pair.dtype))
        return self._written(pair, way.fused())

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, and the own einsum."""
        recipe, rules, names = self._recipe(pair), rules_of(self.traits, pair.dtype), range(len(self.sizes))
        for way in recipe.all_ways(rules) if every else [recipe.fastest(self.sizes, rules)]:
            name, seconds = way.name(names) if every else "", way.seconds(self.sizes, rules)
            yield Candidate(name, seconds, way.kind, partial(self._written, pair, way.calls(rules)))
        if rules.has_einsum and self.takes_labels(pair) and not pair.sums:
            seconds = self.einsum_seconds((pair.lhs, pair.rhs), pair.kept, pair.dtype)
            yield Candidate("einsum", seconds, "einsum", partial(self.own_einsum, pair))

    def _recipe(self, pair: Pair) -> PackedRecipe:
        recipe, ones = recipe_of(_laid(pair.lhs), _laid(pair.rhs), pair.use, pair.kept), ones_of(self.sizes)
        return recipe.without(ones) if ones else recipe

    def _written(self, pair: Pair, calls: Calls) -> Term:
        """The result of a product's calls."""
        return self._result(calls.with_ones(pair.kept, pair.use.target(pair.kept)), (pair.lhs, pair.rhs), pair.sums)

    def _result(self, calls: Calls, terms: Sequence[Term], sums: str = "") -> Term:
        """The result of calls for some terms."""
        slot = self.append(calls, self.sizes, [term.slot for term in terms], sums=sums)
        return Term(slot, calls.result, None, self.sizes, calls.flat)


def _laid(term: Term) -> Laid:
    return Laid(term.labels, (), term.flat)
