"""One pairwise contraction: which kernel computes it, and in which axis order if it is elementwise.

Labels that only one term has and nothing else needs are summed first. The rest is a matrix product
(:mod:`einsumx.planner.matmul`), an elementwise product if no label is contracted, or a call of the framework's own
einsum kernel if that is cheaper, for few elements or many tiny products.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import NamedTuple

from einsumx.ir import ops
from einsumx.ir.cost_model import is_sweep
from einsumx.ir.loops import Loops, natural_order, outer_loops
from einsumx.ir.ops import Threads
from einsumx.planner.builder import Builder
from einsumx.planner.matmul import (
    Choice,
    Classes,
    Pair,
    candidates,
    choose,
    matmul,
    reads_packed,
)
from einsumx.planner.orders import product_order
from einsumx.planner.selection import Alternative
from einsumx.planner.strided import direct_product, einsum_result
from einsumx.planner.terms import Labels, ResultUse, Term


def contract(builder: Builder, lhs: Term, rhs: Term, keep: frozenset[int], dtype: str, use: ResultUse) -> Term:
    """Contract two terms, summing over the labels that are not in ``keep``.

    Args:
        builder: the ops are appended to it.
        lhs, rhs: terms without repeated labels.
        keep: the labels that other terms or the output still need.
        dtype: of the computation.
        use: how the result is used.
    """
    alone = set(lhs.labels) ^ set(rhs.labels)
    if not alone <= keep:
        lhs, rhs = builder.settled(lhs), builder.settled(rhs)
        lhs = builder.sum(lhs, [label for label in lhs.labels if label in alone and label not in keep])
        rhs = builder.sum(rhs, [label for label in rhs.labels if label in alone and label not in keep])
    sizes = builder.sizes
    if 1 in sizes:
        unit = [label for label in lhs.labels if label in rhs.labels and label not in keep and sizes[label] == 1]
        if unit:
            lhs, rhs = builder.sum(builder.settled(lhs), unit), builder.sum(builder.settled(rhs), unit)
    if builder.choosing.is_by_cost:
        direct = direct_product(lhs, rhs, keep, use, builder.traits, dtype, builder.slots)
        if direct is not None:
            builder.extend(direct[0])
            return direct[1]
        lhs, rhs = builder.settled(lhs), builder.settled(rhs)
    builder.is_tidy = False
    pair = Pair(lhs, rhs, _classify(lhs, rhs, keep), dtype, use)
    classes, traits = pair.classes, builder.traits
    through = dict(traits.matmul_through).get(dtype)

    outer = builder.size(classes.lhs_free) > 1 and builder.size(classes.rhs_free) > 1
    # Where axes may be sharded, a product broadcasts its result before it moves it; a matrix product moves an operand.
    broadcasts = traits.pairs_by_einsum and lhs.labels and rhs.labels and (classes.lhs_free or classes.rhs_free)
    is_matmul = (broadcasts or (outer and traits.outer_by_matmul)) and dtype in traits.matmul_dtypes
    if not classes.contracted and not is_matmul:
        return _multiply(builder, pair)
    if (
        traits.dots_by_sum
        and classes.batch
        and not (classes.lhs_free or classes.rhs_free or dtype in dict(traits.widen))
    ):
        return _multiply_sum(builder, pair)
    if dtype in traits.matmul_dtypes:
        return _product(builder, pair)
    if through is not None:
        if traits.rates.sweep and dtype in traits.native_dtypes and is_sweep(lhs.memory, rhs.memory):
            return native(builder, pair, native_order(builder, pair)[0])
        cast = Pair(builder.cast(lhs, through), builder.cast(rhs, through), classes, through, use)
        return builder.cast(_product(builder, cast), dtype)
    if dtype in traits.native_dtypes:
        return native(builder, pair, native_order(builder, pair)[0])
    return _multiply_sum(builder, pair)


def wide_product(
    builder: Builder, lhs: Term, rhs: Term, keep: frozenset[int], dtype: str, use: ResultUse, sums: str
) -> Term:
    """Multiply matrices of a narrow dtype, with the sums in a wide one.

    Args:
        builder, lhs, rhs, keep, use: as for :func:`contract`; each summed label is in both terms.
        dtype: of the terms.
        sums: the dtype of the sums.
    """
    builder.is_tidy = False
    pair = Pair(lhs, rhs, _classify(lhs, rhs, keep), dtype, use)
    return matmul(builder, pair, choose(builder, pair), dtype=sums)


def _classify(lhs: Term, rhs: Term, keep: frozenset[int]) -> Classes:
    shared = [label for label in lhs.labels if label in rhs.labels]
    return Classes(
        batch=tuple(label for label in shared if label in keep),
        contracted=tuple(label for label in shared if label not in keep),
        lhs_free=tuple(label for label in lhs.labels if label not in rhs.labels),
        rhs_free=tuple(label for label in rhs.labels if label not in lhs.labels),
    )


def _product(builder: Builder, pair: Pair) -> Term:
    """The cheapest candidate, or the one that the builder asks for."""
    if builder.traits.pairs_by_einsum:
        kept = pair.classes.kept
        return native(builder, pair, pair.use.target(kept) or kept)
    choosing = builder.choosing
    if not choosing.is_by_cost:
        every = list(_candidates(builder, pair, all_of_them=True))
        if choosing.alternatives is not None:
            choosing.alternatives[-1] += [Alternative(each.name, each.seconds, each.kind) for each in every]
        for candidate in every:
            if candidate.name == choosing.selected:
                return candidate.make(builder, pair)
    return min(_candidates(builder, pair), key=lambda candidate: candidate.seconds).make(builder, pair)


class _Candidate(NamedTuple):
    """A way to compute a product.

    Attributes:
        seconds: its estimated time.
        make: appends its ops.
        choice: the product of matrices; None for another kernel.
        other: the name of the other kernel, or the threads that multiply the matrices.
    """

    seconds: float
    make: Callable[[Builder, Pair], Term]
    choice: Choice | None
    other: str

    @property
    def name(self) -> str:
        """Its name among all."""
        return self.other if self.choice is None else f"{self.choice.name} {self.other}".rstrip()

    @property
    def kind(self) -> Hashable:
        """What makes it different from others at first sight."""
        return self.other if self.choice is None else (*self.choice.kind, self.other)


_LONG = 2e-4
"""Seconds of a product that several threads may share."""

_ANY_THREADS: tuple[Threads, ...] = ("",)


def _candidates(builder: Builder, pair: Pair, *, all_of_them: bool = False) -> Iterator[_Candidate]:
    """The candidates; with ``all_of_them``, also those that the cost model never prefers."""
    traits, classes = builder.traits, pair.classes
    choices = candidates(builder, pair, all_of_them=all_of_them)
    for choice in choices:
        is_long = all_of_them and choice.seconds > _LONG
        for threads in traits.threads(pair.dtype) if is_long else _ANY_THREADS:
            yield _Candidate(choice.seconds, partial(matmul, choice=choice, threads=threads), choice, threads)
    if traits.rates.native and pair.dtype in traits.native_dtypes and not _has_too_many_labels(builder, pair):
        order, seconds = native_order(builder, pair)
        yield _Candidate(seconds, partial(native, result=order), None, "einsum")
        if traits.rates.sweep and traits.strided:
            yield from _along_batch(builder, pair)
    # Where a matmul copies nothing, it moves less than a product of all terms.
    copies = all_of_them or not reads_packed(traits, pair.dtype) or all(choice.moved for choice in choices)
    if copies and traits.strided and classes.batch and not (classes.lhs_free or classes.rhs_free):
        yield _Candidate(_multiply_sum_seconds(builder, pair), _multiply_sum, None, "multiply and sum")


def _multiply_sum_seconds(builder: Builder, pair: Pair) -> float:
    lhs, rhs, batch = pair.lhs, pair.rhs, pair.classes.batch
    steps, model, rates = builder.size(lhs.labels), builder.model(pair.dtype), builder.traits.rates
    seconds = model.elementwise(steps, steps, steps) + model.elementwise(steps, builder.size(batch))
    if lhs.in_memory_order(lhs.labels) != rhs.in_memory_order(lhs.labels):  # it reads one of them as a copy does
        seconds += model.copy(steps) - rates.call
    return seconds if lhs.memory[-1] in batch else seconds + builder.size(batch) * rates.run


# -- elementwise ----------------------------------------------------------------------------------------------------


def _multiply(builder: Builder, pair: Pair) -> Term:
    """A broadcasting product, which sums nothing."""
    traits = builder.traits
    if not (traits.strided or traits.pairs_by_einsum or traits.multiply_broadcasts):
        return _fused(builder, pair)
    order, reasons = product_order(pair.lhs, pair.rhs, pair.use, traits, pair.dtype)
    sides = [
        builder.pack(term, tuple(filter(term.labels.__contains__, order)), reason) if reason else term
        for term, reason in zip((pair.lhs, pair.rhs), reasons)
    ]
    out = builder.add(ops.Multiply, *[_aligned(builder, side, order) for side in sides])
    return builder.packed(out, order)


def _aligned(builder: Builder, term: Term, order: Labels) -> int:
    """The slot of ``term`` with its axes in ``order`` and axes of size 1 for missing labels."""
    reason = "its axes in the order of the product"
    term = builder.permute(term, tuple(label for label in order if label in term.labels), reason)
    if term.labels == order:
        return term.slot
    first = next((place for place, label in enumerate(order) if label in term.labels), len(order))
    shape = tuple(builder.sizes[label] if label in term.labels else 1 for label in order[first:])
    return builder.reshape(term.slot, shape) if shape != builder.shape(term.labels) else term.slot


def _multiply_sum(builder: Builder, pair: Pair) -> Term:
    """An elementwise product and its sum: in memory order if both have all axes, else with the summed axes last."""
    classes = pair.classes
    order = pair.lhs.in_memory_order(pair.lhs.labels)
    if classes.lhs_free or classes.rhs_free:
        order = (*(pair.use.target(classes.kept) or classes.kept), *classes.contracted)
    out = builder.add(ops.Multiply, _aligned(builder, pair.lhs, order), _aligned(builder, pair.rhs, order))
    return builder.sum(builder.packed(out, order), classes.contracted)


# -- the framework's own einsum -------------------------------------------------------------------------------------


def native_order(builder: Builder, pair: Pair) -> tuple[Labels, float]:
    """The order of the result for which the framework's own einsum is fastest, and its seconds.

    It may loop faster if the result follows the operands, but then the requested order takes a view.
    """
    classes, sizes, traits = pair.classes, builder.sizes, builder.traits
    model = builder.model(pair.dtype)
    target = pair.use.target(classes.kept) or classes.kept
    terms = pair.lhs, pair.rhs
    operands = [[label for label in term.memory if sizes[label] != 1] for term in terms]
    has_steps = any(memory and term.steps[memory[-1]] != 1 for term, memory in zip(terms, operands))
    steps = builder.size((*classes.kept, *classes.contracted))

    def price(loops: Loops[int]) -> float:
        rows, fills = builder.size(loops.outer), builder.size(loops.filled)
        return model.einsum(steps, rows, fills, loops.count, 2, loops.is_packed and not has_steps)

    wanted = [label for label in target if sizes[label] != 1]
    seconds = price(outer_loops(operands, wanted))
    if traits.strided:
        order, loops = natural_order(operands, wanted)
        natural = (*order, *[label for label in target if sizes[label] == 1])
        if natural != target:
            followed = price(Loops(loops, [*operands, order]))
            # Of equals, the order of the operands, in which outer loops read memory better, too.
            if followed <= seconds:
                result = einsum_result(natural, pair.use, steps)
                return result, followed + (result == natural) * traits.rates.view
    return target, seconds


def native(builder: Builder, pair: Pair, result: Labels) -> Term:
    """A product by the framework's own einsum, with its result in this order if there are not too many labels."""
    if _has_too_many_labels(builder, pair):
        return _fused(builder, pair)
    return builder.native((pair.lhs, pair.rhs), result)


def _along_batch(builder: Builder, pair: Pair) -> Iterator[_Candidate]:
    """The framework's own einsum along a batch axis that is innermost in one operand, after a copy of the other."""
    for term, other in ((pair.lhs, pair.rhs), (pair.rhs, pair.lhs)):
        for label in other.memory[-1:]:
            if label in pair.classes.batch and label != term.memory[-1]:
                memory = (*[each for each in term.memory if each != label], label)
                copied = pair._replace(lhs=builder.packed(term.slot, memory), rhs=other)
                order, seconds = native_order(builder, copied)
                seconds += builder.model(pair.dtype).copy(builder.size(memory), builder.size(memory[:-1]))
                make = partial(_native_of_copy, term=term, memory=memory, other=other, result=order)
                yield _Candidate(seconds, make, None, "einsum along the batch")


def _native_of_copy(builder: Builder, _: Pair, term: Term, memory: Labels, other: Term, result: Labels) -> Term:
    copied = builder.pack(term, memory, "an einsum along short rows takes longer than the copy")
    return builder.native((copied, other), result)


def _has_too_many_labels(builder: Builder, pair: Pair) -> bool:
    return len(pair.classes.kept) + len(pair.classes.contracted) > builder.traits.native_max_labels


def _fused(builder: Builder, pair: Pair) -> Term:
    """A product of two arrays ``[batch, free, contracted]``, for frameworks that take only few axes."""
    choice = choose(builder, pair)
    batch = tuple([label for run in choice.batch for label in run])
    sides = [(pair.lhs, choice.lhs.rows), (pair.rhs, choice.rhs.rows)]
    operands = []
    for term, rows in reversed(sides) if choice.swapped else sides:
        order = (*batch, *rows, *choice.contracted)
        slot = builder.permute(term, order, "its axes in the order of the fused product").slot
        operands.append((slot, *map(builder.size, (batch, rows, choice.contracted))))
    (first, count, height, inner), (second, _, width, _) = operands
    if choice.contracted:
        slots = builder.reshape(first, (count, height, inner)), builder.reshape(second, (count, width, inner))
        out = builder.add(ops.Native, slots, "abd,acd->abc")
    else:
        slots = builder.reshape(first, (count, height, 1)), builder.reshape(second, (count, 1, width))
        out = builder.add(ops.Multiply, *slots)
    return builder.packed(builder.reshape(out, builder.shape(choice.result)), choice.result)
