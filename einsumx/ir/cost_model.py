"""``CostModel``: how long an array call takes in a framework, from sizes alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from einsumx.dtypes import FLOATS, itemsize, kind
from einsumx.imports import LazyModule
from einsumx.ir import ops
from einsumx.ir.ops import Op
from einsumx.ir.rates import Rates
from einsumx.ir.traits import Traits

if TYPE_CHECKING:
    from einsumx.ir import fill
else:  # for sparse arrays alone
    fill = LazyModule("einsumx.ir.fill")

_Label = TypeVar("_Label")

_LEAST_SIDE = 8
"""Rows or columns of a matrix product; fewer leave arithmetic units idle, except in a product of two vectors."""

_FILLED = 2
"""Where products are computed in tiles: the terms of a sum during which a tile is filled and stored, in its rows."""

_LONG_SUM = 8
"""A product's sum is long if it has more terms than this many times its rows and columns."""

_BOTH_TURNED = 0.1
"""The share by which a long sum takes longer if both matrices are turned."""

_TINY, _TURNED_RIGHT = 1 << 12, 1.0
"""The most multiply-adds of a tiny product; and how much more overhead a product has whose right matrix is turned, as a
BLAS packs it, where the framework prefers the longer operand in order."""

_DOT, _LOOPED, _LOOPED_SUM = 0.2, 0.012, 16
"""The overhead of a product of two vectors in a batch, and of each element of one in plain loops, relative to one of
matrices; and the longest vectors that such loops sum faster than a multiplication and a sum."""

_WRONG_SIDE = 0.2
"""The share by which a long sum takes longer with the longer operand on the left, where short ones prefer it there."""

_NARROW, _NARROW_UNEVEN, _NARROW_DOUBLE, _LANES = 16, 40, 100, 4
"""Where the framework prefers the longer operand on the left: the columns from which it does, in single precision if
they are a multiple of so many elements or not, and in double precision."""

_FAR_ROWS = 1 << 24
"""Bytes of a result whose columns are so far apart in memory that writing them takes longest, multiple or not."""

_TALL_NARROW = 4.0
"""How often it reads the longer operand on the left once more if there are fewer columns."""

LOPSIDED = 1.5
"""A product has many more rows than columns, or the reverse, if there are more than so many times as many."""

_TALL_TURNED, _TALL_STRAIGHT, _WIDE_TURNED = 1.6, 0.4, 0.6
"""How often a BLAS reads the longer operand of a lopsided product once more, where the framework prefers it in order:
on the left with its matrices turned or not, and on the right turned."""

_FEW_TERMS, _FEW_COLUMNS, _TALL_SHORT = 3, 16, 3.0
"""How often it does on the left if it sums at most so many terms for at most so many columns."""

_SUMMED_OUTSIDE, _OUTSIDE = (1.0, 0.6), 1 << 20
"""How often it does, on the left and on the right, in a product with a long sum whose terms are not side by side in
memory, and the least bytes of the operand."""

_WIDE_RESULT, _FEW_ROWS, _SHARED = 1.5, 32, 1 << 19
"""How often a BLAS writes a wide result once more, as its threads share the rows of a tall result, and get into each
other's way in those of a wide one; and where the framework prefers order, the most rows, those of a tile, and the most
multiply-adds, those of one thread, for which it does not."""

_SHORT_SUM = 64
"""The terms of a sum whose arithmetic hides half of that."""

EINSUM_CALLS = 1.4
"""The time of a call that reads an equation, in calls."""

_NESTED, _START, _FILL = 2, 3, 9
"""The most loops around the innermost one of an einsum that NumPy nests in C, so that a start of that takes as long as
a run of a copy; the runs of a start by NumPy's iterator, for more loops; and those of filling its buffers."""


class CostModel:
    """How long an array call takes, in seconds.

    Lowering compares candidates with it before it writes their ops; blocking and ``einsumx profile`` price ops with it
    (:func:`op_price`). docs/layouts.md lists their terms.

    Args:
        framework: its traits.
        dtype: of the operands and the result.
    """

    def __init__(self, framework: Traits, dtype: str) -> None:
        self._rates = rates = framework.rates
        self._is_strided, self._long_side = framework.strided, framework.long_side
        self._tiny_matmul = framework.layouts(dtype).tiny if framework.strided else 0
        self._size = itemsize(dtype)
        self._byte = 1 / rates.stream
        self._arithmetic = relative_work(dtype, rates)

    def overhead(self, op: Op) -> float:
        """The part of an op's time that does not depend on sizes."""
        if op.effect == "view" and not isinstance(op, ops.Diagonal):
            return self._rates.view
        return self._rates.call * (EINSUM_CALLS if isinstance(op, ops.Native) else 1)

    def matmul(
        self,
        calls: int,
        matrices: int,
        rows: int,
        cols: int,
        inner: int,
        turned: tuple[bool, bool] = (False, False),
        factor: float = 1.0,
    ) -> float:
        """A batch of matrix products.

        Args:
            calls: as many as the framework needs for all batch axes.
            matrices: in the batch.
            rows, cols, inner: ``[rows, inner] @ [inner, cols]``.
            turned: whether each operand lies in memory with the last two axes swapped.
            factor: how many times as long each product takes as one of contiguous matrices.
        """
        work = self._tiled(rows, cols, inner) * self._arithmetic / self._rates.gemm
        each = (work + self._moving(rows, cols, inner, turned)) * factor
        if self._is_strided:
            if turned[0] and turned[1] and _is_long_sum(rows, cols, inner):
                each *= 1 + _BOTH_TURNED
            if turned[1] and self._long_side == "in order" and min(rows, cols) > 1:
                each += _TURNED_RIGHT * self._rates.matrix
            if rows > LOPSIDED * cols or cols > LOPSIDED * rows:
                each += self._of_sides(rows, cols, inner, turned, each)
        return calls * self._rates.call + matrices * each

    def _moving(self, rows: int, cols: int, inner: int, turned: tuple[bool, bool]) -> float:
        """The overhead of a product of matrices, and the time of reading and writing them."""
        is_looped = rows * cols * inner < self._tiny_matmul
        if rows == cols == 1:  # both vectors need unit stride
            is_looped = is_looped and inner <= _LOOPED_SUM and turned == (False, True)
        overhead = self._rates.matrix * (_LOOPED * rows * cols if is_looped else _DOT if rows == cols == 1 else 1)
        return overhead + (rows * inner + inner * cols + 2 * rows * cols) * self._size * self._byte

    def _tiled(self, rows: int, cols: int, inner: int) -> int:
        """The multiply-adds for which a matrix product's arithmetic units are busy or idle."""
        tile = self._rates.tile
        if tile == 1:
            return inner * (1 if rows == cols == 1 else max(rows, _LEAST_SIDE) * max(cols, _LEAST_SIDE))
        if 1 in (rows, cols):  # another kernel, which waits for memory alone
            return inner * rows * cols
        return -(-rows // tile) * -(-cols // tile) * tile**2 * (inner + _FILLED * tile)

    def _of_sides(self, rows: int, cols: int, inner: int, turned: tuple[bool, bool], seconds: float) -> float:
        """What a lopsided product takes longer because of its longer side; ``seconds`` is its time without that."""
        is_tall = rows > cols
        if self._long_side == "either":
            return 0.0
        if self._long_side == "left":
            if _is_long_sum(rows, cols, inner):
                return _WRONG_SIDE * seconds if is_tall else 0.0
            short = min(rows, cols)
            is_uneven = short % _LANES > 0 and rows * cols * self._size < _FAR_ROWS
            single = _NARROW_UNEVEN if is_uneven else _NARROW
            is_narrow = short < (single if self._size < 8 else _NARROW_DOUBLE)
            elements = _TALL_NARROW * rows * inner if is_tall and is_narrow else 0.0
            is_wide_result = not is_tall and not is_narrow
        elif _is_long_sum(rows, cols, inner) and rows * cols * inner > _SHARED and min(rows, cols) > 1:
            is_outside, nbytes = turned[0] if is_tall else not turned[1], max(rows, cols) * inner * self._size
            return _SUMMED_OUTSIDE[not is_tall] * nbytes * self._byte if is_outside and nbytes > _OUTSIDE else 0.0
        else:
            more = (_TALL_TURNED if turned[0] else _TALL_STRAIGHT) if is_tall else _WIDE_TURNED * turned[1]
            if is_tall and inner <= _FEW_TERMS and 1 < cols <= _FEW_COLUMNS:
                more = _TALL_SHORT
            elements = more * max(rows, cols) * inner
            is_wide_result = not is_tall and rows > _FEW_ROWS and rows * cols * inner > _SHARED
        if is_wide_result:
            elements += _WIDE_RESULT * rows * cols
        return elements * self._size * self._byte / (1 + inner / _SHORT_SUM)

    def elementwise(self, *elements: int) -> float:
        """A multiplication or a sum that reads and writes arrays of so many elements."""
        return self._rates.call + sum(elements) * self._size * self._byte

    def copy(self, elements: int, runs: int = 0, *, turned: bool = True, source_size: int | None = None) -> float:
        """A copy.

        Args:
            elements: that it copies.
            runs: how often it runs its innermost loop (:func:`run_counters`); 0 if they are long.
            turned: it moves the innermost axis.
            source_size: bytes of an element of the source, if the copy casts.
        """
        rates = self._rates
        moved = elements * (self._size + (source_size or self._size))
        return rates.call + moved / (rates.permute if turned else rates.copy) + runs * rates.run

    def einsum(self, steps: int, rows: int, fills: int, loops: int, operands: int, is_packed: bool) -> float:
        """A call of the framework's own einsum.

        Args:
            steps: of its loop over all labels.
            rows, fills, loops: as for :func:`einsum_starts`.
            operands: how many it takes.
            is_packed: all arrays with the innermost label have it last in memory, without gaps.
        """
        rates = self._rates
        call, work = EINSUM_CALLS * rates.call, steps * max(operands - 1, 1) * self._arithmetic
        if not rates.sweep:
            return call + work / (rates.native or rates.stream)
        rate = rates.sweep if is_packed and operands < 3 else rates.native or rates.sweep
        return call + einsum_starts(rows, fills, loops) * rates.run + work / rate

    def sparse(self, elements: int, multiply_adds: int) -> float:
        """A call on sparse arrays.

        Args:
            elements: that the operands and the result store.
            multiply_adds: of stored elements.
        """
        return self._rates.call + fill.work(elements, multiply_adds) * self._arithmetic / self._rates.gemm

    def least_einsum(self, steps: int, operands: int) -> float:
        """The time of the same call if it has one row, packed."""
        return self.einsum(steps, 1, 1, 0, operands, is_packed=True)


def einsum_starts(rows: float, fills: int, loops: int) -> float:
    """The time that an einsum takes to start its innermost loop, in runs of a copy.

    Args:
        rows: how often it starts.
        fills: how often NumPy's iterator fills its buffers.
        loops: how many there are around it. See :class:`einsumx.ir.loops.Loops`.

    >>> einsum_starts(100, 1, 2), einsum_starts(100, 50, 3)
    (100, 750)
    """
    return rows if loops <= _NESTED else _START * rows + _FILL * fills


def is_sweep(lhs: Sequence[Hashable], rhs: Sequence[Hashable]) -> bool:
    """Whether a contraction is one pass through the larger operand, from the labels of both in memory order.

    It is if the smaller operand has a part of these labels, in the same order.

    >>> is_sweep("abc", "ac"), is_sweep("abc", "ca"), is_sweep("ab", "bc")
    (True, False, False)
    """
    fewer, more = sorted((lhs, rhs), key=len)
    return [label for label in more if label in fewer] == list(fewer)


def run_counters(source: Sequence[_Label], target: Sequence[_Label]) -> list[_Label]:
    """The axes that count how often a permuting copy runs its innermost loop: along axes that it leaves side by side.

    Args:
        source, target: the axes in memory order before and after, without those of size 1.

    >>> run_counters("abcd", "bacd"), run_counters("abcd", "abcd"), run_counters("abcd", "cdba")
    (['b', 'a'], [], ['c', 'd', 'b'])
    """
    outer = max(len(target) - 1, 0)
    place = source.index(target[outer]) if target else 0
    while outer and place and source[place - 1] == target[outer - 1]:
        outer, place = outer - 1, place - 1
    return list(target[:outer])


def depends_on_turns(rows: int, cols: int, inner: int) -> bool:
    """Whether a product is so small, or sums so many terms, that its time depends on which matrices are transposed."""
    return rows * cols * inner <= _TINY or _is_long_sum(rows, cols, inner)


def _is_long_sum(rows: int, cols: int, inner: int) -> bool:
    return inner > _LONG_SUM * max(rows, cols)


def relative_work(dtype: str, rates: Rates) -> float:
    """The time of a multiply-add of a dtype in units of one of float32.

    >>> gpu = Rates(gemm=8.0, double=4.0, half=64.0)
    >>> [relative_work(dtype, gpu) for dtype in ("float16", "float32", "float64", "complex64", "complex128", "int64")]
    [0.125, 1.0, 2.0, 4.0, 8.0, 2.0]
    """
    size, parts = itemsize(dtype), 1
    if kind(dtype) == "c":
        size, parts = size // 2, 4
    rate = {2: rates.half, 8: rates.double}.get(size, 0.0) if dtype in FLOATS else 0.0
    return parts * rates.gemm / rate if rate else parts * size / 4
