"""Products of arrays without strides: each is C-contiguous, a transpose copies, and a reshape is free.

A product of matrices reads ``[batch, rows, contracted]`` or ``[batch, contracted, rows]``. Operands that do not lie in
one of these orders are copied, and so is a result that is needed in another one. All ways to do that follow from the
labels, and from which of them have size 1: a :class:`PackedRecipe` writes them down once, and sizes then price them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import product as combinations
from typing import NamedTuple

from einsumx.ir.cost_model import run_counters
from einsumx.ir.layout import merged_runs
from einsumx.ir.ops import Matmul, Multiply, Native, Op, Transpose
from einsumx.ir.traits import AROUND_BATCH
from einsumx.planner.array_calls import Calls, Laid, Sizes, singles, span, without
from einsumx.planner.orders import IN_PLACE, Orders
from einsumx.planner.rules import Rules
from einsumx.planner.strided import Recipe
from einsumx.planner.terms import Groups, Labels, ResultUse, joined
from einsumx.planner.ways import Access, Way


class PackedCalls(Calls):
    """Calls on arrays in C order.

    Args:
        arrays, before: as for :class:`~einsumx.planner.array_calls.Calls`.
        ones: the labels of size 1, which are in none of the axes.
    """

    __slots__ = ("_ones",)

    def __init__(self, arrays: Sequence[Laid], ones: Labels, before: Calls | None = None) -> None:
        super().__init__(arrays, before)
        self._ones = ones
        self.axes = list(map(self._long, self.axes))

    def _long(self, axes: Groups) -> Groups:
        return tuple([without(axis, self._ones) for axis in axes]) if self._ones else axes

    def add(self, op: Op, sources: tuple[int, ...], axes: Groups) -> int:
        return super().add(op, sources, self._long(axes))

    def reshape(self, slot: int, axes: Groups) -> int:
        return super().reshape(slot, self._long(axes))

    def summed(self, slot: int, array: Laid, needed: Collection[int]) -> tuple[int, Laid]:
        gone = tuple([label for label in self._ones if label not in needed])
        return super().summed(slot, Laid(without(array.labels, gone)), needed)

    def moved(self, slot: int, labels: Labels, order: Labels, reason: str) -> int:
        """The slot of an array with its labels in another order: a copy whose axes are as few as possible, if any."""
        runs, axes = merged_runs(without(labels, self._ones), without(order, self._ones))
        if len(runs) < 2:
            return slot
        slot = self.reshape(slot, runs)
        op = Transpose(len(self.axes), slot, axes, reason)
        return self.add(op, (slot,), tuple(map(runs.__getitem__, axes)))

    def delivered(self, output: Labels) -> Calls:
        if self._delivered is None:
            calls = PackedCalls((), self._ones, self)
            slot = calls.moved(len(calls.axes) - 1, self.result, output, "the result in the order of the output")
            calls.reshape(slot, singles(output))
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


class PackedWay(Way):
    """A product of matrices in one way.

    Args:
        recipe: the product.
        axes: those that both operands have.
        sides: how the left and the right operand are read.
    """

    __slots__ = ("_axes", "_fused", "_shared", "_turn")
    recipe: PackedRecipe
    _fused: Calls | None

    def __init__(self, recipe: PackedRecipe, axes: _Axes, sides: tuple[Access, Access]) -> None:
        self.recipe, self.sides, self._axes = recipe, sides, axes
        self.runs, self.contracted, self.summed = (*axes.batch, *axes.inner), axes.contracted, ()
        self._shared = joined(self.runs)
        first, second = sides
        self.result = joined((*axes.batch, first.rows, *axes.inner, second.rows))
        self._copies = []
        for side in sides:
            self._copies += recipe.copies(recipe.labels[side.place], joined(axes.of(side.rows, side.is_turned)))
        target = recipe.use.target(self.result)
        self._turn = [] if target is None else recipe.copies(self.result, target)
        sizes = [1 if label in recipe.ones else 2 for label in range(max(self.result, default=0) + 1)]
        self.is_ready = not self._turn if target is not None else recipe.use.is_ready(self.result, sizes, False)
        # About one of each operand, and one more if a product of a matrix and a vector has the flag that transposes the
        # matrix: frameworks read it in its own order up to four times faster, as ``matrix @ vector[None].T`` instead of
        # ``vector[None] @ matrix.T``, and ``vector[None] @ matrix`` instead of ``matrix.T @ vector[:, None]``.
        is_beside_vector = bool(first.rows) != bool(second.rows)
        self._views = 2 + (is_beside_vector and (first.is_turned if first.rows else not second.is_turned))
        self._calls = self._fused = None

    def seconds(self, sizes: Sizes, rules: Rules) -> float:
        (first, second), model, seconds = self.sides, rules.model, 0.0
        for labels, counters, is_turned in self._copies:
            seconds += model.copy(span(labels, sizes), span(counters, sizes), turned=is_turned)
        factor = (rules.traits.einsum_factor(AROUND_BATCH[False, True]) or 1.0) if self._axes.inner else 1.0
        matrices, rows, cols = span(self._shared, sizes), span(first.rows, sizes), span(second.rows, sizes)
        seconds += model.matmul(1, matrices, rows, cols, span(self.contracted, sizes), factor=factor)
        for labels, counters, is_turned in self._turn:
            seconds += model.copy(span(labels, sizes), span(counters, sizes), turned=is_turned)
        if not (self.is_ready or self._turn):
            seconds += model.copy(span(self.result, sizes))
        return seconds + self._views * rules.rates.view

    def calls(self, rules: Rules) -> Calls:
        """The calls of the product; flags say which matrices are transposed."""
        if self._calls is None:
            axes, (first, second), reason = self._axes, self.sides, "its axes in the order of the matmul"
            calls = self.recipe.begun()
            lhs, rhs = [self.recipe.operand(calls, side, axes.of(*side[1:3]), reason) for side in self.sides]
            flags, out = (first.is_turned, not second.is_turned), len(calls.axes)
            op = Native(out, (lhs, rhs), AROUND_BATCH[flags]) if axes.inner else Matmul(out, lhs, rhs, *flags)
            calls.add(op, (lhs, rhs), (*axes.batch, first.rows, *axes.inner, second.rows))
            self._calls = calls.ended("matmul of copies" if self._copies else "matmul", self.result)
        return self._calls

    def fused(self) -> Calls:
        """A product of two arrays ``[batch, free, contracted]``, for frameworks that take only few axes."""
        if self._fused is None:
            batch, contracted, (first, second) = joined(self.runs), self.contracted, self.sides
            calls, reason = self.recipe.begun(), "its axes in the order of the fused product"
            lhs = self.recipe.operand(calls, first, (batch, first.rows, contracted), reason)
            matrix = (second.rows, contracted) if contracted else ((), second.rows)
            rhs = self.recipe.operand(calls, second, (batch, *matrix), reason)
            out = len(calls.axes)
            op = Native(out, (lhs, rhs), "abd,acd->abc") if contracted else Multiply(out, lhs, rhs)
            calls.add(op, (lhs, rhs), (batch, first.rows, second.rows))
            self._fused = calls.ended("einsum" if contracted else "multiply", self.result)
        return self._fused


class PackedRecipe(Recipe):
    """A product of two arrays in C order, for all sizes with which the same labels have size 1.

    It has the fastest of all its ways, and none of the readings of its base.

    Args:
        arrays, use, keep: as for :class:`~einsumx.planner.strided.Recipe`.
        ones: the labels of size 1.

    Attributes:
        labels: of the operands, without those that only one has and nothing else needs: these are summed before.
    """

    def __init__(self, arrays: tuple[Laid, Laid], use: ResultUse, keep: Labels, ones: Labels) -> None:
        self.arrays, self.use, self.keep, self.ones = arrays, use, keep, ones
        lhs, rhs = arrays
        before = PackedCalls(arrays, ones)
        gone = without(ones, keep)
        first, lhs = before.summed(0, lhs, (*keep, *rhs.labels))
        second, rhs = before.summed(1, rhs, (*keep, *arrays[0].labels))
        self.slots, self.labels = (first, second), (without(lhs.labels, gone), without(rhs.labels, gone))
        self._before, shared = before, tuple([label for label in self.labels[0] if label in self.labels[1]])
        self.batch = tuple([label for label in shared if label in keep])
        self._contracted = without(shared, self.batch)
        self._free = without(self.labels[0], shared), without(self.labels[1], shared)
        self.ways, self._multiplied, self._orders = {}, {}, None

    def begun(self) -> PackedCalls:
        return PackedCalls((), self.ones, self._before)

    def copies(self, source: Labels, target: Labels) -> list[tuple[Labels, list[int], bool]]:
        """The copy from one order to another, if any: the labels, those of its outer loops, whether the last moves."""
        before, after = without(source, self.ones), without(target, self.ones)
        return [] if before == after else [(before, run_counters(before, after), before[-1] != after[-1])]

    def operand(self, calls: PackedCalls, side: Access, axes: Groups, reason: str) -> int:
        """The slot of an operand with these axes."""
        slot = calls.moved(self.slots[side.place], self.labels[side.place], joined(axes), reason)
        return calls.reshape(slot, axes)

    def way(self, sizes: Sizes, rules: Rules) -> Calls:
        order = self.order(sizes, rules)
        if order is not None:
            return self.in_order(order)
        way = self.fastest(sizes, rules)
        return way.fused() if self.is_fused(rules) else way.calls(rules)

    # -- products of matrices ---------------------------------------------------------------------------

    def fastest(self, sizes: Sizes, rules: Rules) -> PackedWay:
        """The fastest way for sizes of the labels."""
        ways = self.all_ways(rules)
        prices = [way.seconds(sizes, rules) for way in ways]
        return ways[prices.index(min(prices))]

    def all_ways(self, rules: Rules) -> list[PackedWay]:
        """All ways in which a framework multiplies matrices."""
        traits, is_product = rules.traits, bool(rules.multiplies and self._contracted)
        may_be_inner = is_product and traits.einsum_factor(AROUND_BATCH[False, True]) is not None
        key = traits.max_batch_axes, traits.transpose_flags, may_be_inner
        found: list[PackedWay] | None = self.ways.get(key)
        if found is None:
            found = self.ways[key] = list(self._products(*key))
        return found

    def _products(self, most: int | None, has_flags: bool, may_be_inner: bool) -> Iterator[PackedWay]:
        for axes in self._axes(most, may_be_inner):
            for left, right in combinations(*[self._accesses(place, axes, has_flags) for place in (0, 1)]):
                for first, second in ((left, right), (right, left)):
                    if has_flags or not (first.is_turned or not second.is_turned):
                        yield PackedWay(self, axes, (first, second))

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
        free, memory = self._free[place], without(self.labels[place], self.ones)
        ways = list(combinations(dict.fromkeys([free, self.use.preferred(free)]), (False, True)))
        found = [
            Access(place, rows, turned, False)
            for rows, turned in ways
            if without(joined(axes.of(rows, turned)), self.ones) == memory
        ]
        known = [side.rows for side in found] if has_flags else []
        return [*found, *[Access(place, rows, turned, True) for rows, turned in ways if rows not in known]]

    # -- elementwise products ---------------------------------------------------------------------------

    def is_fused(self, rules: Rules) -> bool:
        """Whether it sums nothing and is computed with the fewest axes, as no product of elements takes more."""
        return not (self._contracted or rules.traits.multiply_broadcasts or self._is_outer(rules))

    def _is_outer(self, rules: Rules) -> bool:
        """Whether products of matrices are the faster outer products."""
        is_outer = all(without(free, self.ones) for free in self._free)
        return is_outer and rules.traits.outer_by_matmul and rules.multiplies

    def order(self, sizes: Sizes, rules: Rules) -> Labels | None:
        """The axis order of a product of elements with all axes; None for other products."""
        traits = rules.traits
        if self._contracted:
            is_dots = self.batch and not (self._free[0] or self._free[1])
            is_summed = is_dots and traits.dots_by_sum and rules.dtype not in dict(traits.widen)
            return self.labels[0] if is_summed else None
        if self._is_outer(rules) or not traits.multiply_broadcasts:
            return None
        if self._orders is None:
            lhs, rhs = [_Lies(labels, labels, self.ones) for labels in self.labels]
            self._orders = Orders.of(lhs, rhs, self.use)
        return self._orders.fastest(sizes, rules)[0]

    def in_order(self, order: Labels) -> Calls:
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


class _Lies(NamedTuple):
    """An array in C order, for the order of an elementwise product."""

    labels: Labels
    memory: Labels
    ones: Labels

    def merged(self, labels: Labels) -> int | None:
        """1 if these are its innermost labels, in this order; otherwise None."""
        own, run = without(self.labels, self.ones), without(labels, self.ones)
        return 1 if own[len(own) - len(run) :] == run else None


@lru_cache(maxsize=1024)
def recipe_of(lhs: Laid, rhs: Laid, use: ResultUse, keep: Labels, ones: Labels) -> PackedRecipe:
    """The product of two arrays."""
    return PackedRecipe((lhs, rhs), use, keep, ones)


def ones_of(sizes: Sizes) -> Labels:
    """The labels of size 1."""
    return tuple([label for label, size in enumerate(sizes) if size == 1]) if 1 in sizes else ()


def calls_of(arrays: Sequence[Laid], output: Labels, sizes: Sizes, rules: Rules) -> Calls:
    """The calls of a contraction of one array or two."""
    if len(arrays) == 1:
        return _alone(arrays[0], output, ones_of(sizes))
    recipe = recipe_of(arrays[0], arrays[1], ResultUse(output), output, ones_of(sizes))
    return recipe.way(sizes, rules).delivered(output)


@lru_cache(maxsize=1024)
def _alone(array: Laid, output: Labels, ones: Labels) -> Calls:
    calls = PackedCalls([array], ones)
    _, summed = calls.summed(0, array, output)
    found = calls.ended("sum" if calls.steps else "view", summed.labels).delivered(output)
    if all(step.op.effect == "view" for step in found.steps):
        found.copy(len(found.axes) - 1, "a result of its own, as the own einsum returns no view here")
    return found
