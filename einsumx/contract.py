"""One pairwise contraction: which kernel, which operand on which side, which axis orders, which copies.

Every contraction of two terms is ``[batch, rows, contracted] @ [batch, contracted, cols]`` once its labels are
classed; what is left to choose is the order within each class and how each operand is read. The choices are few
(the orders that some operand already has, or that the result wants), so all are costed and the cheapest taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product as combinations

from einsumx import dtypes
from einsumx.builder import Builder, Labels, Term
from einsumx.parse import symbol

__all__ = ["contract"]


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
class Reading:
    """How matmul gets one operand as ``[batch, rows, cols]``.

    Attributes:
        cost: seconds spent on copying.
        packed: the axis order of the copy to make first; None where the operand is read where it lies.
        transposed: it lies packed as ``[batch, cols, rows]`` and a flag must say so.
    """

    cost: float
    packed: Labels | None
    transposed: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """Everything that is chosen for one matmul.

    Attributes:
        batch, rows, contracted, cols: the order within each class; rows are the left term's free labels.
        lhs, rhs: how each term is read.
        swapped: the right term is matmul's left operand.
        result: the order in which the result is born.
        cost: seconds spent on anything but the matmul itself.
    """

    batch: Labels
    rows: Labels
    contracted: Labels
    cols: Labels
    lhs: Reading
    rhs: Reading
    swapped: bool
    result: Labels
    cost: float


def contract(builder: Builder, lhs: Term, rhs: Term, keep: frozenset[int], dtype: str, wanted: Labels | None) -> Term:
    """Contract two terms into one that has the labels of ``keep`` which they have.

    Args:
        builder: takes the ops.
        lhs, rhs: no label stands twice in either.
        keep: the labels that other terms or the output still need.
        dtype: what is computed in.
        wanted: the axis order that the result is needed in, where that is known.
    """
    lhs = builder.sum(lhs, [label for label in lhs.labels if label not in rhs.labels and label not in keep])
    rhs = builder.sum(rhs, [label for label in rhs.labels if label not in lhs.labels and label not in keep])
    unit = [label for label in lhs.labels if label in rhs.labels and label not in keep and builder.sizes[label] == 1]
    lhs, rhs = builder.sum(lhs, unit), builder.sum(rhs, unit)
    classes = _classify(lhs, rhs, keep)
    traits = builder.traits
    through = dict(traits.matmul_through).get(dtype)

    outer = builder.size(classes.lhs_free) > 1 and builder.size(classes.rhs_free) > 1
    if not classes.contracted and not (outer and traits.outer_by_matmul and dtype in traits.matmul_dtypes):
        return _multiply(builder, lhs, rhs, classes, dtype, wanted)
    if dtype in traits.matmul_dtypes:
        return _matmul(builder, lhs, rhs, classes, dtype, wanted)
    if through is not None:
        lhs, rhs = builder.cast(lhs, through), builder.cast(rhs, through)
        return builder.cast(_matmul(builder, lhs, rhs, classes, through, wanted), dtype)
    if dtype in traits.native_dtypes:
        return _native(builder, lhs, rhs, classes, dtype, wanted)
    return _multiply_sum(builder, lhs, rhs, classes, wanted)


def _classify(lhs: Term, rhs: Term, keep: frozenset[int]) -> Classes:
    shared = [label for label in lhs.labels if label in rhs.labels]
    return Classes(
        batch=tuple(label for label in shared if label in keep),
        contracted=tuple(label for label in shared if label not in keep),
        lhs_free=tuple(label for label in lhs.labels if label not in rhs.labels),
        rhs_free=tuple(label for label in rhs.labels if label not in lhs.labels),
    )


# -- elementwise ----------------------------------------------------------------------------------------------


def _multiply(builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, wanted: Labels | None) -> Term:
    """Nothing is summed: a broadcasting product."""
    if not builder.traits.strided:
        return _fused_multiply(builder, lhs, rhs, classes, dtype, wanted)
    order = _product_order(lhs, rhs, classes, wanted)
    out = builder.multiply(_aligned(builder, lhs, order), _aligned(builder, rhs, order))
    return builder.packed(out, order)


def _product_order(lhs: Term, rhs: Term, classes: Classes, wanted: Labels | None) -> Labels:
    """An operand that has all the labels gives the order in which it lies; else the order that is wanted."""
    if not classes.rhs_free:
        return lhs.in_memory_order(lhs.labels)
    if not classes.lhs_free:
        return rhs.in_memory_order(rhs.labels)
    return wanted if wanted is not None else classes.kept


def _aligned(builder: Builder, term: Term, order: Labels) -> int:
    """The slot of ``term`` with its axes in ``order``, and axes of size 1 for the labels it lacks."""
    reason = "its axes in the order of the product"
    term = builder.permute(term, tuple(label for label in order if label in term.labels), reason)
    if term.labels == order:
        return term.slot
    first = next((place for place, label in enumerate(order) if label in term.labels), len(order))
    shape = tuple(builder.sizes[label] if label in term.labels else 1 for label in order[first:])
    return builder.reshape(term.slot, shape) if shape != builder.shape(term.labels) else term.slot


def _fused_multiply(
    builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, wanted: Labels | None
) -> Term:
    """The product as ``[batch, rows, 1] * [batch, 1, cols]``, for frameworks that broadcast few axes only."""
    choice = _choose(builder, lhs, rhs, classes, dtype, wanted)
    first, second = (rhs, lhs) if choice.swapped else (lhs, rhs)
    rows, cols = (choice.cols, choice.rows) if choice.swapped else (choice.rows, choice.cols)
    batch = builder.size(choice.batch)
    reason = "its axes in the order of the product"
    first = builder.permute(first, (*choice.batch, *rows), reason)
    second = builder.permute(second, (*choice.batch, *cols), reason)
    out = builder.multiply(
        builder.reshape(first.slot, (batch, builder.size(rows), 1)),
        builder.reshape(second.slot, (batch, 1, builder.size(cols))),
    )
    return builder.packed(builder.reshape(out, builder.shape(choice.result)), choice.result)


def _multiply_sum(builder: Builder, lhs: Term, rhs: Term, classes: Classes, wanted: Labels | None) -> Term:
    """A product in full and then its sum: for dtypes that no kernel of the framework contracts."""
    kept = tuple(label for label in wanted if label in classes.kept) if wanted is not None else classes.kept
    order = (*kept, *classes.contracted)
    out = builder.multiply(_aligned(builder, lhs, order), _aligned(builder, rhs, order))
    return builder.sum(builder.packed(out, order), classes.contracted)


# -- matmul ---------------------------------------------------------------------------------------------------


def _matmul(builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, wanted: Labels | None) -> Term:
    choice = _choose(builder, lhs, rhs, classes, dtype, wanted)
    first = _operand(builder, lhs, choice.lhs, choice.batch, choice.rows, choice.contracted)
    second = _operand(builder, rhs, choice.rhs, choice.batch, choice.cols, choice.contracted)
    if choice.swapped:
        first, second = second, first
    traits = builder.traits
    flags = (choice.rhs, choice.lhs) if choice.swapped else (choice.lhs, choice.rhs)
    # Both operands come as [batch, free, contracted]; the right one is wanted as [batch, contracted, free].
    if traits.transpose_flags:
        out = builder.matmul(first, second, flags[0].transposed, not flags[1].transposed)
    else:
        rank = len(_batch_shape(builder, choice.batch))
        swap_last = (*range(rank), rank + 1, rank)
        out = builder.matmul(first, builder.transpose(second, swap_last))
    return builder.packed(builder.reshape(out, builder.shape(choice.result)), choice.result)


def _operand(builder: Builder, term: Term, reading: Reading, batch: Labels, free: Labels, contracted: Labels) -> int:
    """The slot of an operand as ``[batch, free, contracted]``; with the last two swapped where a flag says so."""
    if reading.packed is not None:
        reason = _reason(builder, term, batch, free, contracted)
        term = builder.pack(term, reading.packed, reason)
    first, last = (contracted, free) if reading.transposed else (free, contracted)
    if builder.traits.strided:
        term = builder.permute(term, (*batch, *first, *last))
    return builder.reshape(term.slot, (*_batch_shape(builder, batch), builder.size(first), builder.size(last)))


def _batch_shape(builder: Builder, batch: Labels) -> tuple[int, ...]:
    traits = builder.traits
    if traits.max_batch_axes is None or (len(batch) <= traits.max_batch_axes and len(batch) >= traits.min_batch_axes):
        return builder.shape(batch)
    return (builder.size(batch),) if batch or traits.min_batch_axes else ()


def _reason(builder: Builder, term: Term, batch: Labels, free: Labels, contracted: Labels) -> str:
    """Why an operand cannot be read where it lies."""
    if builder.traits.strided:
        for name, labels in (("free", free), ("contracted", contracted)):
            if builder.merged(term, labels) is None:
                return f"its {name} axes do not merge"
        if builder.traits.max_batch_axes == 1 and builder.merged(term, batch) is None:
            return "its batch axes do not merge"
        return "no axis of its matrices has unit stride"
    return "its axes in the order of the matmul"


def _choose(builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, wanted: Labels | None) -> Choice:
    """The cheapest of all choices; the first of equals, so that plans never depend on chance."""
    return min(_choices(builder, lhs, rhs, classes, dtype, wanted), key=lambda choice: choice.cost)


def _choices(
    builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, wanted: Labels | None
) -> Iterator[Choice]:
    size = dtypes.itemsize(dtype)
    result_bytes = builder.size(classes.kept) * size
    target = tuple(label for label in wanted if label in classes.kept) if wanted is not None else None

    def orders(labels: Labels, *terms: Term) -> list[Labels]:
        found = [term.in_memory_order(labels) for term in terms]
        if target is not None:
            found.insert(0, tuple(label for label in target if label in labels))
        return list(dict.fromkeys(found))

    contracted_orders = list(dict.fromkeys(term.in_memory_order(classes.contracted) for term in (lhs, rhs)))
    for batch, contracted in combinations(orders(classes.batch, lhs, rhs), contracted_orders):
        lhs_readings = [
            (rows, _read(builder, lhs, batch, rows, contracted, size)) for rows in orders(classes.lhs_free, lhs)
        ]
        rhs_readings = [
            (cols, _read(builder, rhs, batch, cols, contracted, size)) for cols in orders(classes.rhs_free, rhs)
        ]
        for (rows, left), (cols, right) in combinations(lhs_readings, rhs_readings):
            for swapped in (False, True):
                result = (*batch, *cols, *rows) if swapped else (*batch, *rows, *cols)
                turn = 0.0 if target in (None, result) else _result_cost(builder, result, target, result_bytes)
                cost = left.cost + right.cost + turn
                yield Choice(batch, rows, contracted, cols, left, right, swapped, result, cost)


def _result_cost(builder: Builder, result: Labels, target: Labels, nbytes: int) -> float:
    """Seconds to bring a packed result into another axis order: nothing but a view's call where there are strides."""
    if builder.traits.strided:
        return builder.traits.rates.call
    return _copy_cost(builder, result, target, nbytes)


def _read(builder: Builder, term: Term, batch: Labels, free: Labels, contracted: Labels, itemsize: int) -> Reading:
    """The cheapest way to get a term as ``[batch, free, contracted]``, in exactly these orders."""
    straight, turned = (*batch, *free, *contracted), (*batch, *contracted, *free)
    if builder.traits.strided:
        if _is_readable(builder, term, batch, free, contracted):
            return Reading(0.0, None, False)
    else:
        if builder.is_packed(term, straight):
            return Reading(0.0, None, False)
        if builder.traits.transpose_flags and builder.is_packed(term, turned):
            return Reading(0.0, None, True)
    source = term.in_memory_order(term.labels)
    nbytes = builder.size(term.labels) * itemsize
    straight_cost = _copy_cost(builder, source, straight, nbytes)
    turned_cost = _copy_cost(builder, source, turned, nbytes)
    if turned_cost < straight_cost and (builder.traits.strided or builder.traits.transpose_flags):
        return Reading(turned_cost, turned, not builder.traits.strided)
    return Reading(straight_cost, straight, False)


def _is_readable(builder: Builder, term: Term, batch: Labels, free: Labels, contracted: Labels) -> bool:
    """Whether BLAS reads the matrices of a strided operand where they lie."""
    if builder.traits.max_batch_axes == 1 and builder.merged(term, batch) is None:
        return False
    rows, cols = builder.size(free), builder.size(contracted)
    row_stride, col_stride = builder.merged(term, free), builder.merged(term, contracted)
    if row_stride is None or col_stride is None:
        return False
    if rows == 1 or cols == 1:
        return row_stride > 0 and col_stride > 0
    return (col_stride == 1 and row_stride >= cols) or (row_stride == 1 and col_stride >= rows)


def _copy_cost(builder: Builder, source: Labels, target: Labels, nbytes: int) -> float:
    """Seconds to copy an array that lies in the order ``source`` into the order ``target``."""
    traits = builder.traits

    def innermost(labels: Iterable[int]) -> int | None:
        return next((label for label in reversed(tuple(labels)) if builder.sizes[label] != 1), None)

    rate = traits.rates.copy if innermost(source) == innermost(target) else traits.rates.permute
    return traits.rates.call + 2 * nbytes / rate


# -- the framework's own einsum ---------------------------------------------------------------------------------


def _native(builder: Builder, lhs: Term, rhs: Term, classes: Classes, dtype: str, wanted: Labels | None) -> Term:
    """A product that matmul does not take, by the framework's own einsum; fused where it has too many labels."""
    labels = (*classes.kept, *classes.contracted)
    if len(labels) > builder.traits.native_max_labels:
        choice = _choose(builder, lhs, rhs, classes, dtype, wanted)
        reason = "its axes in the order of the fused product"
        first = builder.permute(lhs, (*choice.batch, *choice.rows, *choice.contracted), reason)
        second = builder.permute(rhs, (*choice.batch, *choice.cols, *choice.contracted), reason)
        batch, inner = builder.size(choice.batch), builder.size(choice.contracted)
        operands = (
            builder.reshape(first.slot, (batch, builder.size(choice.rows), inner)),
            builder.reshape(second.slot, (batch, builder.size(choice.cols), inner)),
        )
        result = (*choice.batch, *choice.rows, *choice.cols)
        out = builder.native(operands, "abd,acd->abc")
        return builder.packed(builder.reshape(out, builder.shape(result)), result)
    result = tuple(label for label in wanted if label in classes.kept) if wanted is not None else classes.kept
    out = builder.native((lhs.slot, rhs.slot), native_equation((lhs.labels, rhs.labels), result))
    return builder.packed(out, result)


def native_equation(inputs: Iterable[Labels], output: Labels) -> str:
    """An equation in letters from a, in order of appearance.

    >>> native_equation([(7, 3), (3, 5)], (5, 7))
    'ab,bc->ca'
    """
    letters: dict[int, str] = {}

    def written(labels: Labels) -> str:
        return "".join(letters.setdefault(label, symbol(len(letters))) for label in labels)

    return f"{','.join([written(labels) for labels in inputs])}->{written(output)}"
