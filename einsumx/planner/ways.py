"""All ways to multiply two arrays with strides, for all sizes, and the fastest of them for some sizes.

What :mod:`~einsumx.planner.strided` finds to be clear needs none of this. The ways are written down once for each
recipe; sizes then price them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from itertools import product as combinations
from math import prod
from typing import NamedTuple

from einsumx.ir.cost_model import run_counters
from einsumx.ir.layout import cut
from einsumx.ir.loops import Loops, natural_order, outer_loops
from einsumx.ir.ops import Matmul
from einsumx.planner.array_calls import Calls, Laid, Sizes, singles, span
from einsumx.planner.rules import Rules
from einsumx.planner.strided import Recipe, einsum_result, is_ready
from einsumx.planner.terms import Groups, Labels, joined, ordered


class Access(NamedTuple):
    """How a product of matrices reads an operand.

    Attributes:
        place: 0 for the first operand, 1 for the second.
        rows: its free labels along the matrices, in order.
        is_turned: its matrices lie as ``[contracted, rows]``.
        is_copied: it is copied into that order first.
        loops: the free labels that become batch axes.
    """

    place: int
    rows: Labels
    is_turned: bool
    is_copied: bool
    loops: Labels = ()


class Way:
    """A product of matrices in one way.

    Args:
        recipe: the product.
        sides: how the left and the right operand of the product are read.
        runs: the labels of each batch axis.
        contracted, summed: the labels that the product sums itself, and those of batch axes that are summed afterwards.
        takes_strides: whether the next product takes batch axes with any strides.
    """

    __slots__ = (
        "_calls", "contracted", "copies", "has_view", "is_ready", "kept", "recipe", "result", "runs", "sides", "summed",
        "turned", "views",
    )  # fmt: skip

    def __init__(
        self, recipe: Recipe, sides: tuple[Access, Access], runs: Groups, contracted: Labels, summed: Labels,
        takes_strides: bool,
    ) -> None:  # fmt: skip
        self.recipe, self.sides, self.runs, self.contracted, self.summed = recipe, sides, runs, contracted, summed
        left, right = sides
        self.copies: list[tuple[Labels, list[int], bool]] = []
        self.views = 2  # about one reshape of each operand
        for side, on_right in zip(sides, (False, True)):
            array = _arrays_of(recipe)[side.place]
            read = self._order(side, array, on_right)
            lies = self._order(side, array, side.is_turned) if side.is_copied else read
            self.views += (lies != array.labels) + (lies != read)
            if side.is_copied:
                before = array.memory
                self.copies.append((before, run_counters(before, lies), before[-1:] != lies[-1:]))
        self.turned = left.is_turned, not right.is_turned
        self.result = (*joined(runs), *left.rows, *right.rows)
        self.kept = tuple([label for label in self.result if label not in summed])
        target = recipe.use.target(self.kept)
        self.is_ready = target is not None or is_ready(recipe.use, self.kept, takes_strides)
        self.has_view = target is not None and target != self.kept
        self._calls: Calls | None = None

    def _order(self, side: Access, array: Laid, is_turned: bool) -> Labels:
        """The labels of an operand along ``[batch, rows, contracted]``, or ``[batch, contracted, rows]`` if turned."""
        own = tuple(filter(array.labels.__contains__, joined(self.runs)))
        return (*own, *self.contracted, *side.rows) if is_turned else (*own, *side.rows, *self.contracted)

    def seconds(self, sizes: Sizes, rules: Rules) -> float:
        """The estimated time."""
        model, seconds = rules.model, 0.0
        left, right = self.sides
        batch = [span(run, sizes) for run in self.runs]
        matrices, rows, cols = prod(batch), span(left.rows, sizes), span(right.rows, sizes)
        calls = matrices // max(batch) if rules.traits.max_batch_axes == 1 and len(batch) > 1 else 1
        for before, counters, turned in self.copies:
            seconds += model.copy(span(before, sizes), span(counters, sizes), turned=turned)
        if self.summed:
            seconds += model.elementwise(matrices * rows * cols, span(self.kept, sizes))
        seconds += model.matmul(calls, matrices, rows, cols, span(self.contracted, sizes), self.turned)
        if not self.is_ready:
            seconds += model.copy(span(self.kept, sizes))
        seconds += self.has_view * rules.rates.view
        return seconds + self.views * rules.rates.view

    def calls(self) -> Calls:
        """The calls of the product."""
        if self._calls is None:
            calls = self.recipe.begun()
            lhs, axes = self._operand(calls, self.sides[0], on_right=False)
            rhs, others = self._operand(calls, self.sides[1], on_right=True)
            result = (*self.runs, *axes, *others)
            slot = calls.add(Matmul(len(calls.axes), lhs, rhs), (lhs, rhs), result)
            if self.summed:
                calls.summed(calls.reshape(slot, singles(self.result)), Laid(self.result), self.kept)
            self._calls = calls.ended("matmul of copies" if self.copies else "matmul in loops", self.kept)
        return self._calls

    def _operand(self, calls: Calls, side: Access, *, on_right: bool) -> tuple[int, Groups]:
        """The slot of an operand as a product reads it, and its axes of rows: one, or none of a vector."""
        array = _arrays_of(self.recipe)[side.place]
        slot, labels = calls.reshape(self.recipe.slots[side.place], singles(array.labels)), array.labels
        runs = [tuple(filter(labels.__contains__, run)) for run in self.runs]
        if side.is_copied:
            lies = self._order(side, array, side.is_turned)
            slot, labels = calls.transpose(slot, labels, lies), lies
            if array.merged(lies) != 1:
                slot = calls.copy(slot, _why_copied(array, side.rows, self.contracted))
        is_vector = not (side.rows or runs)
        matrix = [self.contracted, side.rows] if on_right else [side.rows, self.contracted]
        groups = [self.contracted] if is_vector else [*runs, *matrix]
        slot = calls.reshape(calls.transpose(slot, labels, joined(groups)), tuple(groups))
        return slot, () if is_vector else (side.rows,)


def _arrays_of(recipe: Recipe) -> tuple[Laid, Laid]:
    """The operands of a recipe."""
    return recipe.left.array, recipe.right.array


def _why_copied(array: Laid, free: Labels, contracted: Labels) -> str:
    """Why an operand is not read in place."""
    if not array.merges(contracted):
        return "its contracted axes do not merge"
    runs = array.runs(free)
    if not any(_is_matrix(array, run, contracted) for run in runs or [()]):
        return "no axis of its matrices has unit stride"
    if len(runs) > 1:
        return "its free axes do not merge, and a product for each takes longer than the copy"
    return "the product of a packed operand is faster"


def _is_matrix(array: Laid, rows: Labels, cols: Labels) -> bool:
    """Whether a product reads each matrix of an operand in place."""
    if not (array.merges(rows) and array.merges(cols)):
        return False
    return any(labels and array.merged(labels) == 1 for labels in (rows, cols)) or not (rows or cols)


class Ways:
    """The ways of a recipe."""

    def __init__(self, recipe: Recipe, rules: Rules) -> None:
        self.recipe, self._most, self._takes_strides = recipe, rules.traits.max_batch_axes, rules.takes[0]
        lhs, rhs = _arrays_of(recipe)
        contracted = recipe.left.inner
        shared = [label for label in lhs.labels if label in rhs.labels]
        self._batch = tuple([label for label in shared if label not in contracted])
        self._contracted = contracted
        self._free = tuple([tuple([label for label in array.labels if label not in shared]) for array in (lhs, rhs)])
        kept = (*self._batch, *self._free[0], *self._free[1])
        self._kept = recipe.use.target(kept) or kept
        self._of_products: dict[bool, list[Way]] = {}

    def products(self, is_tiny: bool) -> list[Way]:
        """The products of matrices; ``is_tiny`` says whether they are so small that any strides will do."""
        ways = self._of_products.get(is_tiny)
        if ways is None:
            ways = self._of_products[is_tiny] = list(self._found(is_tiny))
        return ways

    def _found(self, is_tiny: bool) -> Iterator[Way]:
        for contracted, summed in self._sums():
            lefts = list(self._accesses(0, contracted, is_whole=not summed, is_tiny=is_tiny))
            rights = list(self._accesses(1, contracted, is_whole=not summed, is_tiny=is_tiny))
            for left, right in combinations(lefts, rights):
                for runs in self._batches(left, right, summed):
                    for sides in ((left, right), (right, left)):
                        yield Way(self.recipe, sides, runs, contracted, summed, self._takes_strides)

    def _sums(self) -> Iterator[tuple[Labels, Labels]]:
        """Orders of the contracted labels, and which of them are batch axes that are summed afterwards."""
        arrays = _arrays_of(self.recipe)
        orders = dict.fromkeys([array.in_memory_order(self._contracted) for array in arrays])
        for order in orders:
            yield order, ()
        for order in orders:
            runs = cut(order, lambda run, label: all(array.merges((*run, label)) for array in arrays))
            for inner in runs if len(runs) > 1 else ():
                yield inner, tuple([label for label in order if label not in inner])

    def _accesses(self, place: int, contracted: Labels, *, is_whole: bool, is_tiny: bool) -> Iterator[Access]:
        """The accesses to an operand that may pay: in place, if the product can read it so, and by copies."""
        array, free = _arrays_of(self.recipe)[place], self._free[place]
        in_place = self._in_place(place, contracted, is_any=True) if is_tiny else []
        if not in_place or in_place[0].loops:
            in_place = self._in_place(place, contracted, is_any=False)
        yield from in_place
        if in_place and not in_place[0].loops:
            return
        if is_whole:
            for rows in dict.fromkeys([array.in_memory_order(free), self.recipe.use.preferred(free)]):
                for is_turned in (False, True):
                    yield Access(place, rows, is_turned, True)

    def _in_place(self, place: int, contracted: Labels, *, is_any: bool) -> list[Access]:
        """Reads an operand in place: a run of free axes as rows, and the others as batch axes."""
        array = _arrays_of(self.recipe)[place]
        if not array.merges(contracted):
            return []
        runs = array.runs(self._free[place])
        readable = [run for run in (runs or [()]) if is_any or _is_matrix(array, run, contracted)]
        is_turned = array.merged(contracted) != 1
        return [
            Access(place, rows, is_turned, False, tuple([label for run in runs if run is not rows for label in run]))
            for rows in readable
        ]

    def _batches(self, left: Access, right: Access, summed: Labels) -> Iterable[Groups]:
        """The batch axes in each order that may matter, as runs that are one axis in both operands."""
        arrays = _arrays_of(self.recipe)
        kept = (*self._batch, *left.loops, *right.loops)
        target = self.recipe.use.target(kept)
        orders = [ordered(kept, array.memory) for array in arrays]
        if target is not None:
            orders.insert(0, target)
        # Labels to be summed come first, so that the sum adds whole blocks.
        orders = [(*ordered(summed, arrays[0].memory), *order) for order in orders]
        if self._most is None:
            return dict.fromkeys(map(singles, orders))

        def continues(run: Labels, label: int) -> bool:
            return all(_continues(side, array, run, label) for side, array in zip((left, right), arrays))

        return dict.fromkeys([tuple(cut(order, continues)) for order in orders])

    # -- other kernels ----------------------------------------------------------------------------------

    @cached_property
    def einsums(self) -> list[Einsum]:
        """The framework's own einsum; and along a batch axis innermost in one operand, after a copy of the other."""
        arrays = _arrays_of(self.recipe)
        found = [Einsum(self.recipe, arrays, self._kept, None)]
        for place, (array, other) in enumerate((arrays, arrays[::-1])):
            label = other.memory[-1] if other.labels else None
            if label is not None and label in self._batch and label != array.memory[-1]:
                copied = Laid((*[each for each in array.memory if each != label], label))
                found.append(Einsum(self.recipe, (copied, other), self._kept, place))
        return found

    def fastest(self, sizes: Sizes, rules: Rules) -> Calls:
        """The calls of the fastest way."""
        recipe, rates = self.recipe, rules.rates
        steps = span((*self._kept, *self._contracted), sizes)
        ways = self.products(len(self._batch) == 1 and steps // span(self._batch, sizes) < rules.tiny)
        prices = [way.seconds(sizes, rules) for way in ways]
        least = min(prices)
        calls = ways[prices.index(least)].calls
        if rules.has_einsum and recipe.count <= rules.traits.native_max_labels:
            for einsum in self.einsums if rates.sweep else self.einsums[:1]:
                seconds, result = einsum.price(sizes, rules, steps)
                if seconds < least:
                    least, calls = seconds, partial(einsum.calls, result)
        if not self._batch or self._free[0] or self._free[1]:
            return calls()
        seconds = recipe.sum_of_products(sizes, rules, steps, span(self._batch, sizes))
        return recipe.summed_products() if seconds < least else calls()


class Einsum:
    """A call of the framework's own einsum.

    Args:
        recipe: the product.
        arrays: its operands as the einsum reads them, a copied one first.
        kept: the labels of the result, in the order in which they are needed.
        copied: the place of the operand that is copied; None for none.
    """

    def __init__(self, recipe: Recipe, arrays: tuple[Laid, Laid], kept: Labels, copied: int | None) -> None:
        self._recipe, self._arrays, self._copied = recipe, arrays, copied
        memory = [array.memory for array in arrays]
        order, loops = natural_order(memory, kept)
        self._orders: list[tuple[Labels, Loops[int]]] = [(kept, outer_loops(memory, kept))]
        if tuple(order) != kept:
            self._orders.append((tuple(order), Loops(loops, [*memory, order])))
        self._is_packed = all(not array.labels or array.inward[0][1] == 1 for array in arrays)
        self._calls: dict[Labels, Calls] = {}

    def price(self, sizes: Sizes, rules: Rules, steps: int) -> tuple[float, Labels]:
        """The estimated time, and the order of the result, which may follow the operands, but then takes a view."""
        prices = []
        for _, loops in self._orders:
            rows, fills = span(loops.outer, sizes), span(loops.filled, sizes)
            is_packed = loops.is_packed and self._is_packed
            prices.append(rules.model.einsum(steps, rows, fills, loops.count, 2, is_packed))
        seconds, result = prices[0], self._orders[0][0]
        if len(prices) > 1 and prices[1] <= seconds:
            natural = self._orders[1][0]
            result = einsum_result(natural, self._recipe.use, steps)
            seconds = prices[1] + (result == natural) * rules.rates.view
        if self._copied is not None:
            memory = self._arrays[0].labels
            seconds += rules.model.copy(span(memory, sizes), span(memory[:-1], sizes))
        return seconds, result

    def calls(self, result: Labels) -> Calls:
        """The calls, with the result in this order."""
        recipe, copied = self._recipe, self._copied
        if copied is None:
            return recipe.native(result)
        calls = self._calls.get(result)
        if calls is None:
            calls, array = recipe.begun(), _arrays_of(recipe)[copied]
            slot = calls.reshape(recipe.slots[copied], singles(array.labels))
            slot = calls.transpose(slot, array.labels, self._arrays[0].labels)
            slot = calls.copy(slot, "an einsum along short rows takes longer than the copy")
            slots = slot, recipe.slots[1 - copied]
            calls = self._calls[result] = calls.native(slots, self._arrays, result)
        return calls


def _continues(side: Access, array: Laid, run: Labels, label: int) -> bool:
    """Whether a label can join a run of batch labels as one axis of an operand."""
    own = [other for other in run if other in array.labels]
    if not own or label not in array.labels:
        return not own and label not in array.labels
    return len(own) == len(run) and (side.is_copied or array.merges((*run, label)))
