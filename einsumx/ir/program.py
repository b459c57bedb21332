"""A program: immutable data that says which array calls compute a contraction."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from einsumx.dtypes import itemsize

if TYPE_CHECKING:
    from einsumx.ir.ops import Op

__all__ = ["Operand", "Path", "Program"]

Path = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """What a plan assumes of one operand.

    Attributes:
        shape: sizes of its axes.
        dtype: by NumPy's name.
        strides: in elements, an axis each, as a representative of the layout; None where C-contiguous.
        weak: its dtype yields to that of other operands of its kind, as JAX has it for what was a Python scalar.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    weak: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, as if each were stored."""
        return prod(self.shape) * itemsize(self.dtype)


@dataclass(frozen=True, slots=True)
class Program:
    """A contraction as straight-line array calls over numbered slots.

    Lowering makes it. What users get is a :class:`einsumx.Plan`, which is one, and can be called, printed and stored.

    Attributes:
        equation: in text form with an explicit output; sublist labels are written as letters.
        backend: the name of the backend that it was lowered for.
        device: the kind of device that it was lowered for (empty: the backend's default).
        operands: shape, dtype and layout of each operand; operand ``k`` is slot ``k``.
        path: which operands each pairwise contraction takes, positions as in NumPy and opt_einsum.
        ops: what runs, in order.
        result: the slot that holds the result.
        shape: the result's shape.
        dtype: the result's dtype.
    """

    equation: str
    backend: str
    device: str
    operands: tuple[Operand, ...]
    path: Path
    ops: tuple[Op, ...]
    result: int
    shape: tuple[int, ...]
    dtype: str
