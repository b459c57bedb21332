"""The matrix product of two terms: which labels are batch axes, rows, columns and summed, and what is copied for it.

Each operand is either read where it lies or copied into order first. Read where they lie, free axes that do not merge
into one become batch axes that the other operand lacks, and summed axes that do not merge become batch axes that are
summed afterwards. All the ways are costed, and the cheapest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

from einsumx.adapters.rates import Rates
from einsumx.adapters.traits import Traits
from einsumx.dtypes import arithmetic, itemsize, kind
from einsumx.planner.builder import Builder, Labels, Term, cut

__all__ = ["Choice", "Classes", "ResultUse", "choose", "matmul"]


@dataclass(frozen=True, slots=True)
class Classes:
    """The labels of a pairwise contraction, by what becomes of them."""

    batch: Labels
    contracted: Labels
    lhs_free: Labels
    rhs_free: Labels

    @property
    def kept(self) -> Labels:
        return (*self.batch, *self.lhs_free, *self.rhs_free)


@dataclass(frozen=True, slots=True)
class ResultUse:
    """What a result is needed for, which decides between axis orders.

    Attributes:
        order: the axis order that the caller asked for; None for the result of an inner step.
        contracted: the labels that the next step sums, in the order in which its other term has them.
        batch: the labels that the next step has in both terms and keeps.
    """

    order: Labels | None = None
    contracted: Labels = ()
    batch: Labels = ()

    def target(self, labels: Labels) -> Labels | None:
        """``labels`` in the order asked for."""
        return None if self.order is None else tuple(label for label in self.order if label in labels)


@dataclass(frozen=True, slots=True)
class OperandAccess:
    """How a product gets one operand.

    Attributes:
        cost: seconds spent on a copy.
        rows: the free labels along its matrices.
        loops: the free labels that become batch axes.
        copied: whether it is copied first.
        transposed: its matrices, copied or not, lie as ``[contracted, rows]``.
    """

    cost: float
    rows: Labels
    loops: Labels = ()
    copied: bool = False
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Everything that is chosen for one product.

    Attributes:
        batch: the batch axes that come first, in order, each a run of labels.
        inner: the labels of the batch axis between rows and columns, where there is one.
        contracted: the labels summed by the product itself, in order.
        summed: batch labels that are summed afterwards.
        lhs, rhs: how each operand is read.
        swapped: the right term is the product's left operand.
        by_vector: an operand without rows goes into the product as a vector, with no axis of size 1 for them.
        result: the order in which the product is born.
        cost: seconds.
    """

    batch: tuple[Labels, ...]
    inner: Labels
    contracted: Labels
    summed: Labels
    lhs: OperandAccess
    rhs: OperandAccess
    swapped: bool
    by_vector: bool
    result: Labels
    cost: float


def matmul(builder: Builder, lhs: Term, rhs: Term, choice: Choice) -> Term:
    """Write the product that was chosen."""
    sides = ((lhs, choice.lhs), (rhs, choice.rhs))
    (first, left), (second, right) = reversed(sides) if choice.swapped else sides
    lhs_slot = _operand(builder, first, left, choice, turned=False)
    rhs_slot = _operand(builder, second, right, choice, turned=True)
    # Without strides, each comes as it lies packed, and a flag says so where that is not how the product wants it.
    flags = (False, False) if builder.traits.strided else (left.transposed, not right.transposed)
    out = builder.matmul(lhs_slot, rhs_slot, *flags, bool(choice.inner))
    found = builder.packed(builder.reshape(out, builder.shape(choice.result)), choice.result)
    return builder.sum(found, choice.summed)


def _operand(builder: Builder, term: Term, access: OperandAccess, choice: Choice, turned: bool) -> int:
    """The slot of an operand as ``[batch, free, contracted]``, or ``[batch, contracted, free]`` where ``turned``."""
    runs = [tuple(label for label in run if label in term.labels) for run in choice.batch]
    batch = tuple(label for run in runs for label in run)
    straight = (access.rows, choice.contracted)
    lying = straight[::-1] if access.transposed else straight
    if access.copied:
        reason = _reason(builder, term, access.rows, choice.contracted)
        term = builder.pack(term, (*batch, *lying[0], *choice.inner, *lying[1]), reason)
    first, last = lying
    if builder.traits.strided:
        first, last = straight[::-1] if turned else straight
        term = builder.permute(term, (*batch, *first, *last))
    if choice.by_vector and not access.rows:
        return builder.reshape(term.slot, (builder.size(choice.contracted),))
    ones = (1,) * (builder.traits.min_batch_axes - len(runs))
    between = (choice.inner,) if choice.inner else ()
    shape = (*ones, *(builder.size(axis) for axis in (*runs, first, *between, last)))
    return builder.reshape(term.slot, shape)


def _reason(builder: Builder, term: Term, free: Labels, contracted: Labels) -> str:
    """Why an operand is not read where it lies."""
    if not builder.traits.strided:
        return "its axes in the order of the matmul"
    if builder.merged(term, contracted) is None:
        return "its contracted axes do not merge"
    runs = builder.runs(term, free)
    if not any(_is_matrix(builder, term, run, contracted) for run in runs or [()]):
        return "no axis of its matrices has unit stride"
    if len(runs) > 1:
        return "its free axes do not merge, and a product for each takes longer than the copy"
    return "its batch axes do not lie in the order of the matmul"


# -- choosing -------------------------------------------------------------------------------------------------------


def choose(builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, use: ResultUse) -> Choice:
    """The cheapest of all ways; the first of equals, so that plans never depend on chance."""
    return min(_choices(builder, lhs, rhs, classes, dtype, use), key=lambda choice: choice.cost)


def _choices(builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, use: ResultUse) -> Iterator[Choice]:
    """Every way, with its cost: that of its copies, calls, views and arithmetic, and of what its result lacks."""
    traits, size = builder.traits, builder.size
    nbytes = itemsize(dtype)
    vectors = traits.strided and not traits.min_batch_axes and kind(dtype) in "fc"
    result_bytes = size(classes.kept) * nbytes
    is_matmul = bool(classes.contracted) and dtype in traits.matmul_dtypes
    may_part = traits.inner_batch and is_matmul
    for contracted, summed in _contracted(builder, lhs, rhs, classes):
        for shared, inner in _shared(builder, lhs, rhs, (*summed, *classes.batch), use, may_part):
            lefts = _accesses(builder, lhs, shared, inner, classes.lhs_free, contracted, nbytes, use)
            rights = _accesses(builder, rhs, shared, inner, classes.rhs_free, contracted, nbytes, use)
            for left, right, batch in _arranged(builder, lhs, rhs, lefts, rights, shared, summed, use):
                first = prod(map(size, batch))
                matrices = first * size(inner)
                sizes = (size(left.rows), size(right.rows), size(contracted))
                labels = tuple(label for run in batch for label in run)
                by_vector = vectors and not labels
                seconds = _product_seconds(traits.rates, dtype, nbytes, matrices, *sizes)
                seconds *= _APART if inner else 1.0
                calls = first // max((1, *map(size, batch))) if traits.max_batch_axes == 1 else 1
                views = sum(
                    _views(builder, term, batch, access, contracted, by_vector)
                    for term, access in ((lhs, left), (rhs, right))
                )
                cost = left.cost + right.cost + calls * traits.rates.call + views * traits.rates.view + seconds
                if summed:
                    cost += traits.rates.call + matrices * sizes[0] * sizes[1] * nbytes / traits.rates.stream
                for swapped in (False, True):
                    # With neither views nor flags, the product's first operand lies straight and its second turned.
                    as_they_lie = not traits.strided and not traits.transpose_flags
                    if as_they_lie and (left.transposed, right.transposed) != (swapped, not swapped):
                        continue
                    rows, cols = (right.rows, left.rows) if swapped else (left.rows, right.rows)
                    result = (*labels, *rows, *inner, *cols)
                    kept = tuple(label for label in result if label not in summed)
                    total = cost + _turn_seconds(builder, kept, use, result_bytes)
                    total += _slowdown(traits, left, right, swapped, *sizes) * seconds
                    yield Choice(batch, inner, contracted, summed, left, right, swapped, by_vector, result, total)


def _views(
    builder: Builder, term: Term, batch: tuple[Labels, ...], access: OperandAccess, contracted: Labels, by_vector: bool
) -> int:
    """How many views bring an operand into the form of the product, about."""
    own = [tuple(label for label in run if label in term.labels) for run in batch]
    order = (*(label for run in own for label in run), *access.rows, *contracted)
    single = all(len(run) == 1 for run in (*own, contracted)) and (len(access.rows) == 1 or by_vector)
    return (builder.traits.strided and order != term.labels) + (not single)


def _product_seconds(rates: Rates, dtype: str, nbytes: int, matrices: int, rows: int, cols: int, inner: int) -> float:
    """Seconds of a batch of matrix products; few rows or columns leave a part of the arithmetic units idle."""
    work = max(rows, 8) * max(cols, 8) * inner * arithmetic(dtype) / rates.gemm
    traffic = (rows * inner + inner * cols + 2 * rows * cols) * nbytes / rates.stream
    return matrices * (rates.matrix + work + traffic)


_APART = 1.3
"""The time of a product with a batch axis between its rows and columns, in times of one with packed matrices."""

_BOTH_TURNED = 0.1
_TALL = 0.25


def _slowdown(
    traits: Traits, left: OperandAccess, right: OperandAccess, swapped: bool, rows: int, cols: int, inner: int
) -> float:
    """The part of its time that a sum along a long axis takes longer for the way its matrices lie or stand."""
    if not traits.strided or inner <= 8 * max(rows, cols):
        return 0.0
    height, width = (cols, rows) if swapped else (rows, cols)
    both_turned = (left.transposed, right.transposed) == (not swapped, swapped)
    return _BOTH_TURNED * both_turned + _TALL * (traits.short_rows and height > 2 * width)


def _contracted(builder: Builder, lhs: Term, rhs: Term, classes: Classes) -> Iterator[tuple[Labels, Labels]]:
    """Orders of the contracted labels, and which of them are batch axes that are summed afterwards."""
    labels = classes.contracted
    orders = list(dict.fromkeys((lhs.in_memory_order(labels), rhs.in_memory_order(labels))))
    for order in orders:
        yield order, ()
    if len(labels) < 2 or not (builder.traits.strided and builder.traits.batch_strides):
        return
    for order in orders:
        runs = [run for run in _common_runs(builder, order, (lhs, rhs)) if builder.size(run) > 1]
        for inner in runs if len(runs) > 1 else ():
            yield inner, tuple(label for label in order if label not in inner)


def _common_runs(builder: Builder, order: Labels, terms: tuple[Term, ...]) -> list[Labels]:
    """``order`` cut into runs that merge in every term."""
    return cut(order, lambda run, label: all(builder.merged(term, (*run, label)) is not None for term in terms))


def _accesses(
    builder: Builder,
    term: Term,
    shared: Labels,
    inner: Labels,
    free: Labels,
    contracted: Labels,
    nbytes: int,
    use: ResultUse,
) -> list[OperandAccess]:
    """The ways to get a term: where it lies, if the product can read it so, and copied."""
    traits = builder.traits
    found: list[OperandAccess] = []
    orders = [term.in_memory_order(free)]
    if traits.strided:
        in_place = _in_place(builder, term, shared, free, contracted)
        if in_place is not None:
            found.append(in_place)
            if not in_place.loops:
                return found
    wanted = _grouped(free, use) if use.order is None else use.target(free)
    if wanted is not None and wanted != orders[0]:
        orders.append(wanted)
    if not traits.strided:
        for rows in orders:
            if builder.is_packed(term, (*shared, *rows, *inner, *contracted)):
                found.append(OperandAccess(0.0, rows))
            if builder.is_packed(term, (*shared, *contracted, *inner, *rows)):
                found.append(OperandAccess(0.0, rows, transposed=True))
        if traits.transpose_flags:  # another order costs a copy, which may spare a larger one of the result
            orders = [rows for rows in orders if all(rows != access.rows for access in found)]
    source = term.in_memory_order(term.labels)
    amount = builder.size(term.labels) * nbytes
    for rows in orders:
        straight, turned = (*shared, *rows, *inner, *contracted), (*shared, *contracted, *inner, *rows)
        cost = _copy_seconds(builder, source, straight, amount)
        turned_cost = _copy_seconds(builder, source, turned, amount)
        copies = [
            OperandAccess(cost, rows, copied=True),
            OperandAccess(turned_cost, rows, copied=True, transposed=True),
        ]
        if traits.strided or traits.transpose_flags:
            copies = [min(copies, key=lambda access: access.cost)]
        found.extend(copies)
    return found


def _in_place(builder: Builder, term: Term, shared: Labels, free: Labels, contracted: Labels) -> OperandAccess | None:
    """A strided operand read where it lies: the largest run of free axes along its matrices, the others looped over."""
    if builder.merged(term, contracted) is None:
        return None
    if not builder.traits.batch_strides and not (
        builder.is_packed(term, (*term.in_memory_order(shared), *term.in_memory_order(free), *contracted)) or not shared
    ):
        return None
    runs = builder.runs(term, free)
    readable = [run for run in (runs or [()]) if _is_matrix(builder, term, run, contracted)]
    if not readable:
        return None
    rows = max(readable, key=builder.size)
    loops = tuple(label for run in runs if run is not rows for label in run)
    if loops and not builder.traits.batch_strides:
        return None
    return OperandAccess(0.0, rows, loops, transposed=builder.merged(term, contracted) != 1)


def _is_matrix(builder: Builder, term: Term, rows: Labels, cols: Labels) -> bool:
    """Whether BLAS reads the matrices of a strided operand where they lie."""
    row_stride, col_stride = builder.merged(term, rows), builder.merged(term, cols)
    if row_stride is None or col_stride is None:
        return False
    height, width = builder.size(rows), builder.size(cols)
    if height == 1 or width == 1:
        return (row_stride if width == 1 else col_stride) == 1 or height == width
    return (col_stride == 1 and row_stride >= width) or (row_stride == 1 and col_stride >= height)


# -- batch axes -----------------------------------------------------------------------------------------------------


def _shared(
    builder: Builder, lhs: Term, rhs: Term, labels: Labels, use: ResultUse, may_part: bool
) -> list[tuple[Labels, Labels]]:
    """Orders of the labels that both terms keep: those that come first, and those between rows and columns.

    Without strides, these are the orders in which they may lie packed.
    """
    orders = [lhs.in_memory_order(labels)]
    if not builder.traits.strided:
        orders.append(rhs.in_memory_order(labels))
        target = use.target(labels)
        if target is not None:
            orders.insert(0, target)
    # Some stay first: else each matrix lies strewn over a whole array, and its product waits for memory.
    ends = range(len(labels), 0, -1) if may_part and labels else [len(labels)]
    return [(order[:end], order[end:]) for end in ends for order in dict.fromkeys(orders)]


def _arranged(
    builder: Builder,
    lhs: Term,
    rhs: Term,
    lefts: list[OperandAccess],
    rights: list[OperandAccess],
    shared: Labels,
    summed: Labels,
    use: ResultUse,
) -> Iterator[tuple[OperandAccess, OperandAccess, tuple[Labels, ...]]]:
    """Each pair of readings, with the batch axes in each order that may matter: runs that are one axis in both."""
    for left, right in combinations(lefts, rights):
        if summed and (left.copied or right.copied):
            continue
        sides = ((lhs, left.copied), (rhs, right.copied))
        if not builder.traits.strided:
            # A compiler may have cut arrays along some axes over devices: as they are, it need not gather them.
            as_they_are = builder.traits.max_batch_axes is None
            yield left, right, tuple((label,) for label in shared) if as_they_are else (shared,) if shared else ()
            continue
        kept = (*(label for label in shared if label not in summed), *left.loops, *right.loops)
        orders = [_ordered(kept, lhs), _ordered(kept, rhs)]
        target = use.target(kept)
        if target is not None:
            orders.insert(0, target)
        # What is summed afterwards comes first, so that the sum adds whole blocks.
        found = dict.fromkeys(_batch_runs(builder, (*_ordered(summed, lhs), *order), sides) for order in orders)
        for batch in found:
            yield left, right, batch


def _ordered(labels: Labels, term: Term) -> Labels:
    """``labels`` in the term's memory order, those that it lacks first."""
    own = tuple(label for label in labels if label in term.labels)
    return (*(label for label in labels if label not in own), *term.in_memory_order(own))


_MANY = 8
"""Batch axes from which fusing them pays, and keeps clear of the most axes that an array may have."""


def _batch_runs(builder: Builder, order: Labels, sides: tuple[tuple[Term, bool], ...]) -> tuple[Labels, ...]:
    """Batch labels as axes; fused where few of them go into one product, as each fusion is a view more."""
    if builder.traits.max_batch_axes is None and len(order) < _MANY:
        return tuple((label,) for label in order)
    return tuple(
        cut(order, lambda run, label: all(_continues(builder, term, copied, run, label) for term, copied in sides))
    )


def _continues(builder: Builder, term: Term, copied: bool, run: Labels, label: int) -> bool:
    """Whether a label after a run of batch labels is still the same axis of one operand."""
    own = [other for other in run if other in term.labels]
    if not own or label not in term.labels:
        return not own and label not in term.labels
    return len(own) == len(run) and (copied or builder.merged(term, (*run, label)) is not None)


# -- what moving data costs -----------------------------------------------------------------------------------------


def _turn_seconds(builder: Builder, result: Labels, use: ResultUse, nbytes: int) -> float:
    """Seconds to bring a result from the order in which it is born into the one it is needed in."""
    rates = builder.traits.rates
    target = use.target(result)
    if target is not None:
        if target == result:
            return 0.0
        # A view's call, where there are strides; the copy where there are none.
        return rates.view if builder.traits.strided else _copy_seconds(builder, result, target, nbytes)
    if not (use.contracted or use.batch):
        return 0.0
    return 0.0 if _is_ready(builder, result, use) else rates.call + 2 * nbytes / rates.permute


def _is_ready(builder: Builder, result: Labels, use: ResultUse) -> bool:
    """Whether the next step reads a packed result where it lies."""
    result = tuple(label for label in result if builder.sizes[label] != 1)
    contracted = tuple(label for label in result if label in use.contracted)
    if not contracted:
        return True
    if contracted != tuple(label for label in use.contracted if label in contracted):
        return False
    start = result.index(contracted[0])
    if result[start : start + len(contracted)] != contracted:
        return False
    free = [place for place, label in enumerate(result) if label not in contracted and label not in use.batch]
    is_run = not free or free[-1] - free[0] == len(free) - 1
    if builder.traits.strided:
        return is_run and result[-1] not in use.batch
    return is_run and all(label in use.batch for label in result[: len(result) - len(contracted) - len(free)])


def _grouped(labels: Labels, use: ResultUse) -> Labels:
    """``labels`` with those that the next step keeps in both terms first, then its free ones, then what it sums."""
    free = tuple(label for label in labels if label not in use.contracted and label not in use.batch)
    batch = tuple(label for label in use.batch if label in labels)
    return (*batch, *free, *(label for label in use.contracted if label in labels))


def _copy_seconds(builder: Builder, source: Labels, target: Labels, nbytes: int) -> float:
    """Seconds to copy an array that lies in the order ``source`` into the order ``target``."""
    rates, sizes = builder.traits.rates, builder.sizes
    run = 1
    before = [label for label in source if sizes[label] != 1]
    after = [label for label in target if sizes[label] != 1]
    while before and before[-1] == after[-1]:
        run *= sizes[before.pop()]
        after.pop()
    permuted = 2 * nbytes / rates.permute
    if run == 1 and after:
        return rates.call + permuted
    runs = builder.size(before)
    return rates.call + min(permuted, 2 * nbytes / rates.copy + runs * rates.run)
