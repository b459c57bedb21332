"""The operations that a plan is made of: one array call each, over numbered slots.

Slots ``0 .. n-1`` hold the operands; every op writes one new slot. No op writes into a slot that exists,
so a plan can be read, checked and reordered as pure data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

__all__ = [
    "Cast",
    "Copy",
    "Diagonal",
    "Expand",
    "First",
    "Matmul",
    "Multiply",
    "Native",
    "Op",
    "Reshape",
    "Scale",
    "Sum",
    "Transpose",
    "Zeros",
    "renamed",
    "sources",
]


@dataclass(frozen=True, slots=True)
class Transpose:
    """Axis ``k`` of the result is axis ``axes[k]`` of the source. ``reason`` is set where this copies."""

    out: int
    src: int
    axes: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in C order of the axes; always planned so that nothing is copied."""

    out: int
    src: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expand:
    """Axes of size 1 get the sizes of ``shape`` with a stride of 0: a view, planned only where there are strides."""

    out: int
    src: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class First:
    """Element 0 along ``axes``, which are gone: a view of all that there is where an axis has a stride of 0."""

    out: int
    src: int
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Diagonal:
    """Two axes of equal size become one, in the last place, as ``numpy.diagonal`` has it.

    ``reason`` is set where this copies.
    """

    out: int
    src: int
    axis1: int
    axis2: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """A C-contiguous copy in the source's axis order, with the reason why it is needed."""

    out: int
    src: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cast:
    """Another dtype. A cast to bool asks whether an element is not zero."""

    out: int
    src: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum over ``axes``, in the source's dtype: integers wrap, a sum of bools is an or."""

    out: int
    src: int
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """The sum of ``count`` arrays, all equal to the source: ``count`` times it, in its dtype; integers wrap.

    Planned where a label is summed along which no operand has data of its own: each operand that has it repeats itself
    there (:class:`First`), and the sum is so many times one term. Counts of several labels are multiplied, up to
    ``2**63 - 1`` in one op. Sums of bools need none: an or of equal terms is that term.
    """

    out: int
    src: int
    count: int


@dataclass(frozen=True, slots=True)
class Multiply:
    """The elementwise product, broadcasting as NumPy does; a product of bools is an and."""

    out: int
    lhs: int
    rhs: int


@dataclass(frozen=True, slots=True)
class Matmul:
    """``lhs[..., m, k] @ rhs[..., k, n]``; with a flag set, that operand's last two axes lie swapped.

    The batch axes are as many in both; where one has size 1 and the other has not, it broadcasts. Where there are
    none, an operand may be a vector, of axis ``k`` alone. With ``inner_batch`` the last batch axis lies between
    the two axes of the matrices, in the result too: ``lhs[..., m, b, k]`` and ``rhs[..., k, b, n]``.
    """

    out: int
    lhs: int
    rhs: int
    transpose_lhs: bool = False
    transpose_rhs: bool = False
    inner_batch: bool = False


@dataclass(frozen=True, slots=True)
class Native:
    """The framework's own einsum kernel, where it is the best primitive (tiny or integer work)."""

    out: int
    operands: tuple[int, ...]
    equation: str


@dataclass(frozen=True, slots=True)
class Zeros:
    """A contraction in which some label has size 0: sums over nothing, which are 0, or a result without elements.

    It is the only op of its plan. The operands tell on which device the result is made, and get gradients of zeros;
    their elements are not read.
    """

    out: int
    operands: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str


Op: TypeAlias = (
    Transpose | Reshape | Expand | First | Diagonal | Copy | Cast | Sum | Scale | Multiply | Matmul | Native | Zeros
)


def sources(op: Op) -> tuple[int, ...]:
    """The slots that ``op`` reads.

    >>> sources(Matmul(2, 0, 1))
    (0, 1)
    """
    match op:
        case Multiply() | Matmul():
            return (op.lhs, op.rhs)
        case Native() | Zeros():
            return op.operands
        case Transpose() | Reshape() | Expand() | First() | Diagonal() | Copy() | Cast() | Sum() | Scale():
            return (op.src,)


def renamed(op: Op, names: Mapping[int, int]) -> Op:
    """``op`` reading other slots, where any of those that it reads has another name.

    >>> renamed(Multiply(2, 0, 1), {1: 7})
    Multiply(out=2, lhs=0, rhs=7)
    """
    if not any(slot in names for slot in sources(op)):
        return op
    match op:
        case Multiply() | Matmul():
            return replace(op, lhs=names.get(op.lhs, op.lhs), rhs=names.get(op.rhs, op.rhs))
        case Native() | Zeros():
            return replace(op, operands=tuple(names.get(slot, slot) for slot in op.operands))
        case Transpose() | Reshape() | Expand() | First() | Diagonal() | Copy() | Cast() | Sum() | Scale():
            return replace(op, src=names.get(op.src, op.src))
