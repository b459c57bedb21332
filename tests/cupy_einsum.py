"""The bytes that ``cupy.einsum`` and einsumx's plans move, counted from shapes and strides alone.

A kernel reads its operands and writes its result. The rules are those of ``cupy/linalg/_einsum.py``, without
accelerators, and of ``matmul`` in ``cupy/_core/_routines_linalg.pyx``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from einsumx.dtypes import itemsize, kind
from einsumx.ir.layout import contiguous, is_contiguous, merged_stride
from einsumx.ir.ops import Matmul


@dataclass
class Moved:
    """Bytes: all that kernels read and write, those that copies write, and those that CuPy copies by itself."""

    total: int = 0
    copied: int = 0
    silent: int = 0


@dataclass(frozen=True)
class _Array:
    labels: tuple[str, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements in memory."""
        return prod(size for size, stride in zip(self.shape, self.strides) if stride)

    def without(self, labels: set[str]) -> _Array:
        kept = [axis for axis, label in enumerate(self.labels) if label not in labels]
        return _Array(*(tuple(part[axis] for axis in kept) for part in (self.labels, self.shape, self.strides)))

    def is_packed(self, order: Sequence[str]) -> bool:
        """Whether the array, with its axes in this order, is C-contiguous."""
        axes = [self.labels.index(label) for label in order]
        shape, strides = [self.shape[axis] for axis in axes], [self.strides[axis] for axis in axes]
        return merged_stride(shape, strides) == 1 or 0 in shape


def _packed(labels: Sequence[str], sizes: dict[str, int]) -> _Array:
    shape = tuple(sizes[label] for label in labels)
    return _Array(tuple(labels), shape, contiguous(shape))


def moved_by_cupy(
    equation: str, shapes: Sequence[Sequence[int]], strides: Sequence[Sequence[int]], dtype: str, path: Any
) -> Moved:
    """What ``cupy.einsum`` moves along a path; strides are in elements."""
    inputs, _, output = equation.partition("->")
    moved, size = Moved(), itemsize(dtype)
    sizes: dict[str, int] = {}
    terms = []
    for labels, shape, steps in zip(inputs.split(","), shapes, strides):
        for label, length in zip(labels, shape):
            sizes[label] = max(sizes.get(label, 1), length)
        summed: dict[str, tuple[int, int]] = {}  # a diagonal adds up strides
        for label, length, step in zip(labels, shape, steps):
            summed[label] = length, summed.get(label, (0, 0))[1] + step
        summed = {label: pair for label, pair in summed.items() if pair[0] != 1 or len(shapes) == 1}
        own = tuple(summed)
        terms.append(_Array(own, tuple(summed[x][0] for x in own), tuple(summed[x][1] for x in own)))
    for at, term in enumerate(terms):
        others = set(output).union(*[other.labels for number, other in enumerate(terms) if number != at])
        if gone := set(term.labels) - others:
            terms[at] = _packed(term.without(gone).labels, sizes)
            moved.total += (term.size + terms[at].size) * size
    for step in path:
        taken = [terms.pop(place) for place in sorted(step, reverse=True)]  # the last operand is on the left
        while len(taken) > 1:
            lhs, rhs, *others = taken
            kept = set(output).union(*[term.labels for term in (*terms, *others)])
            taken = [_pair(lhs, rhs, kept, sizes, moved, size), *others]
        terms += taken
    return moved


def _pair(lhs: _Array, rhs: _Array, kept: set[str], sizes: dict[str, int], moved: Moved, size: int) -> _Array:
    shared = sorted(set(lhs.labels) & set(rhs.labels))
    batch, contracted = [x for x in shared if x in kept], [x for x in shared if x not in kept]
    rows, cols = sorted(set(lhs.labels) - set(shared)), sorted(set(rhs.labels) - set(shared))
    result = _packed([*batch, *rows, *cols], sizes)
    if contracted:
        for side, order in ((lhs, [*batch, *rows, *contracted]), (rhs, [*batch, *contracted, *cols])):
            full = prod(side.shape)
            if not side.is_packed(order):
                moved.total += (side.size + full) * size
                moved.copied += full * size
                moved.total += full * size
            else:
                moved.total += side.size * size
        moved.total += result.size * size
    else:
        moved.total += (lhs.size + rhs.size + result.size) * size
    return result


def moved_by_plan(program: Any) -> Moved:
    """What a plan of einsumx moves."""
    described = program.values
    moved = Moved()
    for op in program.ops:
        if op.effect == "view":
            continue
        written = described[op.out].nbytes
        moved.total += written + sum(_stored(described[slot]) for slot in op.sources)
        moved.copied += written if op.effect == "copy" else 0
        if isinstance(op, Matmul):
            moved.silent += _copied_by_matmul([described[slot] for slot in op.sources])
    return moved


def _copied_by_matmul(operands: Sequence[Any]) -> int:
    """The bytes of the operands that ``matmul`` would copy, batches pair by pair if one of them is not contiguous."""
    sides = [(side.shape, side.strides or contiguous(side.shape), side) for side in operands if 0 not in side.shape]
    is_batched = max(len(side.shape) for side in operands) > 2
    if is_batched and all(is_contiguous(shape, steps) for shape, steps, _ in sides):
        return 0
    is_integer = kind(operands[0].dtype) in "biu"
    return sum(
        side.nbytes
        for shape, steps, side in sides
        if not is_contiguous(shape[-2:], steps[-2:])
        and (is_integer or not is_contiguous(shape[-2:][::-1], steps[-2:][::-1]))
    )


def _stored(operand: Any) -> int:
    steps = operand.strides or contiguous(operand.shape)
    return prod(size for size, step in zip(operand.shape, steps) if step) * itemsize(operand.dtype)
