"""Contractions of stored elements: sparse arrays by their coordinates, dense ones as they are.

A pair is one product of two matrices. Its rows are the labels of the first operand that the result has, the batch
labels among them; its columns are the other labels of the result. The sum runs over all common labels. So a batch of
products is the product of a matrix with blocks along its diagonal, which costs nothing where it is sparse, and takes no
loop over the batch. Only stored elements are ever multiplied: no step makes an array with an element for each place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import sparse

from einsumx.adapters.replacement import own
from einsumx.adapters.typing import Array
from einsumx.backends.sparse.loops import grouped, matched, product, product_with_dense, scattered, summed

_TABLE = 8
"""Keys index a table directly if it has at most so many places for each stored element; otherwise only those that occur
are numbered."""


def contraction(term: str, output: str, shape: Sequence[int]) -> Callable[[Array], Array]:
    """The function that takes diagonals, sums and transposes an array of a shape, as ``term->output`` says."""
    sizes = dict(zip(term, shape))
    firsts = {letter: term.index(letter) for letter in term}
    repeats = [(axis, firsts[letter]) for axis, letter in enumerate(term) if firsts[letter] != axis]
    axes = [firsts[letter] for letter in output]
    out_shape = tuple([sizes[letter] for letter in output])
    is_sum, size = len(output) < len(firsts), prod(out_shape)

    def contracted(array: Array) -> Array:
        if isinstance(array, np.ndarray):
            return np.asarray(own(np.einsum)(f"{term}->{output}", array), array.dtype)
        array = as_elements(array)
        coords, values = array.coords, array.data
        if repeats:
            is_kept = np.ones(len(values), bool)
            for axis, first in repeats:
                is_kept &= coords[axis] == coords[first]
            coords, values = coords[:, is_kept], values[is_kept]
        if not is_sum:
            return _sorted(coords[axes], values, out_shape)
        keys = _keys(coords, axes, sizes, output)
        if not _increase(keys) and size <= _TABLE * len(keys):
            keys, values = scattered(keys, values, size)
            return _made(keys, values, out_shape)
        if not _increase(keys):
            order = np.argsort(keys, kind="stable")
            keys, values = keys[order], values[order]
        keys, values = summed(keys, values)
        return _made(keys, values, out_shape)

    return contracted


def contraction_of_pair(terms: Sequence[str], output: str, sizes: dict[str, int]) -> Callable[[Array, Array], Array]:
    """The function that contracts two arrays, of which no label of one alone is summed, and none is repeated."""
    lhs, rhs = terms
    forward, backward = _Product(lhs, rhs, output, sizes), _Product(rhs, lhs, output, sizes)
    text = f"{lhs},{rhs}->{output}"

    def contracted(first: Array, second: Array) -> Array:
        first, second = as_elements(first), as_elements(second)
        if isinstance(first, np.ndarray):
            if isinstance(second, np.ndarray):
                return np.asarray(own(np.einsum)(text, first, second, optimize=True), first.dtype)
            return backward.with_dense(second, first)
        if isinstance(second, np.ndarray):
            return forward.with_dense(first, second)
        if forward.is_elementwise:
            return forward.elementwise(first, second)
        if forward.is_ordered or not backward.is_ordered:
            return forward.of_sparse(first, second)
        return backward.of_sparse(second, first)

    return contracted


class _Product:
    """The product of two operands as matrices.

    Args:
        lhs, rhs: their labels.
        output: the labels of the result.
        sizes: of all labels.
    """

    def __init__(self, lhs: str, rhs: str, output: str, sizes: dict[str, int]) -> None:
        self._lhs, self._rhs, self._output, self._sizes = lhs, rhs, output, sizes
        self._inner = [letter for letter in rhs if letter in lhs]  # as the second operand has them
        self._rows = [letter for letter in output if letter in lhs]
        self._cols = [letter for letter in output if letter not in lhs]
        self._shape = tuple([sizes[letter] for letter in output])
        made = [*self._rows, *self._cols]
        self._made_shape = tuple([sizes[letter] for letter in made])
        self._axes = [made.index(letter) for letter in output]
        self.is_ordered = made == list(output)
        self.is_elementwise = not self._cols and sorted(lhs) == sorted(rhs) == sorted(output)
        self._height, self._depth, self._width = (
            prod([sizes[letter] for letter in labels]) for labels in (self._rows, self._inner, self._cols)
        )

    def _keys(self, term: str, array: Array, labels: Sequence[str]) -> Any:
        return _keys(array.coords, [term.index(letter) for letter in labels], self._sizes, labels)

    def elementwise(self, lhs: Array, rhs: Array) -> Array:
        """The product of two sparse arrays with the same labels, none of which is summed."""
        first, second = self._keys(self._lhs, lhs, self._output), self._keys(self._rhs, rhs, self._output)
        values, others = lhs.data, rhs.data
        if not _increase(first):
            order = np.argsort(first)
            first, values = first[order], values[order]
        if not _increase(second):
            order = np.argsort(second)
            second, others = second[order], others[order]
        here, there = matched(first, second)
        return _made(first[here], np.multiply(values[here], others[there]), self._shape)

    def of_sparse(self, lhs: Array, rhs: Array) -> Array:
        """The product of two sparse arrays."""
        rows, values = self._keys(self._lhs, lhs, self._rows), lhs.data
        inner, own_inner = self._keys(self._lhs, lhs, self._inner), self._keys(self._rhs, rhs, self._inner)
        cols, factors = self._keys(self._rhs, rhs, self._cols), rhs.data
        depth = self._depth
        if depth > _TABLE * (lhs.nnz + rhs.nnz):
            known, own_inner = np.unique(own_inner, return_inverse=True)
            place = np.searchsorted(known, inner)
            place[place == len(known)] = 0
            is_there = known[place] == inner if len(known) else np.zeros(len(inner), bool)
            rows, inner, values, depth = rows[is_there], place[is_there], values[is_there], len(known)
        rows, height, row_names = _numbered(rows, self._height)
        cols, width, col_names = _numbered(cols, self._width)
        starts, inner, values = _by_key(rows, height, inner, values)
        others, cols, factors = _by_key(own_inner, depth, cols, factors)
        rows, cols, values = product(starts, inner, values, others, cols, factors, width)
        return self._result(rows, cols, values, row_names, col_names)

    def with_dense(self, lhs: Array, rhs: Array) -> Array:
        """The product of a sparse array and a dense one: it has rows where the sparse one has elements."""
        rows, inner = self._keys(self._lhs, lhs, self._rows), self._keys(self._lhs, lhs, self._inner)
        order = [self._rhs.index(letter) for letter in (*self._inner, *self._cols)]
        matrix = rhs.transpose(order).reshape(self._depth, self._width)
        if not self._cols and len(self._rows) == len(self._lhs):  # nothing is summed
            coords = lhs.coords[[self._lhs.index(letter) for letter in self._output]]
            return _sorted(coords, np.multiply(lhs.data, matrix[inner, 0]), self._shape)
        rows, height, names = _numbered(rows, self._height)
        out = np.zeros((height, self._width), lhs.dtype)
        product_with_dense(rows, inner, lhs.data, matrix, out)
        rows, cols = out.nonzero()
        return self._result(rows, cols, out[rows, cols], names, None)

    def _result(self, rows: Any, cols: Any, values: Any, row_names: Any, col_names: Any) -> Array:
        """The elements of a product in C order, as an array with the axes of the result."""
        if row_names is not None:
            rows = row_names[rows]
        if col_names is not None:
            cols = col_names[cols]
        coords = np.empty((len(self._made_shape), len(values)), np.intp)
        _split(rows, self._made_shape[: len(self._rows)], coords)
        _split(cols, self._made_shape[len(self._rows) :], coords[len(self._rows) :])
        if self.is_ordered:
            return sparse.COO(coords, values, self._shape, has_duplicates=False, sorted=True)
        return _sorted(coords[self._axes], values, self._shape)


def as_elements(array: Array) -> Array:
    """A sparse array as COO whose other elements are 0; a dense one as it is.

    sparse keeps the one element of an array without axes as the value of all that it does not store.
    """
    if isinstance(array, np.ndarray):
        return array
    if not array.shape and array.fill_value != 0:
        return sparse.COO(np.empty((0, 1), np.intp), array.todense().reshape(1), ())
    if not isinstance(array, sparse.GCXS):
        return array
    if array.ndim != 2 or array.compressed_axes != (0,):
        return array.tocoo()
    rows = np.repeat(np.arange(array.shape[0]), np.diff(array.indptr))
    return sparse.COO(np.stack((rows, array.indices)), array.data, array.shape, has_duplicates=False, sorted=False)


def as_gcxs(array: Array) -> Array:
    """A COO array as GCXS."""
    if array.ndim != 2:
        return array.asformat("gcxs")
    rows, cols = array.coords
    starts = np.searchsorted(rows, np.arange(array.shape[0] + 1))
    return sparse.GCXS((array.data, cols, starts), shape=array.shape, compressed_axes=(0,))


def _keys(coords: Any, axes: Sequence[int], sizes: dict[str, int], labels: Sequence[str]) -> Any:
    """A number for each element, by its coordinates along some axes, in C order of these."""
    if not axes:
        return np.zeros(coords.shape[1], np.intp)
    keys = coords[axes[0]].astype(np.intp, copy=False)
    for axis, label in zip(axes[1:], labels[1:]):
        keys = keys * sizes[label] + coords[axis].astype(np.intp, copy=False)
    return keys


def _increase(keys: Any) -> bool:
    """Whether keys do not decrease."""
    return bool((keys[1:] >= keys[:-1]).all())


def _numbered(keys: Any, size: int) -> tuple[Any, int, Any]:
    """Keys as numbers of a table, their number, and the key of each; the keys themselves if there are few places."""
    if size <= _TABLE * len(keys) + 1024:
        return keys, size, None
    names, numbers = np.unique(keys, return_inverse=True)
    return numbers, len(names), names


def _by_key(keys: Any, size: int, *columns: Any) -> tuple[Any, ...]:
    """The start of each key's group, and the columns in the order of their keys."""
    starts, order = grouped(keys, size)
    return (starts, *[column[order] for column in columns])


def _split(keys: Any, shape: Sequence[int], coords: Any) -> None:
    """Write the coordinates of keys along axes of this shape, an axis each row."""
    for axis in range(len(shape) - 1, 0, -1):
        keys, coords[axis] = np.divmod(keys, shape[axis])
    if shape:
        coords[0] = keys


def _sorted(coords: Any, values: Any, shape: tuple[int, ...]) -> Array:
    """An array of elements in any order, without duplicates."""
    return sparse.COO(coords, values, shape, has_duplicates=False, sorted=False)


def _made(keys: Any, values: Any, shape: tuple[int, ...]) -> Array:
    """An array of the elements with these keys, which increase."""
    coords = np.empty((len(shape), len(keys)), np.intp)
    _split(keys, shape, coords)
    return sparse.COO(coords, values, shape, has_duplicates=False, sorted=True)
