"""The direct road: products whose best ops are clear from labels, strides and a few numbers, planned without a search.

That is most products: small ones, which take less time than a search, and those whose operands a matrix product reads
in place. An operand is read in place if its free and its contracted labels each are one run in memory, and the
innermost of them has unit stride. :mod:`einsumx.planner.matmul` searches for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from einsumx.adapters.rates import Rates
from einsumx.adapters.traits import MatrixLayout, Traits
from einsumx.dtypes import FLOATS
from einsumx.ir.bind import SizedEquation
from einsumx.ir.cost import EINSUM_CALLS, EINSUM_ROW, LOPSIDED, CostModel, depends_on_turns
from einsumx.ir.loops import natural_order, outer_loops
from einsumx.ir.ops import Copy, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose
from einsumx.ir.program import Operand
from einsumx.planner.terms import Labels, ResultUse, Term, native_equation, plain_terms

__all__ = ["direct_ops", "direct_product", "may_be_one_einsum", "one_einsum", "product_order"]

_SMALL = 4096
"""The most multiply-adds, or elements of a copy, that take less time than a search for better ops."""

_TINY = 64
"""The most multiply-adds of a product that is all overhead."""

_CHEAP = 0.1
"""The most time of copies, relative to that of the product, with which no other way can be much faster."""


def direct_ops(
    equation: SizedEquation, operands: Sequence[Operand], traits: Traits, dtype: str
) -> tuple[tuple[Op, ...], int] | None:
    """The ops of a contraction, and the slot of the result, if they are clear: of a tiny one, or of up to two operands.

    Args:
        equation: with sizes, none of them 0.
        operands: shape, dtype and layout of each operand.
        traits: of the framework.
        dtype: of the result.
    """
    count, rates = len(operands), traits.rates
    steps = prod(equation.sizes) * max(count - 1, 1)
    # Compared first, as there may be more steps than a float holds.
    is_quick = steps <= rates.call * rates.native * (count + 1) and _is_one_call(equation, steps, rates)
    if is_quick and may_be_one_einsum(equation, operands, traits, dtype):
        return (one_einsum(equation, count),), count
    if count > 2 or not traits.strided or not traits.views or dtype in dict(traits.widen):
        return None
    terms = plain_terms(equation, operands, dtype)
    if terms is None:
        return None
    output = equation.output
    calls: list[Op] = []
    keep = frozenset(output)
    for slot, term in enumerate(terms):
        needed = keep if len(terms) == 1 else keep.union(terms[1 - slot].labels)
        if not needed.issuperset(term.labels):
            if 1 in operands[slot].shape or traits.max_sum_axes is not None:
                return None
            terms[slot] = _summed(term, needed, len(operands) + len(calls), calls)
    slot = len(operands) + len(calls)
    term = terms[0]
    if len(terms) == 2:
        direct = direct_product(term, terms[1], keep, ResultUse(output), traits, dtype, slot)
        if direct is None:
            return None
        calls += direct[0]
        term = direct[1]
        slot = term.slot + 1
    if term.flat is not None:
        calls.append(Reshape(slot, slot - 1, term.shape))
        slot += 1
    if term.labels != output:
        calls.append(Transpose(slot, slot - 1, tuple(map(term.labels.index, output))))
    elif not calls:  # a result is never the operand itself, though it may be a view
        calls.append(Reshape(slot, 0, equation.shape))
    return tuple(calls), len(operands) + len(calls) - 1


def _summed(term: Term, needed: frozenset[int], slot: int, calls: list[Op]) -> Term:
    """Append the sum over the labels that are not needed: of axes in memory order, as the result has that order."""
    source, labels, memory = term.slot, term.labels, term.memory
    if memory != labels:
        calls.append(Transpose(slot, source, tuple(map(labels.index, memory))))
        source, slot = slot, slot + 1
    calls.append(Sum(slot, source, tuple([axis for axis, label in enumerate(memory) if label not in needed])))
    kept = tuple([label for label in memory if label in needed])
    return Term(slot, kept, None, term.sizes)


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
        is_slow = len(first) <= 2 and len(last) <= 2 and not set(first).isdisjoint(last)
        # A term with labels of its own is summed before.
        calls = 1 + (not set(last).union(output).issuperset(first)) + (not set(first).union(output).issuperset(last))
    innermost = steps
    for shape in equation.shapes:
        if shape and shape[-1] < innermost:
            innermost = shape[-1]
    return not is_slow and _is_tiny(steps, innermost, rates, calls)


def _is_tiny(steps: int, innermost: int, rates: Rates, calls: int = 1) -> bool:
    """Whether the framework's own einsum loops for less than the overhead of so many calls, or of the only one.

    Args:
        steps: multiply-adds.
        innermost: about the length of the innermost loop: the least of the sizes of the operands' last axes.
        rates: of the framework.
        calls: that compute the same.
    """
    overhead = rates.call * (1 if calls == 1 else calls - EINSUM_CALLS)
    if steps > overhead * rates.native:  # which may be more than a float holds
        return False
    return steps / rates.native + steps / innermost * EINSUM_ROW * rates.run <= overhead


def may_be_one_einsum(equation: SizedEquation, operands: Sequence[Operand], traits: Traits, dtype: str) -> bool:
    """Whether the framework's own einsum computes the whole contraction correctly.

    Some kernels have wrong gradients for repeated labels and without labels, all for axes that broadcast.
    """
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


class _Matrices(NamedTuple):
    """How a product reads a term.

    Attributes:
        term: the term.
        free, contracted: its labels along the matrices, in order.
        is_turned: the contracted labels lie outside of the free ones.
        copied: why it is copied first, as ``[batch, free, contracted]`` or, if turned, ``[batch, contracted, free]``;
            empty if it is read in place.
        has_gaps: the array is not contiguous in the order of its axes in memory.
        loops: its other free labels, which become batch axes.
        own: the labels of the batch axes that it has.
    """

    term: Term
    free: Labels
    contracted: Labels
    is_turned: bool
    copied: str = ""
    has_gaps: bool = False
    loops: Labels = ()
    own: Labels = ()

    def is_packed(self, batch: Labels, on_right: bool) -> bool:
        """Whether it is C-contiguous as a product reads it on one side."""
        order = (*self.contracted, *self.free) if on_right else (*self.free, *self.contracted)
        return not (self.has_gaps or self.copied) and self.term.memory == (*batch, *order)


class _Classes(NamedTuple):
    """The labels of two terms by what a product does with them, and how many elements each class spans.

    Those of the batch are in the order of the result.
    """

    batch: Labels
    contracted: Labels
    lhs_free: Labels
    rhs_free: Labels
    matrices: int
    inner: int
    rows: int
    cols: int


def direct_product(
    lhs: Term, rhs: Term, keep: frozenset[int], use: ResultUse, traits: Traits, dtype: str, slot: int
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
    if not traits.strided or traits.min_batch_axes:
        return None
    classes = _classified(lhs, rhs, keep, use)
    if classes is None:
        return None
    batch, contracted, lhs_free, rhs_free, matrices, inner, rows, cols = classes
    sizes, lhs_labels, rhs_labels = lhs.sizes, lhs.labels, rhs.labels
    steps = matrices * inner * rows * cols
    is_small = steps <= _SMALL
    is_matmul = contracted and dtype in traits.matmul_dtypes and dtype in FLOATS
    is_of_vectors, has_vector = not (lhs_free or rhs_free), not (lhs_free and rhs_free)
    may_be_native = (is_small or has_vector) and traits.rates.native > 0 and dtype in traits.native_dtypes
    may_be_native = may_be_native and len(lhs_labels) + len(rhs_free) <= traits.native_max_labels
    if may_be_native and is_small and (not is_matmul or len(lhs_labels) > 2 or len(rhs_labels) > 2):
        innermost = min(map(sizes.__getitem__, (*lhs_labels[-1:], *rhs_labels[-1:])), default=1)
        if _is_tiny(steps, innermost, traits.rates):
            kept = (*batch, *lhs_free, *rhs_free)
            return _native(lhs, rhs, use.target(kept) or kept, slot)
    if not contracted and not (lhs_free and rhs_free and traits.outer_by_matmul):
        return _multiplied(lhs, rhs, use, slot)
    if not is_matmul or (batch and is_of_vectors and not may_be_native):
        return None  # for products of vectors, a multiplication and a sum may be faster
    most = traits.max_batch_axes
    if most is not None and len(batch) > most:
        return None
    sides = _sides(lhs, rhs, classes, traits, dtype, may_copy=is_of_vectors and may_be_native)
    if sides is None:
        return None
    if sides[0].loops or sides[1].loops:
        sides, batch = _with_loops(sides, batch, use)
    layout = traits.layout(dtype, bool(batch))
    if layout != "strided":
        return _product_of_packed(sides, batch, layout, use, traits, slot)
    slower = 0.0 if is_small else _slower(sides, matrices, rows, cols, inner, traits, dtype)
    turns = _turns(sides, batch, use, traits)
    if turns or slower:
        others = _turns(sides[::-1], batch, use, traits)
        if slower + (turns - others) * traits.rates.view > 0:
            sides, turns = sides[::-1], others
    if turns >= _UNREADABLE and matrices * rows * cols > _SMALL:
        return None
    if may_be_native and (batch or sides[0].copied or sides[1].copied):
        result = (*batch, *sides[0].free, *sides[1].free)
        natural = _faster_native(classes, sides, batch, use.target(result) or result, traits, dtype)
        if natural is not None:
            return _native(lhs, rhs, natural, slot)
    return _product(sides, batch, slot)


def _classified(lhs: Term, rhs: Term, keep: frozenset[int], use: ResultUse) -> _Classes | None:
    """The classes of the labels, those of the batch in the order of the result; None if a size is 1 or unknown."""
    sizes, lhs_labels, rhs_labels = lhs.sizes, lhs.labels, rhs.labels
    shared: list[int] = []
    summed: list[int] = []
    lhs_own: list[int] = []
    rhs_own: list[int] = []
    matrices = inner = rows = cols = 1
    for label in lhs_labels:
        size = sizes[label]
        if size == 1 or type(size) is not int:
            return None
        if label not in rhs_labels:
            lhs_own.append(label)
            rows *= size
        elif label in keep:
            shared.append(label)
            matrices *= size
        else:
            summed.append(label)
            inner *= size
    for label in rhs_labels:
        if label not in lhs_labels:
            size = sizes[label]
            if size == 1 or type(size) is not int:
                return None
            rhs_own.append(label)
            cols *= size
    batch = tuple(filter(shared.__contains__, use.order or lhs.memory)) if shared else ()
    return _Classes(batch, tuple(summed), tuple(lhs_own), tuple(rhs_own), matrices, inner, rows, cols)


def _product_of_packed(
    sides: tuple[_Matrices, _Matrices], batch: Labels, layout: MatrixLayout, use: ResultUse, traits: Traits, slot: int
) -> tuple[list[Op], Term] | None:
    """A product on a framework that copies operands with gaps, or all that are not in C order; None if it copies."""
    if layout == "C" and not (sides[0].is_packed(batch, on_right=False) and sides[1].is_packed(batch, on_right=True)):
        sides = sides[::-1]
        if not (sides[0].is_packed(batch, on_right=False) and sides[1].is_packed(batch, on_right=True)):
            return None
    if any(side.copied or side.has_gaps for side in sides) or _turns(sides, batch, use, traits) >= _UNREADABLE:
        return None
    return _product(sides, batch, slot)


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


def _matrices(term: Term, batch: Labels, contracted: Labels) -> _Matrices:
    """How a product reads a term: in place, or as a copy, which is not described further."""
    sizes, labels, strides = term.sizes, term.labels, None if term.is_packed else term.strides
    axes = range(len(labels) - 1, -1, -1)
    free: list[int] = []
    loops: list[int] = []
    summed: list[int] = []
    free_end = summed_end = 0
    stride = span = dense = 1
    reason, has_gaps = "", False
    for axis in axes if strides is None else sorted(axes, key=strides.__getitem__):
        label = labels[axis]
        stride = span if strides is None else strides[axis]
        span = stride * sizes[label]
        has_gaps = has_gaps or stride != dense
        dense *= sizes[label]
        if label in batch:
            if not (free or summed):
                reason = _NO_UNIT
        elif label in contracted:
            if summed and stride != summed_end:
                reason = "its contracted axes do not merge"
            elif not summed and (stride < free_end if free else stride != 1):
                reason = _NO_UNIT
            summed.append(label)
            summed_end = span
        elif loops or (free and stride != free_end):
            loops.append(label)
        else:
            if not free and (stride < summed_end if summed else stride != 1):
                reason = _NO_UNIT
            free.append(label)
            free_end = span
        if reason:
            return _Matrices(term, (), (), False, reason)
    is_turned = bool(free) and summed_end > free_end
    reason = "its free axes do not merge" if loops else ""
    return _Matrices(
        term, tuple(free[::-1]), tuple(summed[::-1]), is_turned, reason, has_gaps, tuple(loops[::-1]), batch
    )


def _sides(
    lhs: Term, rhs: Term, classes: _Classes, traits: Traits, dtype: str, *, may_copy: bool
) -> tuple[_Matrices, _Matrices] | None:
    """How a product reads both terms; None if a copy takes long enough that a search may find a better way.

    With ``may_copy`` it never is None.
    """
    batch, contracted, _, _, matrices, inner, rows, cols = classes
    left, right = _matrices(lhs, batch, contracted), _matrices(rhs, batch, contracted)
    if left.loops or right.loops:
        most = traits.max_batch_axes
        room = len(lhs.labels) + len(rhs.labels) if most is None else most - len(batch)
        if len(left.loops) <= room and _do_loops_pay(left, matrices, inner, cols, traits, dtype):
            left, room = left._replace(copied=""), room - len(left.loops)
        if len(right.loops) <= room and _do_loops_pay(right, matrices, inner, rows, traits, dtype):
            right = right._replace(copied="")
    if not (left.copied or right.copied) and left.contracted != right.contracted:
        if rows <= cols:
            left = left._replace(copied=_OTHER_ORDER)
        else:
            right = right._replace(copied=_OTHER_ORDER)
    copied = matrices * inner * (rows * bool(left.copied) + cols * bool(right.copied))
    if copied > _SMALL and not may_copy:
        model = CostModel(traits, dtype)
        if model.copy(copied) > _CHEAP * model.matmul(1, matrices, rows, cols, inner):
            return None
    if left.copied:
        left = _packed(left, batch, right.contracted or contracted)
    if right.copied:
        right = _packed(right, batch, left.contracted)
    return left, right


def _with_loops(
    sides: tuple[_Matrices, _Matrices], batch: Labels, use: ResultUse
) -> tuple[tuple[_Matrices, _Matrices], Labels]:
    """The sides with the loops of both among the batch axes, and the labels of these in the order of the result."""
    left, right = sides
    batch = (*batch, *left.loops, *right.loops)
    batch = use.target(batch) or batch
    left = left._replace(own=tuple([label for label in batch if label in left.term.labels]))
    right = right._replace(own=tuple([label for label in batch if label in right.term.labels]))
    return (left, right), batch


def _do_loops_pay(side: _Matrices, matrices: int, inner: int, others: int, traits: Traits, dtype: str) -> bool:
    """Whether a product for each element of ``loops`` takes less time than a copy; if large, surely less."""
    if not side.loops or not traits.broadcasts_batch or traits.layout(dtype, True) != "strided":
        return False
    count, rows = (side.term.size(labels) for labels in (side.loops, side.free))
    elements = matrices * count * rows * inner
    is_small = elements <= _SMALL
    if not is_small and rows * inner * others < _TINY:
        return False
    model = CostModel(traits, dtype)
    copied = model.copy(elements, turned=is_small) + model.matmul(1, matrices, count * rows, others, inner)
    return model.matmul(1, matrices * count, rows, others, inner) < copied


def _packed(side: _Matrices, batch: Labels, contracted: Labels) -> _Matrices:
    """A term that is copied, with its innermost axis innermost."""
    memory = side.term.memory
    free = tuple([label for label in memory if label not in batch and label not in contracted])
    return _Matrices(side.term, free, contracted, bool(free) and memory[-1] == free[-1], side.copied, own=batch)


def _slower(
    sides: tuple[_Matrices, _Matrices], matrices: int, rows: int, cols: int, inner: int, traits: Traits, dtype: str
) -> float:
    """The seconds by which products ``[rows, inner] @ [inner, cols]`` take longer than with their sides swapped."""
    left, right = sides
    if left.loops or right.loops:
        rows, cols = left.term.size(left.free), right.term.size(right.free)
    is_lopsided = traits.long_side != "either" and (rows > LOPSIDED * cols or cols > LOPSIDED * rows)
    if not is_lopsided and (left.is_turned == right.is_turned or not depends_on_turns(rows, cols, inner)):
        return 0.0
    model = CostModel(traits, dtype)
    return model.matmul(1, matrices, rows, cols, inner, (left.is_turned, not right.is_turned)) - model.matmul(
        1, matrices, cols, rows, inner, (right.is_turned, not left.is_turned)
    )


_LOOPED, _UNREADABLE = 4, 8
"""The turns of a result that the next step reads in place if it loops over some of its axes, or cannot read in place.
"""


def _turns(sides: Sequence[_Matrices], batch: Labels, use: ResultUse, traits: Traits) -> int:
    """The transposes of a product and of its result."""
    left, right = sides
    count = ((*left.own, *left.free, *left.contracted) != left.term.labels) + (
        (*right.own, *right.contracted, *right.free) != right.term.labels
    )
    result = (*batch, *left.free, *right.free)
    order = use.order
    if order is not None:
        return count + (result != order and (len(result) == len(order) or result != use.target(result)))
    if use.is_ready(result, left.term.sizes, traits):
        return count
    summed = use.contracted
    start = result.index(summed[0])
    takes_loops = traits.broadcasts_batch and traits.max_batch_axes is None and traits.batch_layout == "strided"
    is_run = result[start : start + len(summed)] == summed and result[-1] not in use.batch
    return count + (_LOOPED if takes_loops and is_run else _UNREADABLE)


_LABEL = 0.1
"""The overhead of each label in the framework's own kernel, in calls."""


def _faster_native(
    classes: _Classes, sides: tuple[_Matrices, _Matrices], batch: Labels, result: Labels, traits: Traits, dtype: str
) -> Labels | None:
    """The order of the result of the framework's own kernel, if that takes less time than a product; otherwise None.

    A small product takes the time of its calls. ``result`` is the preferred order.

    On 240 random pairs of 200 to 4096 steps with batch axes or copies on NumPy, what this chooses takes 1.05 times as
    long as the faster of both (geometric mean).
    """
    _, _, _, _, matrices, inner, rows, cols = classes
    steps = matrices * inner * rows * cols
    rates, size = traits.rates, sides[0].term.size
    calls, views = 2.0 + bool(batch), 0  # with what surrounds a call, and with the set-up of a loop over matrices
    for side in sides:
        calls += 0.5 * bool(side.copied)
        views += side.term.labels != (*side.own, *side.free, *side.contracted)
        views += len(side.free) != 1 or len(side.contracted) != 1
    views += len(sides[0].free) != 1 or len(sides[1].free) != 1
    seconds = calls * rates.call + views * rates.view
    model = CostModel(traits, dtype)
    if steps <= _SMALL:
        seconds += size(batch) * rates.matrix
    else:
        seconds += model.matmul(0, matrices, rows, cols, inner)
        seconds += sum([model.copy(side.term.size(side.term.labels)) for side in sides if side.copied])
    seconds -= _LABEL * len({*sides[0].term.labels, *sides[1].term.labels}) * rates.call
    if model.least_einsum(steps, 2) >= seconds:
        return None
    memory = [side.term.memory for side in sides]
    natural = tuple(natural_order(memory, result))
    loops, is_packed = outer_loops(memory, natural)
    return natural if model.einsum(steps, size(loops), 2, is_packed) < seconds else None


def _product(sides: tuple[_Matrices, _Matrices], batch: Labels, slot: int) -> tuple[list[Op], Term]:
    """The ops of a matrix product, and its result.

    Args:
        sides: the left and the right operand.
        batch: the labels of the batch axes.
        slot: of the first op.
    """
    calls: list[Op] = []
    slots = []
    sizes = sides[0].term.sizes
    size_of = sizes.__getitem__
    whole = made = tuple(map(size_of, batch))
    for side, is_left in zip(sides, (True, False)):
        term, free, contracted, is_turned, reason, _, _, own = side
        source, labels, flat = term.slot, term.labels, term.flat
        order = (*own, *free, *contracted) if is_left else (*own, *contracted, *free)
        if flat is not None and (reason or labels != order):
            calls.append(Reshape(slot, source, term.shape))
            source, slot, flat = slot, slot + 1, None
        if reason:
            packed = (*own, *contracted, *free) if is_turned else (*own, *free, *contracted)
            if labels != packed:
                calls.append(Transpose(slot, source, tuple(map(labels.index, packed))))
                source, slot = slot, slot + 1
            calls.append(Copy(slot, source, reason))
            source, slot, labels = slot, slot + 1, packed
        if labels != order:
            calls.append(Transpose(slot, source, tuple(map(labels.index, order))))
            source, slot = slot, slot + 1
        rows = prod(map(size_of, free))
        if free or batch:
            made = (*made, rows)
        shape = None if flat is None else term.shape
        if len(free) != 1 or len(contracted) != 1 or len(own) != len(batch):
            inner = prod(map(size_of, contracted))
            lead = whole
            if len(own) != len(batch):
                lead = tuple([size_of(label) if label in own else 1 for label in batch])
            if free or batch:
                shape = (*lead, rows, inner) if is_left else (*lead, inner, rows)
            elif len(labels) > 1 or flat is not None:
                shape = (inner,)
        if shape is not None and shape != flat:
            calls.append(Reshape(slot, source, shape))
            source, slot = slot, slot + 1
        slots.append(source)
    lhs, rhs = slots
    calls.append(Matmul(slot, lhs, rhs))
    result = (*batch, *sides[0].free, *sides[1].free)
    return calls, Term(slot, result, None, sizes, flat=None if made == tuple(map(size_of, result)) else made)


# -- elementwise products -------------------------------------------------------------------------------------------


def _multiplied(lhs: Term, rhs: Term, use: ResultUse, slot: int) -> tuple[list[Op], Term]:
    """The ops of a product that sums nothing, and its result."""
    calls: list[Op] = []
    slots = []
    order = product_order(lhs, rhs, use)
    first = slot
    for term in (lhs, rhs):
        labels = tuple(filter(term.labels.__contains__, order))
        is_spread = labels != order[len(order) - len(labels) :]
        source, flat = term.slot, term.flat
        if flat is not None and not (is_spread and labels == term.labels):
            source, flat = _settled(term, first, calls), None
        slot = first + len(calls)
        if labels != term.labels:
            calls.append(Transpose(slot, source, tuple(map(term.labels.index, labels))))
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


def product_order(lhs: Term, rhs: Term, use: ResultUse) -> Labels:
    """The axis order of an elementwise product.

    If one operand has all labels, its memory order; otherwise the order with the longest contiguous run, and of equals
    the requested one.
    """
    shared = tuple([label for label in lhs.memory if label in rhs.labels])
    rows = tuple([label for label in lhs.memory if label not in shared])
    cols = tuple([label for label in rhs.memory if label not in shared])
    if not cols:
        return lhs.memory
    if not rows:
        return rhs.memory
    orders = [(*shared, *rows, *cols), (*shared, *cols, *rows), (*rows, *cols, *shared), (*cols, *rows, *shared)]
    target = use.target(orders[0])
    if target is not None:
        orders.insert(0, target)
    return max(orders, key=lambda order: min(lhs.size(_inner_run(lhs, rhs, order)), _LONG_RUN))


_LONG_RUN = 256
"""Runs of more elements make a product no faster."""


def _inner_run(lhs: Term, rhs: Term, order: Labels) -> Labels:
    """The labels of the contiguous run at the end of ``order``, in each operand that has its labels."""
    run: Labels = ()
    for label in reversed(order):
        longer = (label, *run)
        for term in (lhs, rhs):
            own = [other for other in longer if other in term.labels]
            if own and (len(own) < len(longer) or term.merged(longer) != 1):
                return run
        run = longer
    return run
