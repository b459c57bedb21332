"""Products of matrices and sums in a semiring, composed of a framework's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TypeAlias

from einsumx.adapters.facets import Semirings
from einsumx.adapters.typing import Array
from einsumx.dtypes import itemsize
from einsumx.ir.sizes import is_known

Shape: TypeAlias = tuple[int, ...]
Product: TypeAlias = Callable[[Array, Array], Array]

_TERMS = 1 << 18
"""The most terms of the sums of a product at a time, unless one row has more."""

_LEAST = {"float32": 1e-31, "float64": 1.1e-292}
"""The smallest normal number over the precision: a sum of shifted exponentials that is at least this for each of its
terms has lost none that counts."""


def blocks(lhs: Shape, rhs: Shape, most: int = _TERMS) -> Iterator[tuple[slice, slice]]:
    """The ranges of matrices and of their rows that are computed at once.

    >>> [(those.stop, some.stop) for those, some in blocks((2, 4, 5), (1, 5, 10), 100)]
    [(1, 2), (1, 4), (2, 2), (2, 4)]
    """
    row = max(1, prod(rhs[1:]))
    matrices = max(1, most // (row * max(1, lhs[1])))
    rows = lhs[1] if matrices > 1 else max(1, most // row)
    batch = max(lhs[0], rhs[0])
    for first in range(0, batch, matrices):
        for start in range(0, lhs[1], rows):
            yield slice(first, min(first + matrices, batch)), slice(start, min(start + rows, lhs[1]))


def composed(functions: Semirings, add: str, multiply: str, lhs: Shape, rhs: Shape, dtype: str) -> Product:
    """The function that multiplies matrices ``[batch, m, k]`` and ``[batch, k, n]`` in a semiring.

    It broadcasts and reduces, some rows at a time; sums of exponentials are products of matrices, if no sum underflows,
    and elements have values or the framework has branches.

    Args:
        functions: of the framework.
        add, multiply: the functions of the semiring.
        lhs: shape of the first matrices; a batch axis of size 1 broadcasts.
        rhs: shape of the second ones.
        dtype: of both, and of the result.
    """
    product = _by_blocks(functions, add, multiply, lhs, rhs)
    is_matmul = add == "logaddexp" and is_known((*lhs, *rhs))
    is_matmul = is_matmul and (functions.has_branches or not functions.fuses_terms)
    return _by_matmul(functions, product, lhs[2], dtype) if is_matmul else product


def composed_workspace(functions: Semirings, add: str, lhs: Shape, rhs: Shape, dtype: str) -> int:
    """The most bytes that :func:`composed` allocates while it runs, besides its result."""
    if functions.fuses_terms and not (functions.has_branches and add == "logaddexp"):
        return 0
    operands, result = prod(lhs) + prod(rhs), max(lhs[0], rhs[0]) * lhs[1] * rhs[2]
    first = None if functions.fuses_terms else next(blocks(lhs, rhs), None)
    terms = 0 if first is None else prod([each.stop for each in first]) * prod(rhs[1:])
    if add != "logaddexp":
        return (terms + operands + result) * itemsize(dtype)
    # Shifted operands, their exponentials, and sums; or shifted terms and their exponentials.
    return (3 * terms + 4 * operands + 5 * result) * itemsize(dtype)


def _by_blocks(functions: Semirings, add: str, multiply: str, lhs: Shape, rhs: Shape) -> Product:
    """The product as a broadcast and a reduction, of a block at a time if the framework would make the broadcast array.

    Its calls depend on no values, so that it can be traced and differentiated.
    """

    def block(left: Array, right: Array) -> Array:
        terms = functions.elementwise(multiply, left[:, :, :, None], right[:, None, :, :])
        return functions.reduced(add, terms, (2,))

    if functions.fuses_terms or not is_known((*lhs, *rhs)):
        return block
    ranges = list(blocks(lhs, rhs))
    if len(ranges) == 1:
        return block
    of_terms = functions.checkpointed(block)

    def product(left: Array, right: Array) -> Array:
        batches: list[Array] = []
        parts: list[Array] = []
        for those, some in ranges:
            of_left = left[those if lhs[0] > 1 else slice(None), some, :]
            parts.append(of_terms(of_left, right[those, :, :] if rhs[0] > 1 else right))
            if some.stop == lhs[1]:
                batches.append(functions.joined(parts, 1))
                parts = []
        return functions.joined(batches)

    return product


def _by_matmul(functions: Semirings, otherwise: Product, terms: int, dtype: str) -> Product:
    """The log-sum-exps as a product of exponentials, shifted by the maxima of rows and columns.

    Terms that are small beside both maxima can underflow. If all of a sum may have done so, or has infinities or nan,
    ``otherwise`` computes the product. While elements have no values, a framework without branches takes it always.

    Args:
        functions: of the framework.
        otherwise: the product by any other way.
        terms: how many each sum has.
        dtype: of the operands and the result.
    """
    least = terms * _LEAST[dtype]

    def product(left: Array, right: Array) -> Array:
        adapter = functions.adapter
        has_values = functions.has_values(left) and functions.has_values(right)
        if not (has_values or functions.has_branches):
            return otherwise(left, right)
        exp, log, every = functions.named("exp"), functions.named("log"), functions.named("all")
        rows, columns = _shift(functions, left, 2), _shift(functions, right, 1)
        sums = adapter.matmul(exp(left - rows), exp(right - columns), False, False)
        is_right = sums >= least
        if has_values and bool(every(is_right)):
            return log(sums) + rows + columns
        lowest = adapter.arithmetic.number(-float("inf"), dtype, sums)
        possible = adapter.matmul(adapter.cast(left > lowest, dtype), adapter.cast(right > lowest, dtype), False, False)

        def shifted_back() -> Array:
            # A sum of nothing but minus infinities is one, and has no derivatives.
            where = functions.named("where")
            total = where(is_right, sums, adapter.arithmetic.number(1.0, dtype, sums))
            return where(is_right, log(total) + rows + columns, lowest)

        is_whole = every(is_right | ((sums == 0) & (possible == 0)))
        if not has_values:
            return functions.branch(is_whole, shifted_back, lambda: otherwise(left, right))
        return shifted_back() if bool(is_whole) else otherwise(left, right)

    return product


def _shift(functions: Semirings, array: Array, *axes: int) -> Array:
    """The maxima along axes that are kept, without derivatives; 0 in the place of an infinity or nan."""
    return functions.finite(functions.detached(functions.named("max")(array, axis=axes, keepdims=True)))
