"""All ways to multiply two arrays with strides, for all sizes, and the fastest of them for some sizes.

What :mod:`~einsumx.planner.strided` finds to be clear needs none of this. The ways are written down once for each
recipe; sizes then price them. Each operand is read in place or copied into order first. In place, free axes that do not
merge into one become batch axes that the other operand lacks, and contracted axes that do not merge become batch axes
that are summed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import product as combinations
from math import prod
from typing import NamedTuple

from einsumx.ir.cost_model import run_counters
from einsumx.ir.layout import cut
from einsumx.ir.loops import Loops, natural_order, outer_loops
from einsumx.ir.ops import Matmul
from einsumx.ir.traits import MatrixLayout
from einsumx.planner.array_calls import Calls, Fate, Laid, Sizes, singles, span
from einsumx.planner.lowering import listed
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
        rules: of the framework.

    Attributes:
        is_looped: each pair of matrices of the batch is a call.
        is_ready: the result needs no copy before it is used.
    """

    __slots__ = (
        "_calls", "_copies", "_has_view", "_kept", "_turned", "_views", "contracted", "is_looped", "is_ready", "recipe",
        "result", "runs", "sides", "summed",
    )  # fmt: skip

    def __init__(
        self, recipe: Recipe, sides: tuple[Access, Access], runs: Groups, contracted: Labels, summed: Labels,
        rules: Rules,
    ) -> None:  # fmt: skip
        self.recipe, self.sides, self.runs, self.contracted, self.summed = recipe, sides, runs, contracted, summed
        left, right = sides
        self._copies: list[tuple[Labels, list[int], bool]] = []
        self._views = 2  # about one reshape of each operand
        is_packed = True
        for side, on_right in zip(sides, (False, True)):
            array = _arrays_of(recipe)[side.place]
            read = self._order(side, array, on_right)
            lies = self._order(side, array, side.is_turned) if side.is_copied else read
            self._views += (lies != array.labels) + (lies != read)
            if side.is_copied:
                before = array.memory
                self._copies.append((before, run_counters(before, lies), before[-1:] != lies[-1:]))
                is_packed = is_packed and (side.is_turned == on_right or not (side.rows and contracted))
            else:
                is_packed = is_packed and array.merged(read) == 1
        # Without batch axes, a product reads a matrix that is contiguous in the other order, too, unless it takes none.
        self.is_looped = rules.batch == "C" and not is_packed and (bool(runs) or rules.matrix == "C")
        self._turned = left.is_turned, not right.is_turned
        self.result = (*joined(runs), *left.rows, *right.rows)
        self._kept = tuple([label for label in self.result if label not in summed])
        target = recipe.use.target(self._kept)
        self.is_ready = target is not None or is_ready(recipe.use, self._kept, rules.takes[0])
        self._has_view = target is not None and target != self._kept
        self._calls: Calls | None = None

    @property
    def kind(self) -> Hashable:
        """What makes it different from others at first sight."""
        left, right = self.sides
        has_loops = bool(left.loops or right.loops)
        return bool(left.place), left.is_copied, right.is_copied, has_loops, bool(self.summed), self.is_ready

    def name(self, names: Sequence[int]) -> str:
        """What tells it from the other ways, with names for the labels."""

        def text(labels: Labels) -> str:
            return listed(tuple(map(names.__getitem__, labels)))

        operands = []
        for side in self.sides:
            loops = f"/{text(side.loops)}" if side.loops else ""
            operands.append(f"{text(side.rows)}{loops}{'t' * side.is_turned}{'c' * side.is_copied}")
        sums = f"{text(self.contracted)}+{text(self.summed)}" if self.summed else text(self.contracted)
        axes = ":".join([*map(text, self.runs), "*".join(operands)])
        return f"matmul {axes} {sums}{' swapped' * self.sides[0].place}".rstrip()

    def moved(self, sizes: Sizes) -> int:
        """The elements of copied operands, and of a result that is not ready."""
        elements = 0 if self.is_ready else span(self.result, sizes)
        return elements + sum([span(before, sizes) for before, _, _ in self._copies])

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
        calls = matrices if self.is_looped else 1
        if rules.traits.max_batch_axes == 1 and len(batch) > 1:
            calls = matrices // max(batch)
        for before, counters, turned in self._copies:
            seconds += model.copy(span(before, sizes), span(counters, sizes), turned=turned)
        if self.summed:
            seconds += model.elementwise(matrices * rows * cols, span(self._kept, sizes))
        seconds += model.matmul(calls, matrices, rows, cols, span(self.contracted, sizes), self._turned)
        if not self.is_ready:
            seconds += model.copy(span(self._kept, sizes))
        seconds += self._has_view * rules.rates.view
        return seconds + self._views * rules.rates.view

    def calls(self, rules: Rules) -> Calls:
        """The calls of the product."""
        if self._calls is None:
            calls = self.recipe.begun()
            lhs, axes = self._operand(calls, self.sides[0], rules, on_right=False)
            rhs, others = self._operand(calls, self.sides[1], rules, on_right=True)
            result = (*self.runs, *axes, *others)
            slot = calls.add(Matmul(len(calls.axes), lhs, rhs), (lhs, rhs), result)
            if self.summed:
                calls.summed(calls.reshape(slot, singles(self.result)), Laid(self.result), self._kept)
            fate: Fate = "matmul of copies"
            if not self._copies:
                fate = "matmul in loops" if self.summed or any(side.loops for side in self.sides) else "matmul"
            self._calls = calls.ended(fate, self._kept)
        return self._calls

    def _operand(self, calls: Calls, side: Access, rules: Rules, *, on_right: bool) -> tuple[int, Groups]:
        """The slot of an operand as a product reads it, and its axes of rows: one, or none of a vector."""
        array = _arrays_of(self.recipe)[side.place]
        slot, labels = calls.reshape(self.recipe.slots[side.place], singles(array.labels)), array.labels
        runs = [tuple(filter(labels.__contains__, run)) for run in self.runs]
        if side.is_copied:
            lies = self._order(side, array, side.is_turned)
            slot, labels = calls.transpose(slot, labels, lies), lies
            if array.merged(lies) != 1:
                slot = calls.copy(slot, _why_copied(array, side.rows, self.contracted, rules.matrix))
        # Without rows, an operand is a vector, not a matrix with an axis of size 1.
        is_vector = not (side.rows or runs) and rules.is_inexact
        matrix = [self.contracted, side.rows] if on_right else [side.rows, self.contracted]
        groups = [self.contracted] if is_vector else [*runs, *matrix]
        slot = calls.reshape(calls.transpose(slot, labels, joined(groups)), tuple(groups))
        return slot, () if is_vector else (side.rows,)


def _arrays_of(recipe: Recipe) -> tuple[Laid, Laid]:
    """The operands of a recipe."""
    return recipe.left.array, recipe.right.array


def _why_copied(array: Laid, free: Labels, contracted: Labels, layout: MatrixLayout) -> str:
    """Why an operand is not read in place."""
    if not array.merges(contracted):
        return "its contracted axes do not merge"
    runs = array.runs(free)
    if not any(_is_matrix(array, run, contracted, layout) for run in runs or [()]):
        return "no axis of its matrices has unit stride" if layout == "strided" else "its matrices are not contiguous"
    if len(runs) > 1:
        return "its free axes do not merge, and a product for each takes longer than the copy"
    return "the product of a packed operand is faster"


def _is_matrix(array: Laid, rows: Labels, cols: Labels, layout: MatrixLayout) -> bool:
    """Whether a product reads each matrix of an operand in place."""
    if not (array.merges(rows) and array.merges(cols)):
        return False
    if layout != "strided":
        return array.merged((*rows, *cols)) == 1 or array.merged((*cols, *rows)) == 1
    if not array.is_plain((*rows, *cols)):
        return False
    return any(labels and array.merged(labels) == 1 for labels in (rows, cols)) or not (rows or cols)


class Ways:
    """The ways of a recipe in a framework."""

    def __init__(self, recipe: Recipe, rules: Rules) -> None:
        self.recipe, self._rules = recipe, rules
        lhs, rhs = _arrays_of(recipe)
        contracted = recipe.left.inner
        shared = [label for label in lhs.labels if label in rhs.labels]
        self._batch = tuple([label for label in shared if label not in contracted])
        self._contracted = contracted
        self._free = tuple([tuple([label for label in array.labels if label not in shared]) for array in (lhs, rhs)])
        kept = (*self._batch, *self._free[0], *self._free[1])
        self._kept = recipe.use.target(kept) or kept
        self._of_products: dict[tuple[bool, bool], list[Way]] = {}

    def products(self, sizes: Sizes, *, every: bool) -> list[Way]:
        """The products of matrices; with ``every``, also those that the cost model never prefers."""
        steps = span((*self._contracted, *self._free[0], *self._free[1]), sizes)
        is_tiny = len(self._batch) == 1 and steps < self._rules.tiny  # then any strides will do
        ways = self._of_products.get((is_tiny, every))
        if ways is None:
            found = self._found(is_tiny=is_tiny, every=every)
            ways = self._of_products[is_tiny, every] = [
                way for way in found if not (way.is_looped and self._rules.matrix == "C")
            ]
        return ways

    def _found(self, *, is_tiny: bool, every: bool) -> Iterator[Way]:
        for contracted, summed in self._sums():
            lefts, rights = [
                list(self._accesses(place, contracted, is_whole=not summed, is_tiny=is_tiny, every=every))
                for place in (0, 1)
            ]
            for left, right in combinations(lefts, rights):
                for runs in self._batches(left, right, summed):
                    for sides in ((left, right), (right, left)):
                        yield Way(self.recipe, sides, runs, contracted, summed, self._rules)

    def _sums(self) -> Iterator[tuple[Labels, Labels]]:
        """Orders of the contracted labels, and which of them are batch axes that are summed afterwards."""
        arrays = _arrays_of(self.recipe)
        orders = dict.fromkeys([array.in_memory_order(self._contracted) for array in arrays])
        for order in orders:
            yield order, ()
        for order in orders if self._rules.takes[0] else ():
            runs = cut(order, lambda run, label: all(array.merges((*run, label)) for array in arrays))
            for inner in runs if len(runs) > 1 else ():
                yield inner, tuple([label for label in order if label not in inner])

    def _accesses(
        self, place: int, contracted: Labels, *, is_whole: bool, is_tiny: bool, every: bool
    ) -> Iterator[Access]:
        """The accesses to an operand that may pay: in place, if the product can read it so, and by copies.

        An operand whose batch axes are summed afterwards, so that ``contracted`` is not whole, is read in place alone.
        """
        array, free = _arrays_of(self.recipe)[place], self._free[place]
        in_place = self._in_place(place, contracted, None) if is_tiny else []
        if not in_place or in_place[0].loops:  # which are further batch axes
            in_place = self._in_place(place, contracted, self._rules.matrix)
        yield from in_place
        if in_place and not (in_place[0].loops or every or self._rules.batch == "C"):
            return
        if is_whole:
            for rows in dict.fromkeys([array.in_memory_order(free), self.recipe.use.preferred(free)]):
                for is_turned in (False, True):
                    yield Access(place, rows, is_turned, True)

    def _in_place(self, place: int, contracted: Labels, layout: MatrixLayout | None) -> list[Access]:
        """Reads an operand in place: a run of free axes as rows, and the others as batch axes.

        Without a layout, matrices may have any strides.
        """
        array = _arrays_of(self.recipe)[place]
        if not array.merges(contracted):
            return []
        runs = array.runs(self._free[place])
        readable = [run for run in (runs or [()]) if layout is None or _is_matrix(array, run, contracted, layout)]
        is_turned = array.merged(contracted) != 1
        return [
            Access(place, rows, is_turned, False, tuple([label for run in runs if run is not rows for label in run]))
            for rows in readable
        ]

    def _batches(self, left: Access, right: Access, summed: Labels) -> Iterable[Groups]:
        """The batch axes in each order that may matter, as runs that are one axis in both operands.

        They are fused only if the product takes few of them, as each fusion costs a view.
        """
        arrays = _arrays_of(self.recipe)
        kept = (*self._batch, *left.loops, *right.loops)
        target = self.recipe.use.target(kept)
        orders = [ordered(kept, array.memory) for array in arrays]
        if target is not None:
            orders.insert(0, target)
        # Labels to be summed come first, so that the sum adds whole blocks.
        orders = [(*ordered(summed, arrays[0].memory), *order) for order in orders]
        if self._rules.traits.max_batch_axes is None:
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

    def fastest(self, sizes: Sizes, rules: Rules, *, by_product: bool = False) -> Calls:
        """The calls of the fastest way.

        Args:
            sizes: of the labels.
            rules: of the framework, with its rates now.
            by_product: whether it has to be a product of matrices.
        """
        ways = self.products(sizes, every=False)
        moves_least = 1
        if rules.batch == "C":  # those that move least
            moves_least = min([way.moved(sizes) for way in ways if not way.is_looped])
            ways = [way for way in ways if way.moved(sizes) <= moves_least]
        prices = [way.seconds(sizes, rules) for way in ways]
        least = min(prices)
        calls: Callable[[], Calls] = partial(ways[prices.index(least)].calls, rules)
        for name, seconds, others in () if by_product else self.others(sizes, rules):
            # A product that copies nothing moves less than one of all elements.
            if seconds < least and (moves_least or name != MULTIPLY_AND_SUM):
                least, calls = seconds, others
        return calls()

    def others(self, sizes: Sizes, rules: Rules) -> Iterator[tuple[str, float, Callable[[], Calls]]]:
        """The name, the estimated time and the calls of each way that is no product of matrices."""
        recipe, rates = self.recipe, rules.rates
        steps = span((*self._kept, *self._contracted), sizes)
        if rules.has_einsum and recipe.count <= rules.traits.native_max_labels:
            for einsum in self.einsums if rates.sweep else self.einsums[:1]:
                seconds, result = einsum.price(sizes, rules, steps)
                yield einsum.name, seconds, partial(einsum.calls, result)
        if self._batch and not (self._free[0] or self._free[1]):
            seconds = recipe.sum_of_products(sizes, rules, steps, span(self._batch, sizes))
            yield MULTIPLY_AND_SUM, seconds, recipe.summed_products

    def native(self, sizes: Sizes, rules: Rules) -> Calls:
        """The framework's own einsum, with its result in the order in which it is fastest."""
        einsum = self.einsums[0]
        return einsum.calls(einsum.price(sizes, rules, span((*self._kept, *self._contracted), sizes))[1])


MULTIPLY_AND_SUM = "multiply and sum"


class Einsum:
    """A call of the framework's own einsum.

    Args:
        recipe: the product.
        arrays: its operands as the einsum reads them, a copied one first.
        kept: the labels of the result, in the order in which they are needed.
        copied: the place of the operand that is copied; None for none.

    Attributes:
        name: the name.
    """

    def __init__(self, recipe: Recipe, arrays: tuple[Laid, Laid], kept: Labels, copied: int | None) -> None:
        self._recipe, self._arrays, self._copied = recipe, arrays, copied
        self.name = "einsum" if copied is None else "einsum along the batch"
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
