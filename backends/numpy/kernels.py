"""Kernels that run ops on NumPy arrays, split over the threads of the pool if the work is large enough.

The split depends only on shapes and the number of threads, and partial sums are added in a fixed order, so equal calls
return equal bits regardless of scheduling. Workers never warn about infinities and nan; in the caller's thread the
adapter's ``prepare`` disables these warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import product
from math import ceil, prod
from operator import methodcaller
from sys import is_finalizing
from typing import TYPE_CHECKING, Any

import numpy as np

from einsumx.backends.numpy.jobs import Kernel, Range, Shape, grid, in_jobs, within
from einsumx.imports import LazyModule, imported
from einsumx.ir.layout import broadcast, inverse, memory_order, ranges
from einsumx.ir.ops import Threads
from einsumx.ir.parse import symbol

if TYPE_CHECKING:
    from einsumx.backends.numpy import columns
    from einsumx.host import threads as pool
else:
    columns = LazyModule("einsumx.backends.numpy.columns")
    pool = LazyModule("einsumx.host.threads")

# Rates per second of one thread, only used to decide what to split.
_MULTIPLY_ADDS = {"float32": 60e9, "float64": 30e9, "complex64": 15e9, "complex128": 7e9}
_SLOW_MULTIPLY_ADDS = 1e9
_BYTES = 16e9
_PER_MATRIX = 0.1e-6
_PIECE = 50e-6
"""The least seconds of work in a job: about the time that it takes to wake a sleeping thread."""

_LEAST = 300e-6
"""The least seconds of work to split."""

_SWEEPS = 6e6
"""The most multiply-adds of a sweep for which one thread is as fast as memory, thanks to its caches."""

_BLAS_SHARES = 1 << 22
"""The least multiply-adds of each product of a batch that BLAS's own threads share as well as the pool does.

BLAS threads keep spinning after any product in the process, which leaves half a core to one of the pool's. Batches of
smaller products are faster on the pool all the same, up to twice as fast, since BLAS shares each of them. A choice at
run time, by whether BLAS threads spin, would return other bits: half of the products differ in their last bits.
"""

_BLAS_SHARES_VECTORS, _REPAYS_A_WAIT = 9000, 200_000
"""The elements from which BLAS shares a product with a vector, and those whose arithmetic repays a wait for a thread.

A second thread saves some microseconds between them. If other programs use all cores, it starts milliseconds later.
"""

_BLAS_SHARES_PRODUCTS, _PRODUCT_REPAYS_A_WAIT = 10**6, 45e-6
"""The same for other products: the multiply-adds from which BLAS shares them on every processor, and the seconds."""

_LEAST_PRODUCT = 500e-6
"""The least seconds of products to split: a thread that sleeps takes 0.1 ms and more to start on a virtual machine."""

_LONG_PRODUCT, _PART, _PART_OF_ROWS = 1 << 22, 1 << 19, 1 << 12
"""The bytes of an operand from which a product of single-precision floats with a vector is summed in parts, the bytes
of a part of a vector, and the terms of a part of a matrix. BLAS adds the terms one after the other in a few sums: of
millions of equal terms, two or three digits are right."""

_LONG_SUM = 8
"""A product's sum is cut if it has more terms than this many times its rows and columns."""

_LINE = 64
"""Bytes of a cache line."""
_LINES = 1024
_PAGE = 4096
_ALIASED_LINES = 192
"""Lines whose distance is a multiple of a page compete for the same few places in the cache."""
_LEAST_COPY = 1 << 14
"""The least elements that are worth a separate assignment."""

_ALL = slice(None)

_SHORT_ROW, _LONGEST_ROW = 128, {"float32": 2048, "float64": 2048, "complex64": 0, "complex128": 0, "bfloat16": 0}
"""The most elements of a row of an outer product for which the loop of NumPy's einsum is faster: that one, unless the
dtype has another. That einsum computes in no bfloat16."""

_CACHED_ROW, _CACHED = 64, 1 << 22
"""If rows have at least so many elements, the most bytes of a result for which it is, where numbers multiply rows; with
shorter rows it is in outer products alone."""

_FEW_COLUMNS, _MULTIPLIED, _SUMMED, _MANY_ROWS = 4, 8, 16, 1 << 12
"""The most elements of rows that are computed column by column, one more than of elements with so many bytes that are
multiplied or summed, and the least rows."""

_SHORT_LOOP = 32
"""The most elements of a row over which the einsum of NumPy loops for longer than memory takes to deliver them."""

_SHORT_SUM, _SHORT_COMPLEX_SUM = 4, 2
"""The most elements of a row over which a sum runs faster along other axes."""

_UPDATED = 1 << 18
"""The bytes of a block of ``out`` that is read, multiplied, added to and written while it is in the cache."""

_FEW, _FEW_MATRICES = 1 << 17, 1 << 10
"""The most multiply-adds for which no time is spent on how to split the work, and the most matrices with so many."""

_TINY = 1 << 12
"""The most multiply-adds of a product whose time is all overhead. In OpenBLAS that is a lock, for which threads wait: a
batch of such products takes up to five times as long on two threads as on one, unless it has kernels without locks."""

_WITHOUT_LOCK = ("float32", "float64")
"""Those of which OpenBLAS computes small products without a lock on processors with AVX-512."""


def _einsum() -> Callable[..., Any]:
    """``numpy.einsum`` without its Python wrapper, which takes longer than a tiny contraction."""
    for module in ("numpy._core.multiarray", "numpy.core.multiarray"):
        with suppress(ImportError, AttributeError):
            c_einsum: Callable[..., Any] = import_module(module).c_einsum
            return c_einsum
    original: Callable[..., Any] = imported("einsumx.adapters.replacement").own(np.einsum)
    return original


_EINSUM = _einsum()

_LETTERS = 52
"""The most labels that it takes."""


# -- splitting ------------------------------------------------------------------------------------------------


def _pieces(seconds: float, least: float | None = None) -> int:
    """The number of pieces to split this much work into: four per thread, so that all threads end at the same time."""
    if seconds < (_LEAST if least is None else least) or is_finalizing():  # when no thread can be started
        return 1
    threads = pool.get_num_threads()
    return 1 if threads == 1 else max(1, min(4 * threads, int(seconds / _PIECE)))


# -- products of matrices ---------------------------------------------------------------------------------------


def matmul(shapes: Sequence[Shape], dtype: str, threads: Threads = "") -> Kernel:
    """The kernel of ``lhs[..., m, k] @ rhs[..., k, n]``.

    Args:
        shapes, dtype: of the operands.
        threads: as for :class:`~einsumx.ir.ops.Matmul`.
    """
    lhs, rhs = shapes
    if len(lhs) == 1 or len(rhs) == 1:
        if dtype in ("float32", "complex64") and max(prod(lhs), prod(rhs)) * _itemsize(dtype) >= _LONG_PRODUCT:
            return _dot_in_parts(lhs[0], dtype) if lhs == rhs else _vector_in_parts(lhs, rhs, dtype)
        is_shared = dtype in _MULTIPLY_ADDS and _BLAS_SHARES_VECTORS < max(prod(lhs), prod(rhs)) < _REPAYS_A_WAIT
        return partial(pool.alone, np.ndarray.dot) if is_shared and pool.get_num_threads() > 1 else np.ndarray.dot
    (rows, inner), cols = lhs[-2:], rhs[-1]
    work = rows * inner * cols
    is_slow = dtype not in _MULTIPLY_ADDS
    if len(lhs) == 2 and work <= _TINY and not is_slow:
        return np.ndarray.dot  # half of matmul's overhead
    batch = lhs[:-2]
    if batch != rhs[:-2]:
        batch = broadcast(batch, rhs[:-2])
    count = prod(batch)
    if count <= _FEW_MATRICES and count * work <= _FEW and not is_slow:
        return partial(np.matmul, order="C")  # what follows would find the same
    shape = (*batch, rows, cols)
    plain = partial(np.matmul, order="C")
    if is_slow or not prod(shape) * inner:
        return plain
    shared = _shared_matmul(lhs, rhs, shape, dtype, threads)
    if shared is not None:
        return shared
    if prod(shape) * inner <= _BLAS_SHARES_PRODUCTS or threads == "blas" or pool.get_num_threads() == 1:
        return plain
    repays_no_wait = _seconds_of_product(lhs, rhs, shape, dtype) < _PRODUCT_REPAYS_A_WAIT
    return partial(pool.alone, plain) if repays_no_wait else plain


def matmul_of_parts(shapes: Sequence[Shape], dtype: str, sums: str, threads: Threads = "") -> Kernel:
    """The kernel of a product of a real matrix and a complex one, which is read as a real one of twice as many columns.

    Args:
        shapes: of the operands.
        dtype: of the real matrix.
        sums: of the complex one.
        threads: as for :func:`matmul`.
    """
    lhs, rhs = shapes
    product = matmul((lhs, (*rhs[:-1], 2 * rhs[-1])), dtype, threads)

    def of_vector(real: Any, other: Any) -> Any:  # a product with two columns takes twice as long
        out = np.empty((lhs[0], 1), sums)
        out.real[:, 0] = real.dot(other.real[:, 0])
        out.imag[:, 0] = real.dot(other.imag[:, 0])
        return out

    def by_parts(real: Any, other: Any) -> Any:
        if other.strides[-1] != other.itemsize and other.shape[-1] > 1:
            other = other.copy()
        return product(real, other.view(dtype)).view(sums)

    return of_vector if len(lhs) == 2 and rhs[-1] == 1 else by_parts


def _dot_in_parts(count: int, dtype: str) -> Kernel:
    """A long product of two vectors, on the threads of BLAS."""
    length = _PART // _itemsize(dtype)
    parts = [slice(start, start + length) for start in range(0, count, length)]
    return lambda lhs, rhs: np.add.reduce([lhs[part].dot(rhs[part]) for part in parts])


def _vector_in_parts(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """A long product of a matrix and a vector, in parts that do not depend on the number of threads.

    A matrix that is contiguous along the sum is left to BLAS, which sums it in parts itself.
    """
    inner, is_first = lhs[-1], len(lhs) == 1
    count, others = inner // _PART_OF_ROWS, (rhs if is_first else lhs)[is_first]
    if count < 2:
        return np.ndarray.dot
    cut = count * _PART_OF_ROWS
    jobs = ranges(count, _pieces(inner * others * _itemsize(dtype) / _BYTES))

    def product(lhs: Any, rhs: Any) -> Any:
        vector, matrix = (lhs, rhs) if is_first else (rhs, lhs.T)
        if abs(matrix.strides[0]) < abs(matrix.strides[1]):
            return lhs.dot(rhs)
        rows, columns = vector[:cut].reshape(count, 1, -1), matrix[:cut].reshape(count, -1, others)
        sums = np.empty((count, 1, others), dtype)
        pool.run([partial(np.matmul, rows[job], columns[job], sums[job]) for job in jobs])
        return np.add.reduce(sums[:, 0]) + vector[cut:].dot(matrix[cut:])

    return product


def _shared_matmul(lhs: Shape, rhs: Shape, shape: Shape, dtype: str, threads: Threads) -> Kernel | None:
    """The kernel of a product on the threads of the pool; None if it is not faster there."""
    count, work = prod(shape[:-2]), prod(shape[-2:]) * lhs[-1]
    if threads == "blas" or (not threads and (count == 1 or work >= _BLAS_SHARES)):
        return None
    pieces = _pieces(_seconds_of_product(lhs, rhs, shape, dtype), _LEAST_PRODUCT)
    if pieces == 1:
        return None
    may_lock = work < _TINY and min(shape[-2:]) > 1
    if may_lock and not threads and not (dtype in _WITHOUT_LOCK and pool.has_small_kernels()):
        return None
    if pieces > count:
        return _cut_matrix(lhs, rhs, shape, dtype) if threads == "pool" else None
    parts = [(within(box, lhs), within(box, rhs), box) for box in grid(shape[:-2], pieces)]
    shared = _cut_matmul(parts, shape, dtype)
    return _shared_without_lock(shared, partial(np.matmul, order="C")) if may_lock else shared


def _shared_without_lock(shared: Kernel, alone: Kernel) -> Kernel:
    """A batch of tiny products on the pool, unless OpenBLAS packs the right matrices, as they are transposed."""

    def product(lhs: Any, rhs: Any, out: Any = None) -> Any:
        return (alone if rhs.strides[-2] == rhs.itemsize < rhs.strides[-1] else shared)(lhs, rhs, out=out)

    return product


def _seconds_of_product(lhs: Shape, rhs: Shape, shape: Shape, dtype: str) -> float:
    """About how long a product takes in one thread."""
    touched = (prod(lhs) + prod(rhs) + prod(shape)) * _itemsize(dtype)
    return max(prod(shape) * lhs[-1] / _MULTIPLY_ADDS[dtype], touched / _BYTES) + prod(shape[:-2]) * _PER_MATRIX


def matmul_workspace(shapes: Sequence[Shape], dtype: str) -> int:
    """Bytes of the partial sums of :func:`matmul` on the pool."""
    lhs, rhs = shapes
    batch, (rows, inner), cols = broadcast(lhs[:-2], rhs[:-2]), lhs[-2:], rhs[-1]
    shape = (*batch, rows, cols)
    if dtype not in _MULTIPLY_ADDS or not _is_long_sum(rows, inner, cols):
        return 0
    is_cut = 1 < _pieces(_seconds_of_product(lhs, rhs, shape, dtype), _LEAST_PRODUCT) > prod(batch)
    return pool.get_num_threads() * prod(shape) * _itemsize(dtype) if is_cut else 0


def _is_long_sum(rows: int, inner: int, cols: int) -> bool:
    return inner > _LONG_SUM * max(rows, cols)


def _cut_matmul(parts: Sequence[tuple[Range, Range, Range]], shape: Shape, dtype: str) -> Kernel:
    """A product in parts: for each, the ranges of both operands and of the result."""

    def jobs(out: Any, lhs: Any, rhs: Any) -> list[Kernel]:
        return [partial(np.matmul, lhs[left], rhs[right], out[box]) for left, right, box in parts]

    return in_jobs(jobs, shape, dtype)


def _cut_matrix(lhs: Shape, rhs: Shape, shape: Shape, dtype: str) -> Kernel:
    """A product of few matrices, each cut along its longest axis, a piece for each thread."""
    batch, (rows, cols), inner = shape[:-2], shape[-2:], lhs[-1]
    threads = pool.get_num_threads()
    boxes = list(grid(batch, 1))
    if _is_long_sum(rows, inner, cols):
        cuts = ranges(inner, threads)

        def sum_of_products(lhs: Any, rhs: Any, out: Any = None) -> Any:
            partials = np.empty((len(cuts), *shape), dtype)
            pool.run([partial(np.matmul, lhs[..., cut], rhs[..., cut, :], partials[i]) for i, cut in enumerate(cuts)])
            return np.add.reduce(partials, 0, out=out)

        return sum_of_products
    if rows >= cols:
        parts = [
            ((*within(box, lhs[:-2]), cut), within(box, rhs[:-2]), (*box, cut))
            for box in boxes
            for cut in ranges(rows, threads)
        ]
    else:
        parts = [
            (within(box, lhs[:-2]), (*within(box, rhs[:-2]), _ALL, cut), (*box, _ALL, cut))
            for box in boxes
            for cut in ranges(cols, threads)
        ]
    return _cut_matmul(parts, shape, dtype)


# -- elementwise products and sums --------------------------------------------------------------------------------


def multiply(shapes: Sequence[Shape], dtype: str) -> Kernel:
    """The kernel of the elementwise product, broadcasting; see :func:`_overwriting` for its attribute."""
    rank = max(map(len, shapes))
    lhs, rhs = ((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes)
    shape = broadcast(lhs, rhs)
    touched = (prod(lhs) + prod(rhs) + prod(shape)) * _itemsize(dtype)
    pieces = _pieces(touched / _BYTES) if shape else 1

    def by(product: Kernel) -> Any:
        if pieces == 1:
            return partial(product, order="C")
        parts = [
            (within(box, lhs)[rank - len(shapes[0]) :], within(box, rhs)[rank - len(shapes[1]) :], box)
            for box in grid(shape, pieces)
        ]

        def jobs(out: Any, lhs: Any, rhs: Any) -> list[Kernel]:
            return [partial(product, lhs[left], rhs[right], out=out[box]) for left, right, box in parts]

        return in_jobs(jobs, shape, dtype)

    start = _start_of_row(lhs, rhs) if lhs != rhs and prod(shape) > _TINY else 0
    if start and _has_few_columns(shape, start, dtype, _MULTIPLIED):
        return columns.multiply(shapes, shape, rank - start, dtype, pieces)
    is_by_einsum = start > 0 and _is_by_einsum(lhs, rhs, start, dtype)
    kernel: Any = by(partial(_EINSUM, "...,...->...") if is_by_einsum else np.multiply)
    if prod(shape) >= _OVERWRITTEN and shape[-1] >= _OVERWRITTEN_ROW:
        kernel.overwriting = partial(_overwriting, kernel, by, [own == shape for own in (lhs, rhs)])
    found: Kernel = kernel
    return found


def _start_of_row(lhs: Shape, rhs: Shape) -> int:
    """The first of the innermost axes along which the same operands have data; 0 if all axes are alike."""
    has_data = [(left > 1, right > 1) for left, right in zip(lhs, rhs)]
    start = len(has_data)
    while start and has_data[start - 1] == has_data[-1]:
        start -= 1
    return start


def _has_few_columns(shape: Shape, start: int, dtype: str, large: int) -> bool:
    """Whether many short rows are faster column by column, as NumPy would start a loop for each row."""
    most = _FEW_COLUMNS - (_itemsize(dtype) >= large)
    return 1 < prod(shape[start:]) <= most and prod(shape[:start]) >= _MANY_ROWS


def _is_by_einsum(lhs: Shape, rhs: Shape, start: int, dtype: str) -> bool:
    """Whether the loop of NumPy's einsum is faster for an elementwise product that loops over rows."""
    shape = broadcast(lhs, rhs)
    row = prod(shape[start:])
    if row > _LONGEST_ROW.get(dtype, _SHORT_ROW):
        return False
    if row < _CACHED_ROW:
        return lhs != shape != rhs
    return 1 in (prod(lhs[start:]), prod(rhs[start:])) and prod(shape) * _itemsize(dtype) <= _CACHED


_OVERWRITTEN, _OVERWRITTEN_ROW = 1 << 14, 64
"""The least elements of a product that overwrites an operand, and of its rows: smaller arrays are soon made anew, while
the system maps each page of a large one."""


def _overwriting(kernel: Kernel, by: Callable[[Kernel], Kernel], is_whole: Sequence[bool], place: int) -> Kernel | None:
    """A kernel that may write into the operand at a place, which nobody needs afterwards; None if it is too small.

    Args:
        kernel: the usual one.
        by: makes one of NumPy's own function.
        is_whole: whether each operand has the shape of the result.
        place: of the operand.
    """
    if not is_whole[place]:
        return None
    in_place = by(np.multiply)

    def product(*arrays: Any) -> Any:
        target = arrays[place]
        if target.base is not None or not target.flags.c_contiguous:
            return kernel(*arrays)
        return in_place(*arrays, out=target)

    return product


def total(shape: Shape, axes: tuple[int, ...], dtype: str) -> Kernel:
    """The kernel of the sum over ``axes``, in the array's own dtype: integers wrap, bools are or-ed.

    NumPy's einsum sums up to three times as fast as ``add.reduce``. Its order "K" follows the array, "C" sums inside.
    """
    labels = "".join(map(symbol, range(len(shape))))
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    equation = f"{labels}->{''.join([labels[axis] for axis in kept])}"
    if prod(shape) <= _TINY:
        return partial(_EINSUM, equation)
    result = tuple([shape[axis] for axis in kept])
    pieces, axis = _split_of_total(shape, axes, dtype)
    if _sums_few_columns(shape, axes, dtype):
        return columns.dots(result, shape[len(kept) :], dtype, pieces)
    order = "C" if sums_inside(shape, axes, dtype) else "K"
    if pieces == 1:
        if order == "C":
            return partial(_EINSUM, equation, order="C")
        return einsum_into(equation, result, dtype)
    cuts = [(_ALL,) * axis + (cut,) for cut in ranges(shape[axis], pieces)]
    if axis in kept:
        place = kept.index(axis)
        parts = [(cut, (_ALL,) * place + cut[axis:]) for cut in cuts]

        def jobs(out: Any, array: Any) -> list[Kernel]:
            return [partial(_EINSUM, equation, array[box], out=out[place], order=order) for box, place in parts]

        return in_jobs(jobs, result, dtype)
    kept_labels = equation.partition("->")[2]
    merge = einsum_into(f"{symbol(len(shape))}{kept_labels}->{kept_labels}", result, dtype)
    new_partials = partial(np.empty, (len(cuts), *result), dtype)

    def sum_of_partial_sums(array: Any, out: Any = None) -> Any:
        partials = new_partials()
        # The ellipsis makes a partial sum without axes a writable array.
        pool.run(
            [partial(_EINSUM, equation, array[cut], out=partials[i, ...], order=order) for i, cut in enumerate(cuts)]
        )
        return merge(partials) if out is None else merge(partials, out=out)

    return sum_of_partial_sums


def _sums_few_columns(shape: Shape, axes: tuple[int, ...], dtype: str) -> bool:
    start = len(shape) - len(axes)
    return min(axes, default=0) == start > 0 and _has_few_columns(shape, start, dtype, _SUMMED)


def sums_inside(shape: Shape, axes: tuple[int, ...], dtype: str) -> bool:
    """Whether a sum of a C-contiguous array is faster if its innermost loop runs along summed axes.

    The rows of the array are so short that most of the time is the overhead of a loop for each of them.

    >>> sums_inside((9, 100, 3), (1,), "float32"), sums_inside((9, 100, 30), (1,), "float32")
    (True, False)
    """
    end = next((place for place in reversed(range(len(shape))) if place in axes), -1)
    start = next((place for place in reversed(range(end)) if place not in axes), -1)
    row = prod(shape[end + 1 :])
    return (
        1
        < row
        <= (_SHORT_COMPLEX_SUM if dtype.startswith("complex") else _SHORT_SUM)
        < prod(shape[start + 1 : end + 1])
    )


def _split_of_total(shape: Shape, axes: tuple[int, ...], dtype: str) -> tuple[int, int]:
    """The number of pieces of a sum, and the axis to split: a summed one only if no other is long enough."""
    pieces = _pieces(prod(shape) * _itemsize(dtype) / _BYTES) if prod(shape) > _SWEEPS else 1
    kept = [axis for axis in range(len(shape)) if axis not in axes and shape[axis] >= pieces]
    axis = max(kept or axes, key=lambda axis: shape[axis])
    return min(pieces, shape[axis]), axis


def total_workspace(shape: Shape, axes: tuple[int, ...], dtype: str) -> int:
    """Bytes of the partial sums of :func:`total`."""
    pieces, axis = _split_of_total(shape, axes, dtype)
    if pieces == 1 or axis not in axes:
        return 0
    return pieces * prod(size for axis, size in enumerate(shape) if axis not in axes) * _itemsize(dtype)


def einsum_into(equation: str, shape: Shape, dtype: str) -> Kernel:
    """NumPy's einsum with a C-contiguous result; with ``order="C"`` it would also loop in that order."""
    if len(shape) < 2:
        return partial(_EINSUM, equation)
    new = partial(np.empty, shape, dtype)

    def einsum(*arrays: Any, out: Any = None) -> Any:
        return _EINSUM(equation, *arrays, out=new() if out is None else out)

    return einsum


def diagonal(rank: int, axis1: int, axis2: int) -> Kernel:
    """The kernel of a diagonal, which comes last: a view that is writeable if its operand is.

    ``numpy.diagonal`` takes three times as long, and its view is read-only.
    """
    if rank > _LETTERS:

        def view(array: Any) -> Any:
            result = array.diagonal(0, axis1, axis2)
            result.flags.writeable = array.flags.writeable
            return result

        return view
    labels = list(map(symbol, range(rank)))
    labels[axis2] = labels[axis1]
    kept = [label for label in labels if label != labels[axis1]]
    return partial(_EINSUM, f"{''.join(labels)}->{''.join(kept)}{labels[axis1]}")


def native(equation: str, shapes: Sequence[Shape], dtype: str) -> Kernel:
    """The kernel of NumPy's own einsum, whose time is assumed to be proportional to the number of products.

    A small result lies in memory as the operands do, a large one is C-contiguous.
    """
    if prod(map(prod, shapes)) <= _FEW:
        return partial(_EINSUM, equation)
    inputs, output = equation.split("->")
    terms = inputs.split(",")
    sizes = {label: size for term, shape in zip(terms, shapes) for label, size in zip(term, shape)}
    work, row = prod(sizes.values()), _row_of_dots(equation, shapes, dtype)
    if work <= _FEW and not row:
        return partial(_EINSUM, equation)
    shape = tuple(sizes[label] for label in output)
    if row:
        return columns.dots(shape, row, dtype, _pieces(work / _SLOW_MULTIPLY_ADDS))
    is_long = min(shape[-1] for shape in shapes if shape) > _SHORT_LOOP
    is_sweep = is_long and any(prod(shape) == work for shape in shapes)
    pieces = 1 if is_sweep and work <= _SWEEPS else _pieces(work / _SLOW_MULTIPLY_ADDS)
    # Pieces along the outer axes of the larger operand share none of its cache lines, and keep rows long.
    largest = max(zip(shapes, terms), key=lambda pair: prod(pair[0]))[1]
    cut_label = next(
        (label for label in largest + output if label in output and sizes[label] >= pool.get_num_threads()), ""
    )
    if pieces == 1 or not cut_label:
        return einsum_into(equation, shape, dtype)

    def box(term: str, cut: slice) -> Range:
        return tuple(cut if label == cut_label else _ALL for label in term)

    slices = ranges(sizes[cut_label], min(pieces, sizes[cut_label]))
    parts = [([box(term, cut) for term in terms], box(output, cut)) for cut in slices]

    def jobs(out: Any, *arrays: Any) -> list[Kernel]:
        return [
            partial(_EINSUM, equation, *(array[cut] for array, cut in zip(arrays, cuts)), out=out[place])
            for cuts, place in parts
        ]

    return in_jobs(jobs, shape, dtype)


def _row_of_dots(equation: str, shapes: Sequence[Shape], dtype: str) -> Shape:
    """The axes of a row, if an einsum is dot products of many pairs of short rows; otherwise none."""
    inputs, output = equation.split("->")
    first, *others = inputs.split(",")
    are_rows = others == [first] and first.startswith(output) and len(set(first)) == len(first)
    if not are_rows or shapes[0] != shapes[1] or not _has_few_columns(shapes[0], len(output), dtype, _SUMMED):
        return ()
    return shapes[0][len(output) :]


def native_workspace(equation: str, shapes: Sequence[Shape], dtype: str) -> int:
    """Bytes of the products that :func:`native` sums by columns."""
    row = _row_of_dots(equation, shapes, dtype)
    return columns.dots_workspace(shapes[0], dtype) * pool.get_num_threads() if row else 0


# -- updates ----------------------------------------------------------------------------------------------------


def update(out: Any, alpha: Any, result: Any, beta: Any, dtype: str) -> None:
    """``out = alpha * result + beta * out`` in one pass over memory, computed in ``dtype``; 0 does not read ``out``.

    A product that is added row by row instead, by BLAS into a small buffer, is slower: BLAS packs its other operand for
    each call.
    """
    if dtype == "bfloat16":  # its loops take no numbers of Python's
        alpha, beta = np.asarray(alpha, dtype), np.asarray(beta, dtype)
    nbytes = out.size * _itemsize(dtype)
    if nbytes <= _UPDATED:
        _update_boxes(out, result, alpha, beta, dtype, [()])
        return
    order = memory_order(out.strides)
    job = partial(_update_boxes, out.transpose(order), np.asarray(result).transpose(order), alpha, beta, dtype)
    boxes = list(grid([out.shape[axis] for axis in order], ceil(nbytes / _UPDATED)))
    pool.run([partial(job, boxes[cut]) for cut in ranges(len(boxes), _pieces(3 * nbytes / _BYTES))])


def _update_boxes(out: Any, result: Any, alpha: Any, beta: Any, dtype: str, boxes: Sequence[Range]) -> None:
    """:func:`update` of some boxes."""
    for box in boxes:
        index = (*box, ...)
        target, part = out[index], result[index]
        if beta == 0:
            np.multiply(part, alpha, target, dtype=dtype, casting="unsafe")
            continue
        if alpha != 1:
            part = np.multiply(part, alpha, dtype=dtype, casting="unsafe")
        own = target if beta == 1 else np.multiply(target, beta, dtype=dtype, casting="unsafe")
        np.add(own, part, target, dtype=dtype, casting="unsafe")


# -- copies -------------------------------------------------------------------------------------------------------


def copy(shape: Shape, dtype: str) -> Kernel:
    """The kernel of a C-contiguous copy of an array in any layout."""
    if _pieces(2 * prod(shape) * _itemsize(dtype) / _BYTES) == 1:
        return np.ndarray.copy

    def cut_copy(source: Any) -> Any:
        out = np.empty(shape, source.dtype)
        _copy_boxes(source, out)
        return out

    return cut_copy


def cast(shape: Shape, source: Any, target: Any) -> Kernel:
    """The kernel of a cast between dtypes or their names, which keeps the memory order of the axes."""
    # A cast that can fail warns in the thread that executes it, so it is left to the caller's thread.
    quiet = np.can_cast(source, target, "same_kind" if np.dtype(target).kind in "fc" else "safe")
    nbytes = prod(shape) * (_itemsize(source) + _itemsize(target))
    if not quiet or _pieces(nbytes / _BYTES) == 1:
        return methodcaller("astype", np.dtype(target))  # each call would parse a name

    def cut_cast(array: Any) -> Any:
        order = memory_order(array.strides)
        packed = array.transpose(order)
        out = np.empty(packed.shape, target)
        _copy_boxes(packed, out)
        return out.transpose(inverse(order))

    return cut_cast


def copy_into(out: Any, source: Any) -> None:
    """Copy an array into another of its shape and dtype, on all threads if that takes less time."""
    if _pieces(2 * source.nbytes / _BYTES) == 1:
        out[...] = source
    else:
        _copy_boxes(source, out)


def _copy_boxes(source: Any, out: Any) -> None:
    pool.run(
        [
            partial(_assign, out, source, boxes)
            for boxes in _copy_jobs(source.shape, source.strides, pool.get_num_threads())
        ]
    )


def _assign(out: Any, source: Any, boxes: Sequence[Range]) -> None:
    for box in boxes:
        out[box] = source[box]


def _copy_jobs(shape: Shape, strides: Shape, threads: int) -> list[list[Range]]:
    """The boxes that each job copies, chosen such that cache lines are read completely before they are evicted.

    NumPy copies in the order of the destination. The axis along which the source is contiguous is an outer one there,
    so each step along it returns to the cache lines of the previous step: as many lines as the inner axes span. These
    axes are split until their lines fit the cache.
    """
    pieces = 4 * threads
    moving = [axis for axis, size in enumerate(shape) if size > 1 and strides[axis]]
    near = min(moving, key=lambda axis: abs(strides[axis]), default=0)
    inside = [axis for axis in moving if axis > near]
    cuts: dict[int, int] = {}
    if inside:
        step = min(abs(strides[axis]) for axis in inside)
        lines = _LINES if all(abs(strides[axis]) % _PAGE for axis in inside) else _ALIASED_LINES
        span = lines * _LINE // min(step, _LINE)
        span = max(span, _LEAST_COPY // prod(shape[: near + 1]))
        for axis in reversed(inside):
            length = max(1, min(shape[axis], span))
            cuts[axis] = ceil(shape[axis] / length)
            span //= length
    pieces = max(1, ceil(pieces / prod(cuts.values())))
    axes = []
    for axis, size in enumerate(shape):
        axes.append(ranges(size, cuts.get(axis, pieces)))
        if axis not in cuts:
            pieces = ceil(pieces / len(axes[-1]))
    boxes = list(product(*axes))
    return [boxes[cut] for cut in ranges(len(boxes), 4 * threads)]


def _itemsize(dtype: str) -> int:
    return np.dtype(dtype).itemsize
