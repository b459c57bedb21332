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
