"""Products of narrow integers whose sums are wide: as floats that are exact, or with wide sums of the framework."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from einsumx.dtypes import itemsize, kind
from einsumx.ir.accumulators import exact_floats, holds, largest, largest_sum
from einsumx.ir.contraction import Contraction
from einsumx.ir.sizes import is_known
from einsumx.planner.builder import Builder
from einsumx.planner.path import step_outputs


class ExactFloats(NamedTuple):
    """Floats in which a contraction of integers is exact, and the integer dtype between them and the result's.

    A cast of integers wraps, as sums of the result's dtype do, and one of floats that are too large is undefined. So
    ``between`` holds every result; it is empty if the result's own dtype does.
    """

    compute: str
    between: str


_LEAST_STEPS = 4096
"""Multiply-adds from which products of floats take less time than products of integers, in spite of the casts."""


def wide_sums(builder: Builder, contraction: Contraction) -> str:
    """The dtype of the sums of a product of matrices of narrow integers; empty if there is no such product.

    It is no narrower than the result's, as sums wrap; a product that is too small is left to casts of its operands.
    """
    equation, operands, dtype = contraction.equation, contraction.operands, contraction.dtype
    own = operands[0].dtype
    sums = dict(builder.traits.wide_products).get(own, "")
    if not sums or kind(dtype) not in "iu" or not itemsize(own) < itemsize(dtype) <= itemsize(sums):
        return ""
    if not _multiplies_operands(builder, contraction) or operands[1].dtype != own:
        return ""
    output, (lhs, rhs) = set(equation.output), map(set, equation.inputs)
    contracted = (lhs & rhs) - output
    kept = (lhs | rhs) - contracted - (lhs & rhs)
    if 1 in builder.shape(sorted(contracted)) or 1 in [
        builder.size(tuple(sorted(each))) for each in (contracted, kept)
    ]:
        return ""
    return sums if prod(equation.sizes) >= _LEAST_STEPS else ""


def _multiplies_operands(builder: Builder, contraction: Contraction) -> bool:
    """Whether the contraction is one product whose factors are operands: nothing is summed before it."""
    equation, operands = contraction.equation, contraction.operands
    summed = set(range(len(equation.sizes))) - set(equation.output)
    if len(operands) != 2 or not summed <= set(equation.inputs[0]) & set(equation.inputs[1]):
        return False
    return all(
        operand.shape == builder.shape(labels) and 0 not in (operand.strides or ())
        for labels, operand in zip(equation.inputs, operands)
    )


def exact_products(builder: Builder, contraction: Contraction) -> ExactFloats | None:
    """The floats to compute in if the operands are integers that are narrower than the result's; otherwise None."""
    equation, dtype, traits = contraction.equation, contraction.dtype, builder.traits
    dtypes = tuple([operand.dtype for operand in contraction.operands])
    if not traits.exact_products or kind(dtype) not in "iu" or set(dtypes) == {dtype}:
        return None
    if largest_sum(dtypes, 1) is None or not is_known(equation.sizes):
        return None
    output = frozenset(equation.output)
    terms = [frozenset(labels) for labels in equation.inputs]
    steps = 0
    for step, keep in step_outputs(contraction.path, terms, output):
        taken = [terms.pop(position) for position in sorted(step, reverse=True)]
        terms.append(keep)
        if len(taken) == 2 and taken[0] & taken[1] - keep:
            steps += builder.size(tuple(taken[0] | taken[1]))
    most = largest_sum(dtypes, prod([size for label, size in enumerate(equation.sizes) if label not in output]))
    if most is None or steps < _LEAST_STEPS:
        return None
    exact = exact_floats(most)
    is_plain = _multiplies_operands(builder, contraction)
    factor = max([largest(name) or 0 for name in dtypes]) if is_plain else most
    for name, bits in traits.exact_products:
        if name in exact and factor <= 1 << bits:
            is_signed = any(kind(each) == "i" for each in dtypes)
            between = "int32" if name == "float32" else "int64"
            return ExactFloats(name, "" if holds(dtype, most, is_signed) else between)
    return None
