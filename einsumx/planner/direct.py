"""The direct road: products whose best ops are clear from labels, strides and a few numbers, planned without a search.

That is most products: small ones, which take less time than a search, and those whose operands a matrix product reads
in place. An operand is read in place if its free and its contracted labels each are one run in memory, and the
innermost of them has unit stride. :mod:`einsumx.planner.matmul` searches for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from math import inf, prod
from typing import Any

from einsumx.dtypes import FLOATS
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction
from einsumx.ir.cost_model import EINSUM_CALLS, LOPSIDED, CostModel, depends_on_turns, einsum_starts
from einsumx.ir.loops import Loops, natural_order
from einsumx.ir.operand import Path
from einsumx.ir.ops import Copy, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose
from einsumx.ir.rates import Rates
from einsumx.ir.traits import MatrixLayout, Traits
from einsumx.planner.terms import Labels, ResultUse, Term, native_equation, plain_terms

_SMALL = 4096
"""The most multiply-adds, or elements of a copy, that take less time than a search for better ops."""

_SMALL_IN_A_STEP = 1 << 16
"""The same for an inner step of a network, as the search for a network also is that of its modules."""

_QUICK = 1 << 20
"""The most multiply-adds of products of vectors in two memory orders for which no search is worth its time."""

_TINY = 64
"""The most multiply-adds of a product that is all overhead."""

_CHEAP = 0.1
"""The most time of copies, relative to that of the product, with which no other way can be much faster."""


def direct_ops(contraction: Contraction) -> tuple[tuple[Op, ...], int] | None:
    """The ops of a contraction that has no size of 0, and the slot of the result, if they are clear."""
    equation, operands, dtype = contraction.equation, contraction.operands, contraction.dtype
    traits = contraction.place.traits
    count, rates = len(operands), traits.rates
    steps = prod(equation.sizes) * max(count - 1, 1)
    # Compared first, as there may be more steps than a float holds.
    is_quick = steps <= rates.call * _loop_rate(rates) * (count + 1) and _is_one_call(equation, steps, rates)
    if is_quick and may_be_one_einsum(contraction):
        return (one_einsum(equation, count),), count
    if not traits.strided or not traits.views or dtype in dict(traits.widen):
        return None
    terms = plain_terms(equation, operands, dtype)
    if terms is None:
        return None
    output = equation.output
    calls: list[Op] = []
    term: Term | None
    if count == 1:
        term = _summed(terms[0], output, count, calls)
    elif count == 2:
        term = _product_of_sums(terms[0], terms[1], output, ResultUse(output), traits, dtype, count, calls)
    else:
        term = _network(terms, contraction.path, output, traits, dtype, calls)
    if term is None:
        return None
    slot = count + len(calls)
    if term.flat is not None:
        calls.append(Reshape(slot, slot - 1, term.shape))
        slot += 1
    if term.labels != output:
        calls.append(Transpose(slot, slot - 1, tuple(map(term.labels.index, output))))
    elif not calls:  # a result is never the operand itself, though it may be a view
        calls.append(Reshape(slot, 0, equation.shape))
    return tuple(calls), count + len(calls) - 1


def _summed(term: Term, needed: Collection[int], count: int, calls: list[Op]) -> Term | None:
    """Append the sum over the labels that are not needed: of axes in memory order, as the result has that order.

    None if the framework takes other ops than these. ``count`` is the slot of the first of the calls.
    """
    labels, memory = term.labels, term.memory
    if set(labels).issubset(needed):
        return term
    if 1 in term.shape:
        return None
    source = term.slot if term.flat is None else _settled(term, count, calls)
    if memory != labels:
        calls.append(Transpose(count + len(calls), source, tuple(map(labels.index, memory))))
        source = count + len(calls) - 1
    slot = count + len(calls)
    calls.append(Sum(slot, source, tuple([axis for axis, label in enumerate(memory) if label not in needed])))
    return Term(slot, tuple([label for label in memory if label in needed]), None, term.sizes)


def _product_of_sums(
    lhs: Term,
    rhs: Term,
    keep: Collection[int],
    use: ResultUse,
    traits: Traits,
    dtype: str,
    count: int,
    calls: list[Op],
) -> Term | None:
    """Append the sums over labels that only one term has and nothing else needs, and the product."""
    if not set(lhs.labels).symmetric_difference(rhs.labels).issubset(keep):
        left = _summed(lhs, (*keep, *rhs.labels), count, calls)
        right = _summed(rhs, (*keep, *lhs.labels), count, calls)
        if left is None or right is None:
            return None
        lhs, rhs = left, right
    direct = direct_product(lhs, rhs, keep, use, traits, dtype, count + len(calls))
    if direct is None:
        return None
    calls += direct[0]
    return direct[1]


# -- networks -------------------------------------------------------------------------------------------------------


def _network(
    terms: Sequence[Term], path: Path, output: Labels, traits: Traits, dtype: str, calls: list[Op]
) -> Term | None:
    """Append the ops of a path of pairs; returns the result, or None if some of the ops are not clear."""
    count, size_of, native_pays = len(terms), terms[0].sizes.__getitem__, _native_pays(traits, dtype)
    uses = Counter(chain(output, *[term.labels for term in terms]))
    alone = [label for label, number in uses.items() if number == 1]
    made: dict[int, Term] = dict(enumerate(terms))
    pairs = _nodes(path, count)
    partners = {node: other for pair in pairs for node, other in (pair, pair[::-1])}
    for node, (first, second) in enumerate(pairs, count):
        lhs, rhs = made.pop(first), made.pop(second)
        labels, summed = list(lhs.labels), alone[:]
        for label in rhs.labels:
            if label not in lhs.labels:
                labels.append(label)
                continue
            uses[label] -= 1
            if uses[label] == 1:
                summed.append(label)
        kept = tuple([label for label in labels if label not in summed])
        innermost = min(map(size_of, (*lhs.labels[-1:], *rhs.labels[-1:])), default=1)
        is_inner = node in partners and not _needs_no_view(lhs.labels, rhs.labels, kept)
        if is_inner and native_pays(prod(map(size_of, labels)), innermost, len(labels)):
            ops, result = _native(lhs, rhs, kept, count + len(calls))
            calls += ops
        else:
            use = _use_of(kept, made.get(partners[node]), uses) if node in partners else ResultUse(output)
            product = _product_of_sums(lhs, rhs, kept, use, traits, dtype, count, calls)
            if product is None:
                return None
            result = product
        made[node] = result
    (result,) = made.values()
    return result


def _nodes(path: Path, count: int) -> list[tuple[int, int]]:
    """The two values of each step: operands by their numbers, and then the results of the steps."""
    left, pairs = list(range(count)), []
    for step in path:
        if len(step) == 2:
            first, second = sorted(step)
            high, low = left.pop(second), left.pop(first)
            pairs.append((low, high))
            left.append(count + len(pairs) - 1)
        else:  # a step of one operand does nothing
            left.append(left.pop(*step))
    return pairs


def _use_of(kept: Labels, other: Term | None, uses: Mapping[int, int]) -> ResultUse:
    """How the result of an inner step is used: by a product with another term, if that is there already."""
    if other is None:
        return ResultUse()
    shared = tuple(filter(kept.__contains__, other.memory))
    contracted = tuple([label for label in shared if uses[label] == 2])
    return ResultUse(None, contracted, tuple([label for label in shared if uses[label] > 2]))


def _native_pays(traits: Traits, dtype: str) -> Callable[[Any, int, int], bool]:
    """Whether the framework's own einsum is faster than the calls around a product of matrices, in an inner step.

    The function takes the multiply-adds, the size of the innermost loop, and the number of labels.
    """
    rates, rate = traits.rates, _loop_rate(traits.rates)
    if not rate or dtype not in traits.native_dtypes:
        return lambda *_: False
    seconds, row, most = _STEP_CALLS * rates.call, einsum_starts(1, 0, 3) * rates.run, traits.native_max_labels

    def pays(steps: Any, innermost: int, labels: int) -> bool:
        if type(steps) is not int or steps > seconds * rate or labels > most:
            return False
        return steps * (1 / rate + row / innermost) <= seconds

    return pays


_STEP_CALLS = 3
"""The calls of a product of matrices in an inner step: transposes, reshapes, copies."""


def one_einsum(equation: SizedEquation, count: int) -> Op:
    """The framework's own einsum, for all of so many operands."""
    return Native(count, tuple(range(count)), native_equation(equation.inputs, equation.output))


def _is_one_call(equation: SizedEquation, steps: int, rates: Rates) -> bool:
    """Whether one call of the framework's own einsum is the fastest: not for a view, nor for a product of matrices."""
    inputs, output = equation.inputs, equation.output
    first, last = inputs[0], inputs[-1]
    count = len(inputs)
    if count == 1:
        is_slow, calls = set(first) <= set(output), 1
    elif count > 2:
        is_slow, calls = False, count - 1
    else:
        # A term with labels of its own is summed before.
        calls = 1 + (not set(last).union(output).issuperset(first)) + (not set(first).union(output).issuperset(last))
        is_slow = calls == 1 and _needs_no_view(first, last, output)
    size = steps // max(count - 1, 1)
    innermost = size
    for shape in equation.shapes:
        if shape and shape[-1] < innermost:
            innermost = shape[-1]
    rows, labels = size / innermost, len(equation.sizes)
    if count == 2 and calls > 1 and (len(first) == labels or len(last) == labels):
        rows = 0  # the sum of the term with all labels runs its innermost loop as often
    return not is_slow and _is_tiny(steps, rows, labels, rates, calls)


def _needs_no_view(first: Labels, last: Labels, keep: Collection[int]) -> bool:
    """Whether a product of matrices or of elements takes its terms as they are: one label is shared, or none summed."""
    if len(first) > 2 or len(last) > 2:
        return False
    shared = set(first).intersection(last)
    return len(shared) == 1 or (bool(shared) and shared.issubset(keep))


def _is_tiny(steps: int, rows: float, labels: int, rates: Rates, calls: int = 1) -> bool:
    """Whether the framework's own einsum loops for less than the overhead of the calls that it saves, or of its own.

    Args:
        steps: multiply-adds.
        rows: about how often it runs its innermost loop, which has the least of the sizes of the operands' last axes.
        labels: how many there are.
        rates: of the framework.
        calls: that compute the same.
    """
    overhead, rate = rates.call * (calls - 1 or EINSUM_CALLS), _loop_rate(rates)
    if steps > overhead * rate:  # which may be more than a float holds
        return False
    return steps / rate + einsum_starts(rows, 1, labels - 1) * rates.run <= overhead


def _loop_rate(rates: Rates) -> float:
    """The multiply-adds per second of the framework's own einsum in small arrays; 0 if there is none."""
    return rates.sweep or rates.native


def may_be_one_einsum(contraction: Contraction) -> bool:
    """Whether the framework's own einsum computes the whole contraction correctly.

    Some kernels have wrong gradients for repeated labels and without labels, all for axes that broadcast.
    """
    equation, operands, dtype = contraction.equation, contraction.operands, contraction.dtype
    traits = contraction.place.traits
    if not traits.rates.native or dtype not in traits.native_dtypes:
        return False
    if len(operands) > traits.native_max_operands or len(equation.sizes) > traits.native_max_labels:
        return False
    if not traits.native_any_labels and not equation.sizes:
        return False
    sizes = equation.sizes
    for operand, term in zip(operands, equation.inputs):
        if operand.dtype != dtype or operand.shape != tuple(map(sizes.__getitem__, term)):
            return False
        if not traits.native_any_labels and len(set(term)) < len(term):
            return False
    return True


def direct_product(
    lhs: Term, rhs: Term, keep: Collection[int], use: ResultUse, traits: Traits, dtype: str, slot: int
) -> tuple[list[Op], Term] | None:
    """The ops of a product of two terms, and its result, if they are clear.

    Args:
        lhs, rhs: terms without repeated labels; each label is in both, or kept.
        keep: the labels that other terms or the output still need.
        use: how the result is used.
        traits: of the framework.
        dtype: of the computation.
        slot: of the first op.

    Returns:
        None if a search may find better ops, or the framework takes other ops than this module writes.
    """
    if not traits.strided:
        return None
    lhs_labels, rhs_labels, size_of = lhs.labels, rhs.labels, lhs.sizes.__getitem__
    if 1 in lhs.sizes and 1 in map(size_of, (*lhs_labels, *rhs_labels)):
        return None
    left, right = _Side(lhs, rhs_labels, keep), _Side(rhs, lhs_labels, keep)
    rows, cols = left.rows, right.rows
    steps = left.matrices * left.inner * rows * cols
    if type(steps) is not int:
        return None
    batch: Labels = ()
    if left.shared:
        batch = left.own = right.own = tuple(filter(left.shared.__contains__, use.order or lhs.memory))
    is_matmul = left.inner > 1 and dtype in traits.matmul_dtypes and dtype in FLOATS
    may_be_native = (steps <= _SMALL or rows == 1 or cols == 1) and _may_be_native(lhs, rhs, traits, dtype)
    if may_be_native and steps <= _SMALL and not (is_matmul and _needs_no_view(lhs_labels, rhs_labels, keep)):
        innermost = min(map(size_of, (*lhs_labels[-1:], *rhs_labels[-1:])), default=1)
        is_outer = left.inner == 1 and rows > 1 and cols > 1
        if is_outer or _is_tiny(steps, steps / innermost, len({*lhs_labels, *rhs_labels}), traits.rates):
            kept = [label for label in lhs_labels if label not in rhs_labels]
            kept += [label for label in rhs_labels if label not in lhs_labels]
            result = use.target((*batch, *kept))
            if result is None:
                result = tuple(natural_order([lhs.memory, rhs.memory], (*batch, *kept))[0])
            return _native(lhs, rhs, result, slot)
    if left.inner == 1 and not (rows > 1 and cols > 1 and traits.outer_by_matmul):
        return _multiplied(lhs, rhs, use, traits, dtype, slot)
    if not is_matmul or (batch and rows == cols == 1 and not may_be_native):
        return None  # for products of vectors, a multiplication and a sum may be faster
    if traits.max_batch_axes is not None and len(batch) > traits.max_batch_axes:
        return None
    return _matrix_product(left, right, use, traits, dtype, slot, may_be_native)


def _may_be_native(lhs: Term, rhs: Term, traits: Traits, dtype: str) -> bool:
    """Whether the framework's own einsum computes the product."""
    most = traits.native_max_labels
    return traits.rates.native > 0 and dtype in traits.native_dtypes and len({*lhs.labels, *rhs.labels}) <= most


def einsum_result(natural: Labels, use: ResultUse, steps: int) -> Labels:
    """The axis order of a product by the framework's own einsum, whose loops follow the operands in ``natural`` order.

    It is the requested one of a small result: in memory, the framework leaves that in natural order.
    """
    return (use.target(natural) if steps <= _SMALL else None) or natural


def _native(lhs: Term, rhs: Term, result: Labels, slot: int) -> tuple[list[Op], Term]:
    """A call of the framework's own einsum."""
    calls: list[Op] = []
    left = lhs.slot if lhs.flat is None else _settled(lhs, slot, calls)
    slots = left, rhs.slot if rhs.flat is None else _settled(rhs, slot, calls)
    slot += len(calls)
    calls.append(Native(slot, slots, native_equation((lhs.labels, rhs.labels), result)))
    return calls, Term(slot, result, None, lhs.sizes)


def _settled(term: Term, slot: int, calls: list[Op]) -> int:
    """The slot of a reshape that gives a term the shape of its axes; ``slot`` is that of the first of the calls."""
    calls.append(Reshape(slot + len(calls), term.slot, term.shape))
    return slot + len(calls) - 1


_NO_UNIT = "no axis of its matrices has unit stride"
_OTHER_ORDER = "its contracted axes lie in another order than those of the other operand"


class _Side:
    """A term of a product: what the product does with each label, and how it reads the term.

    Args:
        term: without repeated labels.
        others: the labels of the other term.
        keep: the labels that are not summed.

    Attributes:
        term: the term.
        shared: the labels along the batch.
        free, contracted: the labels along the matrices, from the outermost in memory to the innermost.
        copied: why it is copied first, as ``[batch, free, contracted]`` or, if turned, ``[batch, contracted, free]``;
            empty if it is read in place.
        is_turned: the contracted labels lie outside of the free ones.
        matrices, rows, inner: how many elements the labels of the batch, the free and the contracted ones span.
        height: the rows of each matrix: without those of ``loops``.
    """

    loops: Labels
    """Free labels that do not merge with the others; they become batch axes, unless the term is copied."""
    own: Labels
    """The labels of the batch axes that it has, in order."""

    __slots__ = (
        "contracted", "copied", "free", "height", "inner", "is_turned", "loops", "matrices", "own", "rows", "shared",
        "term",
    )  # fmt: skip

    def __init__(self, term: Term, others: Labels, keep: Collection[int]) -> None:
        sizes, labels, strides = term.sizes, term.labels, None if term.is_packed else term.strides
        axes = range(len(labels) - 1, -1, -1)
        free: list[int] = []
        loops: list[int] = []
        summed: list[int] = []
        shared: list[int] = []
        matrices = rows = height = inner = span = 1
        free_end = summed_end = 0
        reason = ""
        for axis in axes if strides is None else sorted(axes, key=strides.__getitem__):
            label = labels[axis]
            size = sizes[label]
            stride = span if strides is None else strides[axis]
            span = stride * size
            if label not in others:
                rows *= size
                if loops or (free and stride != free_end):
                    loops.append(label)
                    continue
                if not free and (stride < summed_end if summed else stride != 1):
                    reason = reason or _NO_UNIT
                free.append(label)
                height *= size
                free_end = span
            elif label in keep:
                matrices *= size
                if not (free or summed):
                    reason = reason or _NO_UNIT
                shared.append(label)
            else:
                inner *= size
                if summed and stride != summed_end:
                    reason = reason or "its contracted axes do not merge"
                elif not summed and (stride < free_end if free else stride != 1):
                    reason = reason or _NO_UNIT
                summed.append(label)
                summed_end = span
        self.term, self.shared, self.own = term, shared, ()
        self.matrices, self.rows, self.height, self.inner = matrices, rows, height, inner
        self.is_turned = bool(free) and summed_end > free_end
        self.free, self.contracted, self.loops = tuple(free[::-1]), tuple(summed[::-1]), tuple(loops[::-1])
        self.copied = reason
        if reason:
            self.contracted = self.loops = ()
        elif loops:
            self.copied = "its free axes do not merge"

    @property
    def has_gaps(self) -> bool:
        """Whether the array is not contiguous in the order of its axes in memory."""
        return not self.term.is_packed and self.term.merged(self.term.memory) != 1

    def is_packed(self, on_right: bool) -> bool:
        """Whether it is C-contiguous as a product reads it on one side."""
        order = (*self.contracted, *self.free) if on_right else (*self.free, *self.contracted)
        return not (self.has_gaps or self.copied) and self.term.memory == (*self.own, *order)

    def pack(self, contracted: Labels) -> None:
        """Copy the term with its innermost axis innermost, and the contracted labels in this order."""
        memory, own = self.term.memory, self.own
        self.free = tuple([label for label in memory if label not in own and label not in contracted])
        self.contracted, self.loops, self.height = contracted, (), self.rows
        self.is_turned = bool(self.free) and memory[-1] == self.free[-1]


def _matrix_product(
    left: _Side, right: _Side, use: ResultUse, traits: Traits, dtype: str, slot: int, may_be_native: bool
) -> tuple[list[Op], Term] | None:
    """As :func:`direct_product`, for a product of matrices, unless the framework's own einsum takes less time."""
    batch, rows, cols = left.own, left.rows, right.rows
    if left.copied or right.copied or left.contracted != right.contracted:
        may_copy = may_be_native and rows == cols == 1 and left.inner > _TINY
        may_copy = may_copy and (left.matrices * left.inner <= _QUICK or left.term.memory == right.term.memory)
        if not _read(left, right, traits, dtype, inf if may_copy else _worth_a_search(use)):
            return None
        if left.loops or right.loops:
            batch = (*batch, *left.loops, *right.loops)
            batch = use.target(batch) or batch
            for side in (left, right):
                side.own = tuple([label for label in batch if label in side.term.labels])
    sides = left, right
    layouts = traits.layouts(dtype)
    layout = layouts.batch if batch else layouts.matrix
    if layout != "strided":
        return _product_of_packed(sides, batch, layout, use, traits, dtype, slot)
    matrices = left.matrices
    is_small = matrices * left.inner * rows * cols <= _SMALL
    slower = 0.0 if is_small else _slower(left, right, traits, dtype)
    turns = _turns(left, right, batch, use, traits, dtype)
    if turns or slower:
        others = _turns(right, left, batch, use, traits, dtype)
        if slower + (turns - others) * traits.rates.view > 0:
            sides, turns = (right, left), others
    if turns >= _UNREADABLE and matrices * rows * cols > _worth_a_search(use):
        return None
    if may_be_native and (batch or left.copied or right.copied):
        natural = _faster_native(*sides, batch, use, traits, dtype)
        if natural is not None:
            return _native(left.term, right.term, natural, slot)
    return _product(sides, batch, slot)


def _worth_a_search(use: ResultUse) -> int:
    """The most elements of a copy that takes less time than a search for better ops."""
    return _SMALL if use.order is not None else _SMALL_IN_A_STEP


def _read(left: _Side, right: _Side, traits: Traits, dtype: str, limit: float) -> bool:
    """Choose between loops and copies; False if more than ``limit`` elements are copied, and that takes long enough."""
    matrices, inner, rows, cols = left.matrices, left.inner, left.rows, right.rows
    if left.loops or right.loops:
        most = traits.max_batch_axes
        room = len(left.term.labels) + len(right.term.labels) if most is None else most - len(left.own)
        if len(left.loops) <= room and _do_loops_pay(left, cols, traits, dtype):
            left.copied = ""
            room -= len(left.loops)
        if len(right.loops) <= room and _do_loops_pay(right, rows, traits, dtype):
            right.copied = ""
    if not (left.copied or right.copied) and left.contracted != right.contracted:
        (left if rows <= cols else right).copied = _OTHER_ORDER
    copied = matrices * inner * (rows * bool(left.copied) + cols * bool(right.copied))
    if copied > limit:
        model = CostModel(traits, dtype)
        if model.copy(copied) > _CHEAP * model.matmul(1, matrices, rows, cols, inner):
            return False
    if left.copied:
        shared, others = left.shared, right.term.labels
        summed = tuple([label for label in left.term.labels if label in others and label not in shared])
        left.pack(right.contracted or summed)
    if right.copied:
        right.pack(left.contracted)
    return True


def _do_loops_pay(side: _Side, others: int, traits: Traits, dtype: str) -> bool:
    """Whether a product for each element of ``loops`` takes less time than a copy; if large, surely less."""
    if not side.loops or traits.layouts(dtype).batch != "strided":
        return False
    matrices, inner, rows = side.matrices, side.inner, side.height
    count = side.rows // rows
    elements = matrices * side.rows * inner
    is_small = elements <= _SMALL
    if not is_small and rows * inner * others < _TINY:
        return False
    model = CostModel(traits, dtype)
    copied = model.copy(elements, turned=is_small) + model.matmul(1, matrices, side.rows, others, inner)
    return model.matmul(1, matrices * count, rows, others, inner) < copied


def _product_of_packed(
    sides: tuple[_Side, _Side],
    batch: Labels,
    layout: MatrixLayout,
    use: ResultUse,
    traits: Traits,
    dtype: str,
    slot: int,
) -> tuple[list[Op], Term] | None:
    """A product on a framework that copies operands with gaps, or all that are not in C order; None if it copies."""
    if layout == "C" and not (sides[0].is_packed(on_right=False) and sides[1].is_packed(on_right=True)):
        sides = sides[::-1]
        if not (sides[0].is_packed(on_right=False) and sides[1].is_packed(on_right=True)):
            return None
    if any(side.copied or side.has_gaps for side in sides) or _turns(*sides, batch, use, traits, dtype) >= _UNREADABLE:
        return None
    return _product(sides, batch, slot)


def _slower(left: _Side, right: _Side, traits: Traits, dtype: str) -> float:
    """The seconds by which a product takes longer than with its sides swapped."""
    rows, cols, inner = left.height, right.height, left.inner
    is_lopsided = traits.long_side != "either" and (rows > LOPSIDED * cols or cols > LOPSIDED * rows)
    if not is_lopsided and (left.is_turned == right.is_turned or not depends_on_turns(rows, cols, inner)):
        return 0.0
    model = CostModel(traits, dtype)
    matrices = left.matrices * (left.rows // rows) * (right.rows // cols)
    return model.matmul(1, matrices, rows, cols, inner, (left.is_turned, not right.is_turned)) - model.matmul(
        1, matrices, cols, rows, inner, (right.is_turned, not left.is_turned)
    )


_LOOPED, _UNREADABLE = 4, 8
"""The turns of a result that the next step reads in place if it loops over some of its axes, or cannot read in place.
"""


def _turns(left: _Side, right: _Side, batch: Labels, use: ResultUse, traits: Traits, dtype: str) -> int:
    """The transposes of a product and of its result."""
    count = ((*left.own, *left.free, *left.contracted) != left.term.labels) + (
        (*right.own, *right.contracted, *right.free) != right.term.labels
    )
    result = (*batch, *left.free, *right.free)
    order = use.order
    if order is not None:
        return count + (result != order and (len(result) == len(order) or result != use.target(result)))
    takes_strides = traits.layouts(dtype).batch == "strided"
    if use.is_ready(result, left.term.sizes, takes_strides):
        return count
    summed = use.contracted
    start = result.index(summed[0])
    takes_loops = takes_strides and traits.max_batch_axes is None
    is_run = result[start : start + len(summed)] == summed and result[-1] not in use.batch
    return count + (_LOOPED if takes_loops and is_run else _UNREADABLE)


_LABEL = 0.1
"""The overhead of each label in the framework's own kernel, in calls."""


def _faster_native(
    left: _Side, right: _Side, batch: Labels, use: ResultUse, traits: Traits, dtype: str
) -> Labels | None:
    """The order of the result of the framework's own kernel, if that takes less time than a product; otherwise None.

    A small product takes the time of its calls.

    On 240 random pairs of 200 to 4096 steps with batch axes or copies on NumPy, what this chooses takes 1.05 times as
    long as the faster of both (geometric mean).
    """
    steps = left.matrices * left.inner * left.rows * right.rows
    rates, size = traits.rates, left.term.size
    calls, views = 2.0 + bool(batch), 0  # with what surrounds a call, and with the set-up of a loop over matrices
    for side in (left, right):
        calls += 0.5 * bool(side.copied)
        views += side.term.labels != (*side.own, *side.free, *side.contracted)
        views += len(side.free) != 1 or len(side.contracted) != 1
    views += len(left.free) != 1 or len(right.free) != 1
    seconds = calls * rates.call + views * rates.view
    model = CostModel(traits, dtype)
    if steps <= _SMALL:
        seconds += size(batch) * rates.matrix
    else:
        seconds += model.matmul(0, left.matrices, left.rows, right.rows, left.inner)
        seconds += sum([model.copy(side.term.size(side.term.labels)) for side in (left, right) if side.copied])
    seconds -= _LABEL * len({*left.term.labels, *right.term.labels}) * rates.call
    if model.least_einsum(steps, 2) >= seconds:
        return None
    result = (*batch, *left.free, *right.free)
    memory = [left.term.memory, right.term.memory]
    natural, order = natural_order(memory, use.target(result) or result)
    loops = Loops(order, [*memory, natural])
    if model.einsum(steps, size(loops.outer), size(loops.filled), loops.count, 2, loops.is_packed) >= seconds:
        return None
    return einsum_result(tuple(natural), use, steps)


def _product(sides: tuple[_Side, _Side], batch: Labels, slot: int) -> tuple[list[Op], Term]:
    """The ops of a matrix product, and its result.

    Args:
        sides: the left and the right operand.
        batch: the labels of the batch axes.
        slot: of the first op.
    """
    left, right = sides
    calls: list[Op] = []
    lhs = _as_matrix(left, batch, slot, calls, is_left=True)
    rhs = _as_matrix(right, batch, slot, calls, is_left=False)
    calls.append(Matmul(slot + len(calls), lhs, rhs))
    result = (*batch, *left.free, *right.free)
    product = Term(slot + len(calls) - 1, result, None, left.term.sizes)
    if len(left.free) != 1 or len(right.free) != 1:
        flat = tuple(map(product.sizes.__getitem__, batch))
        for side in sides:
            if side.free or batch:
                flat = (*flat, side.height)
        if flat != product.shape:
            product.flat = flat
    return calls, product


def _as_matrix(side: _Side, batch: Labels, slot: int, calls: list[Op], *, is_left: bool) -> int:
    """Append the ops that make an operand of a product, the first to ``slot`` if there are none; returns its slot."""
    term, free, contracted, own = side.term, side.free, side.contracted, side.own
    source, labels, flat = term.slot, term.labels, term.flat
    order = (*own, *free, *contracted) if is_left else (*own, *contracted, *free)
    is_matrix = len(free) == 1 == len(contracted) and len(own) == len(batch)
    if labels == order and is_matrix and flat is None and not side.copied:
        return source
    slot += len(calls)
    if flat is not None and (side.copied or labels != order):
        calls.append(Reshape(slot, source, term.shape))
        source, slot, flat = slot, slot + 1, None
    if side.copied:
        packed = (*own, *contracted, *free) if side.is_turned else (*own, *free, *contracted)
        if labels != packed:
            calls.append(Transpose(slot, source, tuple(map(labels.index, packed))))
            source, slot = slot, slot + 1
        calls.append(Copy(slot, source, side.copied))
        source, slot, labels = slot, slot + 1, packed
    if labels != order:
        calls.append(Transpose(slot, source, tuple(map(labels.index, order))))
        source, slot = slot, slot + 1
    shape = None if flat is None else term.shape
    if not is_matrix:
        size_of = term.sizes.__getitem__
        lead = tuple(map(size_of, own))
        if len(own) != len(batch):
            lead = tuple([size_of(label) if label in own else 1 for label in batch])
        if free or batch:
            shape = (*lead, side.height, side.inner) if is_left else (*lead, side.inner, side.height)
        elif len(labels) > 1 or flat is not None:
            shape = (side.inner,)
    if shape is not None and shape != flat:
        calls.append(Reshape(slot, source, shape))
        source = slot
    return source


# -- elementwise products -------------------------------------------------------------------------------------------


def _multiplied(lhs: Term, rhs: Term, use: ResultUse, traits: Traits, dtype: str, slot: int) -> tuple[list[Op], Term]:
    """The ops of a product that sums nothing, and its result."""
    calls: list[Op] = []
    slots = []
    order, reasons = product_order(lhs, rhs, use, traits, dtype)
    first = slot
    for term, reason in zip((lhs, rhs), reasons):
        labels = tuple(filter(term.labels.__contains__, order))
        is_spread = labels != order[len(order) - len(labels) :]
        source, flat = term.slot, term.flat
        if flat is not None and not (is_spread and labels == term.labels):
            source, flat = _settled(term, first, calls), None
        slot = first + len(calls)
        if labels != term.labels:
            calls.append(Transpose(slot, source, tuple(map(term.labels.index, labels))))
            source, slot = slot, slot + 1
        if reason:
            calls.append(Copy(slot, source, reason))
            source, slot = slot, slot + 1
        if is_spread:
            spread = [label in labels for label in order]
            start = spread.index(True)
            shape = tuple([term.sizes[label] if own else 1 for label, own in zip(order[start:], spread[start:])])
            if shape != flat:
                calls.append(Reshape(slot, source, shape))
                source, slot = slot, slot + 1
        slots.append(source)
    calls.append(Multiply(slot, *slots))
    return calls, Term(slot, order, None, lhs.sizes)


def product_order(lhs: Term, rhs: Term, use: ResultUse, traits: Traits, dtype: str) -> tuple[Labels, tuple[str, str]]:
    """The axis order of an elementwise product, and why each operand is copied into that order, or "".

    If one operand has all labels, its memory order; otherwise the order with the longest contiguous run. Of equals, the
    requested one, or that of both operands: in any other, frameworks would have to be told to write the result. Copies
    of operands that are much smaller than the result pay if they make its runs longer.
    """
    shared = tuple([label for label in lhs.memory if label in rhs.labels])
    rows = tuple([label for label in lhs.memory if label not in shared])
    cols = tuple([label for label in rhs.memory if label not in shared])
    if not cols:
        return lhs.memory, _IN_PLACE
    if not rows:
        return rhs.memory, _IN_PLACE
    orders = [(*shared, *rows, *cols), (*shared, *cols, *rows), (*rows, *cols, *shared), (*cols, *rows, *shared)]
    target = use.target(orders[0])
    if target is not None:
        orders.insert(0, target)
    runs = [_run_of(lhs, rhs, order) for order in orders]
    if target is not None and runs[0] < max(runs):
        orders.insert(1, tuple(natural_order([lhs.memory, rhs.memory], target)[0]))
        runs.insert(1, _run_of(lhs, rhs, orders[1]))
    longest = max(runs)
    order, copies = orders[runs.index(longest)], _IN_PLACE
    overhead = lhs.size(order) * traits.rates.run  # of runs of one element
    least = overhead / longest
    # The next step may want another order of an inner result, and GPUs have no runs.
    if target is not None and traits.strided and traits.rates.tile == 1 and least > traits.rates.call:
        model = CostModel(traits, dtype)
        for other in orders:
            reasons, run = _copies(lhs, rhs, other)
            copied = [model.copy(term.size(term.labels)) for term, reason in zip((lhs, rhs), reasons) if reason]
            seconds = sum(copied) + overhead / min(run, _LONG_RUN)
            if seconds < least:
                order, copies, least = other, reasons, seconds
    return order, copies


_IN_PLACE = "", ""


def _copies(lhs: Term, rhs: Term, order: Labels) -> tuple[tuple[str, str], int]:
    """Why each operand is copied so that all innermost axes that it has are a run, and the elements of that run."""
    terms = lhs, rhs
    owners = [[label in term.labels for term in terms] for label in order]
    count = next((place for place, each in enumerate(owners[::-1]) if each != owners[-1]), len(order))
    run = order[-count:]
    is_copied = [is_owner and term.merged(run) != 1 for term, is_owner in zip(terms, owners[-1])]
    return (_SHORT_RUNS * is_copied[0], _SHORT_RUNS * is_copied[1]), lhs.size(run)


_SHORT_RUNS = "its rows in memory are short, and a product of short rows takes longer than the copy"

_LONG_RUN = 256
"""Runs of more elements make a product no faster."""


def _run_of(lhs: Term, rhs: Term, order: Labels) -> int:
    """The elements of the contiguous run at the end of ``order`` in each operand that has its labels."""
    run: Labels = ()
    for label in reversed(order):
        longer = (label, *run)
        for term in (lhs, rhs):
            own = [other for other in longer if other in term.labels]
            if own and (len(own) < len(longer) or term.merged(longer) != 1):
                return min(lhs.size(run), _LONG_RUN)
        run = longer
    return min(lhs.size(run), _LONG_RUN)
