"""Pairs for libraries whose own einsum of a pair compiles to its best product, whatever the axes.

No step merges axes, as arrays may be sharded over devices along some of them.
"""

from __future__ import annotations

from einsumx.ir import ops
from einsumx.ir.operand import Operand
from einsumx.planner.lowering import Lowering, Pair
from einsumx.planner.packed import PackedLowering
from einsumx.planner.terms import Labels, Term


class EinsumLowering(PackedLowering):
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

    def permute(self, term: Term, labels: Labels, reason: str = "") -> Term:
        """The axes in the order of ``labels``, none merged."""
        if labels == term.labels:
            return term
        return self._apply(ops.Transpose, term, tuple(map(term.labels.index, labels)), reason)

    def product(self, pair: Pair) -> Term:
        """The pair by the kernels that take its dtype.

        An elementwise product broadcasts its result before devices exchange it, the own einsum sends an operand.
        """
        is_broadcast = pair.lhs.labels and pair.rhs.labels and (pair.lhs_free or pair.rhs_free)
        if not pair.contracted and not (is_broadcast and pair.dtype in self.traits.matmul_dtypes):
            return self.multiply(pair)
        return Lowering.product(self, pair)

    def chosen(self, pair: Pair) -> Term:
        """The own einsum, which is the only candidate but for sums in a wider dtype."""
        return super().chosen(pair) if pair.sums else self.own_einsum(pair)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the library's own einsum, of any number of labels."""
        return self.native((pair.lhs, pair.rhs), pair.kept)
