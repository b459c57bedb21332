"""``lower``: from a sized equation, a path, the operands' layouts and a framework's traits to a program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import filterfalse
from math import prod
from typing import TYPE_CHECKING

from einsumx.dtypes import kind
from einsumx.imports import LazyModule
from einsumx.ir import ops
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction
from einsumx.ir.cost_model import CostModel
from einsumx.ir.layout import contiguous, memory_order
from einsumx.ir.loops import outer_loops
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Op
from einsumx.ir.program import Program
from einsumx.ir.sizes import assumed
from einsumx.ir.traits import HALVES, Traits, WideOp
from einsumx.ir.values import described
from einsumx.planner.clear import direct_ops, may_be_one_einsum, one_einsum
from einsumx.planner.path import step_outputs
from einsumx.planner.terms import Labels, ResultUse, Term, plain_terms

if TYPE_CHECKING:
    from einsumx.ir import simplify
    from einsumx.planner import builder as building
    from einsumx.planner import narrow, pairwise, selection
    from einsumx.planner.builder import Builder
    from einsumx.planner.selection import Alternative, Choosing
else:  # the direct road needs none of these
    simplify, building = LazyModule("einsumx.ir.simplify"), LazyModule("einsumx.planner.builder")
    narrow, pairwise = LazyModule("einsumx.planner.narrow"), LazyModule("einsumx.planner.pairwise")
    selection = LazyModule("einsumx.planner.selection")

_CLEARLY = 0.7
"""The most time of other conjugates, relative to that of those of the operands, with which they are made instead."""


def lower(contraction: Contraction, names: Sequence[str] = ()) -> Program:
    """Write a contraction as array calls.

    Args:
        contraction: what to compute.
        names: of the candidates for the steps, see :class:`~einsumx.planner.selection.Selection`.
    """
    equation, operands = contraction.equation, contraction.operands
    calls: tuple[Op, ...]
    if 0 in equation.sizes:  # kernels of frameworks are unreliable for arrays without elements
        result = len(operands)
        calls = (ops.Zeros(result, tuple(range(len(operands))), equation.shape, contraction.dtype),)
    else:
        is_usual = not (names or contraction.conjugated) and (
            contraction.accumulate is None or equation.is_rearrangement
        )
        lowered = direct_ops(contraction) if is_usual else None
        if lowered is None:
            lowered = _lowered(contraction, selection.Choosing(names) if names else selection.BY_COST)
        calls, result = lowered
    return Program(contraction, calls, result, tuple(names))


def alternatives(contraction: Contraction) -> list[list[Alternative]]:
    """The candidates for each step of the path; none for a step without a product of matrices."""
    equation = contraction.equation
    if 0 in equation.sizes:
        return []
    choosing = selection.Choosing(listed=True)
    _lowered(contraction, choosing)
    steps = (choosing.alternatives or [])[-len(contraction.path) :]
    if len(steps) == 1 and _may_be_one_einsum(contraction):
        model = CostModel(contraction.place.traits, contraction.dtype)
        seconds = model.least_einsum(prod(equation.sizes), len(contraction.operands))
        steps[0].append(selection.Alternative(selection.ONE_EINSUM, seconds, selection.ONE_EINSUM))
    return steps


def _lowered(contraction: Contraction, choosing: Choosing) -> tuple[tuple[Op, ...], int]:
    """The ops, and the slot of the result."""
    operands = contraction.operands
    count = len(operands)
    if choosing.asks_for_one_einsum and _may_be_one_einsum(contraction):
        return (one_einsum(contraction),), count
    builder, slot = _compute(contraction, choosing)
    if builder.is_tidy:
        return tuple(builder.ops), slot
    calls, result = simplify.simplify(builder.ops, [operand.shape for operand in operands], slot)
    if choosing.is_by_cost and _may_be_one_einsum(contraction) and _one_einsum_is_cheaper(contraction, calls):
        return (one_einsum(contraction),), count
    return calls, result


def _may_be_one_einsum(contraction: Contraction) -> bool:
    return contraction.sums is None and not contraction.conjugated and may_be_one_einsum(contraction)


def _compute(contraction: Contraction, choosing: Choosing) -> tuple[Builder, int]:
    """The ops in the accumulator; without one, in the result's dtype, or in another one.

    That is a wider one if rounding each intermediate would lose too much, and a float for integers if it is exact.
    """
    equation, operands, dtype, traits = (
        contraction.equation, contraction.operands, contraction.dtype, contraction.place.traits
    )  # fmt: skip
    builder = building.Builder(equation.sizes, traits, len(operands), choosing)
    if contraction.sums is not None:
        return builder, _lower_in(builder, contraction, contraction.sums)
    sums = narrow.wide_sums(builder, contraction)
    if sums:
        return builder, _lower_in(builder, contraction, operands[0].dtype, sums=sums)
    floats = narrow.exact_products(builder, contraction)
    if floats is not None:
        return builder, _lower_in(builder, contraction, floats.compute, floats.between)
    wider = dict(traits.widen).get(dtype)
    slot = _lower_in(builder, contraction, dtype)
    if wider is not None and not _rounds_once(builder.ops, operands, traits, dtype):
        builder = building.Builder(equation.sizes, traits, len(operands), choosing)
        slot = _lower_in(builder, contraction, wider)
    return builder, slot


def _rounds_once(calls: Sequence[Op], operands: Sequence[Operand], traits: Traits, dtype: str) -> bool:
    """Whether at most one op computes, and accumulates in the wider dtype by itself."""
    arithmetic = [op for op in calls if op.effect == "work"]
    if len(arithmetic) > 1:
        return False
    wide = traits.wide_ops if dtype in HALVES else ()
    for op in arithmetic:
        match op:
            case ops.Matmul():
                values = described(calls, operands)
                return _product_of(values[op.lhs].shape, values[op.rhs].shape) in wide
            case ops.Native() if traits.pairs_by_einsum:
                return "matmul" in wide
            case ops.Sum():
                return "sum" in wide
            case ops.Native() | ops.Scale():  # a count can be more than a narrow type holds
                return False
            case _:
                return True
    return True


def _product_of(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> WideOp:
    if max(len(lhs), len(rhs)) > 2:
        return "batch"
    return "dot" if prod(lhs[:-1]) == prod(rhs[1:]) == 1 else "matmul"


def _one_einsum_is_cheaper(contraction: Contraction, calls: Sequence[Op]) -> bool:
    """Whether the framework's own einsum takes less time than the mere overhead of ``calls``."""
    equation, operands, traits = contraction.equation, contraction.operands, contraction.place.traits
    work = [op for op in calls if op.effect != "view"]
    if (traits.views and not work) or (len(calls) == 1 and isinstance(calls[0], ops.Native | ops.Matmul)):
        return False  # the own einsum would copy
    model = CostModel(traits, contraction.dtype)
    overhead = sum([model.overhead(op) for op in calls])
    count, sizes, steps = len(operands), equation.sizes, prod(equation.sizes)
    if model.least_einsum(steps, count) >= overhead:
        return False
    orders = [*map(_in_memory_order, equation.inputs, operands), equation.output]
    arrays = [[label for label in order if sizes[label] != 1] for order in orders]
    loops = outer_loops(arrays[:-1], arrays[-1])
    rows, fills = (prod([sizes[label] for label in labels]) for labels in (loops.outer, loops.filled))
    return model.einsum(steps, rows, fills, loops.count, count, loops.is_packed) < overhead


def _in_memory_order(labels: Labels, operand: Operand) -> list[int]:
    return [labels[axis] for axis in memory_order(operand.strides or contiguous(operand.shape))]


def _lower_in(builder: Builder, contraction: Contraction, compute: str, between: str = "", sums: str = "") -> int:
    """Append the ops that compute in dtype ``compute``; returns the slot of the result.

    The result is cast to dtype ``between`` first, if there is one. With ``sums``, the sums of the only product are in
    that dtype.
    """
    equation, operands, path, dtype = (
        contraction.equation, contraction.operands, contraction.path, contraction.dtype
    )  # fmt: skip
    terms, repeated, counted = _read(builder, contraction, compute)
    is_conjugate = False
    if contraction.conjugated and kind(compute) in "cO":
        terms, is_conjugate = _with_conjugates(builder, contraction, terms, compute)
    scaled = None if compute == "bool" or not counted else _smallest(builder, terms, equation.output)
    terms = [builder.scale(term, counted) if number == scaled else term for number, term in enumerate(terms)]
    lowered_step = partial(pairwise.wide_product, sums=sums) if sums else pairwise.contract
    steps, uses = [(path[0], frozenset(equation.output))], [ResultUse(equation.output)]
    if len(path) > 1:
        steps = step_outputs(path, [frozenset(term.labels) for term in terms], frozenset(equation.output))
        uses = _uses(steps, terms, equation.output)
    is_by_cost = builder.choosing.is_by_cost
    for number, ((step, keep), use) in enumerate(zip(steps, uses)):
        if not is_by_cost:
            builder.choosing.begin_step(number)
        *first, last = sorted(step)
        rhs = terms.pop(last)
        if first:
            terms.append(lowered_step(builder, terms.pop(first[0]), rhs, keep, compute, use))
        else:
            rhs = builder.settled(rhs)
            terms.append(builder.sum(rhs, [label for label in rhs.labels if label not in keep]))
    (term,) = terms
    term, compute = builder.settled(term), sums or compute
    if is_conjugate:
        term = _conjugate(builder, term, lazily=False)
    if scaled == len(operands):
        term = builder.scale(term, counted)
    for cast in (between, dtype):
        if cast and compute != dtype:
            term = builder.cast(term, cast)
    term = builder.expand(term, repeated)
    term = builder.permute(term, equation.output, "the result in the order of the output")
    traits = builder.traits
    is_view = len(path[0]) == 1 and all(op.effect == "view" for op in builder.ops)
    if repeated or (is_view and not (traits.views and set(equation.inputs[0]) <= set(equation.output))):
        reason = _why_own(traits, repeated)
        slot = builder.add(ops.Copy, term.slot, f"a result of its own, as {reason}")
        term = builder.packed(slot, term.labels)
    if term.slot < len(operands):  # a result is never the operand itself, though it may be a view
        term = builder.strided(builder.reshape(term.slot, equation.shape), term.labels, term.strides)
    return term.slot


def _uses(
    steps: Sequence[tuple[tuple[int, ...], Collection[int]]],
    terms: Sequence[Term],
    last: Labels,
) -> list[ResultUse]:
    """How the result of each step is used: by a later step, or as the output."""
    # The labels of a value with its term, if it is an operand, or else with the number of the step that makes it.
    values: list[tuple[Collection[int], Term | None, int]] = [(term.labels, term, -1) for term in terms]
    uses = [*[ResultUse()] * (len(steps) - 1), ResultUse(order=last)]
    for number, (step, keep) in enumerate(steps):
        pair = list(map(values.pop, sorted(step, reverse=True)))
        if len(pair) == 2:
            for (own, term, maker), (others, operand, _) in (pair, pair[::-1]):
                if term is not None:
                    continue
                if operand is None:
                    shared = tuple(sorted(filter(others.__contains__, own)))
                else:
                    shared = tuple(filter(own.__contains__, operand.memory))
                contracted = tuple(filterfalse(keep.__contains__, shared))
                batch = tuple(filter(keep.__contains__, shared))
                uses[maker] = ResultUse(None, contracted, batch)
        values.append((keep, None, number))
    return uses


def _read(builder: Builder, contraction: Contraction, compute: str) -> tuple[list[Term], Labels, Labels]:
    """The operands in dtype ``compute``, and the labels without data; see :func:`_without_repeats`."""
    equation, operands = contraction.equation, contraction.operands
    if len(operands) > 1 and not builder.traits.pairs_by_einsum and not contraction.conjugated:
        plain = plain_terms(equation, operands, compute)
        if plain is not None:
            return plain, (), ()
    builder.is_tidy = False
    terms = [
        _operand(builder, slot, labels, operand)
        for slot, (labels, operand) in enumerate(zip(equation.inputs, operands))
    ]
    terms, repeated, counted = _without_repeats(builder, terms, equation.output)
    terms = [
        builder.cast(term, compute) if operand.dtype != compute else term for term, operand in zip(terms, operands)
    ]
    if builder.traits.pairs_by_einsum:
        terms = [_diagonal(builder, term, _needed(slot, equation), compute) for slot, term in enumerate(terms)]
    return terms, repeated, counted


def _with_conjugates(
    builder: Builder, contraction: Contraction, terms: list[Term], compute: str
) -> tuple[list[Term], bool]:
    """The terms with some conjugated, and whether the result is the conjugate of what they contract to.

    Labels that nothing else needs are summed before. If that is cheaper by far, the other terms and the result are
    conjugated instead: all are, if each operand is. The result of a single operand is, whatever is summed. A product of
    two matrices may conjugate as it reads; one with batch labels would copy what it broadcasts.
    """
    numbers, equation = contraction.conjugated, contraction.equation
    if len(terms) == 1:
        return terms, True
    needed = [_needed(slot, equation) for slot in range(len(terms))]
    sizes = [builder.size([label for label in term.labels if label in keep]) for term, keep in zip(terms, needed)]
    complex_ones = [slot for slot, operand in enumerate(contraction.operands) if kind(operand.dtype) in "cO"]
    others = [slot for slot in complex_ones if slot not in numbers]

    def seconds(copies: Iterable[int]) -> float:
        return sum(builder.model(compute).copy(assumed(size)) for size in copies)

    instead = seconds([*[sizes[slot] for slot in others], builder.size(equation.output)])
    is_conjugate = instead < _CLEARLY * seconds([sizes[slot] for slot in numbers])
    is_batched = len(terms) > 2 or not {*terms[0].labels}.isdisjoint({*terms[1].labels}.intersection(equation.output))
    terms = list(terms)
    for slot in others if is_conjugate else numbers:
        term = builder.sum(terms[slot], [label for label in terms[slot].labels if label not in needed[slot]])
        terms[slot] = _conjugate(builder, term, lazily=not is_batched)
    return terms, is_conjugate


def _conjugate(builder: Builder, term: Term, *, lazily: bool) -> Term:
    """The complex conjugate of a term, C-contiguous in the order of its axes in memory."""
    if builder.traits.strided:
        term = builder.permute(term, term.memory)
    return builder.packed(builder.add(ops.Conjugate, term.slot, lazily), term.labels)


def _without_repeats(builder: Builder, terms: list[Term], output: Labels) -> tuple[list[Term], Labels, Labels]:
    """The terms without axes of stride 0, and the labels along which no operand has data.

    The result is broadcast along the first of these labels, which the output has; the others are summed, which
    multiplies the result by their size. A single operand keeps the labels of the output, so that its rearrangements are
    views.
    """
    if not builder.traits.strided:
        return terms, (), ()
    flat = {label for term in terms for label, stride in zip(term.labels, term.strides) if stride == 0}
    flat = {label for label in flat if builder.sizes[label] > 1}
    if len(terms) == 1:
        flat.difference_update(output)
    if not flat:
        return terms, (), ()
    real = {label for term in terms for label, stride in zip(term.labels, term.strides) if stride != 0}
    stripped = [
        builder.first(
            term, tuple(label for label, stride in zip(term.labels, term.strides) if label in flat and stride == 0)
        )
        for term in terms
    ]
    repeated = tuple(label for label in output if label in flat and label not in real)
    return stripped, repeated, tuple(sorted(flat - real - set(output)))


def _smallest(builder: Builder, terms: Sequence[Term], output: Labels) -> int:
    """The position of the term with the fewest elements; ``len(terms)`` if the result has no more."""
    kept = {label for term in terms for label in term.labels}
    arrays = [tuple([label for label in output if label in kept]), *[term.labels for term in terms]]
    counts = list(map(builder.size, arrays))
    at = counts.index(min(counts))
    return at - 1 if at else len(terms)


def _why_own(traits: Traits, repeated: Labels) -> str:
    if repeated:
        return "all operands repeat themselves along an axis of it"
    return "only a rearrangement returns a view" if traits.views else "the framework returns no views"


def _operand(builder: Builder, slot: int, labels: Labels, operand: Operand) -> Term:
    """An operand without broadcast axes and, unless :func:`_diagonal` follows, with diagonals taken."""
    sizes = builder.sizes
    strides = operand.strides if operand.strides is not None else contiguous(operand.shape)
    term = builder.strided(slot, labels, strides)
    narrow = [axis for axis, (label, size) in enumerate(zip(labels, operand.shape)) if size != sizes[label]]
    term = builder.drop(term, narrow)
    return term if builder.traits.pairs_by_einsum else builder.diagonal(term)


def _needed(slot: int, equation: SizedEquation) -> frozenset[int]:
    """The labels of an operand that the output or another operand has."""
    others = [labels for other, labels in enumerate(equation.inputs) if other != slot]
    return frozenset().union(equation.output, *others)


def _diagonal(builder: Builder, term: Term, needed: frozenset[int], dtype: str) -> Term:
    """A term with diagonals taken, and without the labels that nothing else needs.

    Both are one call of the framework's own einsum. If the axes are sharded, each device then adds up its own part of
    one sum, whereas devices would exchange a diagonal before a sum over it.
    """
    kept = tuple([label for label in dict.fromkeys(term.labels) if label in needed])
    is_summed = len(set(term.labels)) < len(term.labels) and len(kept) < len(set(term.labels))
    if not is_summed or dtype not in builder.traits.native_dtypes:
        return builder.diagonal(term)
    return builder.native((term,), kept)
