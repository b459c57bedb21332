"""Products of narrow integers whose sums are wide: as floats that are exact, or with wide sums of the framework."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from einsumx.dtypes import itemsize, kind
from einsumx.ir.accumulators import exact_floats, holds, largest, largest_sum
from einsumx.ir.contraction import Contraction
from einsumx.ir.sizes import is_known
from einsumx.ir.traits import Traits
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


def wide_sums(contraction: Contraction) -> str:
    """The dtype of the sums of a product of matrices of narrow integers; empty if there is no such product.

    It is no narrower than the result's, as sums wrap; a product that is too small is left to casts of its operands.
    """
    equation, operands, dtype = contraction.equation, contraction.operands, contraction.dtype
    own, sizes = operands[0].dtype, equation.sizes
    sums = dict(contraction.place.traits.wide_products).get(own, "")
    if not sums or kind(dtype) not in "iu" or not itemsize(own) < itemsize(dtype) <= itemsize(sums):
        return ""
    if not multiplies_operands(contraction) or operands[1].dtype != own or prod(sizes) < _LEAST_STEPS:
        return ""
    lhs, rhs = map(set, equation.inputs)
    contracted = (lhs & rhs).difference(equation.output)
    is_matrix = contracted and 1 not in [sizes[label] for label in contracted]
    return sums if is_matrix and prod([sizes[label] for label in lhs ^ rhs]) != 1 else ""


def multiplies_operands(contraction: Contraction) -> bool:
    """Whether the contraction is one product whose factors are operands: nothing is summed before it."""
    equation, operands = contraction.equation, contraction.operands
    if len(operands) != 2 or not set(equation.inputs[0]) ^ set(equation.inputs[1]) <= set(equation.output):
        return False
    return all(
        operand.shape == shape and 0 not in (operand.strides or ()) for operand, shape in zip(operands, equation.shapes)
    )


def may_differ(dtypes: Sequence[str], dtype: str, sizes: Sequence[int], traits: Traits) -> bool:
    """Whether products of integers, some narrower than those of ``dtype``, may be computed in another one."""
    if kind(dtype) not in "iu" or set(dtypes) == {dtype} or len(dtypes) * prod(sizes) < _LEAST_STEPS:
        return False
    exact = exact_floats(largest_sum(dtypes, 1))
    return set(dtypes) <= set(dict(traits.wide_products)) or not exact.isdisjoint(dict(traits.exact_products))


def exact_products(contraction: Contraction) -> ExactFloats | None:
    """The floats to compute in if the operands are integers that are narrower than the result's; otherwise None."""
    equation, dtype, traits = contraction.equation, contraction.dtype, contraction.place.traits
    dtypes = tuple([operand.dtype for operand in contraction.operands])
    if not is_known(equation.sizes) or not may_differ(dtypes, dtype, equation.sizes, traits):
        return None
    output = frozenset(equation.output)
    terms = [frozenset(labels) for labels in equation.inputs]
    steps = 0
    for step, keep in step_outputs(contraction.path, terms, output):
        taken = [terms.pop(position) for position in sorted(step, reverse=True)]
        terms.append(keep)
        if len(taken) == 2 and taken[0] & taken[1] - keep:
            steps += prod([equation.sizes[label] for label in taken[0] | taken[1]])
    most = largest_sum(dtypes, prod([size for label, size in enumerate(equation.sizes) if label not in output]))
    if most is None or steps < _LEAST_STEPS:
        return None
    exact = exact_floats(most)
    is_plain = multiplies_operands(contraction)
    factor = max([largest(name) or 0 for name in dtypes]) if is_plain else most
    for name, bits in traits.exact_products:
        if name in exact and factor <= 1 << bits:
            is_signed = any(kind(each) == "i" for each in dtypes)
            between = "int32" if name == "float32" else "int64"
            return ExactFloats(name, "" if holds(dtype, most, is_signed) else between)
    return None
