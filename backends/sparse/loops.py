"""Loops over stored elements, compiled by numba, which sparse itself needs. They know no labels.

A *group* is a range of elements with equal keys: ``starts[key]`` to ``starts[key + 1]``. Bools add up by or, and
integers wrap, because a sum is kept in an array of the elements' dtype.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


def _compiled(function: Any) -> Any:
    """The function, compiled at the first call with each dtype, which takes seconds; kept on disk where possible."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # there is no directory to write to
        return numba.njit(nogil=True)(function)


_SCANNED = 16
"""A row with more than one of so many columns is read by scanning all columns, otherwise by sorting those it has."""


@_compiled
def grouped(keys: Any, size: int) -> Any:  # pragma: no cover
    """The start of each key's group, and the elements in the order of their keys, those of a key as they come."""
    starts = np.zeros(size + 1, np.intp)
    for key in keys:
        starts[key + 1] += 1
    for key in range(size):
        starts[key + 1] += starts[key]
    following = starts[:-1].copy()
    order = np.empty(len(keys), np.intp)
    for element, key in enumerate(keys):
        order[following[key]] = element
        following[key] += 1
    return starts, order


@_compiled
def summed(keys: Any, values: Any) -> Any:  # pragma: no cover
    """Different keys and the sum of the values of each, of keys that do not decrease; without sums of zero."""
    found, sums = np.empty(len(keys), np.intp), np.empty_like(values)
    count = 0
    place = 0
    while place < len(keys):
        key = keys[place]
        sums[count] = values[place]
        place += 1
        while place < len(keys) and keys[place] == key:
            sums[count] = sums[count] + values[place]
            place += 1
        if sums[count] != 0:
            found[count] = key
            count += 1
    return found[:count].copy(), sums[:count].copy()


@_compiled
def scattered(keys: Any, values: Any, size: int) -> Any:  # pragma: no cover
    """As :func:`summed`, of keys in any order that are less than ``size``."""
    totals = np.zeros(size, values.dtype)
    is_there = np.zeros(size, np.bool_)
    for place in range(len(keys)):
        key = keys[place]
        totals[key] = totals[key] + values[place] if is_there[key] else values[place]
        is_there[key] = True
    found = np.flatnonzero(totals)
    return found, totals[found]


@_compiled
def matched(first: Any, second: Any) -> Any:  # pragma: no cover
    """The places in both of the keys that both have; keys increase."""
    most = min(len(first), len(second))
    here, there = np.empty(most, np.intp), np.empty(most, np.intp)
    count = lhs = rhs = 0
    while lhs < len(first) and rhs < len(second):
        if first[lhs] < second[rhs]:
            lhs += 1
        elif first[lhs] > second[rhs]:
            rhs += 1
        else:
            here[count] = lhs
            there[count] = rhs
            count += 1
            lhs += 1
            rhs += 1
    return here[:count], there[:count]


@_compiled
def product(  # pragma: no cover
    starts: Any, inner: Any, values: Any, others: Any, cols: Any, factors: Any, width: int
) -> Any:
    """The product of two sparse matrices, row by row as in Gustavson's algorithm.

    Args:
        starts: of the rows of the first matrix.
        inner, values: the column and the value of each of its elements.
        others: the starts of the rows of the second matrix.
        cols, factors: the column and the value of each of its elements.
        width: its number of columns.

    Returns:
        Rows, columns and values of the elements that are not 0, in C order.
    """
    rows, found = np.empty(len(cols) + 16, np.intp), np.empty(len(cols) + 16, np.intp)
    sums = np.empty(len(cols) + 16, values.dtype)
    row_sums = np.zeros(width, values.dtype)
    is_there = np.zeros(width, np.bool_)
    there = np.empty(width, np.intp)
    count = 0
    for row in range(len(starts) - 1):
        least, most, touched = width, -1, 0
        for element in range(starts[row], starts[row + 1]):
            value = values[element]
            key = inner[element]
            for other in range(others[key], others[key + 1]):
                col = cols[other]
                if is_there[col]:
                    row_sums[col] = row_sums[col] + value * factors[other]
                else:
                    is_there[col] = True
                    row_sums[col] = value * factors[other]
                    there[touched] = col
                    touched += 1
                    least = min(least, col)
                    most = max(most, col)
        if count + touched > len(rows):
            room = max(2 * len(rows), count + touched)
            more_rows, more_found = np.empty(room, np.intp), np.empty(room, np.intp)
            more_sums = np.empty(room, values.dtype)
            more_rows[:count], more_found[:count], more_sums[:count] = rows[:count], found[:count], sums[:count]
            rows, found, sums = more_rows, more_found, more_sums
        if _SCANNED * touched > most - least:
            for col in range(least, most + 1):
                if is_there[col]:
                    is_there[col] = False
                    if row_sums[col] != 0:
                        rows[count], found[count], sums[count] = row, col, row_sums[col]
                        count += 1
        else:
            for place in range(1, touched):
                if there[place] < there[place - 1]:
                    there[:touched].sort()
                    break
            for place in range(touched):
                col = there[place]
                is_there[col] = False
                if row_sums[col] != 0:
                    rows[count], found[count], sums[count] = row, col, row_sums[col]
                    count += 1
    return rows[:count].copy(), found[:count].copy(), sums[:count].copy()


@_compiled
def product_with_dense(rows: Any, inner: Any, values: Any, matrix: Any, out: Any) -> None:  # pragma: no cover
    """Add the product of a sparse matrix, by the row, column and value of each element, and a dense one to ``out``."""
    for element in range(len(rows)):
        row, key, value = rows[element], inner[element], values[element]
        for col in range(matrix.shape[1]):
            out[row, col] = out[row, col] + value * matrix[key, col]
