"""Pairs of arrays without strides: each is C-contiguous, a transpose copies, and a reshape is free.

A product of matrices reads ``[batch, rows, contracted]`` or ``[batch, contracted, rows]``. Operands that do not lie in
one of these orders are copied, and so is a result that is needed in another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product as combinations
from typing import NamedTuple

from einsumx.ir import ops
from einsumx.ir.layout import merged_transpose
from einsumx.ir.traits import AROUND_BATCH
from einsumx.planner.lowering import Lowering, Pair, Side, listed, product_name, seconds_of
from einsumx.planner.selection import Candidate
from einsumx.planner.terms import Labels, Term, joined


class _Axes(NamedTuple):
    """The labels that both operands have, in order: along the batch, between rows and columns, and summed."""

    batch: tuple[Labels, ...]
    inner: tuple[Labels, ...]
    contracted: Labels

    def of(self, rows: Labels, is_turned: bool) -> tuple[Labels, ...]:
        """The labels of each axis of an operand in the order in which it is read."""
        first, last = (self.contracted, rows) if is_turned else (rows, self.contracted)
        return (*self.batch, first, *self.inner, last)


class _Product(NamedTuple):
    """A product of matrices.

    Attributes:
        seconds: the estimate, with copies, views, and what brings the result into the order it is needed in.
        axes: those that both operands have.
        sides: the left and the right operand.
        result: the axis order of the product.
        is_ready: the result needs no copy before it is used.
    """

    seconds: float
    axes: _Axes
    sides: tuple[Side, Side]
    result: Labels
    is_ready: bool


class PackedLowering(Lowering):
    """Appends ops whose results are all C-contiguous."""

    def permute(self, term: Term, labels: Labels, reason: str = "") -> Term:
        """The axes in the order of ``labels``, by a copy whose axes are as few as possible."""
        if labels == term.labels:
            return term
        slot, (before, axes) = term.slot, merged_transpose(term.labels, labels, self.sizes)
        if len(axes) > 1:
            slot = self.add(ops.Transpose, self.add(ops.Reshape, slot, before), axes, reason)
        return self.reshape(slot, labels)

    def product(self, pair: Pair) -> Term:
        """The pair by the kernels that take its dtype, and elementwise where matrices are slow."""
        traits, dtype = self.traits, pair.dtype
        if not pair.contracted:
            is_outer = self.size(pair.lhs_free) > 1 and self.size(pair.rhs_free) > 1
            if not (is_outer and traits.outer_by_matmul and dtype in traits.matmul_dtypes):
                return self.multiply(pair) if traits.multiply_broadcasts else self._fused(pair)
        if traits.dots_by_sum and pair.is_dots and dtype not in dict(traits.widen):
            return self.multiply_and_sum(pair)
        return super().product(pair)

    def own_einsum(self, pair: Pair) -> Term:
        """The pair by the framework's own einsum, of three axes if it has too many."""
        return super().own_einsum(pair) if self.takes_labels(pair) else self._fused(pair)

    def _fused(self, pair: Pair) -> Term:
        """A product of two arrays ``[batch, free, contracted]``, for frameworks that take only few axes."""
        _, axes, sides, result, _ = min(self._products(pair), key=seconds_of)
        batch, contracted, slots = joined(axes.batch), axes.contracted, []
        for number, side in enumerate(sides):
            matrix = (contracted, side.rows) if number and not contracted else (side.rows, contracted)
            slots.append(self.merged(side.term, (batch, *matrix), "its axes in the order of the fused product"))
        if contracted:
            return self.reshape(self.add(ops.Native, tuple(slots), "abd,acd->abc"), result)
        return self.reshape(self.add(ops.Multiply, *slots), result)

    # -- candidates -------------------------------------------------------------------------------------

    def candidates(self, pair: Pair, *, every: bool) -> Iterator[Candidate]:
        """Products of matrices, and the own einsum."""
        for product in self._products(pair) if every else [min(self._products(pair), key=seconds_of)]:
            swapped, axes = product.sides[0].term is pair.rhs, product.axes
            kind = (swapped, product.is_ready, *[side.is_copied for side in product.sides])
            batch = [*map(listed, axes.batch), *[f"({listed(run)})" for run in axes.inner]] if every else []
            name = product_name(batch, product.sides, axes.contracted, swapped=swapped) if every else ""
            yield Candidate(name, product.seconds, kind, partial(self._multiplied, product, pair.sums))
        yield from self.einsums(pair)

    def _multiplied(self, product: _Product, sums: str) -> Term:
        """Append the ops of a product; flags say which matrices are transposed."""
        axes, (left, right) = product.axes, product.sides
        slots = [
            self.merged(side.term, axes.of(side.rows, side.is_turned), "its axes in the order of the matmul")
            for side in product.sides
        ]
        flags = left.is_turned, not right.is_turned
        if axes.inner:
            return self.reshape(self.add(ops.Native, tuple(slots), AROUND_BATCH[flags]), product.result)
        return self.reshape(self.add(ops.Matmul, *slots, *flags, "", sums), product.result)

    def _products(self, pair: Pair) -> Iterator[_Product]:
        for axes in self._axes(pair):
            lefts = self._sides(pair, pair.lhs, pair.lhs_free, axes)
            rights = self._sides(pair, pair.rhs, pair.rhs_free, axes)
            copies = {side: self._copy_of(pair, side, axes) for side in (*lefts, *rights)}
            for left, right in combinations(lefts, rights):
                for first, second in ((left, right), (right, left)):
                    if not self.traits.transpose_flags and (first.is_turned or not second.is_turned):
                        continue
                    result = joined((*axes.batch, first.rows, *axes.inner, second.rows))
                    turn = self._turn(pair, result)
                    seconds = copies[first] + copies[second] + self._seconds(pair, axes, first, second)
                    seconds = seconds + (turn or 0.0) + self._views(first, second)
                    yield _Product(seconds, axes, (first, second), result, turn is None)

    def _seconds(self, pair: Pair, axes: _Axes, first: Side, second: Side) -> float:
        """The time of a product alone."""
        matrices, rows, cols = map(self.size, (joined((*axes.batch, *axes.inner)), first.rows, second.rows))
        factor = self._inner_factor if axes.inner else 1.0
        return self.model(pair.dtype).matmul(1, matrices, rows, cols, self.size(axes.contracted), factor=factor)

    def _copy_of(self, pair: Pair, side: Side, axes: _Axes) -> float:
        """The time of the copy of an operand, if there is one."""
        order = joined(axes.of(side.rows, side.is_turned))
        return self._copy(pair.dtype, side.term.labels, order) if side.is_copied else 0.0

    def _views(self, first: Side, second: Side) -> float:
        """The time of about a view for each operand.

        If the product of a matrix and a vector has the flag that transposes the matrix, that is one more. Frameworks
        read a matrix in its own order up to four times faster: ``matrix @ vector[None].T`` instead of
        ``vector[None] @ matrix.T``, and ``vector[None] @ matrix`` instead of ``matrix.T @ vector[:, None]``.
        """
        is_beside_vector = bool(first.rows) != bool(second.rows)
        has_flag = is_beside_vector and (first.is_turned if first.rows else not second.is_turned)
        return (2 + has_flag) * self.traits.rates.view

    @property
    def _inner_factor(self) -> float:
        return self.traits.einsum_factor(AROUND_BATCH[False, True]) or 0.0

    def _axes(self, pair: Pair) -> Iterator[_Axes]:
        """Orders of the labels that both operands have, those in which they may lie packed."""
        traits, dtype, batch, terms = self.traits, pair.dtype, pair.batch, (pair.lhs, pair.rhs)
        target = pair.use.target(batch)
        orders = [*([] if target is None else [target]), *[term.in_memory_order(batch) for term in terms]]
        is_product = traits.max_batch_axes == 1 and pair.contracted and dtype in traits.matmul_dtypes
        may_be_inner = is_product and self._inner_factor and dtype in traits.native_dtypes
        # At least one comes first: otherwise each matrix is spread over the whole array and memory is the bottleneck.
        ends = range(len(batch), 0, -1) if may_be_inner and batch else [len(batch)]
        for contracted in dict.fromkeys([term.in_memory_order(pair.contracted) for term in terms]):
            for end, order in combinations(ends, dict.fromkeys(orders)):
                is_fused = traits.max_batch_axes is not None and end > traits.max_batch_axes
                runs = (order[:end],) if is_fused else tuple([(label,) for label in order[:end]])
                yield _Axes(runs, (order[end:],) if end < len(order) else (), contracted)

    def _sides(self, pair: Pair, term: Term, free: Labels, axes: _Axes) -> list[Side]:
        """The ways to read a term that may pay.

        Even if it lies in order, another order costs a copy, which may spare a larger one of the result.
        """
        orders = dict.fromkeys([term.in_memory_order(free), pair.use.preferred(free)])
        ways = list(combinations(orders, (False, True)))
        sides = [
            Side(term, rows, turned, False) for rows, turned in ways if term.merged(joined(axes.of(rows, turned))) == 1
        ]
        known = [side.rows for side in sides] if self.traits.transpose_flags else []
        return [*sides, *[Side(term, rows, turned, True) for rows, turned in ways if rows not in known]]

    def _copy(self, dtype: str, source: Labels, target: Labels) -> float:
        """The seconds of a copy of an array from one order of its axes to another; nothing for a reshape."""
        return 0.0 if self.long(source) == self.long(target) else self.copy_seconds(dtype, source, target)

    def _turn(self, pair: Pair, result: Labels) -> float | None:
        """The seconds of the copy that brings the result into the order in which it is needed; None without one."""
        target = pair.use.target(result)
        if target is not None:
            return None if target == result else self._copy(pair.dtype, result, target)
        is_ready = pair.use.is_ready(result, self.sizes, False)
        return None if is_ready else self.model(pair.dtype).copy(self.size(result))
