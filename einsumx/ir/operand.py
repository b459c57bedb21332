"""``Operand``: the shape, dtype and layout of an array, as plans know it."""

from __future__ import annotations

from math import prod

from einsumx.dtypes import itemsize
from einsumx.ir.records import record

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
        nnz: about how many elements it stores, if it is sparse; None if it is dense.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    weak: bool = False
    nnz: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, counting repeated ones too; of a sparse one, with their coordinates."""
        if self.nnz is not None:
            return self.nnz * (itemsize(self.dtype) + COORDINATE * len(self.shape))
        return prod(self.shape) * itemsize(self.dtype)


def span_bytes(operand: Operand) -> int:
    """Bytes of the memory from the first element to the last one; less than ``nbytes`` if elements share memory."""
    if operand.strides is None:
        return operand.nbytes
    steps = sum([(size - 1) * abs(stride) for size, stride in zip(operand.shape, operand.strides)])
    return (steps + 1) * itemsize(operand.dtype) if 0 not in operand.shape else 0


def has_many_windows(operand: Operand) -> bool:
    """Whether an array shows its memory many times, so that a copy would take far more than that."""
    return operand.strides is not None and operand.nbytes > max(_LARGE, _MANY * span_bytes(operand))


_LARGE, _MANY = 1 << 25, 4
"""The least bytes of such an array, and how many times its memory that is."""
