"""Pairs for libraries whose own einsum of a pair compiles to its best product, whatever the axes.

No step merges axes, as arrays may be sharded over devices along some of them.
"""

from __future__ import annotations

from einsumx.ir.operand import Operand
from einsumx.planner.lowering import Lowering, Pair
from einsumx.planner.terms import Labels, Term


class EinsumLowering(Lowering):
    """Appends the library's own einsum for each product of two terms, and for each sum over diagonals."""

    def read(self, slot: int, labels: Labels, operand: Operand) -> Term:
        """An operand without the axes of size 1 that broadcast."""
        return self.without_ones(slot, labels, operand)

    def distinct(self, term: Term, needed: frozenset[int], dtype: str) -> Term:
        """A term with diagonals taken, and without the labels that nothing else needs, in one call.

        If the axes are sharded, each device then adds up its own part of one sum, whereas devices would exchange a
        diagonal before a sum over it.
        """
        labels = tuple(dict.fromkeys(term.labels))
        kept = tuple([label for label in labels if label in needed])
        if labels == term.labels or kept == labels or dtype not in self.traits.native_dtypes:
            return self.diagonal(term)
        return self.native((term,), kept)

    def product(self, pair: Pair) -> Term:
        """The pair by the kernels that take its dtype.

        Where axes are sharded, an elementwise product broadcasts before it moves its result; the own einsum moves an
        operand.
        """
        is_broadcast = pair.lhs.labels and pair.rhs.labels and (pair.lhs_free or pair.rhs_free)
        if not pair.contracted and not (is_broadcast and pair.dtype in self.traits.matmul_dtypes):
            return self.multiply(pair)
        return super().product(pair)

    def chosen(self, pair: Pair) -> Term:
        """The own einsum, which is the only candidate; it sums in the dtype of its operands."""
        if pair.sums:
            pair = pair._replace(lhs=self.cast(pair.lhs, pair.sums), rhs=self.cast(pair.rhs, pair.sums))
        return self.own_einsum(pair)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the library's own einsum, of any number of labels."""
        return self.native((pair.lhs, pair.rhs), pair.kept)
