"""How many elements sparse arrays store, and the work of contracting them.

The estimates assume that each place of an array is stored with the same probability, independently of all others. Sums
are taken to be different from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, log1p, prod

from einsumx.ir import ops
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Op

_ELEMENT = 8
"""The work of an element that is sorted, grouped or written with its coordinates, in multiply-adds."""


class SparseWork:
    """What an op of sparse arrays computes and stores.

    Attributes:
        multiply_adds: of stored elements.
        nnz: the elements that its result stores.
    """

    __slots__ = ("multiply_adds", "nnz")

    def __init__(self, multiply_adds: float, nnz: float) -> None:
        self.multiply_adds, self.nnz = round(multiply_adds), round(nnz)


def nnz_class(nnz: int) -> int:
    """The nearest power of two, so that arrays with about as many elements share a plan.

    >>> [nnz_class(nnz) for nnz in (0, 1, 5, 6, 1000, 1500)]
    [0, 1, 4, 8, 1024, 1024]
    """
    if nnz < 2:
        return nnz
    power: int = 1 << nnz.bit_length() - 1
    return power if 2 * nnz < 3 * power else 2 * power


def density(operand: Operand) -> float:
    """The share of an operand's elements that it stores: at most 1, which is that of a dense one."""
    if operand.nnz is None:
        return 1.0
    return min(operand.nnz / max(prod(operand.shape), 1), 1.0)


def density_of_sum(share: float, terms: int) -> float:
    """The share of sums of so many terms that have a term, if each is there with a probability of ``share``.

    >>> density_of_sum(0.5, 1), density_of_sum(0.5, 2), round(density_of_sum(1e-9, 1000), 12)
    (0.5, 0.75, 1e-06)
    """
    if share >= 1:
        return 1.0
    return -expm1(terms * log1p(-share))


def work(elements: float, multiply_adds: float) -> float:
    """The work of a product of sparse arrays, in multiply-adds.

    Args:
        elements: of both operands and of the result.
        multiply_adds: of stored elements.
    """
    return _ELEMENT * elements + multiply_adds


def sparse_work(op: Op, operands: Sequence[Operand], shape: tuple[int, ...]) -> SparseWork | None:
    """What an op computes and stores; None if all operands are dense.

    Args:
        op: the op.
        operands: its sources.
        shape: of its result.
    """
    if all(operand.nnz is None for operand in operands):
        return None
    shapes = [operand.shape for operand in operands]
    share, size = prod(map(density, operands)), prod(shape)
    if isinstance(op, ops.Zeros):
        return SparseWork(0, 0)
    axes = op.iterated(shapes, shape)
    if axes is None:
        return SparseWork(0, share * size)
    terms = prod(axes)
    return SparseWork(share * terms, size * density_of_sum(share, terms // max(size, 1)))
