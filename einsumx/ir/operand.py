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

    @property
    def span_bytes(self) -> int:
        """Bytes of the memory from its first element to its last one; less than ``nbytes`` if elements share memory."""
        if self.strides is None:
            return self.nbytes
        steps = sum([(size - 1) * abs(stride) for size, stride in zip(self.shape, self.strides)])
        return (steps + 1) * itemsize(self.dtype) if 0 not in self.shape else 0

    @property
    def has_many_windows(self) -> bool:
        """Whether it shows its memory many times, so that a copy would take far more than that."""
        return self.strides is not None and self.nbytes > max(_LARGE, _MANY * self.span_bytes)


_LARGE, _MANY = 1 << 25, 4
"""The least bytes of such an array, and how many times its memory that is."""
