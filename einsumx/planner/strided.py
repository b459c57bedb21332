"""A product of two arrays with strides, whose best calls are clear without a search, in three stages.

What the labels say and how the arrays lie make a :class:`Recipe`, which holds for all sizes and is remembered: what is
summed, which axes a product of matrices reads as one, the transposes with either operand on the left. The sizes then
decide between a few fates (:meth:`Recipe.way`), and a fate is :class:`Calls`: array calls for all sizes, from which
ops are written, or kernels made.

That is most products: small ones, which take less time than a search, and those whose operands a product of matrices
reads in place. An operand is read in place if its free and its contracted labels each are one run in memory, and the
innermost of them has unit stride. Other products are left to a search.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from einsumx.dtypes import kind
from einsumx.ir.cost_model import LOPSIDED, depends_on_turns
from einsumx.ir.layout import OVERLAPS, cut
from einsumx.ir.loops import Loops, natural_order
from einsumx.ir.ops import Matmul, Multiply
from einsumx.ir.rates import Rates
from einsumx.planner.array_calls import Calls, Fate, Laid, Sizes, singles, span, without
from einsumx.planner.orders import IN_PLACE, Orders
from einsumx.planner.rules import Rules
from einsumx.planner.terms import Groups, Labels, ResultUse

if TYPE_CHECKING:
    from typing_extensions import Self

_SMALL = 4096
"""The most multiply-adds, or elements of a copy, that take less time than a search for better ops."""

_SMALL_OUTER, _LONG_ROW = 1 << 14, 32
"""The most elements of an outer product of real numbers that is one call of the framework's own einsum, instead of a
view and a multiplication, and the least of a row."""

_SMALL_IN_A_STEP = 1 << 16
"""The same for an inner step of a network, as the search for a network also is that of its modules."""

_QUICK = 1 << 20
"""The most multiply-adds of products of vectors in two memory orders for which no search is worth its time."""

_TINY = 64
"""The most multiply-adds of a product that is all overhead."""

_CHEAP = 0.1
"""The most time of copies, relative to that of the product, with which no other way can be much faster."""

_NO_UNIT = "no axis of its matrices has unit stride"
_OTHER_ORDER = "its contracted axes lie in another order than those of the other operand"
_NOT_MERGED = "its free axes do not merge"


# -- one operand of a product of matrices ---------------------------------------------------------------------------


class Factor:
    """An operand of a product: what the product does with each label, and how it reads them in memory.

    Args:
        array: the operand.
        others: the labels of the other operand.
        keep: the labels that are not summed.

    Attributes:
        array: the operand.
        shared: the labels along the batch.
        free, contracted: the labels along the matrices, from the outermost in memory to the innermost.
        loops: free labels that do not merge with the others; they become batch axes, unless the operand is copied.
        own: the labels of the batch axes that it has, in order.
        copied: why it is copied first, as ``[batch, free, contracted]`` or, if turned, ``[batch, contracted, free]``;
            empty if it is read in place.
        is_turned: the contracted labels lie outside of the free ones.
        rows, inner: all free labels, and all that are summed.
    """

    own: Labels
    __slots__ = (
        "array", "contracted", "copied", "free", "inner", "is_turned", "loops", "own", "rows", "shared",
    )  # fmt: skip

    def __init__(self, array: Laid, others: Labels, keep: Collection[int]) -> None:
        free: list[int] = []
        loops: list[int] = []
        summed: list[int] = []
        shared: list[int] = []
        reason, inside, turned = "", "", False
        for label, step in array.inward:
            is_first = not (free or summed)
            if step < 1 or step == OVERLAPS or (is_first and (step > 1 or inside)):
                reason = reason or _NO_UNIT
            if label not in others:
                if loops or (free and (step != 1 or inside != "free")):
                    loops.append(label)
                    inside = "loop"
                    continue
                free.append(label)
                inside, turned = "free", False
            elif label in keep:
                shared.append(label)
                inside = "batch"
                if is_first:
                    reason = reason or _NO_UNIT
            else:
                if summed and (step != 1 or inside != "summed"):
                    reason = reason or "its contracted axes do not merge"
                summed.append(label)
                inside, turned = "summed", bool(free)
        self.array, self.shared, self.own = array, frozenset(shared), ()
        self.rows, self.inner = (*free, *loops), tuple(summed)
        self.is_turned = turned
        self.free, self.contracted, self.loops = tuple(free[::-1]), tuple(summed[::-1]), tuple(loops[::-1])
        self.copied = reason
        if reason:
            self.contracted = self.loops = ()
        elif loops:
            self.copied = _NOT_MERGED

    def reading(self, copied: str, contracted: Labels) -> Factor:
        """The operand in place; or, for a reason, as a copy with its innermost axis innermost.

        Args:
            copied: the reason.
            contracted: the order of the summed labels in the copy.
        """
        side = object.__new__(Factor)
        side.array, side.shared, side.own, side.rows, side.inner = (
            self.array, self.shared, self.own, self.rows, self.inner
        )  # fmt: skip
        side.free, side.contracted, side.loops = self.free, self.contracted, self.loops
        side.copied, side.is_turned = copied, self.is_turned
        if copied:
            memory = self.array.memory
            side.free = tuple([label for label in memory if label not in self.own and label not in contracted])
            side.contracted, side.loops = contracted, ()
            side.is_turned = bool(side.free) and memory[-1] == side.free[-1]
        return side


_LOOPED, _UNREADABLE = 4, 8
"""The turns of a result that the next step reads in place if it loops over some of its axes, or cannot read in place.
"""

_LABEL = 0.1
"""The overhead of each label in the framework's own kernel, in calls."""


class Reading:
    """A product of matrices whose operands are read in one way.

    Args:
        recipe: the product.
        copied: why the left and the right operand are copied; empty if they are read in place.
        runs: the labels of each batch axis, if they are not one each.

    Attributes:
        sides: the operands.
        batch: the labels of the batch axes.
        runs: those of each.
        is_in_place: neither is copied.
    """

    __slots__ = ("_calls", "_loops", "_turns", "batch", "is_in_place", "recipe", "runs", "sides")

    def __init__(self, recipe: Recipe, copied: tuple[str, str], runs: Groups | None = None) -> None:
        left, right, batch = recipe.left, recipe.right, recipe.batch
        if copied != IN_PLACE or left.loops or right.loops:
            others = left.contracted
            if copied[0]:
                summed = tuple([label for label in left.array.labels if label in left.inner])
                others = right.contracted or summed
            left, right = left.reading(copied[0], others), right.reading(copied[1], others)
        if left.loops or right.loops:
            batch = (*batch, *left.loops, *right.loops)
            batch = recipe.use.target(batch) or batch
            for side in (left, right):
                side.own = tuple([label for label in batch if label in side.array.labels])
        self.recipe, self.sides, self.batch = recipe, (left, right), batch
        self.runs = singles(batch) if runs is None else runs
        self.is_in_place = not (left.copied or right.copied)
        self._turns: dict[tuple[bool, tuple[bool, bool]], int] = {}
        self._calls: dict[bool, Calls] = {}
        self._loops: dict[bool, tuple[Labels, Loops[int]]] = {}

    def ordered(self, is_swapped: bool) -> tuple[Factor, Factor]:
        """The operand on the left of the product, and the one on the right."""
        left, right = self.sides
        return (right, left) if is_swapped else (left, right)

    def result(self, is_swapped: bool) -> Labels:
        left, right = self.ordered(is_swapped)
        return (*self.batch, *left.free, *right.free)

    def turns(self, is_swapped: bool, takes: tuple[bool, bool]) -> int:
        """The transposes of the product and of its result.

        Args:
            is_swapped: the right operand is on the left.
            takes: see :class:`Rules`.
        """
        key = is_swapped, takes
        turns = self._turns.get(key)
        if turns is None:
            turns = self._turns[key] = self._counted(is_swapped, *takes)
        return turns

    def _counted(self, is_swapped: bool, takes_strides: bool, takes_loops: bool) -> int:
        (left, right), use, result = self.ordered(is_swapped), self.recipe.use, self.result(is_swapped)
        count = ((*left.own, *left.free, *left.contracted) != left.array.labels) + (
            (*right.own, *right.contracted, *right.free) != right.array.labels
        )
        order = use.order
        if order is not None:
            return count + (result != order and (len(result) == len(order) or result != use.target(result)))
        if is_ready(use, result, takes_strides):
            return count
        summed = use.contracted
        start = result.index(summed[0])
        is_run = result[start : start + len(summed)] == summed and result[-1] not in use.batch
        return count + (_LOOPED if takes_loops and is_run else _UNREADABLE)

    def calls(self, is_swapped: bool) -> Calls:
        """The calls of the product."""
        calls = self._calls.get(is_swapped)
        if calls is None:
            calls = self._calls[is_swapped] = self._written(is_swapped)
        return calls

    def _written(self, is_swapped: bool) -> Calls:
        recipe = self.recipe
        calls, (left, right), batch = recipe.begun(), self.ordered(is_swapped), self.batch
        first, second = recipe.slots[::-1] if is_swapped else recipe.slots
        lhs = self._matrix(calls, first, left, is_left=True)
        rhs = self._matrix(calls, second, right, is_left=False)
        axes = self.runs
        if left.free or batch:
            axes = (*axes, left.free)
        if right.free or batch:
            axes = (*axes, right.free)
        calls.add(Matmul(len(calls.axes), lhs, rhs), (lhs, rhs), axes)
        fate: Fate = "matmul of copies"
        if self.is_in_place:
            fate = "matmul in loops" if left.loops or right.loops else "matmul"
        return calls.ended(fate, (*batch, *left.free, *right.free))

    def _matrix(self, calls: Calls, slot: int, side: Factor, *, is_left: bool) -> int:
        """Append what makes an operand of a product; returns its slot."""
        free, contracted, own, labels, flat = side.free, side.contracted, side.own, side.array.labels, side.array.flat
        order = (*own, *free, *contracted) if is_left else (*own, *contracted, *free)
        if side.copied or labels != order:
            slot = calls.reshape(slot, singles(labels))
            flat = None
        if side.copied:
            packed = (*own, *contracted, *free) if side.is_turned else (*own, *free, *contracted)
            slot = calls.copy(calls.transpose(slot, labels, packed), side.copied)
            labels = packed
        slot = calls.transpose(slot, labels, order)
        if len(free) == 1 == len(contracted) and len(own) == len(self.runs):
            return slot if flat is None else calls.reshape(slot, singles(labels))
        lead = tuple([run if run[0] in own else () for run in self.runs])
        if free or self.batch:
            return calls.reshape(slot, (*lead, free, contracted) if is_left else (*lead, contracted, free))
        return calls.reshape(slot, (contracted,)) if len(labels) > 1 or flat is not None else slot

    def loops(self, is_swapped: bool) -> tuple[Labels, Loops[int]]:
        """For the framework's own einsum, the order of the result that follows the operands, and the loops."""
        found = self._loops.get(is_swapped)
        if found is None:
            result = self.result(is_swapped)
            memory = [side.array.memory for side in self.ordered(is_swapped)]
            natural, order = natural_order(memory, self.recipe.use.target(result) or result)
            found = self._loops[is_swapped] = tuple(natural), Loops(order, [*memory, natural])
        return found

    def overhead(self, rates: Rates) -> float:
        """The calls and views around the product, in seconds, less what the labels cost the framework's own einsum."""
        calls, views = 2.0 + bool(self.batch), 0  # with what surrounds a call, and the set-up of a loop over matrices
        left, right = self.sides
        for side in self.sides:
            calls += 0.5 * bool(side.copied)
            views += side.array.labels != (*side.own, *side.free, *side.contracted)
            views += len(side.free) != 1 or len(side.contracted) != 1
        views += len(left.free) != 1 or len(right.free) != 1
        calls -= _LABEL * self.recipe.count
        return calls * rates.call + views * rates.view


# -- two operands ---------------------------------------------------------------------------------------------------


class Recipe:
    """A product of two arrays, for all sizes: the ways to compute it, of which :meth:`way` takes one for known sizes.

    Args:
        arrays: the two.
        use: how the result is used.
        keep: the labels that other arrays or the output still need.

    Attributes:
        left, right: the operands, without labels that only one has and nothing else needs: these are summed before.
        slots: of these operands.
        batch: the labels of the batch axes.
        readings: the products of matrices by why the left and the right operand are copied, as far as they were needed.
        count: the number of labels of these operands.
        lacks_ones: no label has size 1.
        shorter: this product without the labels of size 1, by these labels.
        needs_no_view: a product of matrices or of elements takes the operands as they are.
    """

    __slots__ = (
        "_before", "_fused", "_multiplied", "_native", "_orders", "_summed", "arrays", "batch",
        "count", "is_readable", "keep", "lacks_ones", "last", "left", "needs_no_view", "readings", "right", "shorter",
        "slots", "use", "ways",
    )  # fmt: skip

    def __init__(self, arrays: tuple[Laid, Laid], use: ResultUse, keep: Labels) -> None:
        self.arrays, self.use, self.keep = arrays, use, keep
        self.lacks_ones = False
        self.shorter: dict[Labels, Self] = {}
        lhs, rhs = arrays
        self._before: Calls | None = None
        self.slots = 0, 1
        every = {*lhs.labels, *rhs.labels}
        gone = every.difference(keep)
        if gone and gone.intersection(lhs.labels) != gone.intersection(rhs.labels):
            self._before = Calls(self.arrays)
            first, lhs = self._before.summed(0, lhs, (*keep, *rhs.labels))
            second, rhs = self._before.summed(1, rhs, (*keep, *lhs.labels))
            self.slots = first, second
            every = {*lhs.labels, *rhs.labels}
        self.count = len(every)
        self.left, self.right = Factor(lhs, rhs.labels, keep), Factor(rhs, lhs.labels, keep)
        shared = self.left.shared
        self.batch: Labels = ()
        if shared:
            order = use.order or lhs.memory
            self.batch = self.left.own = self.right.own = tuple([label for label in order if label in shared])
        self.last = (*lhs.labels[-1:], *rhs.labels[-1:])
        self.needs_no_view = needs_no_view(lhs.labels, rhs.labels, keep)
        self.is_readable = not (self.left.copied or self.right.copied) and self.left.contracted == self.right.contracted
        self.readings: dict[tuple[str, str], Reading] = {}
        self._native: dict[Labels, Calls] = {}
        self._multiplied: dict[tuple[Labels, tuple[str, str]], Calls] = {}
        self._orders: Orders | None = None
        self._fused: dict[tuple[str, str], Reading | None] = {}
        self._summed: Calls | None = None
        self.ways: dict[Hashable, Any] = {}

    def begun(self) -> Calls:
        """The calls that come first."""
        return Calls(self.arrays, self._before)

    def reading(self, copied: tuple[str, str]) -> Reading:
        """A new one of the products of matrices."""
        reading = self.readings[copied] = Reading(self, copied)
        return reading

    def fused(self, copied: tuple[str, str]) -> Reading | None:
        """The product whose batch axes are one where they lie so in the operands; None if other orders fuse more."""
        if copied not in self._fused:
            arrays = [side.array for side, reason in zip((self.left, self.right), copied) if not reason]
            orders = [self.batch, *[tuple(filter(self.batch.__contains__, array.memory)) for array in arrays]]

            def continues(run: Labels, label: int) -> bool:
                return all(array.follows(run[-1], label) for array in arrays)

            runs = [cut(order, continues) for order in orders]
            is_best = len(runs[0]) == min(map(len, runs))
            self._fused[copied] = Reading(self, copied, tuple(runs[0])) if is_best else None
        return self._fused[copied]

    def way(self, sizes: Sizes, rules: Rules) -> Calls | None:
        """The calls for sizes of the labels; None if a search may find better ones, or the framework takes others."""
        left, right = self.left, self.right
        rows = cols = inner = matrices = 1
        for label in left.rows:
            rows *= sizes[label]
        for label in right.rows:
            cols *= sizes[label]
        for label in left.inner:
            inner *= sizes[label]
        for label in self.batch:
            matrices *= sizes[label]
        is_ready = 1 not in sizes or self.lacks_ones or self._takes_ones(inner)
        if not is_ready and self._before is not None:
            return None
        steps = matrices * inner * rows * cols
        is_vector = rows == 1 or cols == 1
        may_be_native = rules.has_einsum and (steps <= _SMALL or is_vector)
        may_be_native = may_be_native and self.count <= rules.traits.native_max_labels
        is_matmul = inner > 1 and rules.has_matmul
        if may_be_native and steps <= _SMALL and not (is_matmul and self.needs_no_view):
            innermost = min([sizes[label] for label in self.last], default=1)
            if (inner == 1 and not is_vector) or rules.is_tiny(steps, steps / innermost, self.count):
                return self.native(self._small_result())
        if not is_ready:
            return None
        if inner == 1 and steps <= _SMALL_OUTER and rules.has_einsum and self._is_outer(rows, cols, rules):
            return self.native(self._small_result())
        if inner == 1 and (is_vector or not rules.traits.outer_by_matmul):
            return self._multiply(sizes, rules)
        if not is_matmul:
            return None
        if self.batch and rows == cols == 1 and not may_be_native:
            return None
        return SizedProduct(self, sizes, rules, (matrices, rows, cols, inner)).calls(may_be_native)

    def _is_outer(self, rows: int, cols: int, rules: Rules) -> bool:
        """Whether it is the outer product of two long real vectors."""
        is_real = self.count == 2 and not self.batch and kind(rules.dtype) != "c"
        return is_real and min(rows, cols) >= _LONG_ROW

    def _takes_ones(self, inner: int) -> bool:
        """Whether the recipe holds for axes of size 1: arrays are in order, and none is in the way or summed alone."""
        if self.left.array.pattern or self.right.array.pattern or self._before is not None:
            return False
        return not self.left.inner or (self.is_readable and inner > 1)

    def without(self, ones: Labels) -> Self:
        """The product without some labels, whose axes have size 1."""
        found = self.shorter.get(ones)
        if found is None:
            lhs, rhs = self.arrays
            order, contracted, batch = self.use
            use = ResultUse(order and without(order, ones), without(contracted, ones), without(batch, ones))
            found = type(self)((lhs.without(ones), rhs.without(ones)), use, without(self.keep, ones))
            found.lacks_ones = True
            self.shorter[ones] = found
        return found

    def sum_of_products(self, sizes: Sizes, rules: Rules, steps: int, matrices: int) -> float:
        """The estimated time of :meth:`summed_products`.

        Args:
            sizes, rules: as for :meth:`way`.
            steps: the elements of each operand.
            matrices: those of the result.
        """
        model, memory = rules.model, self.left.array.memory
        seconds = model.elementwise(steps, steps, steps) + model.elementwise(steps, matrices)
        if memory != self.right.array.memory:  # an operand is read as a copy reads it
            seconds += model.copy(steps) - rules.rates.call
        return seconds if memory[-1] in self.batch else seconds + matrices * rules.rates.run

    def summed_products(self) -> Calls:
        """An elementwise product of operands that have the same labels, and its sum."""
        if self._summed is None:
            memory = self.left.array.memory
            self._summed = self._multiplying(memory, IN_PLACE).summed_after(memory, self.batch)
        return self._summed

    def _small_result(self) -> Labels:
        """The axis order of a small product by the framework's own einsum."""
        lhs, rhs = self.left.array, self.right.array
        kept = [label for label in lhs.labels if label not in rhs.labels]
        kept += [label for label in rhs.labels if label not in lhs.labels]
        result = (*self.batch, *kept)
        return self.use.target(result) or tuple(natural_order([lhs.memory, rhs.memory], result)[0])

    def native(self, result: Labels) -> Calls:
        """A call of the framework's own einsum."""
        calls = self._native.get(result)
        if calls is None:
            arrays = self.left.array, self.right.array
            calls = self._native[result] = self.begun().native(self.slots, arrays, result)
        return calls

    # -- elementwise products ---------------------------------------------------------------------------------------

    def _multiply(self, sizes: Sizes, rules: Rules) -> Calls:
        """A product that sums nothing."""
        if self._orders is None:
            self._orders = Orders.of(self.left.array, self.right.array, self.use)
        order, reasons = self._orders.fastest(sizes, rules)
        calls = self._multiplied.get((order, reasons))
        if calls is None:
            calls = self._multiplied[order, reasons] = self._multiplying(order, reasons)
        return calls

    def _multiplying(self, order: Labels, reasons: tuple[str, str]) -> Calls:
        calls, slots = self.begun(), []
        for slot, array, reason in zip(self.slots, (self.left.array, self.right.array), reasons):
            labels = tuple(filter(array.labels.__contains__, order))
            is_spread = labels != order[len(order) - len(labels) :]
            if not (is_spread and labels == array.labels):
                slot = calls.reshape(slot, singles(array.labels))
            slot = calls.transpose(slot, array.labels, labels)
            if reason:
                slot = calls.copy(slot, reason)
            if is_spread:
                spread = [(label,) if label in labels else () for label in order]
                first = next(place for place, axis in enumerate(spread) if axis)
                slot = calls.reshape(slot, tuple(spread[first:]))
            slots.append(slot)
        calls.add(Multiply(len(calls.axes), *slots), tuple(slots), singles(order))
        return calls.ended("multiply", order)


@lru_cache(maxsize=1024)
def recipe_of(lhs: Laid, rhs: Laid, use: ResultUse, keep: Labels) -> Recipe:
    """The product of two arrays; labels are numbers from 0 on."""
    return Recipe((lhs, rhs), use, keep)


def needs_no_view(first: Labels, last: Labels, keep: Collection[int]) -> bool:
    """Whether a product of matrices or of elements takes its terms as they are: one label is shared, or none summed."""
    if len(first) > 2 or len(last) > 2:
        return False
    shared = [label for label in first if label in last]
    return len(shared) == 1 or (len(shared) == 2 and shared[0] in keep and shared[1] in keep)


# -- products of matrices -------------------------------------------------------------------------------------------


class SizedProduct:
    """A product of matrices of known sizes.

    Args:
        recipe: the product.
        sizes: of each label.
        rules: of the framework.
        amounts: how many matrices there are, and their rows, columns, and summed elements.
    """

    __slots__ = ("_cols", "_inner", "_matrices", "_recipe", "_rows", "_rules", "_sizes")

    def __init__(self, recipe: Recipe, sizes: Sizes, rules: Rules, amounts: tuple[int, int, int, int]) -> None:
        self._recipe, self._sizes, self._rules = recipe, sizes, rules
        self._matrices, self._rows, self._cols, self._inner = amounts

    def calls(self, may_be_native: bool) -> Calls | None:
        """The fastest calls, if they are clear; ``may_be_native`` says whether the framework's own einsum is one."""
        recipe, rules = self._recipe, self._rules
        copied = IN_PLACE if recipe.is_readable else self._copied(may_be_native)
        if copied is None:
            return None
        reading = recipe.readings.get(copied) or recipe.reading(copied)
        most = rules.traits.max_batch_axes
        if most is not None and len(reading.batch) > most:
            fused = recipe.fused(copied) if reading.batch == recipe.batch else None
            if fused is None or (copied != IN_PLACE and len(fused.runs) > most):
                return None
            reading = fused
        if (rules.batch if reading.batch else rules.matrix) != "strided":
            return None
        turns, is_swapped = reading.turns(False, rules.takes), False
        elements = self._matrices * self._rows * self._cols
        slower = 0.0 if elements * self._inner <= _SMALL else self._slower(*reading.sides)
        if turns or slower:
            others = reading.turns(True, rules.takes)
            if slower + (turns - others) * rules.rates.view > 0:
                turns, is_swapped = others, True
        if turns >= _UNREADABLE and elements > _worth_a_search(recipe.use):
            return None
        if may_be_native and (reading.batch or not reading.is_in_place):
            natural = self._faster_native(reading, is_swapped)
            if natural is not None:
                return recipe.native(natural)
        return reading.calls(is_swapped)

    def _copied(self, may_be_native: bool) -> tuple[str, str] | None:
        """Why each operand is copied, as loops or copies take less time; None if a search may find better."""
        left, right, use = self._recipe.left, self._recipe.right, self._recipe.use
        matrices, rows, cols, inner = self._matrices, self._rows, self._cols, self._inner
        lhs, rhs = left.copied, right.copied
        if left.loops or right.loops:
            most = self._rules.traits.max_batch_axes
            room = self._recipe.count if most is None else most - len(left.own)
            if len(left.loops) <= room and self._do_loops_pay(left, rows, cols):
                lhs = ""
                room -= len(left.loops)
            if len(right.loops) <= room and self._do_loops_pay(right, cols, rows):
                rhs = ""
        if not (lhs or rhs) and left.contracted != right.contracted:
            is_left = rows <= cols
            if rows == cols == 1:  # a copy runs along the innermost axis of the other operand
                is_left = self._sizes[left.array.memory[-1]] <= self._sizes[right.array.memory[-1]]
            lhs, rhs = (_OTHER_ORDER, "") if is_left else ("", _OTHER_ORDER)
        copied = matrices * inner * (rows * bool(lhs) + cols * bool(rhs))
        # Without a batch and a common innermost label, there are no shorter products to be summed afterwards.
        is_clear = may_be_native or not (self._recipe.batch or left.array.memory[-1:] == right.array.memory[-1:])
        is_clear = is_clear and rows == cols == 1 and inner > _TINY
        if is_clear and (matrices * inner <= _QUICK or left.array.memory == right.array.memory):
            return lhs, rhs
        if copied > _worth_a_search(use):
            model = self._rules.model
            if model.copy(copied) > _CHEAP * model.matmul(1, matrices, rows, cols, inner):
                return None
        return lhs, rhs

    def _do_loops_pay(self, side: Factor, rows: int, others: int) -> bool:
        """Whether a product for each element of the loops takes less time than a copy; if large, surely less."""
        if not side.loops or not self._rules.takes[0]:
            return False
        matrices, inner, height = self._matrices, self._inner, span(side.free, self._sizes)
        elements = matrices * rows * inner
        is_small = elements <= _SMALL
        if not is_small and height * inner * others < _TINY:
            return False
        model = self._rules.model
        copied = model.copy(elements, turned=is_small) + model.matmul(1, matrices, rows, others, inner)
        return model.matmul(1, matrices * (rows // height), height, others, inner) < copied

    def _slower(self, left: Factor, right: Factor) -> float:
        """The seconds by which a product takes longer than with its sides swapped."""
        rows = span(left.free, self._sizes) if left.loops else self._rows
        cols = span(right.free, self._sizes) if right.loops else self._cols
        inner, long_side = self._inner, self._rules.traits.long_side
        is_lopsided = long_side != "either" and (rows > LOPSIDED * cols or cols > LOPSIDED * rows)
        if not is_lopsided and (left.is_turned == right.is_turned or not depends_on_turns(rows, cols, inner)):
            return 0.0
        model = self._rules.model
        matrices = self._matrices * (self._rows // rows) * (self._cols // cols)
        return model.matmul(1, matrices, rows, cols, inner, (left.is_turned, not right.is_turned)) - model.matmul(
            1, matrices, cols, rows, inner, (right.is_turned, not left.is_turned)
        )

    def _faster_native(self, reading: Reading, is_swapped: bool) -> Labels | None:
        """The order of the result of the framework's own einsum, if that takes less time than a product; or None.

        A small product takes the time of its calls.

        On 240 random pairs of 200 to 4096 steps with batch axes or copies on NumPy, what this chooses takes 1.05 times
        as long as the faster of both (geometric mean).
        """
        steps = self._matrices * self._inner * self._rows * self._cols
        model, rates = self._rules.model, self._rules.rates
        seconds = reading.overhead(rates)
        if steps <= _SMALL:
            seconds += span(reading.batch, self._sizes) * rates.matrix
        else:
            seconds += model.matmul(0, self._matrices, self._rows, self._cols, self._inner)
            seconds += sum([model.copy(span(side.array.labels, self._sizes)) for side in reading.sides if side.copied])
        if model.least_einsum(steps, 2) >= seconds:
            return None
        natural, loops = reading.loops(is_swapped)
        rows, fills = span(loops.outer, self._sizes), span(loops.filled, self._sizes)
        if model.einsum(steps, rows, fills, loops.count, 2, loops.is_packed) >= seconds:
            return None
        return einsum_result(natural, self._recipe.use, steps)


def is_ready(use: ResultUse, result: Labels, takes_strides: bool) -> bool:
    """Whether the next step can read a C-contiguous result in place, if no axis of it has size 1."""
    return use.is_ready(result, (2,) * (max(result, default=0) + 1), takes_strides)


def _worth_a_search(use: ResultUse) -> int:
    """The most elements of a copy that takes less time than a search for better ops."""
    return _SMALL if use.order is not None else _SMALL_IN_A_STEP


def einsum_result(natural: Labels, use: ResultUse, steps: int) -> Labels:
    """The axis order of a product by the framework's own einsum, whose loops follow the operands in ``natural`` order.

    It is the requested one of a small result: in memory, the framework leaves that in natural order.
    """
    return (use.target(natural) if steps <= _SMALL else None) or natural
