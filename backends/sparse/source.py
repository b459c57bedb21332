"""sparse's public functions, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Sequence

from einsumx.adapters.base import Array
from einsumx.backends.sparse.adapter import SparseAdapter
from einsumx.ir.parse import diagonal_equation


class PublicSparse(SparseAdapter):
    """Methods of arrays, ``sparse.tensordot`` for products without batch axes, and ``sparse.einsum`` for others."""

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return self.native(diagonal_equation(array.ndim, axis1, axis2), [array])

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return lhs * rhs

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        inputs, output = equation.split("->")
        terms = inputs.split(",")
        shared = [letter for letter in terms[0] if letter in terms[-1]]
        if len(terms) == 1 or set(shared) & set(output):
            result = super().native(equation, arrays)
            return result if output else result.astype(arrays[0].dtype)  # it widens integers
        axes = tuple([[term.index(letter) for letter in shared] for term in terms])
        product = self.xp.tensordot(*arrays, axes=axes, return_type=self.xp.COO)
        made = [letter for term in terms for letter in term if letter in output]
        order = tuple([made.index(letter) for letter in output])
        return product if order == tuple(sorted(order)) else product.transpose(order)
