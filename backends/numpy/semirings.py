"""Products of matrices in a semiring: by blocks that fit the caches, on all threads; log-sum-exps by BLAS.

PyTorch runs the same kernels on tensors in host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import log, prod
from typing import Any, TypeAlias

from einsumx.adapters.typing import Array
from einsumx.algebra.products import composed as composed_product
from einsumx.algebra.products import composed_workspace
from einsumx.backends.numpy.loops import product_loops
from einsumx.backends.numpy.parts import NumpyNames
from einsumx.dtypes import itemsize
from einsumx.host.threads import get_num_threads, run
from einsumx.imports import LazyModule
from einsumx.ir.layout import ranges

np: Any = LazyModule("numpy")

Shape: TypeAlias = tuple[int, ...]
Product: TypeAlias = Callable[[Any, Any], Any]

_BLOCK = 192 << 10
"""Bytes of a block of the result, and of the buffer beside it: both fit the second cache of a core."""

_SHARE = 96 << 10
"""The least bytes of the result for each thread: below, threads wait for Python's lock more than they compute."""

_SPLIT = 100_000
"""The least multiply-adds to share between threads."""

_SMALL = 8
"""Matrices with fewer rows and columns are computed with the batch axis innermost, if there are more of them."""

_BLAS = ("float32", "float64")

_FEW_SUMS = 3000
"""Below, a broadcast and one reduction take less time than a call for each term of the sums."""

_FEW = 8
"""A sum is its own loop if it is this many times as long as there are sums."""

_EXACT = 1 << 20
"""Bytes of the terms of the sums that are computed again at a time."""


class NumpySemirings(NumpyNames):
    """NumPy's functions, and these kernels."""

    def elementwise(self, name: str, lhs: Array, rhs: Array) -> Array:
        with np.errstate(all="ignore"):
            return getattr(np, name)(lhs, rhs, order="C")

    def reduced(self, name: str, array: Array, axes: tuple[int, ...]) -> Array:
        return _reduced(name, array, axes)

    def product(self, add: str, multiply: str, lhs: Shape, rhs: Shape, dtype: str) -> Product | None:
        matmul = self.adapter.kernels.matmul((lhs, rhs), dtype, "")
        return product(add, multiply, lhs, rhs, matmul, lambda: composed_product(self, add, multiply, lhs, rhs, dtype))

    def workspace(self, add: str, multiply: str, lhs: Shape, rhs: Shape, dtype: str) -> int | None:
        return max(workspace(add, lhs, rhs, dtype), composed_workspace(self, add, lhs, rhs, dtype))

    def places(self, start: int, stop: int, like: Array) -> Array:
        return np.arange(start, stop, dtype="int64")


def has_small_matrices(lhs: Shape, rhs: Shape) -> bool:
    """Whether a product of these shapes is computed with the batch axis innermost."""
    return max(lhs[1], rhs[2]) < _SMALL < max(lhs[0], rhs[0])


def product(
    add: str, multiply: str, lhs: Shape, rhs: Shape, matmul: Product, otherwise: Callable[[], Product]
) -> Product:
    """The function that multiplies arrays ``[batch, m, k]`` and ``[batch, k, n]`` in a semiring.

    Args:
        add, multiply: the functions of the semiring, which is not that of truth values.
        lhs, rhs: shapes; a batch axis of size 1 broadcasts.
        matmul: the product in plus and times, of arrays of these shapes.
        otherwise: makes the composed product.
    """
    if add == "logaddexp":
        return partial(_log_product, matmul=matmul)
    functions = {"add": getattr(np, add), "multiply": getattr(np, multiply)}
    batch, rows, inner, cols = max(lhs[0], rhs[0]) if lhs[0] and rhs[0] else 0, lhs[1], lhs[2], rhs[2]
    if cols == 1 or inner > _FEW * batch * rows * cols:
        return partial(_by_dots, **functions)
    if has_small_matrices(lhs, rhs):
        return partial(_by_batches, **functions)
    run = partial(_by_rows if rows <= cols else _by_columns, **functions)
    sums = batch * rows * cols
    if sums >= _FEW_SUMS:
        return run
    composed = otherwise()
    return lambda left, right: (run if product_loops(add, multiply, left.dtype.name, sums * inner) else composed)(
        left, right
    )


def workspace(add: str, lhs: Shape, rhs: Shape, dtype: str) -> int:
    """The most bytes that :func:`product` allocates while it runs, without its result."""
    size = itemsize(dtype)
    operands, result = (prod(lhs) + prod(rhs)) * size, max(lhs[0], rhs[0]) * lhs[1] * rhs[2] * size
    if add == "logaddexp":  # shifted operands, their exponentials, sums, and what is computed again
        return 2 * operands + 3 * result + 4 * _EXACT
    return operands + result + 3 * get_num_threads() * _BLOCK


def _reduced(name: str, array: Any, axes: tuple[int, ...]) -> Any:
    """The reduction over ``axes`` by ``maximum``, ``minimum`` or ``logaddexp``."""
    if name != "logaddexp":
        return getattr(np, name).reduce(array, axis=axes)
    with np.errstate(all="ignore"):
        shift = np.maximum.reduce(array, axis=axes, keepdims=True)
        shift[~np.isfinite(shift)] = 0
        terms = np.subtract(array, shift)
        total = np.log(np.add.reduce(np.exp(terms, out=terms), axis=axes))
        return total + shift.reshape(total.shape)


# -- maxima and minima ----------------------------------------------------------------------------------------------


def _jobs(blocks: Sequence[Callable[[], object]], work: int) -> None:
    """Run the blocks without warnings, on all threads if that is worth it."""
    with np.errstate(all="ignore"):  # the threads of the pool never warn
        if work >= _SPLIT:
            run(blocks)
            return
        for block in blocks:
            block()


def _by_rows(lhs: Any, rhs: Any, *, add: Any, multiply: Any) -> Any:
    """Row by row of ``rhs``: ``out[b, i, :] = add(out[b, i, :], lhs[b, i, k] * rhs[b, k, :])`` for each k."""
    batch = max(len(lhs), len(rhs))
    rows, inner, cols = lhs.shape[1], lhs.shape[2], rhs.shape[2]
    out = np.empty((batch, rows, cols), lhs.dtype)
    rhs = np.ascontiguousarray(rhs)
    compiled = product_loops(add.__name__, multiply.__name__, lhs.dtype.name, batch * rows * inner * cols)
    if compiled is not None:
        _by_loops(compiled, np.ascontiguousarray(lhs), rhs, out)
        return out
    matrices, per_matrix = _cut(batch, rows, cols * lhs.itemsize, rows * inner * cols)
    adds = multiply is np.add and rows >= _SMALL and lhs.dtype.name in _BLAS
    terms_of = _sums_by_blas if adds else partial(_terms, multiply)

    def block(those: slice, some: slice) -> None:
        left = (lhs[those] if len(lhs) > 1 else lhs)[:, some]
        right = rhs[those] if len(rhs) > 1 else rhs
        total = out[those, some]
        terms = terms_of(left, right, np.empty(total.shape, total.dtype))
        total[...] = next(terms)
        for term in terms:
            add(total, term, out=total)

    blocks = [partial(block, those, some) for those in matrices for some in per_matrix]
    _jobs(blocks, batch * rows * inner * cols)
    return out


def _by_loops(compiled: Callable[..., None], lhs: Any, rhs: Any, out: Any) -> None:
    """The product by compiled loops, in as many parts as there are threads."""
    batch, rows = out.shape[:2]
    work = out.size * lhs.shape[2]
    count = get_num_threads() if work >= _SPLIT else 1
    matrices = ranges(batch, count)
    per_matrix = [slice(0, rows)] if len(matrices) == count else ranges(rows, -(-count // len(matrices)))
    parts = [
        partial(compiled, lhs, rhs, out, those.start, those.stop, some.start, some.stop)
        for those in matrices
        for some in per_matrix
    ]
    _jobs(parts, work)


def _terms(multiply: Any, lhs: Any, rhs: Any, term: Any) -> Iterator[Any]:
    """``lhs[b, i, k] * rhs[b, k, j]`` for all b, i and j, one k after another, in the memory of ``term``."""
    for k in range(lhs.shape[2]):
        yield multiply(lhs[:, :, k : k + 1], rhs[:, k : k + 1], out=term)


def _sums_by_blas(lhs: Any, rhs: Any, term: Any) -> Iterator[Any]:
    """The same for sums: BLAS adds ``a`` and ``b`` as ``[a, 1] @ [1, b]``, faster than a function that broadcasts.

    Each element is one rounded sum of two exact products, infinities and nan included, as none is multiplied by zero.
    """
    inner = lhs.shape[2]
    step = min(inner, max(1, _BLOCK // (2 * (lhs[:, :, 0].nbytes + rhs[:, 0].nbytes))))
    lefts = np.ones((step, *lhs.shape[:2], 2), lhs.dtype)
    rights = np.ones((step, len(rhs), 2, rhs.shape[2]), rhs.dtype)
    for start in range(0, inner, step):
        count = min(step, inner - start)
        lefts[:count, ..., 0] = lhs[:, :, start : start + count].transpose(2, 0, 1)
        rights[:count, :, 1] = rhs[:, start : start + count].transpose(1, 0, 2)
        for left, right in zip(lefts[:count], rights):
            yield np.matmul(left, right, out=term)


def _cut(batch: int, rows: int, row_bytes: int, work: int) -> tuple[list[slice], list[slice]]:
    """Ranges of matrices and of their rows: blocks that fit the cache, and enough of them for all threads."""
    threads = get_num_threads()
    whole = batch * rows * row_bytes
    if batch * work < _SPLIT or whole < threads * _SHARE:
        threads = 1
    count = -(-max(-(-whole // _BLOCK), threads) // threads) * threads
    if count <= batch:
        return ranges(batch, count), [slice(0, rows)]
    return ranges(batch, batch), ranges(rows, -(-count // batch))


def _by_columns(lhs: Any, rhs: Any, *, add: Any, multiply: Any) -> Any:
    """The transpose of the product of the transposes, for results with more rows than columns."""
    swapped = _by_rows(rhs.transpose(0, 2, 1), lhs.transpose(0, 2, 1), add=add, multiply=multiply)
    return np.ascontiguousarray(swapped.transpose(0, 2, 1))


def _by_batches(lhs: Any, rhs: Any, *, add: Any, multiply: Any) -> Any:
    """With the batch axis innermost, for many small matrices."""
    batch = max(len(lhs), len(rhs))
    rows, inner, cols = lhs.shape[1], lhs.shape[2], rhs.shape[2]
    out = np.empty((batch, rows, cols), lhs.dtype)
    threads = get_num_threads()
    is_shared = out.size * inner >= _SPLIT and out.nbytes >= threads * _SHARE
    count = max(-(-out.nbytes // _BLOCK), threads if is_shared else 1)

    def block(those: slice) -> None:
        left = np.ascontiguousarray((lhs[those] if len(lhs) > 1 else lhs).transpose(1, 2, 0))
        right = np.ascontiguousarray((rhs[those] if len(rhs) > 1 else rhs).transpose(1, 2, 0))
        total = np.empty((rows, cols, those.stop - those.start), out.dtype)
        multiply(left[:, None, 0], right[None, 0], out=total)
        term = np.empty_like(total)
        for k in range(1, inner):
            multiply(left[:, None, k], right[None, k], out=term)
            add(total, term, out=total)
        out[those] = total.transpose(2, 0, 1)

    _jobs([partial(block, those) for those in ranges(batch, count)], out.size * inner)
    return out


def _by_dots(lhs: Any, rhs: Any, *, add: Any, multiply: Any) -> Any:
    """Column by column, with the sums innermost: for vectors, and for few rows and columns."""
    batch = max(len(lhs), len(rhs))
    rows, inner, cols = lhs.shape[1], lhs.shape[2], rhs.shape[2]
    out = np.empty((batch, rows, cols), lhs.dtype)
    matrices, per_matrix = _cut(batch, rows, min(inner * lhs.itemsize, _BLOCK), rows * inner * cols)
    step = max(1, _BLOCK // lhs.itemsize)

    def block(those: slice, some: slice) -> None:
        left = (lhs[those] if len(lhs) > 1 else lhs)[:, some]
        right = (rhs[those] if len(rhs) > 1 else rhs).transpose(2, 0, 1)[:, :, None]
        for total, column in zip(out[those, some].transpose(2, 0, 1), right):
            add.reduce(multiply(left[..., :step], column[..., :step]), axis=-1, out=total)
            for start in range(step, inner, step):
                terms = multiply(left[..., start : start + step], column[..., start : start + step])
                add(total, add.reduce(terms, axis=-1), out=total)

    blocks = [partial(block, those, some) for those in matrices for some in per_matrix]
    _jobs(blocks, out.size * inner)
    return out


# -- log-sum-exps ---------------------------------------------------------------------------------------------------


def _log_product(lhs: Any, rhs: Any, *, matmul: Product) -> Any:
    """``log(exp(lhs) @ exp(rhs))``, shifted by the maxima of rows and columns unless all values are near 0.

    Terms that are small beside both maxima can underflow. Where all of a sum may have done so, it is computed again
    from its terms; so is a sum with infinities or nan.
    """
    with np.errstate(all="ignore"):
        finfo = np.finfo(lhs.dtype)
        if _is_near_zero(lhs, rhs, finfo):
            sums = matmul(np.exp(lhs), np.exp(rhs))
            return np.log(sums, out=sums)
        left, right = _shift(lhs, 2), _shift(rhs, 1)
        sums = matmul(np.exp(lhs - left), np.exp(rhs - right))
        is_wrong = ~(sums >= lhs.shape[2] * finfo.tiny / finfo.eps)  # nan, too
        out = np.log(sums)
        out += left
        out += right
        if is_wrong.any():
            _compute_again(out, lhs, rhs, is_wrong, matmul)
        return out


def _is_near_zero(lhs: Any, rhs: Any, finfo: Any) -> bool:
    """Whether no exponential, product or sum of them can overflow or lose digits; not so for infinities and nan."""
    lows, highs = (lhs.min(), rhs.min()), (lhs.max(), rhs.max())
    least, most = np.log(finfo.tiny) + 1, np.log(finfo.max) - log(lhs.shape[2]) - 1
    return all(low > least for low in (*lows, sum(lows))) and all(high < most for high in (*highs, sum(highs)))


def _shift(array: Any, axis: int) -> Any:
    """The maxima along an axis; 0 in the place of an infinity or nan."""
    largest = array.max(axis=axis, keepdims=True)
    largest[~np.isfinite(largest)] = 0
    return largest


def _compute_again(out: Any, lhs: Any, rhs: Any, where: Any, matmul: Product) -> None:
    """The elements of a product at the places that are true, from their terms."""
    if not (np.isnan(lhs).any() or np.isnan(rhs).any() or np.isposinf(lhs).any() or np.isposinf(rhs).any()):
        # Terms without a finite sum are minus infinity, which is what sums over what is impossible are.
        possible = matmul((lhs > -np.inf).astype(out.dtype), (rhs > -np.inf).astype(out.dtype))
        impossible = possible == 0
        out[impossible] = -np.inf
        where = where & ~impossible
    batches, rows, cols = np.nonzero(where)
    if not len(batches):
        return
    right = rhs.transpose(0, 2, 1)
    step = max(1, _EXACT // out.itemsize // lhs.shape[2])

    def block(start: int) -> None:
        b, i, j = (places[start : start + step] for places in (batches, rows, cols))
        terms = lhs[b if len(lhs) > 1 else 0, i]
        terms += right[b if len(rhs) > 1 else 0, j]
        out[b, i, j] = _reduced("logaddexp", terms, (1,))

    _jobs([partial(block, start) for start in range(0, len(batches), step)], len(batches) * lhs.shape[2])
