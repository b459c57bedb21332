"""``lower``: a sized equation, a path, the operands' layouts and a framework's traits become a plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from einsumx.bind import SizedEquation
from einsumx.builder import Builder, Labels, Term
from einsumx.contract import contract, native_equation
from einsumx.layout import contiguous
from einsumx.ops import Copy, Diagonal, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose
from einsumx.path import step_outputs
from einsumx.plan import Operand, Path, Plan
from einsumx.simplify import simplify
from einsumx.traits import Traits
from einsumx.verify import verify

__all__ = ["lower"]


def lower(
    equation: SizedEquation,
    operands: Sequence[Operand],
    path: Path,
    *,
    backend: str,
    traits: Traits,
    dtype: str,
    device: str = "",
) -> Plan:
    """Write a contraction as array calls, and check them by replaying their shapes.

    Args:
        equation: as :func:`~einsumx.bind.bind` gives it.
        operands: dtype and layout of each operand.
        path: as :func:`~einsumx.path.find_path` gives it.
        backend, traits: the framework lowered for.
        dtype: of the result; what is computed in follows from it and from the traits.
        device: recorded in the plan.
    """
    lowered, result = _compute(equation, operands, path, traits, dtype)
    ops, result = simplify(lowered, [operand.shape for operand in operands], result)
    if _native_is_cheaper(equation, operands, traits, dtype, len(ops)):
        builder = Builder(equation.sizes, traits, len(operands))
        result = builder.native(tuple(range(len(operands))), native_equation(equation.inputs, equation.output))
        ops = tuple(builder.ops)
    plan = Plan(equation.text, backend, device, tuple(operands), path, ops, result, equation.shape, dtype)
    verify(plan)
    return plan


def _compute(
    equation: SizedEquation, operands: Sequence[Operand], path: Path, traits: Traits, dtype: str
) -> tuple[list[Op], int]:
    """The ops in the result's dtype; or in a wider one, where rounding each intermediate would lose too much."""
    wider = dict(traits.widen).get(dtype)
    found = _lower_in(equation, operands, path, traits, dtype, dtype)
    if wider is not None and not _rounds_once(found[0], traits, dtype):
        found = _lower_in(equation, operands, path, traits, dtype, wider)
    return found


def _rounds_once(ops: Sequence[Op], traits: Traits, dtype: str) -> bool:
    """Whether at most one op computes, and that one accumulates wide by itself."""
    arithmetic = [op for op in ops if isinstance(op, Sum | Multiply | Matmul | Native)]
    if len(arithmetic) > 1:
        return False
    for op in arithmetic:
        match op:
            case Matmul():
                return dtype in traits.wide_matmul
            case Sum():
                return dtype in traits.wide_sum
            case Native():
                return False
            case _:
                return True
    return True


def _native_is_cheaper(
    equation: SizedEquation, operands: Sequence[Operand], traits: Traits, dtype: str, calls: int
) -> bool:
    """Whether one call of the framework's own einsum beats ``calls`` others: tiny, and nothing that it gets wrong.

    Its gradients are wrong for repeated labels, for broadcast axes and without labels, so those never go there.
    """
    if not traits.rates.native or dtype not in traits.native_dtypes or not equation.sizes:
        return False
    if len(operands) > traits.native_max_operands or len(equation.sizes) > traits.native_max_labels:
        return False
    if not 0 < prod(equation.sizes) < traits.rates.native * traits.rates.call * (calls - 1):
        return False
    return all(
        operand.dtype == dtype
        and len(set(labels)) == len(labels)
        and operand.shape == tuple(equation.sizes[label] for label in labels)
        for operand, labels in zip(operands, equation.inputs)
    )


def _lower_in(
    equation: SizedEquation,
    operands: Sequence[Operand],
    path: Path,
    traits: Traits,
    dtype: str,
    compute: str,
) -> tuple[list[Op], int]:
    builder = Builder(equation.sizes, traits, len(operands))
    terms = [
        _operand(builder, slot, labels, operand, compute)
        for slot, (labels, operand) in enumerate(zip(equation.inputs, operands))
    ]
    # A sum over nothing is 0 whatever else is multiplied, infinities included: labels of size 0 are summed last.
    empty = tuple(label for label, size in enumerate(equation.sizes) if size == 0 and label not in equation.output)
    last = (*equation.output, *empty)
    steps = step_outputs(path, [frozenset(term.labels) for term in terms], frozenset(last))
    for number, (step, keep) in enumerate(steps):
        wanted = last if number == len(path) - 1 else None
        taken = [terms.pop(position) for position in sorted(step, reverse=True)][::-1]
        if len(taken) == 1:
            (term,) = taken
            terms.append(builder.sum(term, [label for label in term.labels if label not in keep]))
        else:
            lhs, rhs = taken
            terms.append(contract(builder, lhs, rhs, keep, compute, wanted))
    (term,) = terms
    term = builder.sum(term, empty)
    if compute != dtype:
        term = builder.cast(term, dtype)
    term = builder.permute(term, equation.output, "the result in the order of the output")
    may_be_view = traits.views and set(equation.inputs[0]) <= set(equation.output)
    if not may_be_view and all(_is_view(op, traits) for op in builder.ops):
        reason = "the framework returns no views" if not traits.views else "only a rearrangement returns a view"
        slot = builder.new_slot()
        builder.ops.append(Copy(slot, term.slot, f"a result of its own, as {reason}"))
        term = builder.packed(slot, term.labels)
    if term.slot < len(operands):  # a result is never the operand itself, but may be a view of it
        term = Term(builder.reshape(term.slot, equation.shape), term.labels, term.strides)
    return builder.ops, term.slot


def _is_view(op: Op, traits: Traits) -> bool:
    """Whether an op may give memory that is its operand's; without strides only a reshape does."""
    return isinstance(op, Transpose | Reshape | Diagonal if traits.strided else Reshape)


def _operand(builder: Builder, slot: int, labels: Labels, operand: Operand, compute: str) -> Term:
    """An operand made ready: broadcast axes dropped, diagonals taken, in the dtype that is computed in."""
    sizes = builder.sizes
    strides = operand.strides if operand.strides is not None else contiguous(operand.shape)
    term = Term(slot, labels, strides)
    narrow = [axis for axis, (label, size) in enumerate(zip(labels, operand.shape)) if size != sizes[label]]
    term = builder.drop(term, narrow)
    term = builder.diagonal(term)
    return builder.cast(term, compute) if operand.dtype != compute else term
