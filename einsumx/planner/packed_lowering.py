"""Pairs of terms without strides, by the same calls as those of :mod:`~einsumx.planner.packed`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from einsumx.ir.layout import merged_transpose
from einsumx.ir.ops import Reshape, Transpose
from einsumx.planner.array_calls import Calls, Sizes
from einsumx.planner.clear import without_ones
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

    def product(self, pair: Pair) -> Term:
        """The pair by the kernels that take its dtype, and elementwise where matrices are slow."""
        recipe, sizes, write = self._short(pair)
        calls = recipe.elementwise(sizes, rules_of(self.traits, pair.dtype))
        return super().product(pair) if calls is None else write(calls)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the framework's own einsum, of three axes if it has too many."""
        if self.takes_labels(pair):
            return super().own_einsum(pair)
        recipe, sizes, write = self._short(pair)
        return write(recipe.fastest(sizes, rules_of(self.traits, pair.dtype)).fused())

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, and the own einsum."""
        recipe, sizes, write = self._short(pair)
        rules, names = rules_of(self.traits, pair.dtype), tuple(dict.fromkeys((*pair.lhs.labels, *pair.rhs.labels)))
        for way in recipe.all_ways(rules) if every else [recipe.fastest(sizes, rules)]:
            name, seconds = way.name(names) if every else "", way.seconds(sizes, rules)
            yield Candidate(name, seconds, way.kind, partial(write, way.calls(rules)))
        yield from self.einsums(pair)

    def _short(self, pair: Pair) -> tuple[PackedRecipe, Sizes, Callable[[Calls], Term]]:
        """The product without labels of size 1, the sizes, and the function that appends the ops of calls."""
        recipe, sizes, names = self.recipe(pair, recipe_of)
        order = recipe.use.order
        recipe, ones = without_ones(recipe, sizes)
        recipe.read()
        return recipe, sizes, lambda calls: self.written(pair, calls.with_ones(ones, order), names)
