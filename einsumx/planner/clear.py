"""Contractions whose best calls are clear: of one array, of two, and along a path of pairs.

What the equation says is in :class:`Roles`. What follows from how the arrays lie in memory, and from their sizes, is in
:mod:`einsumx.planner.strided`, and for arrays without strides in :mod:`einsumx.planner.packed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import chain, count
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from einsumx.imports import LazyModule
from einsumx.ir.contraction import Contraction
from einsumx.ir.layout import pattern_of
from einsumx.ir.operand import Operand, Path
from einsumx.ir.ops import Cast, Diagonal, Native, Op, Zeros
from einsumx.ir.sizes import is_known
from einsumx.planner.array_calls import Calls, Laid, Sizes, renamed, shape_of, singles, without
from einsumx.planner.rules import Rules, rules_of
from einsumx.planner.strided import Recipe, needs_no_view, recipe_of
from einsumx.planner.terms import Labels, ResultUse, native_equation, repeated

if TYPE_CHECKING:
    from einsumx.planner import mixed, narrow, packed, ways
    from einsumx.planner.ways import Ways
else:  # most pairs need no search, nor casts
    narrow, packed = LazyModule("einsumx.planner.narrow"), LazyModule("einsumx.planner.packed")
    mixed, ways = LazyModule("einsumx.planner.mixed"), LazyModule("einsumx.planner.ways")


class Part(NamedTuple):
    """The calls of a step.

    Attributes:
        calls: the calls, whose labels are numbers from 0 on.
        sizes: of these labels.
        slots: those of the operands.
        start: the slot of the first call.
        dtype: of the operands, if it is not that of the computation.
    """

    calls: Calls
    sizes: Sizes
    slots: tuple[int, ...]
    start: int
    dtype: str = ""


class Roles:
    """What an equation says, for all sizes. It keeps the recipes for its operands.

    Args:
        inputs: the labels of each operand, numbers from 0 on.
        output: those of the result.

    Attributes:
        arrays, slots: the operands as they are in C order, and their slots.
        has_repeats: an operand has a label twice.
        count: the number of labels.
    """

    __slots__ = (
        "_alone", "_distinct", "_einsum", "_native", "_recipes", "_steps", "_text", "arrays", "count", "has_repeats",
        "inputs", "output", "slots",
    )  # fmt: skip

    def __init__(self, inputs: tuple[Labels, ...], output: Labels) -> None:
        self.inputs, self.output = inputs, output
        every = set(chain.from_iterable(inputs))
        self.count = len(every)
        self.has_repeats = sum([len(set(labels)) for labels in inputs]) < sum(map(len, inputs))
        self.arrays, self.slots = tuple(map(Laid, inputs)), tuple(range(len(inputs)))
        self._native: tuple[bool, int, bool] | None = None
        self._text: str | None = None
        self._distinct: Roles | None = None
        self._einsum: Calls | None = None
        self._recipes: dict[tuple[Laid, Laid], Recipe] = {}
        self._alone: dict[Laid, Calls] = {}
        self._steps: dict[Path, list[NetworkStep]] = {}

    @property
    def text(self) -> str:
        """The equation, in letters from a in order of appearance."""
        if self._text is None:
            self._text = native_equation(self.inputs, self.output)
        return self._text

    @property
    def einsum(self) -> Calls:
        """The framework's own einsum of all operands."""
        if self._einsum is None:
            calls, slots = Calls([Laid(labels) for labels in self.inputs]), tuple(range(len(self.inputs)))
            calls.add(Native(len(slots), slots, self.text), slots, tuple(zip(self.output)))
            self._einsum = calls.ended("einsum", self.output)
        return self._einsum

    def zeros(self, sizes: Sizes, dtype: str) -> Part:
        """The result if a size is 0: kernels of frameworks are unreliable for arrays without elements."""
        calls, slots = Calls(list(map(Laid, self.inputs))), tuple(range(len(self.inputs)))
        axes = singles(self.output)
        calls.add(Zeros(len(slots), slots, shape_of(axes, sizes), dtype), slots, axes)
        return Part(calls.ended("zeros", self.output), sizes, slots, len(slots))

    def pair(self, lhs: Laid, rhs: Laid) -> Recipe:
        """The recipe for the two operands."""
        found = self._recipes.get((lhs, rhs))
        if found is None:
            found = self._recipes[lhs, rhs] = Recipe((lhs, rhs), ResultUse(self.output), self.output)
        return found

    def alone(self, array: Laid) -> Calls:
        """The calls of a contraction of one operand without repeated labels."""
        calls = self._alone.get(array)
        if calls is None:
            calls = Calls([array])
            _, summed = calls.summed(0, array, self.output)
            calls = calls.ended("sum" if calls.steps else "view", summed.labels).delivered(self.output)
            self._alone[array] = calls
        return calls

    def steps(self, path: Path) -> list[NetworkStep]:
        """The steps of a path."""
        steps = self._steps.get(path)
        if steps is None:
            if len(self._steps) >= _MOST_PATHS:
                self._steps.clear()
            steps = self._steps[path] = network_steps(self.inputs, self.output, path)
        return steps

    def is_one_einsum(self, sizes: Sizes, rules: Rules) -> bool:
        """Whether the framework's own einsum alone is the fastest: not for a view, nor for a product of matrices."""
        operands = len(self.inputs)
        size = prod(sizes)
        steps = size * max(operands - 1, 1)
        # Compared first, as there may be more steps than a float holds.
        if steps > rules.rates.call * rules.rate * (operands + 1):
            return False
        if self._native is None:
            self._native = self._of_native()
        is_slow, calls, sums_whole = self._native
        if is_slow:
            return False
        innermost = size
        for labels in self.inputs:
            if labels and sizes[labels[-1]] < innermost:
                innermost = sizes[labels[-1]]
        return rules.is_tiny(steps, 0 if sums_whole else size / innermost, self.count, calls)

    def _of_native(self) -> tuple[bool, int, bool]:
        """What the time of the framework's own einsum depends on.

        Whether other kernels are always as fast, how many calls compute the same, and whether the sum of a term that
        has all labels runs its innermost loop as often.
        """
        first, last, output = self.inputs[0], self.inputs[-1], self.output
        every = {*first, *last}
        if len(self.inputs) == 1:
            return every <= set(output), 1, False
        if len(self.inputs) > 2:
            return False, len(self.inputs) - 1, False
        # A term with labels of its own is summed before.
        lasts, firsts = every.difference(last, output), every.difference(first, output)
        calls = 1 + bool(lasts) + bool(firsts)
        is_slow = calls == 1 and needs_no_view(first, last, output)
        return is_slow, calls, calls > 1 and self.count in (len(first), len(last))


@lru_cache(maxsize=1024)
def roles_of(inputs: tuple[Labels, ...], output: Labels) -> Roles:
    """What an equation says."""
    return Roles(inputs, output)


def takes_einsum(roles: Roles, operands: Sequence[Operand], sizes: Sizes, rules: Rules) -> bool:
    """Whether the framework's own einsum computes the whole contraction correctly.

    Some kernels have wrong gradients for repeated labels and without labels, all for axes that broadcast.
    """
    traits = rules.traits
    if not traits.rates.native or rules.dtype not in traits.native_dtypes:
        return False
    if len(operands) > traits.native_max_operands or roles.count > traits.native_max_labels:
        return False
    if not traits.native_any_labels and (roles.has_repeats or not roles.count):
        return False
    shapes = [tuple(map(sizes.__getitem__, labels)) for labels in roles.inputs]
    return all(operand.shape == shape and operand.dtype == rules.dtype for operand, shape in zip(operands, shapes))


def clear_parts(roles: Roles, operands: Sequence[Operand], path: Path, sizes: Sizes, rules: Rules) -> list[Part] | None:
    """The calls of a contraction, if they are clear.

    Args:
        roles: of the equation.
        operands: of any dtypes.
        path: of the steps.
        sizes: of each label, all known or one of them 0.
        rules: of the framework, for the dtype of the result.
    """
    count, dtype = len(operands), rules.dtype
    if 0 in sizes:
        return [roles.zeros(sizes, dtype)]
    if roles.is_one_einsum(sizes, rules) and takes_einsum(roles, operands, sizes, rules):
        return [Part(roles.einsum, sizes, roles.slots, count)]
    is_cast = False
    for operand in operands:
        is_cast = is_cast or operand.dtype != dtype
    if not rules.is_direct or (is_cast and _may_be_uncast(operands, sizes, rules)):
        return None
    arrays = _arrays_of(roles, operands, sizes)
    if arrays is None or (rules.is_packed and (is_cast or roles.has_repeats)):
        return None
    parts: list[Part] = []
    slots, start = roles.slots, count
    if is_cast or roles.has_repeats:
        parts, arrays, slots = _read(arrays, operands, sizes, dtype)
        start += sum([len(part.calls.steps) for part in parts])
    if arrays is not roles.arrays:
        labels = tuple([array.labels for array in arrays])
        if labels != roles.inputs:
            roles = roles_of(labels, roles.output)
    if count > 2:
        steps = _network(arrays, list(slots), start, roles.steps(path), sizes, rules)
        return None if steps is None else parts + steps
    output = roles.output
    if count == 1:
        if parts and arrays[0].labels == output:
            return parts
        calls = packed.alone(arrays[0], output, ones_of(sizes)) if rules.is_packed else roles.alone(*arrays)
    else:
        recipe = packed.recipe_of(*arrays, ResultUse(output), output) if rules.is_packed else roles.pair(*arrays)
        product = calls_of(recipe, sizes, rules)
        if product is None:
            return None
        calls = product.delivered(output)
    parts.append(Part(calls, sizes, slots, start))
    return parts


_dtype_of = attrgetter("dtype")


def _may_be_uncast(operands: Sequence[Operand], sizes: Sizes, rules: Rules) -> bool:
    """Whether operands of other dtypes than the result may be multiplied without casts to that dtype."""
    dtypes, dtype, traits = list(map(_dtype_of, operands)), rules.dtype, rules.traits
    return narrow.may_differ(dtypes, dtype, sizes, traits) or mixed.may_pay(dtypes, dtype, sizes, traits)


def _read(
    arrays: Sequence[Laid], operands: Sequence[Operand], sizes: Sizes, dtype: str
) -> tuple[list[Part], list[Laid], tuple[int, ...]]:
    """The calls that take diagonals of operands and cast them, the arrays that they make, and their slots."""
    parts, read, slots, start = [], [], [], len(operands)
    for number, (array, operand) in enumerate(zip(arrays, operands)):
        calls, made = _reading(array, operand.dtype, dtype)
        read.append(made)
        slots.append(number)
        if calls.steps:
            parts.append(Part(calls, sizes, (number,), start, operand.dtype))
            start += len(calls.steps)
            slots[-1] = start - 1
    return parts, read, tuple(slots)


@lru_cache(maxsize=1024)
def _reading(array: Laid, dtype: str, target: str) -> tuple[Calls, Laid]:
    """The diagonals of an operand's repeated labels and its cast, as far as there are any, and how the result lies."""
    calls, slot, labels = Calls([array]), 0, array.labels
    while axes := repeated(labels):
        op = Diagonal(slot + 1, slot, *axes)
        labels = op.arranged(labels)
        slot = calls.add(op, (slot,), singles(labels))
    lies: dict[int, int] = {}
    has_gap = False
    for label, step in array.inward:
        is_diagonal = array.labels.count(label) > 1
        lies.pop(label, None)  # a diagonal lies where the outermost of its axes does
        if has_gap or is_diagonal:
            step = max(step, 2) if step > 0 else min(step, -2)
        lies[label] = step
        has_gap = is_diagonal
    if dtype != target:
        calls.add(Cast(slot + 1, slot, target), (slot,), calls.axes[slot])
        lies = dict.fromkeys(lies, 1)
    is_in_order = labels == tuple(reversed(lies)) and set(lies.values()) <= {1}
    pattern = () if is_in_order else tuple([(labels.index(label), step) for label, step in lies.items()])
    return calls.ended("diagonal" if dtype == target else "cast", labels), Laid(labels, pattern, array.flat)


def calls_of(recipe: Recipe, sizes: Sizes, rules: Rules) -> Calls | None:
    """The calls of a product for known sizes of the labels, by a search of all ways if the best are not clear."""
    calls = recipe.way(sizes, rules)
    if calls is not None:
        return calls
    if 1 in sizes and not recipe.lacks_ones:
        calls = calls_of(recipe.without(ones_of(sizes)), sizes, rules)
        return calls and calls.with_ones(recipe.keep, recipe.use.order)
    return searched(recipe, sizes, rules)


def searched(recipe: Recipe, sizes: Sizes, rules: Rules) -> Calls | None:
    """The fastest of all ways; None if there are none."""
    return ways_of(recipe, rules).fastest(sizes, rules) if rules.multiplies and recipe.left.inner else None


def ways_of(recipe: Recipe, rules: Rules) -> Ways:
    """All ways of a product."""
    key = rules.traits.max_batch_axes, rules.takes, rules.batch, rules.matrix, rules.is_inexact, rules.tiny
    found: Ways | None = recipe.ways.get(key)
    if found is None:
        found = recipe.ways[key] = ways.Ways(recipe, rules)
    return found


def ones_of(sizes: Sizes) -> Labels:
    """The labels of size 1."""
    return tuple([label for label, size in enumerate(sizes) if size == 1])


# -- networks -------------------------------------------------------------------------------------------------------


class Named(NamedTuple):
    """The two values of a step with numbers from 0 on for labels, so that steps of a kind share recipes and calls.

    Attributes:
        names: the label that each number stands for.
        lhs, rhs: the two values.
        kept: the labels of the result.
    """

    names: Labels
    lhs: Laid
    rhs: Laid
    kept: Labels


class NetworkStep:
    """A step of a path of pairs.

    Args:
        pair: the two values: operands by their numbers, and then the results of the steps.
        kept: the labels of the result.

    Attributes:
        partner: the value with which the result is multiplied; None for the last step.
        needed: the labels of that product.
    """

    __slots__ = ("_named", "_recipes", "kept", "needed", "pair", "partner")

    def __init__(self, pair: tuple[int, int], kept: Labels) -> None:
        self.pair, self.kept = pair, kept
        self.partner: int | None = None
        self.needed: Labels = ()
        self._named: dict[tuple[Laid, Laid], Named] = {}
        self._recipes: dict[Hashable, Recipe] = {}

    def named(self, lhs: Laid, rhs: Laid) -> Named:
        """The two values with numbers for their labels."""
        named = self._named.get((lhs, rhs))
        if named is None:
            names = tuple(dict.fromkeys((*lhs.labels, *rhs.labels)))
            numbers = dict(zip(names, count()))
            if self.partner is None:
                kept = tuple(map(numbers.__getitem__, self.kept))
            else:
                kept = tuple([number for label, number in numbers.items() if label in self.kept])
            named = self._named[lhs, rhs] = Named(names, renamed(lhs, numbers), renamed(rhs, numbers), kept)
        return named

    def recipe(self, named: Named, other: Labels | None, is_packed: bool) -> Recipe:
        """The recipe of the step.

        Args:
            named: the two values.
            other: the labels of the partner in memory order; None if it is not there yet.
            is_packed: whether arrays have no strides.
        """
        key = named, other, is_packed
        recipe = self._recipes.get(key)
        if recipe is None:
            names, lhs, rhs, kept = named
            use = ResultUse(kept)
            if self.partner is not None:
                both = tuple([label for label in other or () if label in self.kept])
                batch = tuple([label for label in both if label in self.needed])
                use = ResultUse(None, *[tuple(map(names.index, labels)) for labels in (without(both, batch), batch)])
            recipe = (packed.recipe_of if is_packed else recipe_of)(lhs, rhs, use, kept)
            self._recipes[key] = recipe
        return recipe


@lru_cache(maxsize=1024)
def _step_einsum(lhs: Laid, rhs: Laid, kept: Labels) -> Calls | None:
    """The framework's own einsum of a pair; None if a product of matrices or of elements needs no view."""
    if needs_no_view(lhs.labels, rhs.labels, kept):
        return None
    arrays = lhs, rhs
    return Calls(arrays).native((0, 1), arrays, kept)


_MOST_PATHS = 16
"""Of an equation whose steps are kept."""


def network_steps(inputs: tuple[Labels, ...], output: Labels, path: Path) -> list[NetworkStep]:
    """The steps of a path, whatever the sizes."""
    uses = Counter(chain(output, *inputs))
    alone = [label for label, number in uses.items() if number == 1]
    made: dict[int, Labels] = dict(enumerate(inputs))
    operands, steps = len(inputs), []
    for node, (first, second) in enumerate(_nodes(path, operands), operands):
        lhs, rhs = made.pop(first), made.pop(second)
        labels, summed = list(lhs), alone[:]
        for label in rhs:
            if label not in lhs:
                labels.append(label)
                continue
            uses[label] -= 1
            if uses[label] == 1:
                summed.append(label)
        made[node] = kept = tuple([label for label in labels if label not in summed])
        steps.append(NetworkStep((first, second), kept))
    steps[-1].kept = output
    for step in steps:
        first, second = step.pair
        for node, other in ((first, second), (second, first)):
            if node >= operands:
                before = steps[node - operands]
                before.partner, before.needed = other, step.kept
    return steps


def _nodes(path: Path, operands: int) -> list[tuple[int, int]]:
    """The two values of each step: operands by their numbers, and then the results of the steps."""
    left, pairs = list(range(operands)), []
    for step in path:
        if len(step) == 2:
            first, second = sorted(step)
            high, low = left.pop(second), left.pop(first)
            pairs.append((low, high))
            left.append(operands + len(pairs) - 1)
        else:  # a step of one operand does nothing
            left.append(left.pop(*step))
    return pairs


def _network(
    arrays: Sequence[Laid], slots: list[int], start: int, steps: Sequence[NetworkStep], sizes: Sizes, rules: Rules
) -> list[Part] | None:
    """The calls of a path of pairs; None if those of a step are not clear.

    Args:
        arrays: those that are contracted.
        slots: theirs.
        start: the slot of the first call.
        steps: of the path.
        sizes, rules: as for :func:`clear_parts`.
    """
    made, size, parts = dict(enumerate(arrays)), sizes.__getitem__, []
    for node, step in enumerate(steps, len(arrays)):
        (first, second), partner = step.pair, step.partner
        lhs, rhs = made.pop(first), made.pop(second)
        named = step.named(lhs, rhs)
        names, kept, own = named.names, named.kept, tuple(map(size, named.names))
        calls = None
        if partner is not None:
            innermost = min([sizes[array.labels[-1]] for array in (lhs, rhs) if array.labels], default=1)
            if rules.einsum_pays(prod(own), innermost, len(names)):
                calls = _step_einsum(named.lhs, named.rhs, kept)
        if calls is None:
            other: Labels | None = None
            if partner in made:
                other = made[partner].memory
            if rules.is_packed and partner is not None and partner >= len(arrays):
                other = tuple(sorted(steps[partner - len(arrays)].kept))
            recipe = step.recipe(named, other, rules.is_packed)
            calls = calls_of(recipe, own, rules)
            if calls is None:
                return None
            if partner is None:
                calls = calls.delivered(kept)
        made[node] = calls.laid(names)
        parts.append(Part(calls, own, (slots[first], slots[second]), start))
        start += len(calls.steps)
        slots.append(start - 1)
    return parts


# -- contractions ---------------------------------------------------------------------------------------------------


def direct_ops(contraction: Contraction) -> tuple[tuple[Op, ...], int] | None:
    """The ops of a contraction, and the slot of the result, if they are clear."""
    parts = direct_parts(contraction)
    if parts is None:
        return None
    ops = [op for part in parts for op in part.calls.ops(part.sizes, part.slots, part.start)]
    return tuple(ops), ops[-1].out


def direct_parts(contraction: Contraction) -> list[Part] | None:
    """The calls of a contraction, if they are clear; those of packed arrays are left to their lowering."""
    equation, rules = contraction.equation, rules_of(contraction.place.traits, contraction.dtype)
    if rules.is_packed and 0 not in equation.sizes:
        return None
    roles = roles_of(equation.inputs, equation.output)
    operands, sizes = contraction.operands, equation.sizes
    if 0 in sizes or is_known(sizes):
        return clear_parts(roles, operands, contraction.path, sizes, rules)
    is_whole = roles.is_one_einsum(sizes, rules) and takes_einsum(roles, operands, sizes, rules)
    return [Part(roles.einsum, sizes, roles.slots, len(operands))] if is_whole else None


def _arrays_of(roles: Roles, operands: Sequence[Operand], sizes: Sizes) -> Sequence[Laid] | None:
    """How operands lie, without axes of size 1 that broadcast.

    None if an axis has stride 0, or an operand with repeated labels broadcasts.
    """
    for operand in operands:
        if operand.strides is not None or 1 in operand.shape:
            break
    else:
        return roles.arrays
    arrays = []
    for labels, operand in zip(roles.inputs, operands):
        shape, strides = operand.shape, operand.strides
        array = Laid(labels)
        if strides is not None:
            array = Laid(labels, pattern_of(shape, strides))
            if 0 in [step for _, step in array.pattern]:
                return None
        if 1 in shape:
            spread = tuple([label for label, size in zip(labels, shape) if size != sizes[label]])
            if spread and repeated(labels):
                return None
            array = array.without(spread) if spread else array
        arrays.append(array)
    return arrays


def one_einsum(contraction: Contraction) -> Op:
    """The framework's own einsum, for all operands."""
    equation = contraction.equation
    return roles_of(equation.inputs, equation.output).einsum.steps[0].op


def may_be_one_einsum(contraction: Contraction) -> bool:
    """Whether the framework's own einsum computes the whole contraction correctly."""
    equation, rules = contraction.equation, rules_of(contraction.place.traits, contraction.dtype)
    return takes_einsum(roles_of(equation.inputs, equation.output), contraction.operands, equation.sizes, rules)
