"""Products of arrays without strides: each is C-contiguous, a transpose copies, and a reshape is free.

A product of matrices reads ``[batch, rows, contracted]`` or ``[batch, contracted, rows]``. Operands that do not lie in
one of these orders are copied, and so is a result that is needed in another one. All ways to do that follow from the
labels: a :class:`PackedRecipe` writes them down once, and sizes then price them. Axes of size 1 are dropped before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product as combinations
from itertools import takewhile
from typing import NamedTuple

from einsumx.ir.cost_model import run_counters
from einsumx.ir.ops import Matmul, Multiply, Native
from einsumx.ir.traits import AROUND_BATCH
from einsumx.planner.array_calls import Calls, Fate, Laid, Sizes, singles, span, without
from einsumx.planner.orders import IN_PLACE, Orders
from einsumx.planner.rules import Rules
from einsumx.planner.strided import Recipe, is_ready
from einsumx.planner.terms import Groups, Labels, ResultUse, joined
from einsumx.planner.ways import Access, Way


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
            self._copies += _copies(recipe.labels[side.place], joined(axes.of(side.rows, side.is_turned)))
        self._turn = _copies(self.result, recipe.use.target(self.result) or self.result)
        self.is_ready = not self._turn and is_ready(recipe.use, self.result, False)
        # About one of each operand, and one more if a product of a matrix and a vector has the flag that transposes the
        # matrix: frameworks read it in its own order up to four times faster, as ``matrix @ vector[None].T`` instead of
        # ``vector[None] @ matrix.T``, and ``vector[None] @ matrix`` instead of ``matrix.T @ vector[:, None]``.
        is_beside_vector = bool(first.rows) != bool(second.rows)
        self._views = 2 + (is_beside_vector and (first.is_turned if first.rows else not second.is_turned))
        self._calls = self._fused = None

    def seconds(self, sizes: Sizes, rules: Rules) -> float:
        (first, second), model, seconds = self.sides, rules.model, 0.0
        for labels, counters, is_turned in (*self._copies, *self._turn):
            seconds += model.copy(span(labels, sizes), span(counters, sizes), turned=is_turned)
        factor = (rules.traits.einsum_factor(AROUND_BATCH[False, True]) or 1.0) if self._axes.inner else 1.0
        matrices, rows, cols = span(self._shared, sizes), span(first.rows, sizes), span(second.rows, sizes)
        seconds += model.matmul(1, matrices, rows, cols, span(self.contracted, sizes), factor=factor)
        if not (self.is_ready or self._turn):
            seconds += model.copy(span(self.result, sizes))
        return seconds + self._views * rules.rates.view

    def calls(self, rules: Rules) -> Calls:
        """The calls of the product; flags say which matrices are transposed."""
        if self._calls is None:
            axes, (first, second), reason = self._axes, self.sides, "its axes in the order of the matmul"
            calls, led, most = self.recipe.begun(), self.recipe.led(axes.batch), rules.traits.max_batch_axes
            if not axes.inner and (most is None or len(led) <= most):
                axes = axes._replace(batch=led)
            lhs, rhs = [self.recipe.operand(calls, side, axes.of(*side[1:3]), reason) for side in self.sides]
            flags, out = (first.is_turned, not second.is_turned), len(calls.axes)
            op = Native(out, (lhs, rhs), AROUND_BATCH[flags]) if axes.inner else Matmul(out, lhs, rhs, *flags)
            calls.add(op, (lhs, rhs), (*axes.batch, first.rows, *axes.inner, second.rows))
            self._calls = calls.ended("matmul of copies" if self._copies else "matmul", self.result)
        return self._calls

    def fused(self) -> Calls:
        """A product of two arrays ``[batch, free, contracted]``, for frameworks that take only few axes."""
        if self._fused is None:
            batch, contracted, (first, second) = self._shared, self.contracted, self.sides
            calls, reason = self.recipe.begun(), "its axes in the order of the fused product"
            lhs = self.recipe.operand(calls, first, (batch, first.rows, contracted), reason)
            matrix = (second.rows, contracted) if contracted else ((), second.rows)
            rhs = self.recipe.operand(calls, second, (batch, *matrix), reason)
            out = len(calls.axes)
            op = Native(out, (lhs, rhs), "abd,acd->abc") if contracted else Multiply(out, lhs, rhs)
            calls.add(op, (lhs, rhs), (batch, first.rows, second.rows))
            result = (*batch, *first.rows, *second.rows)
            self._fused = calls.ended("einsum" if contracted else "multiply", result)
        return self._fused


class PackedRecipe(Recipe):
    """A product of two arrays in C order, for all sizes: it has the fastest of all its ways.

    Attributes:
        labels: of the operands, without those that only one has and nothing else needs: these are summed before.
        lead: the axes that both operands have first, with those of size 1 that were dropped.
    """

    lead: Groups = ()

    def __init__(self, arrays: tuple[Laid, Laid], use: ResultUse, keep: Labels) -> None:
        super().__init__(arrays, use, keep)
        lhs, rhs = self.labels = self.left.array.labels, self.right.array.labels
        self._contracted = tuple([label for label in lhs if label in rhs and label not in keep])
        self._free = without(lhs, rhs), without(rhs, lhs)
        self._ordered: dict[Calls, Calls] = {}

    def without(self, ones: Labels) -> PackedRecipe:
        found = super().without(ones)
        first = takewhile(lambda each: each[0] == each[1] and each[0] in self.keep, zip(*self.labels))
        found.lead = tuple([without((label,), ones) for label, _ in first])
        return found

    def led(self, axes: Groups) -> Groups:
        """Axes of an operand or a result, which need no view if those of size 1 stay that both operands have first."""
        labels = tuple(filter(None, self.lead))
        return (*self.lead, *axes[len(labels) :]) if axes[: len(labels)] == labels else axes

    def operand(self, calls: Calls, side: Access, axes: Groups, reason: str) -> int:
        """The slot of an operand with these axes."""
        slot = calls.moved(self.slots[side.place], self.labels[side.place], joined(axes), reason)
        return calls.reshape(slot, axes)

    def way(self, sizes: Sizes, rules: Rules) -> Calls | None:
        """The fastest calls for sizes of the labels; None if there are labels of size 1, which must be dropped."""
        if 1 in sizes and not self.lacks_ones:
            return None
        calls, order = self.elementwise(sizes, rules) or self.fastest(sizes, rules).calls(rules), self.use.order
        if order is None or order == calls.result:
            return calls
        found = self._ordered.get(calls)
        if found is None:
            found = self._ordered[calls] = Calls((), calls)
            found.moved(len(calls.axes) - 1, calls.result, order, _IN_ORDER)
            found.ended(calls.fate, order)
        return found

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
        free, memory = self._free[place], self.labels[place]
        ways = list(combinations(dict.fromkeys([free, self.use.preferred(free)]), (False, True)))
        found = [Access(place, rows, turned, False) for rows, turned in ways if joined(axes.of(rows, turned)) == memory]
        known = [side.rows for side in found] if has_flags else []
        return [*found, *[Access(place, rows, turned, True) for rows, turned in ways if rows not in known]]

    # -- elementwise products ---------------------------------------------------------------------------

    def elementwise(self, sizes: Sizes, rules: Rules) -> Calls | None:
        """A product of elements, and its sum; None if matrices are multiplied."""
        traits, (lhs, rhs) = rules.traits, self._free
        if self._contracted:
            is_dots = self.batch and not (lhs or rhs)
            is_summed = is_dots and traits.dots_by_sum and rules.dtype not in dict(traits.widen)
            return self._in_order(self.labels[0]) if is_summed else None
        if lhs and rhs and traits.outer_by_matmul and rules.multiplies:
            return None
        if not traits.multiply_broadcasts:  # no product of elements has more axes than a fused one
            return self.fastest(sizes, rules).fused()
        if self._orders is None:
            self._orders = Orders.of(self.left.array, self.right.array, self.use)
        return self._in_order(self._orders.fastest(sizes, rules)[0])

    def _in_order(self, order: Labels) -> Calls:
        """A product of elements in this order, and its sum."""
        calls = self._multiplied.get((order, IN_PLACE))
        if calls is None:
            calls, slots, result = self.begun(), [], without(order, self._contracted)
            for slot, labels in zip(self.slots, self.labels):
                own = _ordered(labels, order)
                slot = calls.moved(slot, labels, own, "its axes in the order of the product")
                axes = [(label,) if label in own else () for label in order]
                first = next((place for place, label in enumerate(order) if label in own), len(order))
                slots.append(calls.reshape(slot, tuple(axes[first:]) if first else self.led(tuple(axes))))
            out = calls.add(Multiply(len(calls.axes), *slots), tuple(slots), self.led(singles(order)))
            calls.summed(out, Laid(order), result)
            calls.ended("multiply and sum" if self._contracted else "multiply", result)
            self._multiplied[order, IN_PLACE] = calls
        return calls


_IN_ORDER = "the result in the order of the output"


def _copies(source: Labels, target: Labels) -> list[tuple[Labels, list[int], bool]]:
    """The copy from one order to another, if any: the labels, those of its outer loops, whether the last moves."""
    return [] if source == target else [(source, run_counters(source, target), source[-1] != target[-1])]


def _ordered(labels: Labels, order: Labels) -> Labels:
    return tuple([label for label in order if label in labels])


@lru_cache(maxsize=1024)
def recipe_of(lhs: Laid, rhs: Laid, use: ResultUse, keep: Labels) -> PackedRecipe:
    """The product of two arrays."""
    return PackedRecipe((lhs, rhs), use, keep)


@lru_cache(maxsize=1024)
def alone(array: Laid, output: Labels, ones: Labels) -> Calls:
    """The calls of a contraction of one array; ``ones`` are the labels of size 1."""
    array, axes = array.without(ones), tuple([without((label,), ones) for label in output])
    calls = Calls([array])
    slot, summed = calls.summed(0, array, output)
    fate: Fate = "sum" if calls.steps else "view"
    slot = calls.reshape(calls.moved(slot, summed.labels, joined(axes), _IN_ORDER), axes)
    if all(step.op.effect == "view" for step in calls.steps):
        calls.copy(slot, "a result of its own, as the own einsum returns no view here")
    return calls.ended(fate, output)
