"""What an einsum must give: the plain sum over every index, in wide arithmetic, and a judge for results.

Nothing here is shared with the planner, and no einsum, dot, matmul or tensordot is called: each operand is indexed
over the whole index space by broadcasting, the product is taken, and the summed axes are summed. Integers are exact,
floats are computed in ``longdouble``.
"""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np

__all__ = ["Expected", "Verdict", "expect", "expect_gradient", "judge"]

LIMIT = 1 << 20
"""Elements of the index space that are worked on at once; what is larger is cut in halves."""


def _floats() -> dict[str, tuple[float, Any, Any]]:
    """Of each float type: eps, the largest, the smallest that is normal."""
    with warnings.catch_warnings():
        # MXNet 2 has the processor take smaller ones than these for zeros, of which NumPy warns.
        warnings.simplefilter("ignore", UserWarning)
        infos = {name: np.finfo(name) for name in ("float16", "float32", "float64", "longdouble")}
    found = {name: (float(info.eps), info.max, info.tiny) for name, info in infos.items()}
    return {"bfloat16": (2.0**-7, 2.0**127 * (2 - 2.0**-7), 2.0**-126), **found}


_FLOATS = _floats()
_ACCUMULATED = {"float16": "float32", "bfloat16": "float32"}
_MARGIN = 2
"""The contract's ``c``, for each operand: one for the sum's roundings, one for the products'."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What an equation gives on given arrays.

    Attributes:
        values: exact for integers and bools, wrapped to the dtype; in longdouble for floats.
        magnitude: the same sum over absolute values, ``|A|·|B|·…``.
        terms: how many products each element sums, the ``n`` of the bound.
        operands: how many factors each product has.
        dtype: what the result's dtype must be, by name.
    """

    values: Any
    magnitude: Any
    terms: int
    operands: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a result compares with what was expected.

    Attributes:
        wrong: what is wrong, in a sentence; empty for a right result.
        worst: the largest error in units of the bound; up to 1 is right.
    """

    wrong: str
    worst: float

    def __bool__(self) -> bool:
        return not self.wrong


def expect(*operands: Any, dtype: str | None = None) -> Expected:
    """The plain sum that an equation means, in either form that einsum takes.

    Args:
        *operands: an equation and NumPy arrays, or arrays and sublists of labels in turn.
        dtype: what is computed in, by name: the arrays are cast to it first. ``"bfloat16"`` takes arrays of
            float32 that hold values of bfloat16. By default NumPy's promotion of the arrays' dtypes.

    >>> expect("ij,jk->ik", np.array([[1, 2]]), np.array([[3], [4]])).values
    array([[11]])
    """
    sum_ = _resolved(operands, dtype)
    summed = [size for label, size in sum_.sizes.items() if label not in sum_.output]
    ranges = {label: range(size) for label, size in sum_.sizes.items()}
    with np.errstate(all="ignore"):
        values, magnitude = (
            _plain_sum(numbers, sum_.terms, sum_.output, ranges)
            for numbers in (sum_.arrays, [_magnitudes(array) for array in sum_.arrays])
        )
    if np.dtype(_numpy_name(sum_.dtype)).kind in "iu":
        values = _wrapped(values, sum_.dtype)
    return Expected(values, magnitude, int(np.prod(summed, dtype=object)), len(sum_.arrays), sum_.dtype)


def expect_gradient(
    by: int, cotangent: Any, *operands: Any, conjugate: bool = False, dtype: str | None = None
) -> Expected:
    """The derivative by one operand of the plain sum, contracted with ``cotangent``.

    Each element of the operand gets, from every point of the index space where it is a factor, the product of the
    other factors there and of the cotangent.

    Args:
        by: which operand.
        cotangent: an array of the result's shape.
        *operands: as for :func:`expect`; floats.
        conjugate: whether the other factors are conjugated, as PyTorch has it for complex operands.
        dtype: of that operand, by name, where it is ``"bfloat16"`` or differs from the others': a real operand's
            gradient is real.

    >>> expect_gradient(0, np.array([2.0]), "ij,j->i", np.ones((1, 2)), np.array([3.0, 4.0])).values
    array([[6., 8.]], dtype=float128)
    """
    sum_ = _resolved(operands, None)
    labels, ranges = list(sum_.sizes), {label: range(size) for label, size in sum_.sizes.items()}
    term, target = sum_.terms[by], sum_.arrays[by]
    others = [pair for k, pair in enumerate(zip(sum_.arrays, sum_.terms)) if k != by]
    factors = [(np.conj(array) if conjugate else array, label) for array, label in others]
    factors.append((_wide(np.asarray(cotangent)), sum_.output))
    space = tuple(sum_.sizes.values())
    hit = [size for label, size in sum_.sizes.items() if label in term and target.shape[term.index(label)] == size]
    terms = int(np.prod(space, dtype=object)) // max(int(np.prod(hit, dtype=object)), 1)
    place = np.zeros(space, int)  # of the operand's element, counted in C order
    for indices, size in zip(_index(target, term, labels, ranges), target.shape):
        place = place * size + indices
    found = []
    for numbers in ([array for array, _ in factors], [_magnitudes(array) for array, _ in factors]):
        spread = [_spread(array, label, labels, ranges) for array, (_, label) in zip(numbers, factors)]
        product = np.broadcast_to(reduce(_times, spread), space)
        gathered = np.zeros(target.size, product.dtype)
        np.add.at(gathered, place.ravel(), product.ravel())
        found.append(gathered.reshape(target.shape))
    gradient, magnitude = found
    dtype = dtype or sum_.dtype
    if np.dtype(_numpy_name(dtype)).kind != "c":
        gradient = gradient.real
    return Expected(gradient, magnitude, terms, len(sum_.arrays), dtype)


def judge(result: Any, expected: Expected) -> Verdict:
    """Whether each element of ``result`` is as near as rounding allows: ``c·n·eps·(|A|·|B|·…)`` and one rounding.

    ``eps`` is that of the dtype in which sums are accumulated (at least float32), the last rounding that of the
    result. Integers, bools and objects must be equal. Elements that are not finite must not be finite in the
    result, and infinities must be the same infinities; nan may come out as an infinity, as it depends on how a
    sum of products is bracketed which of the two it is: ``inf·(0 + 1)``, ``inf·0 + inf·1``.

    >>> expected = expect("i,i->", np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> bool(judge(np.float64(11.0), expected)), judge(np.float64(11.1), expected).wrong
    (True, 'element () is 11.1, not 11.0')
    """
    result = np.asarray(result)
    if result.shape != expected.values.shape:
        return Verdict(f"the shape is {result.shape}, not {expected.values.shape}", np.inf)
    if expected.dtype != "bfloat16" and result.dtype.name != np.dtype(expected.dtype).name:
        return Verdict(f"the dtype is {result.dtype.name}, not {expected.dtype}", np.inf)
    if np.dtype(_numpy_name(expected.dtype)).kind not in "fc":
        error = np.where(np.asarray(result == expected.values, bool), 0.0, np.inf)
    else:
        with np.errstate(all="ignore"):
            error = _error(_wide(result), expected)
    if error.size == 0 or error.max() <= 1:
        return Verdict("", float(error.max(initial=0.0)))
    place = tuple(map(int, np.unravel_index(error.argmax(), error.shape)))
    return Verdict(f"element {place} is {result[place]}, not {expected.values[place]}", float(error.max()))


def _error(result: Any, expected: Expected) -> Any:
    """The error of each element in units of its bound."""
    values, magnitude = expected.values, expected.magnitude
    real = _real(expected.dtype)
    eps, largest, tiny = _FLOATS[real]
    inner_eps, inner_largest, inner_tiny = _FLOATS[_ACCUMULATED.get(real, real)]
    steps = _MARGIN * expected.operands * max(expected.terms, 1)
    bound = np.full(values.shape, np.longdouble(tiny))
    if expected.operands * expected.terms > 1:  # else elements only move, and nothing is rounded
        bound += steps * (inner_eps * magnitude + inner_tiny) + eps / 2 * np.abs(values)
    error = np.abs(result - values) / bound
    # Where sums of this size overflow, or the exact value rounds to infinity, infinities and nan are right.
    overflows = (magnitude * (1 + steps * inner_eps) > inner_largest) | (np.abs(values) + bound > largest)
    finite = np.isfinite(values)
    error = np.where(np.isfinite(result), error, np.where(overflows, 0.0, np.inf))
    allowed = ~np.isfinite(result)
    if result.dtype.kind == "f":
        allowed &= ~np.isinf(values) | (result == values)
    return np.where(finite, error, np.where(allowed, 0.0, np.inf))


# -- the equation ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sum:
    """An equation on arrays: wide arrays, the labels of their axes and of the output's, the sizes of all labels."""

    arrays: list[Any]
    terms: list[list[Any]]
    output: list[Any]
    sizes: dict[Any, int]
    dtype: str


def _resolved(operands: tuple[Any, ...], dtype: str | None) -> _Sum:
    terms, output, arrays = _read(operands)
    arrays = [np.asarray(array) for array in arrays]
    if dtype is None:
        dtype = np.result_type(*(array.dtype for array in arrays)).name
    wide = [_wide(array.astype(_numpy_name(dtype))) for array in arrays]
    width = max((array.ndim - len(term) + 1 for term, array in zip(terms, arrays) if ... in term), default=0)
    spelled = [_spelled(term, width, array.ndim) for term, array in zip(terms, arrays)]
    result = _spelled(output, width, len(output) - (... in output) + width * (... in output))
    sizes = dict.fromkeys(chain(*spelled), 1)
    for term, array in zip(spelled, arrays):
        sizes.update({label: size for label, size in zip(term, array.shape) if size != 1})
    return _Sum(wide, spelled, result, sizes, dtype)


def _read(operands: tuple[Any, ...]) -> tuple[list[list[Any]], list[Any], list[Any]]:
    """Labels of each operand and of the output, and the arrays; ``...`` is Python's Ellipsis."""
    if isinstance(operands[0], str):
        left, arrow, right = operands[0].partition("->")
        terms = [_letters(subscript) for subscript in left.split(",")]
        output = _letters(right) if arrow else None
        arrays = list(operands[1:])
    else:
        pairs = len(operands) // 2
        arrays = list(operands[: 2 * pairs : 2])
        terms = [list(labels) for labels in operands[1 : 2 * pairs : 2]]
        output = list(operands[-1]) if len(operands) % 2 else None
    if output is None:
        every = list(chain(*terms))
        once = [label for label in every if every.count(label) == 1 and label is not ...]
        with suppress(TypeError):  # labels without an order stay as they appear
            once = sorted(once)
        output = [...] * (... in every) + once
    return terms, output, arrays


def _letters(subscript: str) -> list[Any]:
    return [... if found == "..." else found for found in re.findall(r"\.\.\.|[^\x00-\x20\x85\xa0]", subscript)]


def _spelled(term: list[Any], width: int, rank: int) -> list[Any]:
    """The term with its ellipsis written out, from the right of ``width`` axes."""
    axes = rank - len(term) + 1
    spelled = [[("...", k) for k in range(width - axes, width)] if label is ... else [label] for label in term]
    return list(chain(*spelled))


# -- the sum --------------------------------------------------------------------------------------------------


def _plain_sum(arrays: list[Any], terms: list[list[Any]], output: list[Any], ranges: dict[Any, range]) -> Any:
    """The product of all operands over the whole index space, summed over what the output lacks."""
    lengths = {label: len(indices) for label, indices in ranges.items()}
    if np.prod(list(lengths.values()), dtype=object) > LIMIT:
        label = max(lengths, key=lambda label: lengths[label])
        half = lengths[label] // 2
        parts = [
            _plain_sum(arrays, terms, output, {**ranges, label: part})
            for part in (ranges[label][:half], ranges[label][half:])
        ]
        return np.concatenate(parts, axis=output.index(label)) if label in output else _plus(*parts)
    labels = [*output, *(label for label in ranges if label not in output)]
    spread = [_spread(array, term, labels, ranges) for array, term in zip(arrays, terms)]
    product = reduce(_times, spread)
    summed = tuple(range(len(output), len(labels)))
    if not summed:
        return product
    if product.dtype == bool:
        return np.any(product, axis=summed)
    return np.asarray(np.sum(product, axis=summed), dtype=product.dtype)


def _times(first: Any, second: Any) -> Any:
    # Of objects without axes NumPy makes a bare Python integer, which it would then take for one of its own.
    return np.asarray(np.multiply(first, second), dtype=first.dtype)


def _plus(first: Any, second: Any) -> Any:
    return first | second if np.asarray(first).dtype == bool else first + second  # a sum of objects is a plain number


def _spread(array: Any, term: list[Any], labels: list[Any], ranges: dict[Any, range]) -> Any:
    """``array`` with an axis for each of ``labels``: its diagonal over repeated ones, size 1 for those it lacks."""
    index = _index(array, term, labels, ranges)
    spread = array[index] if index else array
    return np.asarray(spread, dtype=array.dtype).reshape((1,) * (len(labels) - np.ndim(spread)) + np.shape(spread))


def _index(array: Any, term: list[Any], labels: list[Any], ranges: dict[Any, range]) -> tuple[Any, ...]:
    """For each axis of ``array``, its indices along an axis for each of ``labels``."""
    index = []
    for label, size in zip(term, array.shape):
        indices = np.asarray(ranges[label], dtype=int)
        along = [len(indices) if other == label else 1 for other in labels]
        index.append((indices if size != 1 else np.zeros_like(indices)).reshape(along))
    return tuple(index)


# -- numbers --------------------------------------------------------------------------------------------------


def _wide(array: Any) -> Any:
    """``array`` in arithmetic that does not wrap, and rounds little."""
    match array.dtype.kind:
        case "i" | "u":
            return array.astype(object)
        case "c":
            return array.astype(np.clongdouble)
        case "b" | "O":
            return array
        case _:  # floats, and bfloat16, which NumPy does not know as one
            return array.astype(np.longdouble)


def _magnitudes(array: Any) -> Any:
    return np.asarray(np.abs(array), dtype=object if array.dtype == object else None)


def _wrapped(values: Any, dtype: str) -> Any:
    """Python's integers as those of ``dtype``, modulo its range."""
    info = np.iinfo(dtype)
    span = int(info.max) - int(info.min) + 1
    return np.asarray((values - int(info.min)) % span + int(info.min)).astype(dtype)


def _numpy_name(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


def _real(dtype: str) -> str:
    """The float type of a complex type's parts, as the table of floats has it."""
    if dtype == "bfloat16":
        return dtype
    name = np.empty(0, dtype).real.dtype.name
    return name if name in _FLOATS else "longdouble"
