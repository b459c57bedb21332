"""``Program``: immutable data, the array calls that compute a contraction."""

from __future__ import annotations

from dataclasses import field
from math import prod
from typing import TYPE_CHECKING

from einsumx.dtypes import itemsize
from einsumx.imports import LazyModule
from einsumx.ir.algebra import PLUS_TIMES, Algebra
from einsumx.ir.records import record

if TYPE_CHECKING:
    from einsumx.ir import ops as kinds
else:
    kinds = LazyModule("einsumx.ir.ops")  # which imports this module; typing.get_type_hints needs it

Path = tuple[tuple[int, ...], ...]

COORDINATE = 8
"""Bytes of a coordinate of an element of a sparse array."""


@record
class Operand:
    """The shape, dtype and layout that a plan assumes of one operand.

    Attributes:
        shape: sizes of its axes.
        dtype: by NumPy's name.
        strides: in elements, representative of the layout class; None if C-contiguous.
        weak: its dtype yields to other dtypes of its kind, as that of Python scalars in JAX.
        stored: about how many elements it stores, if it is sparse; None if it is dense.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    weak: bool = False
    stored: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, counting repeated ones too; of a sparse one, with their coordinates."""
        if self.stored is not None:
            return self.stored * (itemsize(self.dtype) + COORDINATE * len(self.shape))
        return prod(self.shape) * itemsize(self.dtype)


class _Referable:
    """Objects that weak references accept, as ``tf.function`` needs of what it traces."""

    __slots__ = ("__weakref__",)


@record
class Program(_Referable):
    """A contraction as straight-line array calls over numbered slots.

    Lowering returns one. Users get its subclass :class:`einsumx.Plan`, which they can call, print and store.

    Attributes:
        equation: in text form with an explicit output; sublist labels are written as letters.
        backend: the name of the backend that it was lowered for.
        device: the kind of device that it was lowered for; empty for the backend's default.
        operands: shape, dtype and layout of each operand; operand ``k`` is slot ``k``.
        path: the operands of each pairwise contraction, as positions in the form of NumPy and opt_einsum.
        ops: what runs, in order.
        result: the slot that holds the result.
        shape: the result's shape.
        dtype: the result's dtype.
        accumulate: the dtype that products and sums are to be computed in, if a result of ``dtype`` on this backend has
            another one by itself; otherwise None.
        algebra: what sums, products and zeros mean.
        named: the equation in the user's names; empty if labels are letters.
        choices: the names of the candidates for the steps that were measured to be faster than the estimate's; see
            :class:`~einsumx.planner.selection.Selection`.
    """

    equation: str
    backend: str
    device: str
    operands: tuple[Operand, ...]
    path: Path
    ops: tuple[kinds.Op, ...]
    result: int
    shape: tuple[int, ...]
    dtype: str
    accumulate: str | None = None
    algebra: Algebra = PLUS_TIMES
    named: str = field(default="", compare=False)
    choices: tuple[str, ...] = field(default=(), compare=False)

    @property
    def written(self) -> str:
        """The equation for users: in their names, if they gave any."""
        return self.named or self.equation

    @property
    def calls(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each op, the slot that it writes and those that it reads."""
        return [(op.out, op.sources) for op in self.ops]
