"""``lower``: from a contraction to its program."""

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
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Op
from einsumx.ir.program import Program
from einsumx.ir.sizes import assumed
from einsumx.ir.traits import HALVES, Traits, WideOp
from einsumx.planner.clear import direct_ops, may_be_one_einsum, one_einsum
from einsumx.planner.path import step_outputs
from einsumx.planner.selection import ONE_EINSUM, Candidate
from einsumx.planner.terms import Labels, ResultUse, Term

if TYPE_CHECKING:
    from einsumx.ir import simplify
    from einsumx.ir import values as slots
    from einsumx.planner import einsum, mixed, narrow, packed_lowering, strided_lowering
    from einsumx.planner.lowering import Lowering
else:  # contractions whose calls are clear need none of these
    simplify, narrow = LazyModule("einsumx.ir.simplify"), LazyModule("einsumx.planner.narrow")
    mixed = LazyModule("einsumx.planner.mixed")
    slots = LazyModule("einsumx.ir.values")
    strided_lowering = LazyModule("einsumx.planner.strided_lowering")
    packed_lowering, einsum = LazyModule("einsumx.planner.packed_lowering"), LazyModule("einsumx.planner.einsum")

_CLEARLY = 0.7
"""The most time of other conjugates, relative to that of those of the operands, with which they are made instead."""


def lower(contraction: Contraction, names: Sequence[str] = ()) -> Program:
    """Write a contraction as array calls.

    Args:
        contraction: what to compute.
        names: of the candidates for the steps, see :class:`~einsumx.planner.selection.Selection`.
    """
    equation = contraction.equation
    is_usual = not (names or contraction.conjugated) and (contraction.accumulate is None or equation.is_rearrangement)
    lowered = direct_ops(contraction) if is_usual or 0 in equation.sizes else None
    calls, result = lowered or _lowered(contraction, names)
    return Program(contraction, calls, result, tuple(names))


def alternatives(contraction: Contraction) -> list[list[Candidate]]:
    """The candidates for each step of the path; none for a step without a product of matrices."""
    if 0 in contraction.equation.sizes:
        return []
    lowering, _ = _compute(contraction, ("",))
    steps = lowering.listed
    if len(steps) == 1 and _may_be_one_einsum(contraction):
        inputs, output = contraction.equation.inputs, contraction.equation.output
        seconds = lowering.model(contraction.dtype).least_einsum(prod(contraction.equation.sizes), len(inputs))
        write = partial(lowering.native, [*map(lowering.term, range(len(inputs)), inputs)], output)
        steps[0].append(Candidate(ONE_EINSUM, seconds, ONE_EINSUM, write))
    return steps


def _lowered(contraction: Contraction, names: Sequence[str]) -> tuple[tuple[Op, ...], int]:
    """The ops, and the slot of the result."""
    operands = contraction.operands
    count = len(operands)
    if tuple(names) == (ONE_EINSUM,) and _may_be_one_einsum(contraction):
        return (one_einsum(contraction),), count
    lowering, slot = _compute(contraction, names)
    calls, result = simplify.simplify(lowering.ops, [operand.shape for operand in operands], slot)
    if not names and _may_be_one_einsum(contraction) and _one_einsum_is_cheaper(lowering, contraction, calls):
        return (one_einsum(contraction),), count
    return calls, result


def _may_be_one_einsum(contraction: Contraction) -> bool:
    return contraction.sums is None and not contraction.conjugated and may_be_one_einsum(contraction)


def lowering_of(traits: Traits) -> type[Lowering]:
    """How ops are written for a framework: the only place that asks how its arrays lie in memory."""
    match traits.arrays:
        case "strided":
            return strided_lowering.StridedLowering
        case "packed":
            return packed_lowering.PackedLowering
        case "einsum":
            return einsum.EinsumLowering


def _compute(contraction: Contraction, names: Sequence[str]) -> tuple[Lowering, int]:
    """The ops in the accumulator; without one, in the result's dtype, or in another one.

    That is a wider one if rounding each intermediate would lose too much, and a float for integers if it is exact.
    """
    operands, dtype, traits = contraction.operands, contraction.dtype, contraction.place.traits
    start = partial(lowering_of(traits), contraction.equation.sizes, traits, len(operands), names)
    lowering = start()
    if contraction.sums is not None:
        return lowering, _lower_in(lowering, contraction, contraction.sums)
    sums = narrow.wide_sums(contraction)
    if sums:
        return lowering, _lower_in(lowering, contraction, operands[0].dtype, sums=sums)
    floats = narrow.exact_products(contraction)
    if floats is not None:
        return lowering, _lower_in(lowering, contraction, floats.compute, floats.between)
    if not (names or contraction.conjugated):
        mixed_product = mixed.product(lowering, contraction)
        if mixed_product is not None:
            lowering.listed.append([])
            return lowering, lowering.permute(mixed_product, contraction.equation.output).slot
    slot = _lower_in(lowering, contraction, dtype)
    wider = dict(traits.widen).get(dtype)
    if wider is not None and not _rounds_once(lowering.ops, operands, traits, dtype):
        lowering = start()
        slot = _lower_in(lowering, contraction, wider)
    return lowering, slot


def _rounds_once(calls: Sequence[Op], operands: Sequence[Operand], traits: Traits, dtype: str) -> bool:
    """Whether at most one op computes, and accumulates in the wider dtype by itself."""
    arithmetic = [op for op in calls if op.effect == "work"]
    if len(arithmetic) > 1:
        return False
    wide = traits.wide_ops if dtype in HALVES else ()
    for op in arithmetic:
        match op:
            case ops.Matmul():
                values = slots.described(calls, operands)
                return _product_of(values[op.lhs].shape, values[op.rhs].shape) in wide
            case ops.Native() if traits.einsum_factor(op.equation) is not None:
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


def _one_einsum_is_cheaper(lowering: Lowering, contraction: Contraction, calls: Sequence[Op]) -> bool:
    """Whether the framework's own einsum takes less time than the mere overhead of ``calls``."""
    equation, operands, traits = contraction.equation, contraction.operands, contraction.place.traits
    work = [op for op in calls if op.effect != "view"]
    if (traits.views and not work) or (len(calls) == 1 and isinstance(calls[0], ops.Native | ops.Matmul)):
        return False  # the own einsum would copy
    model = lowering.model(contraction.dtype)
    overhead = sum([model.overhead(op) for op in calls])
    count = len(operands)
    if model.least_einsum(prod(equation.sizes), count) >= overhead:
        return False
    strides = [operand.strides for operand in operands]
    terms = list(map(lowering.term, range(count), equation.inputs, strides))
    return lowering.einsum_seconds(terms, equation.output, contraction.dtype) < overhead


def _lower_in(lowering: Lowering, contraction: Contraction, compute: str, between: str = "", sums: str = "") -> int:
    """Append the ops that compute in dtype ``compute``; returns the slot of the result.

    The result is cast to dtype ``between`` first, if there is one. With ``sums``, the sums of the only product are in
    that dtype.
    """
    equation, operands, path, dtype = (
        contraction.equation, contraction.operands, contraction.path, contraction.dtype
    )  # fmt: skip
    terms, repeated, counted = _read(lowering, contraction, compute)
    is_conjugate = False
    if contraction.conjugated and kind(compute) in "cO":
        terms, is_conjugate = _with_conjugates(lowering, contraction, terms, compute)
    steps, uses = [(path[0], frozenset(equation.output))], [ResultUse(equation.output)]
    if len(path) > 1:
        steps = step_outputs(path, [frozenset(term.labels) for term in terms], frozenset(equation.output))
        uses = _uses(steps, terms, equation.output)
    for (step, keep), use in zip(steps, uses):
        lowering.listed.append([])
        *first, last = sorted(step)
        rhs = terms.pop(last)
        if first:
            terms.append(lowering.contract(terms.pop(first[0]), rhs, keep, compute, use, sums))
        else:
            terms.append(lowering.sum(rhs, [label for label in rhs.labels if label not in keep]))
    (term,) = terms
    term, compute = lowering.settled(term), sums or compute
    if is_conjugate:
        term = _conjugate(lowering, term, lazily=False)
    if compute != "bool":
        term = lowering.scale(term, counted)
    for cast in (between, dtype):
        if cast and compute != dtype:
            term = lowering.cast(term, cast)
    term = lowering.expand(term, repeated)
    term = lowering.permute(term, equation.output, "the result in the order of the output")
    is_view = len(path[0]) == 1 and all(op.effect == "view" for op in lowering.ops)
    if repeated or (is_view and not (lowering.traits.views and set(equation.inputs[0]) <= set(equation.output))):
        reason = "all operands repeat themselves along an axis" if repeated else "the own einsum returns no view here"
        return lowering.add(ops.Copy, term.slot, f"a result of its own, as {reason}")
    if term.slot < len(operands):  # a result is never the operand itself, though it may be a view
        return lowering.reshape(term.slot, equation.output).slot
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


def _read(lowering: Lowering, contraction: Contraction, compute: str) -> tuple[list[Term], Labels, Labels]:
    """The operands in dtype ``compute``, and the labels without data; see :func:`_without_repeats`."""
    equation, operands = contraction.equation, contraction.operands
    terms = list(map(lowering.read, range(len(operands)), equation.inputs, operands))
    terms, repeated, counted = _without_repeats(lowering, terms, equation.output)
    for slot, operand in enumerate(operands):
        term = terms[slot] if operand.dtype == compute else lowering.cast(terms[slot], compute)
        repeats = len(set(term.labels)) < len(term.labels)
        terms[slot] = lowering.distinct(term, _needed(slot, equation), compute) if repeats else term
    return terms, repeated, counted


def _with_conjugates(
    lowering: Lowering, contraction: Contraction, terms: list[Term], compute: str
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
    sizes = [lowering.size([label for label in term.labels if label in keep]) for term, keep in zip(terms, needed)]
    complex_ones = [slot for slot, operand in enumerate(contraction.operands) if kind(operand.dtype) in "cO"]
    others = [slot for slot in complex_ones if slot not in numbers]

    def seconds(copies: Iterable[int]) -> float:
        return sum(lowering.model(compute).copy(assumed(size)) for size in copies)

    instead = seconds([*[sizes[slot] for slot in others], lowering.size(equation.output)])
    is_conjugate = instead < _CLEARLY * seconds([sizes[slot] for slot in numbers])
    is_batched = len(terms) > 2 or not {*terms[0].labels}.isdisjoint({*terms[1].labels}.intersection(equation.output))
    terms = list(terms)
    for slot in others if is_conjugate else numbers:
        term = lowering.sum(terms[slot], [label for label in terms[slot].labels if label not in needed[slot]])
        terms[slot] = _conjugate(lowering, term, lazily=not is_batched)
    return terms, is_conjugate


def _conjugate(lowering: Lowering, term: Term, *, lazily: bool) -> Term:
    """The complex conjugate of a term, C-contiguous in the order of its axes in memory."""
    term = lowering.settled(lowering.permute(term, term.memory))
    return lowering.term(lowering.add(ops.Conjugate, term.slot, lazily), term.labels)


def _without_repeats(lowering: Lowering, terms: list[Term], output: Labels) -> tuple[list[Term], Labels, Labels]:
    """The terms without axes of stride 0, and the labels along which no operand has data.

    The result is broadcast along the first of these labels, which the output has; the others are summed, which
    multiplies the result by their size. A single operand keeps the labels of the output, so that its rearrangements are
    views.
    """
    axes = [(label, step) for term in terms for label, step in term.steps.items()]
    flat = {label for label, step in axes if step == 0 and lowering.sizes[label] > 1}
    if len(terms) == 1:
        flat.difference_update(output)
    if not flat:
        return terms, (), ()
    real = {label for label, step in axes if step != 0}
    stripped = [lowering.first(term, [label for label in flat if term.steps.get(label) == 0]) for term in terms]
    repeated = tuple(label for label in output if label in flat and label not in real)
    return stripped, repeated, tuple(sorted(flat - real - set(output)))


def _needed(slot: int, equation: SizedEquation) -> frozenset[int]:
    """The labels of an operand that the output or another operand has."""
    others = [labels for other, labels in enumerate(equation.inputs) if other != slot]
    return frozenset().union(equation.output, *others)
