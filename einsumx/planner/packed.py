"""Products of arrays without strides: each is C-contiguous, a transpose copies, and a reshape is free.

A product of matrices reads ``[batch, rows, contracted]`` or ``[batch, contracted, rows]``. Operands that do not lie in
one of these orders are copied, and so is a result that is needed in another one. All ways to do that follow from the
labels: a :class:`PackedRecipe` writes them down once, and sizes then price them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import lru_cache, partial
from itertools import product as combinations
from typing import NamedTuple

from einsumx.ir.cost_model import run_counters
from einsumx.ir.layout import merged_runs, merged_transpose
from einsumx.ir.ops import Matmul, Multiply, Native, Reshape, Transpose
from einsumx.ir.traits import AROUND_BATCH
from einsumx.planner.array_calls import Calls, Laid, Sizes, singles, span, without
from einsumx.planner.lowering import Lowering, Pair, Side, listed, product_name
from einsumx.planner.orders import IN_PLACE, Orders
from einsumx.planner.rules import Rules, rules_of
from einsumx.planner.selection import Candidate
from einsumx.planner.strided import Recipe, is_ready
from einsumx.planner.terms import Groups, Labels, ResultUse, Term, joined
from einsumx.planner.ways import Access


class PackedCalls(Calls):
    """Calls on arrays in C order."""

    __slots__ = ()

    def moved(self, slot: int, labels: Labels, order: Labels, reason: str) -> int:
        """The slot of an array with its labels in another order: a copy whose axes are as few as possible."""
        if labels == order:
            return slot
        runs, axes = merged_runs(labels, order)
        slot = self.reshape(slot, runs)
        op = Transpose(len(self.axes), slot, axes, reason)
        return self.add(op, (slot,), tuple(map(runs.__getitem__, axes)))

    def delivered(self, output: Labels) -> Calls:
        if self._delivered is None:
            calls, order = PackedCalls((), self), _ordered(self.result, output)
            slot = calls.moved(len(calls.axes) - 1, self.result, order, "the result in the order of the output")
            calls.reshape(slot, tuple([(label,) if label in order else () for label in output]))
            self._delivered = calls.ended(self.fate, output)
        return self._delivered


class _Axes(NamedTuple):
    """The labels that both operands have, in order: along the batch, between rows and columns, and summed."""

    batch: Groups
    inner: Groups
    contracted: Labels

    def of(self, rows: Labels, is_turned: bool) -> Groups:
        """The labels of each axis of an operand in the order in which it is read."""
        first, last = (self.contracted, rows) if is_turned else (rows, self.contracted)
        return (*self.batch, first, *self.inner, last)


class Way:
    """A product of matrices in one way.

    Args:
        recipe: the product.
        axes: those that both operands have.
        sides: how the left and the right operand are read.

    Attributes:
        result: the axis order of the product.
        is_ready: the result needs no copy before it is used.
    """

    __slots__ = ("_moves", "_turn", "_views", "_written", "axes", "is_ready", "recipe", "result", "sides")

    def __init__(self, recipe: PackedRecipe, axes: _Axes, sides: tuple[Access, Access]) -> None:
        self.recipe, self.axes, self.sides = recipe, axes, sides
        first, second = sides
        self.result = joined((*axes.batch, first.rows, *axes.inner, second.rows))
        self._moves = [
            _Move.of(recipe.labels[side.place], joined(axes.of(side.rows, side.is_turned))) for side in sides
        ]
        target = recipe.use.target(self.result)
        if target is not None:
            self._turn = _Move.of(self.result, target)
        else:
            self._turn = None if is_ready(recipe.use, self.result, False) else _Move(self.result)
        self.is_ready = self._turn is None
        # About one of each operand, and one more if a product of a matrix and a vector has the flag that transposes the
        # matrix: frameworks read it in its own order up to four times faster, as ``matrix @ vector[None].T`` instead of
        # ``vector[None] @ matrix.T``, and ``vector[None] @ matrix`` instead of ``matrix.T @ vector[:, None]``.
        is_beside_vector = bool(first.rows) != bool(second.rows)
        self._views = 2 + (is_beside_vector and (first.is_turned if first.rows else not second.is_turned))
        self._written: dict[str, Calls] = {}

    def seconds(self, sizes: Sizes, rules: Rules) -> float:
        """The estimated time, with copies, views, and what brings the result into the order it is needed in."""
        (batch, inner, contracted), (first, second), seconds = self.axes, self.sides, 0.0
        for move in self._moves:
            if move is not None:
                seconds += move.seconds(sizes, rules)
        factor = (rules.traits.einsum_factor(AROUND_BATCH[False, True]) or 1.0) if inner else 1.0
        matrices, rows, cols = span(joined((*batch, *inner)), sizes), span(first.rows, sizes), span(second.rows, sizes)
        seconds += rules.model.matmul(1, matrices, rows, cols, span(contracted, sizes), factor=factor)
        if self._turn is not None:
            seconds += self._turn.seconds(sizes, rules)
        return seconds + self._views * rules.rates.view

    def calls(self, sums: str = "") -> Calls:
        """The calls; flags say which matrices are transposed.

        Args:
            sums: the dtype of the sums of products, if it is another one.
        """
        calls = self._written.get(sums)
        if calls is None:
            axes, (first, second), reason = self.axes, self.sides, "its axes in the order of the matmul"
            calls = self.recipe.begun()
            lhs, rhs = [self.recipe.read(calls, side, axes.of(*side[1:3]), reason) for side in self.sides]
            flags, out = (first.is_turned, not second.is_turned), len(calls.axes)
            op = Native(out, (lhs, rhs), AROUND_BATCH[flags]) if axes.inner else Matmul(out, lhs, rhs, *flags, "", sums)
            calls.add(op, (lhs, rhs), (*axes.batch, first.rows, *axes.inner, second.rows))
            is_in_place = self._moves == [None, None]
            self._written[sums] = calls.ended("matmul" if is_in_place else "matmul of copies", self.result)
        return calls

    def fused(self) -> Calls:
        """A product of two arrays ``[batch, free, contracted]``, for frameworks that take only few axes."""
        batch, contracted, (first, second) = joined(self.axes.batch), self.axes.contracted, self.sides
        calls, reason = self.recipe.begun(), "its axes in the order of the fused product"
        lhs = self.recipe.read(calls, first, (batch, first.rows, contracted), reason)
        matrix = (second.rows, contracted) if contracted else ((), second.rows)
        rhs = self.recipe.read(calls, second, (batch, *matrix), reason)
        out = len(calls.axes)
        op = Native(out, (lhs, rhs), "abd,acd->abc") if contracted else Multiply(out, lhs, rhs)
        calls.add(op, (lhs, rhs), (batch, first.rows, second.rows))
        return calls.ended("einsum" if contracted else "multiply", self.result)


class _Move(NamedTuple):
    """A copy from one order of axes to another.

    Attributes:
        labels: those of the array.
        counters: those that count how often it runs its innermost loop; None if its order is not known.
        is_turned: it moves the innermost one.
    """

    labels: Labels
    counters: Labels | None = None
    is_turned: bool = True

    @classmethod
    def of(cls, source: Labels, target: Labels) -> _Move | None:
        """The copy; None if it moves nothing."""
        if source == target:
            return None
        return cls(source, tuple(run_counters(source, target)), source[-1] != target[-1])

    def seconds(self, sizes: Sizes, rules: Rules) -> float:
        """The estimated time."""
        runs = 0 if self.counters is None else span(self.counters, sizes)
        return rules.model.copy(span(self.labels, sizes), runs, turned=self.is_turned)


class PackedRecipe(Recipe):
    """A product of two arrays in C order, for all sizes but 1.

    Attributes:
        labels: of the operands, without those that only one has and nothing else needs: these are summed before.
    """

    def __init__(self, arrays: tuple[Laid, Laid], use: ResultUse, keep: Labels) -> None:
        super().__init__(arrays, use, keep)
        lhs, rhs = arrays
        self._before = PackedCalls(arrays)
        first, lhs = self._before.summed(0, lhs, (*keep, *rhs.labels))
        second, rhs = self._before.summed(1, rhs, (*keep, *lhs.labels))
        self.slots, self.labels = (first, second), (lhs.labels, rhs.labels)
        shared = tuple([label for label in lhs.labels if label in rhs.labels])
        self.batch = _ordered(keep, shared)
        self._contracted = without(shared, self.batch)
        self._free = without(lhs.labels, shared), without(rhs.labels, shared)
        self._found: dict[Hashable, list[Way]] = {}
        self._orders: Orders | None = None
        self._multiplied: dict[tuple[Labels, tuple[str, str]], Calls] = {}

    def begun(self) -> PackedCalls:
        return PackedCalls((), self._before)

    def read(self, calls: PackedCalls, side: Access, axes: Groups, reason: str) -> int:
        """The slot of an operand with these axes."""
        slot = calls.moved(self.slots[side.place], self.labels[side.place], joined(axes), reason)
        return calls.reshape(slot, axes)

    def way(self, sizes: Sizes, rules: Rules) -> Calls:
        return self.elementwise(sizes, rules) or self.fastest(sizes, rules).calls()

    # -- products of matrices ---------------------------------------------------------------------------

    def fastest(self, sizes: Sizes, rules: Rules) -> Way:
        """The fastest way for sizes of the labels."""
        ways = self.all_ways(rules)
        prices = [way.seconds(sizes, rules) for way in ways]
        return ways[prices.index(min(prices))]

    def all_ways(self, rules: Rules) -> list[Way]:
        """All ways in which a framework multiplies matrices."""
        traits, dtype = rules.traits, rules.dtype
        is_product = traits.max_batch_axes == 1 and dtype in traits.matmul_dtypes and dtype in traits.native_dtypes
        may_be_inner = bool(is_product and self._contracted and traits.einsum_factor(AROUND_BATCH[False, True]))
        key = traits.max_batch_axes, traits.transpose_flags, may_be_inner
        if key not in self._found:
            self._found[key] = list(self._products(*key))
        return self._found[key]

    def _products(self, most: int | None, has_flags: bool, may_be_inner: bool) -> Iterator[Way]:
        for axes in self._axes(most, may_be_inner):
            for left, right in combinations(*[self._accesses(place, axes, has_flags) for place in (0, 1)]):
                for first, second in ((left, right), (right, left)):
                    if has_flags or not (first.is_turned or not second.is_turned):
                        yield Way(self, axes, (first, second))

    def _axes(self, most: int | None, may_be_inner: bool) -> Iterator[_Axes]:
        """Orders of the labels that both operands have, those in which they may lie packed."""
        batch, target = self.batch, self.use.target(self.batch)
        orders = [*([] if target is None else [target]), *[_ordered(batch, labels) for labels in self.labels]]
        # At least one comes first: otherwise each matrix is spread over the whole array and memory is the bottleneck.
        ends = range(len(batch), 0, -1) if may_be_inner and batch else [len(batch)]
        for contracted in dict.fromkeys([_ordered(self._contracted, labels) for labels in self.labels]):
            for end, order in combinations(ends, dict.fromkeys(orders)):
                runs = singles(order[:end]) if most is None or end <= most else (order[:end],)
                yield _Axes(runs, (order[end:],) if end < len(order) else (), contracted)

    def _accesses(self, place: int, axes: _Axes, has_flags: bool) -> list[Access]:
        """The ways to read an operand that may pay.

        Even if it lies in order, another order costs a copy, which may spare a larger one of the result.
        """
        free = self._free[place]
        ways = list(combinations(dict.fromkeys([free, self.use.preferred(free)]), (False, True)))
        found = [
            Access(place, rows, turned, False)
            for rows, turned in ways
            if joined(axes.of(rows, turned)) == self.labels[place]
        ]
        known = [side.rows for side in found] if has_flags else []
        return [*found, *[Access(place, rows, turned, True) for rows, turned in ways if rows not in known]]

    # -- elementwise products ---------------------------------------------------------------------------

    def elementwise(self, sizes: Sizes, rules: Rules) -> Calls | None:
        """The calls if they are a product of elements; None for a product of matrices."""
        traits = rules.traits
        if not self._contracted:
            if all(self._free) and traits.outer_by_matmul and rules.dtype in traits.matmul_dtypes:
                return None
            if not traits.multiply_broadcasts:
                return self.fastest(sizes, rules).fused()
            if self._orders is None:
                lhs, rhs = map(Laid, self.labels)
                self._orders = Orders.of(lhs, rhs, self.use)
            return self._in_order(self._orders.fastest(sizes, rules)[0])
        is_dots = self.batch and not (self._free[0] or self._free[1])
        if is_dots and traits.dots_by_sum and rules.dtype not in dict(traits.widen):
            return self._in_order(self.labels[0])
        return None

    def _in_order(self, order: Labels) -> Calls:
        """A product of elements in this order, and its sum."""
        calls = self._multiplied.get((order, IN_PLACE))
        if calls is None:
            begun, slots = self.begun(), []
            for slot, labels in zip(self.slots, self.labels):
                own = _ordered(labels, order)
                slot = begun.moved(slot, labels, own, "its axes in the order of the product")
                axes = [(label,) if label in own else () for label in order]
                first = next((place for place, label in enumerate(order) if label in own), len(order))
                slots.append(begun.reshape(slot, tuple(axes[first:])))
            begun.add(Multiply(len(begun.axes), *slots), tuple(slots), singles(order))
            calls = begun.ended("multiply", order)
            if self._contracted:
                calls = begun.summed_after(order, self.batch)
            self._multiplied[order, IN_PLACE] = calls
        return calls


def _ordered(labels: Labels, order: Labels) -> Labels:
    return tuple([label for label in order if label in labels])


@lru_cache(maxsize=1024)
def recipe_of(lhs: Laid, rhs: Laid, use: ResultUse, keep: Labels) -> PackedRecipe:
    """The product of two arrays without labels of size 1."""
    return PackedRecipe((lhs, rhs), use, keep)


@lru_cache(maxsize=1024)
def alone(array: Laid, output: Labels) -> Calls:
    """The calls of a contraction of one array without labels of size 1."""
    calls = PackedCalls([array])
    _, summed = calls.summed(0, array, output)
    found = calls.ended("sum" if calls.steps else "view", summed.labels).delivered(output)
    if all(step.op.effect == "view" for step in found.steps):
        found.copy(len(found.axes) - 1, "a result of its own, as the own einsum returns no view here")
    return found


# -- plans ----------------------------------------------------------------------------------------------------------


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
        calls = self._recipe(pair).elementwise(self.sizes, rules_of(self.traits, pair.dtype))
        return super().product(pair) if calls is None else self._written(pair, calls)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the framework's own einsum, of three axes if it has too many."""
        if self.takes_labels(pair):
            return super().own_einsum(pair)
        way = self._recipe(pair).fastest(self.sizes, rules_of(self.traits, pair.dtype))
        return self._written(pair, way.fused())

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, and the own einsum."""
        recipe, rules = self._recipe(pair), rules_of(self.traits, pair.dtype)
        for way in recipe.all_ways(rules) if every else [recipe.fastest(self.sizes, rules)]:
            (left, right), axes, name = way.sides, way.axes, ""
            if every:
                batch = [*map(listed, axes.batch), *[f"({listed(run)})" for run in axes.inner]]
                sides = [Side((pair.lhs, pair.rhs)[side.place], *side[1:]) for side in way.sides]
                name = product_name(batch, sides, axes.contracted, swapped=bool(left.place))
            kind = (left.place, way.is_ready, left.is_copied, right.is_copied)
            write = partial(self._written, pair, way.calls(pair.sums))
            yield Candidate(name, way.seconds(self.sizes, rules), kind, write)
        yield from self.einsums(pair)

    def _recipe(self, pair: Pair) -> PackedRecipe:
        ones = self._ones(pair)
        lhs, rhs = [Laid(term.labels, (), term.flat).without(ones) for term in (pair.lhs, pair.rhs)]
        return recipe_of(lhs, rhs, pair.use, pair.kept)

    def _ones(self, pair: Pair) -> Labels:
        return tuple([label for label in pair.kept if self.sizes[label] == 1])

    def _written(self, pair: Pair, calls: Calls) -> Term:
        """Append the ops of a product."""
        ops = calls.ops(self.sizes, (pair.lhs.slot, pair.rhs.slot), self.slots)
        self.slots += len(ops)
        self.ops += ops
        return Term(self.slots - 1, (*self._ones(pair), *calls.result), None, self.sizes, calls.axes[-1])
