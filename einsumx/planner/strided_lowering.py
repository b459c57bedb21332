"""Pairs of terms with strides, by the same calls as those of :mod:`~einsumx.planner.strided`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from einsumx.ir.cost_model import is_sweep
from einsumx.ir.layout import pattern_of
from einsumx.ir.ops import Threads
from einsumx.ir.sizes import is_known
from einsumx.planner.array_calls import Calls, Laid, Sizes, renamed
from einsumx.planner.clear import calls_of, ones_of, searched, ways_of
from einsumx.planner.lowering import Lowering, Pair
from einsumx.planner.rules import rules_of
from einsumx.planner.selection import Candidate
from einsumx.planner.strided import Recipe, recipe_of
from einsumx.planner.terms import Labels, ResultUse, Term

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
            recipe, sizes, names = self._recipe(pair)
            find = calls_of if is_known(sizes) else searched
            calls = find(recipe, sizes, rules_of(traits, dtype))
            if calls is not None:
                return self._written(pair, calls, names)
        pair = pair._replace(lhs=self.settled(pair.lhs), rhs=self.settled(pair.rhs))
        if not pair.contracted:
            return self.multiply(pair)
        is_cast = dtype in dict(traits.matmul_through) and traits.rates.sweep and dtype in traits.native_dtypes
        if is_cast and is_sweep(pair.lhs.memory, pair.rhs.memory):
            return self.own_einsum(pair)
        return super().product(pair)

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, the own einsum, and products of elements that are summed; or the fastest of them."""
        recipe, sizes, names = self._recipe(pair)
        rules = rules_of(self.traits, pair.dtype)
        ways = ways_of(recipe.without(ones_of(sizes)), rules)

        def write(calls: Callable[[], Calls], threads: Threads = "") -> Term:
            return self._written(pair, calls().with_ones(recipe.keep, recipe.use.order), names, threads)

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
        recipe, sizes, names = self._recipe(pair)
        rules = rules_of(self.traits, pair.dtype)
        calls = ways_of(recipe.without(ones_of(sizes)), rules).native(sizes, rules)
        return self._written(pair, calls.with_ones(recipe.keep, recipe.use.order), names)

    def _recipe(self, pair: Pair) -> tuple[Recipe, Sizes, list[int]]:
        """The product with numbers for labels, their sizes, and the label of each."""
        lhs, rhs = pair.lhs, pair.rhs
        numbers = dict(zip(dict.fromkeys((*lhs.labels, *rhs.labels)), count()))
        kept = tuple([number for label, number in numbers.items() if label not in pair.contracted])
        recipe = recipe_of(_laid(lhs, numbers), _laid(rhs, numbers), _renamed(pair.use, numbers), kept)
        return recipe, [self.sizes[label] for label in numbers], list(numbers)

    def _written(self, pair: Pair, calls: Calls, names: list[int], threads: Threads = "") -> Term:
        """Append the ops of calls."""
        sizes = [self.sizes[label] for label in names]
        slot = self.append(calls, sizes, (pair.lhs.slot, pair.rhs.slot), threads, pair.sums)
        array = calls.laid(names)
        return Term(slot, array.labels, None, self.sizes, flat=array.flat)


def _laid(term: Term, numbers: dict[int, int]) -> Laid:
    """How a term lies, with numbers for its labels."""
    pattern = () if term.is_packed else pattern_of(term.shape, term.strides)
    return renamed(Laid(term.labels, pattern, term.flat), numbers)


def _renamed(use: ResultUse, numbers: dict[int, int]) -> ResultUse:
    def renamed(labels: Labels) -> Labels:
        return tuple([numbers[label] for label in labels if label in numbers])

    return ResultUse(use.order and renamed(use.order), renamed(use.contracted), renamed(use.batch))
