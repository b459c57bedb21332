"""Pairs of terms with strides, by the same calls as those of :mod:`~einsumx.planner.strided`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from einsumx.ir.cost_model import is_sweep
from einsumx.ir.ops import Threads
from einsumx.planner.array_calls import Calls
from einsumx.planner.clear import calls_of, ways_of, without_ones
from einsumx.planner.lowering import Lowering, Pair
from einsumx.planner.rules import rules_of
from einsumx.planner.selection import Candidate
from einsumx.planner.strided import recipe_of
from einsumx.planner.terms import Term

_LONG = 2e-4
"""Seconds of a product that several threads may share."""

_ANY_THREADS: tuple[Threads, ...] = ("",)


class StridedLowering(Lowering):
    """Appends ops that take and return views."""

    has_views = True

    def product(self, pair: Pair) -> Term:
        """A product whose calls are known, or else by the kernels that take its dtype."""
        traits, dtype = self.traits, pair.dtype
        if not (self.names or pair.sums):
            recipe, sizes, names = self.recipe(pair, recipe_of)
            calls = calls_of(recipe, sizes, rules_of(traits, dtype))
            if calls is not None:
                return self.written(pair, calls, names)
        pair = pair._replace(lhs=self.settled(pair.lhs), rhs=self.settled(pair.rhs))
        if not pair.contracted:
            return self.multiply(pair)
        is_cast = dtype in dict(traits.matmul_through) and traits.rates.sweep and dtype in traits.native_dtypes
        if is_cast and is_sweep(pair.lhs.memory, pair.rhs.memory):
            return self.own_einsum(pair)
        return super().product(pair)

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, the own einsum, and products of elements that are summed; or the fastest of them."""
        recipe, sizes, names = self.recipe(pair, recipe_of)
        rules, order = rules_of(self.traits, pair.dtype), recipe.use.order
        recipe, ones = without_ones(recipe, sizes)
        recipe.read()
        ways = ways_of(recipe, rules)

        def write(calls: Callable[[], Calls], threads: Threads = "") -> Term:
            return self.written(pair, calls().with_ones(ones, order), names, threads)

        if not every:
            fastest = partial(ways.fastest, sizes, rules, by_product=bool(pair.sums))
            yield Candidate("", 0.0, "", partial(write, fastest))
            return
        for way in ways.products(sizes, every=True):
            name, seconds = way.name(names), way.seconds(sizes, rules)
            for threads in self.traits.threads(pair.dtype) if seconds > _LONG else _ANY_THREADS:
                calls = partial(write, partial(way.calls, rules), threads)
                yield Candidate(f"{name} {threads}".rstrip(), seconds, (way.kind, threads), calls)
        for name, seconds, others in () if pair.sums else ways.others(sizes, rules):
            yield Candidate(name, seconds, name, partial(write, others))

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the framework's own einsum, or elementwise if it does not take so many labels."""
        if not self.takes_labels(pair):
            return self.multiply_and_sum(pair)
        recipe, sizes, names = self.recipe(pair, recipe_of)
        rules, order = rules_of(self.traits, pair.dtype), recipe.use.order
        recipe, ones = without_ones(recipe, sizes)
        recipe.read()
        calls = ways_of(recipe, rules).native(sizes, rules)
        return self.written(pair, calls.with_ones(ones, order), names)
