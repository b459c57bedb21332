"""What the planner must know of a framework: facts, declared by its adapter."""

from __future__ import annotations

from dataclasses import dataclass, field

from einsumx.adapters.rates import Rates

__all__ = ["Traits"]


@dataclass(frozen=True, slots=True)
class Traits:
    """Facts about one framework on one kind of device, read by the planner.

    The planner never asks which framework it plans for: what decides between two lowerings is here.
    Dtypes are named as NumPy names them (``"float32"``, ``"bfloat16"``).
    """

    strided: bool = True
    """Arrays have strides: a transpose is a view, and so is a reshape of axes that merge.
    Otherwise every array is C-contiguous, a transpose copies, and a reshape is free."""

    views: bool = True
    """The framework's own einsum returns views of its operand for pure rearrangements."""

    memory_order: bool = True
    """``order="C"``, ``"F"`` and ``"A"`` mean something."""

    dtypes: frozenset[str] | None = None
    """The dtypes that einsum computes in (None: whichever the adapter knows)."""

    min_batch_axes: int = 0
    max_batch_axes: int | None = None
    """How many batch axes one matmul takes (None: any number). Where ``batch_strides`` holds, the adapter takes more,
    at the cost of a call for each index of all but the largest."""

    batch_strides: bool = True
    """Batch axes of a matmul may have any strides, 0 among them, and each matrix needs one unit stride.
    Otherwise matrices must lie packed, one after another."""

    transpose_flags: bool = False
    """Matmul reads a packed operand transposed when told so by a flag; set where a transpose is no view."""

    inner_batch: bool = False
    """A further batch axis may lie between the rows and the columns of a matmul, in both operands and in the result.
    Read only where there are no strides, and not for arrays without elements."""

    short_rows: bool = False
    """A matmul that sums a long axis is faster with few rows and many columns than the other way round."""

    max_transpose_axes: int | None = None
    """The most axes, 4 or more, that one transpose takes where it copies (None: any number)."""

    max_sum_axes: int | None = None
    """The most axes that one sum takes (None: any number); neighbours that are all summed, or all kept, are fused."""

    outer_by_matmul: bool = False
    """An outer product is cheaper as a matmul over one axis of size 1, as multiply is slow to broadcast."""

    matmul_dtypes: frozenset[str] = frozenset()
    """Dtypes that matmul computes in as they are."""

    matmul_through: tuple[tuple[str, str], ...] = ()
    """``(dtype, other)``: a product of ``dtype`` is computed by a matmul of ``other`` and cast back.
    For bool: a sum of ands that is not zero is an or of ands."""

    widen: tuple[tuple[str, str], ...] = ()
    """``(dtype, wider)``: dtypes whose sums must be accumulated, and whose intermediates kept, in ``wider``."""

    wide_matmul: frozenset[str] = frozenset()
    """Dtypes of ``widen`` for which one matmul already accumulates wide and rounds once."""

    wide_sum: frozenset[str] = frozenset()
    """The same for one sum."""

    native_dtypes: frozenset[str] = frozenset()
    """Dtypes for which the framework's own einsum kernel takes products that matmul does not."""

    native_any_labels: bool = False
    """That kernel is right for diagonals and without labels too, gradients included."""

    native_max_labels: int = 0
    native_max_operands: int = 0

    rates: Rates = field(default_factory=Rates)
    """How fast it all is."""
