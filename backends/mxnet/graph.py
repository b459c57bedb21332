"""Contractions inside MXNet's traces: a graph outlives the sizes that it was traced with, so its ops know none.

A plan is made as for arrays, of sizes that tell its labels apart, and replayed on labels in the place of sizes: each
reshape of it becomes merges of neighbouring axes, and splits that read the sizes from a value which still has the axes
apart. What is recorded are MXNet's own ops, so that an exported graph needs no einsumx.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any, Protocol, TypeAlias

from einsumx.adapters.traits import Traits
from einsumx.adapters.typing import Array, Run, Signature
from einsumx.backends.mxnet.tracing import Known, UnknownRankError, known
from einsumx.errors import excerpt
from einsumx.ir.bind import EllipsisAxis, SizedEquation
from einsumx.ir.cost import slot_dtypes
from einsumx.ir.ops import (
    Cast,
    Copy,
    Diagonal,
    Expand,
    First,
    Matmul,
    Multiply,
    Native,
    Op,
    Reshape,
    Scale,
    Sum,
    Transpose,
    Zeros,
)
from einsumx.ir.program import Operand, Program
from einsumx.planner.lower import lower
from einsumx.runtime.prepare import parsed, sized_equation
from einsumx.runtime.request import Written

__all__ = ["recorded", "signatures", "through_int8"]

Axis: TypeAlias = tuple[int, ...]
"""The labels that are merged in one axis; none in an axis of size 1."""

_ASSUMED = 32
"""The size that a label is planned with where none is known."""


class GraphAdapter(Protocol):
    """What is asked of the adapter: whose arrays or symbols are recorded, and how they are transposed."""

    @property
    def xp(self) -> Any:
        """``mx.np`` or ``mx.sym.np``."""

    @property
    def npx(self) -> Any:
        """What it has beyond NumPy."""

    def traits(self, device: str) -> Traits:
        """The traits on a device."""

    def swaps(self, axes: tuple[int, ...]) -> Sequence[tuple[int, int]]:
        """The swaps of two axes that are faster than a transpose, if any are."""


def signatures(written: Written, symbols: Sequence[Any]) -> tuple[Signature, ...]:
    """What MXNet 1's symbols are planned as: of the shapes and dtypes that are known, and of likely ones.

    Sizes that are not known are taken to be those of the same label elsewhere, or not to be 1.

    Raises:
        UnknownRankError: a subscript has an ellipsis, and nothing says how many axes that is.
    """
    found = list(map(known, symbols))
    terms = parsed(written, len(symbols)).inputs
    for number, (term, about) in enumerate(zip(terms, found)):
        if about.shape is None and ... in term:
            raise UnknownRankError(
                f"operand {number} is a symbol without a shape, so how many axes its ellipsis stands for is not known; "
                f"write labels in its place, or declare the shape of the variable\n  {excerpt(str(written))}"
            )
    shapes = [(None,) * len(term) if about.shape is None else about.shape for term, about in zip(terms, found)]
    axes = list(map(_axes, terms, shapes))
    sizes: dict[Any, int] = {}
    for labels, shape in zip(axes, shapes):
        sizes.update((label, size) for label, size in zip(labels, shape) if size not in (None, 1))
    assumed = [
        tuple(sizes.get(label, _ASSUMED) if size is None else size for label, size in zip(labels, shape))
        for labels, shape in zip(axes, shapes)
    ]
    return tuple(
        (type(symbol), shape, _dtype(about, found), "") for symbol, shape, about in zip(symbols, assumed, found)
    )


def _axes(term: Sequence[Any], shape: Sequence[int | None]) -> tuple[Any, ...]:
    """What tells the axes of a symbol apart: labels, and places from the right in what an ellipsis stands for."""
    if ... not in term:
        return (*term, *map(EllipsisAxis, range(len(term), len(shape))))  # where the rank does not fit, binding says so
    place, span = term.index(...), max(len(shape) - len(term) + 1, 0)
    return (*term[:place], *(EllipsisAxis(-k) for k in range(span, 0, -1)), *term[place + 1 :])


def _dtype(about: Known, others: Sequence[Known]) -> str:
    return about.dtype or next((other.dtype for other in others if other.dtype), "float32")


@lru_cache(maxsize=256)
def recorded(plan: Program, adapter: GraphAdapter) -> Run:
    """A function that records the contraction of ``plan`` for operands of any sizes.

    Where an axis of size 1 broadcast in ``plan``, it must have that size ever after.
    """
    sized = sized_equation(plan.equation, [operand.shape for operand in plan.operands])
    sizes = tuple(max(size, 2) for size in sized.sizes)
    inputs = tuple(
        tuple((label,) if size == sized.sizes[label] else () for label, size in zip(term, operand.shape))
        for term, operand in zip(sized.inputs, plan.operands)
    )
    shapes = tuple(_shape(axes, sizes) for axes in inputs)
    operands = [Operand(shape, operand.dtype) for shape, operand in zip(shapes, plan.operands)]
    general = lower(
        SizedEquation(sized.text, sized.inputs, sized.output, sizes, shapes),
        operands,
        plan.path,
        backend=plan.backend,
        # MXNet's own einsum would be recorded for the large problems of later calls too.
        # A batch axis between the others is MXNet 1's for arrays alone.
        traits=replace(adapter.traits(plan.device), native_dtypes=frozenset(), inner_batch=False),
        dtype=plan.dtype,
        device=plan.device,
    )
    dtypes = slot_dtypes(general)

    def record(*arrays: Array) -> Array:
        values = _Values(adapter, sizes, dict(dtypes))
        for slot, (array, axes) in enumerate(zip(arrays, inputs)):
            values.put(slot, array, axes)
        for op in general.ops:
            values.run(op)
        return values.arrays[general.result]

    return record


def through_int8(rearrange: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """``rearrange`` for bools, of which MXNet takes neither transposes nor diagonals."""
    return lambda array: rearrange(array.astype("int8")).astype("bool")


def _shape(axes: Sequence[Axis], sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(sizes[label] for label in axis) for axis in axes)


class _Values:
    """The values of a plan that is being recorded, with the labels of their axes."""

    def __init__(self, adapter: GraphAdapter, sizes: Sequence[int], dtypes: dict[int, str]) -> None:
        self.adapter, self.sizes, self.dtypes = adapter, sizes, dtypes
        self.arrays: dict[int, Array] = {}
        self.axes: dict[int, tuple[Axis, ...]] = {}

    def put(self, slot: int, array: Array, axes: Sequence[Axis]) -> None:
        """Keep a value."""
        self.arrays[slot], self.axes[slot] = array, tuple(axes)

    def run(self, op: Op) -> None:
        """Record one op of the plan."""
        adapter = self.adapter
        xp, npx = adapter.xp, adapter.npx
        match op:
            case Matmul():
                lhs, rhs = self.axes[op.lhs], self.axes[op.rhs]
                product = npx.batch_dot(
                    self.arrays[op.lhs], self.arrays[op.rhs], transpose_a=op.transpose_lhs, transpose_b=op.transpose_rhs
                )
                self.put(op.out, product, op.product(lhs, rhs, lambda one, other: one or other))
            case Multiply():
                lhs, rhs = self.axes[op.lhs], self.axes[op.rhs]
                rank = max(len(lhs), len(rhs))
                lhs, rhs = ((),) * (rank - len(lhs)) + lhs, ((),) * (rank - len(rhs)) + rhs
                product = xp.multiply(self.arrays[op.lhs], self.arrays[op.rhs])
                self.put(op.out, product, [one or other for one, other in zip(lhs, rhs)])
            case Reshape():
                self._reshape(op)
            case Transpose():
                array = self._rearranged(op.src, lambda array: self._transposed(array, op.axes))
                self.put(op.out, array, op.arranged(self.axes[op.src]))
            case Diagonal():
                array = self._rearranged(op.src, lambda array: xp.diagonal(array, 0, op.axis1, op.axis2))
                self.put(op.out, array, op.arranged(self.axes[op.src]))
            case Sum():
                total = xp.any if self.dtypes[op.src] == "bool" else xp.sum
                self.put(op.out, total(self.arrays[op.src], axis=op.axes), op.arranged(self.axes[op.src]))
            case Cast():
                # The reshape is there for its gradient, which adds where MXNet 1's of a cast overwrites.
                self.put(op.out, self._same(op.src).astype(op.dtype), self.axes[op.src])
            case Copy():
                self.put(op.out, self._same(op.src), self.axes[op.src])
            case Expand() | First() | Scale() | Native() | Zeros():
                raise AssertionError(f"{op} is not planned for MXNet's graphs")

    def _same(self, slot: int) -> Array:
        return self.adapter.npx.reshape(self.arrays[slot], (_REST,))

    def _rearranged(self, slot: int, rearrange: Callable[[Array], Array]) -> Array:
        if self.dtypes[slot] == "bool":
            rearrange = through_int8(rearrange)
        return rearrange(self.arrays[slot])

    def _transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        for pair in (swaps := self.adapter.swaps(axes)):
            array = self.adapter.xp.swapaxes(array, *pair)
        return array if swaps else self.adapter.xp.transpose(array, axes)

    # -- reshapes ---------------------------------------------------------------------------------------

    def _reshape(self, op: Reshape) -> None:
        axes = self.axes[op.src]
        labels = [label for axis in axes for label in axis]
        wanted: list[Axis] = []
        for size in op.shape:
            taken = 0
            while prod(self.sizes[label] for label in labels[:taken]) < size:
                taken += 1
            wanted.append(tuple(labels[:taken]))
            del labels[:taken]
        array, parts = self._split(op, wanted)
        if parts != list(self.axes[op.src]):  # these may never be apart again, but be asked for
            between = -op.out
            self.dtypes[between] = self.dtypes[op.src]
            self.put(between, array, parts)
        array = self._merged(array, parts, [axis for axis in wanted if axis])
        for place, axis in enumerate(wanted):
            if not axis:
                array = self.adapter.xp.expand_dims(array, place)
        self.put(op.out, array, wanted)

    def _split(self, op: Reshape, wanted: Sequence[Axis]) -> tuple[Array, list[Axis]]:
        """The source of ``op`` with its axes cut where those that are wanted end."""
        ends = set(accumulate(map(len, wanted)))
        array, axes = self.arrays[op.src], list(self.axes[op.src])
        place = start = 0
        while place < len(axes):
            stop = start + len(axes[place])
            if any(start < end < stop for end in ends):
                slot, first, last = self._apart(axes[place], self.dtypes[op.src])
                array = self.adapter.npx.reshape_like(
                    array, self.arrays[slot], lhs_begin=place, lhs_end=place + 1, rhs_begin=first, rhs_end=last
                )
                axes[place : place + 1] = self.axes[slot][first:last]
            else:
                place, start = place + 1, stop
        return array, axes

    def _apart(self, axis: Axis, dtype: str) -> tuple[int, int, int]:
        """A value that has the labels of a merged axis in several neighbouring ones, and which these are.

        There is one, for it is of such neighbours that axes are merged.
        """
        for slot, axes in self.axes.items():
            for first in range(len(axes)):
                for last in range(first + 2, len(axes) + 1):
                    between = axes[first:last]
                    if self.dtypes[slot] == dtype and sum(between, ()) == axis and axis not in between:
                        return slot, first, last
        raise AssertionError(f"no value has the labels {axis} apart")

    def _merged(self, array: Array, axes: Sequence[Axis], wanted: Sequence[Axis]) -> Array:
        """Axes merged, two at a time, until they are those wanted; axes of size 1 dropped."""
        while list(axes) != list(wanted):
            codes, merged = [], []
            rest = iter(wanted)
            place = 0
            target: Axis = ()
            while place < len(axes):
                axis = axes[place]
                if not axis:
                    codes.append(_DROP)
                    place += 1
                    continue
                if not target:
                    target = next(rest)
                following = axes[place + 1] if place + 1 < len(axes) else ()
                if axis != target and following:
                    axis = (*axis, *following)
                    codes.append(_MERGE)
                    place += 2
                else:
                    codes.append(_KEEP)
                    place += 1
                merged.append(axis)
                target = target[len(axis) :]
            array, axes = self.adapter.npx.reshape(array, tuple(codes)), merged
        return array


_KEEP, _DROP, _REST, _MERGE = -2, -3, -4, -5
"""Codes of ``npx.reshape``: an axis as it is; one of size 1 gone; all that are left as they are; two as one."""
