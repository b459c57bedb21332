"""Products of a real operand and a complex one: one product of real matrices, without a cast of the real operand.

The real matrix is on the left. A complex matrix on the right whose columns lie side by side is read as a real one with
twice as many columns, and so is the result: half of the multiply-adds of a complex product.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from einsumx.dtypes import itemsize, kind
from einsumx.ir.contraction import Contraction
from einsumx.ir.ops import Matmul, Reshape
from einsumx.ir.sizes import is_known
from einsumx.ir.traits import Traits
from einsumx.planner.lowering import Lowering
from einsumx.planner.narrow import multiplies_operands
from einsumx.planner.terms import Term, repeated

_REPAY = 3e10
"""The multiply-adds that repay its views, for each second of a call's overhead."""


def may_pay(dtypes: Sequence[str], dtype: str, sizes: Sequence[int], traits: Traits) -> bool:
    """Whether a contraction of operands of these dtypes may be such a product."""
    if kind(dtype) != "c" or len(dtypes) != 2 or not traits.strided or prod(sizes) < _REPAY * traits.rates.call:
        return False
    first, second = kind(dtypes[0]) == "c", kind(dtypes[1]) == "c"
    return first != second and dtype in dict(traits.wide_products).values()


def product(lowering: Lowering, contraction: Contraction) -> Term | None:
    """Append the ops of such a product; None if it is none, or not faster."""
    equation, place = contraction.equation, contraction.place
    dtypes = [operand.dtype for operand in contraction.operands]
    if not is_known(equation.sizes) or not may_pay(dtypes, contraction.dtype, equation.sizes, place.traits):
        return None
    if any(map(repeated, equation.inputs)) or not multiplies_operands(contraction):
        return None
    found = _Mixed(lowering, contraction, dtypes)
    return found.written() if found.is_product and found.pays() else None


class _Mixed:
    """A product of a real operand and a complex one.

    Args:
        lowering: appends its ops.
        contraction: what to compute.
        dtypes: of the operands.

    Attributes:
        is_product: it sums, and is no batch of products of two vectors.
    """

    def __init__(self, lowering: Lowering, contraction: Contraction, dtypes: Sequence[str]) -> None:
        equation, operands, traits = contraction.equation, contraction.operands, lowering.traits
        self._lowering, self._dtype = lowering, contraction.dtype
        self._real = next(name for name, wider in traits.wide_products if wider == self._dtype)
        terms = list(map(lowering.term, range(2), equation.inputs, [operand.strides for operand in operands]))
        places = (1, 0) if kind(dtypes[0]) == "c" else (0, 1)
        self._sides = lhs, rhs = terms[places[0]], terms[places[1]]
        self._dtypes = dtypes[places[0]], dtypes[places[1]]
        shared = set(lhs.labels).intersection(rhs.labels)
        larger = lhs if lowering.size(lhs.labels) > lowering.size(rhs.labels) else rhs
        self._contracted = tuple([label for label in larger.memory if label in shared - set(equation.output)])
        self._batch = tuple([label for label in lhs.memory if label in shared.intersection(equation.output)])
        self._rows, self._cols = [
            tuple([label for label in term.memory if label not in shared]) for term in self._sides
        ]
        fits = traits.max_batch_axes is None or len(self._batch) <= traits.max_batch_axes
        rows, cols, inner = map(lowering.size, (self._rows, self._cols, self._contracted))
        self.is_product = fits and inner > 1 < rows * cols
        unit = [lhs.merged(self._rows), lhs.merged(self._contracted)]
        self._reads = (
            1 in unit and None not in unit and min(lhs.strides) > 0,
            rhs.merged(self._cols) == 1 and rhs.merged(self._contracted) is not None and min(rhs.strides) > 0,
        )

    def pays(self) -> bool:
        """Whether it takes less time than a cast and a complex product."""
        size, model = self._lowering.size, self._lowering.model
        lhs, rhs = [size(term.labels) for term in self._sides]
        rows, cols, matrices, inner = map(size, (self._rows, self._cols, self._batch, self._contracted))
        cast = model(self._dtype).copy(lhs, turned=False, source_size=itemsize(self._dtypes[0]))
        seconds = model(self._real).matmul(1, matrices, rows, 2 * cols, inner)
        if self._dtypes[0] != self._real:
            seconds += model(self._real).copy(lhs, turned=False, source_size=itemsize(self._dtypes[0]))
        elif not self._reads[0]:
            seconds += model(self._real).copy(lhs)
        if not self._reads[1]:
            seconds += model(self._dtype).copy(rhs)
        return seconds < cast + model(self._dtype).matmul(1, matrices, rows, cols, inner)

    def written(self) -> Term:
        """Append the ops."""
        lowering, batch, size = self._lowering, self._batch, self._lowering.size
        orders = (*batch, *self._rows, *self._contracted), (*batch, *self._contracted, *self._cols)
        groups = (self._rows, self._contracted), (self._contracted, self._cols)
        slots = []
        targets = self._real, self._dtype
        for term, order, axes, reads, dtype, target in zip(
            self._sides, orders, groups, self._reads, self._dtypes, targets
        ):
            if dtype != target:
                term = lowering.cast(term, target)
            read = lowering.permute(term, order) if reads else lowering.pack(term, order, _COPIED)
            slots.append(lowering.add(Reshape, read.slot, (*lowering.shape(batch), *map(size, axes))))
        slot = lowering.add(partial(Matmul, sums=self._dtype), *slots)
        return lowering.reshape(slot, (*batch, *self._rows, *self._cols))


_COPIED = "no product of real matrices reads it in place"
