"""The expected result of an einsum, as the plain sum over every index in wide arithmetic, and a judge for results.

The oracle shares no code with the planner, and calls no einsum, dot, matmul or tensordot: it broadcasts each operand
over the whole index space, multiplies, and sums. Integers are exact; floats are computed in ``longdouble``.
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

LIMIT = 1 << 20
"""Elements of the index space that are computed at once; larger spaces are halved."""


def _floats() -> dict[str, tuple[float, Any, Any]]:
    """Each float type's eps, largest number and smallest normal number."""
    with warnings.catch_warnings():
        # MXNet 2 makes the processor flush subnormal numbers to zero, and NumPy warns of it.
        warnings.simplefilter("ignore", UserWarning)
        infos = {name: np.finfo(name) for name in ("float16", "float32", "float64", "longdouble")}
    bfloat16 = (2.0**-7, 2.0**127 * (2 - 2.0**-7), 2.0**-126)
    return {"bfloat16": bfloat16, **{name: (float(info.eps), info.max, info.tiny) for name, info in infos.items()}}


FLOATS = _floats()
"""Each float type's eps, largest number and smallest normal number."""
_MARGIN = 2
"""The contract's ``c`` per operand: one for the roundings of sums and one for those of products."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The result that an equation must have on some arrays.

    Attributes:
        values: exact for integers and bools, wrapped to the dtype; in longdouble for floats.
        magnitude: the same sum over absolute values, ``|A|·|B|·…``.
        terms: the number of products that each element sums, ``n`` in the bound.
        operands: the number of factors of each product.
        dtype: the name of the result's dtype.
        accumulate: the name of the dtype of the sums; empty for the result's, and at least float32.
        bound: the largest error of each element, if it is not that of a plain sum; infinities and nan are then exact.
    """

    values: Any
    magnitude: Any
    terms: int
    operands: int
    dtype: str
    accumulate: str = ""
    bound: Any = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of a result with the expected one.

    Attributes:
        wrong: the problem, in a sentence; empty for a right result.
        worst: the largest error in units of the bound; at most 1 in a right result.
    """

    wrong: str
    worst: float

    def __bool__(self) -> bool:
        return not self.wrong


def expect(*operands: Any, dtype: str | None = None, accumulate: str | None = None) -> Expected:
    """The plain sum of an equation, in either form that einsum accepts.

    Args:
        *operands: an equation and NumPy arrays, or alternating arrays and sublists of labels.
        dtype: the name of the dtype to which the arrays are cast first; by default NumPy's promotion of their dtypes.
            With ``"bfloat16"``, the arrays are float32 and hold values of bfloat16.
        accumulate: the name of the dtype of products and sums, to which the arrays are cast instead; by default that of
            the result.

    >>> expect("ij,jk->ik", np.array([[1, 2]]), np.array([[3], [4]])).values
    array([[11]])
    """
    is_wide = accumulate is not None and np.dtype(_numpy_name(accumulate)).kind in "fc"
    sum_ = resolved(operands, accumulate if is_wide else dtype)
    summed = [size for label, size in sum_.sizes.items() if label not in sum_.output]
    ranges = sum_.ranges
    with np.errstate(all="ignore"):
        values, magnitude = (
            _plain_sum(numbers, sum_.terms, sum_.output, ranges)
            for numbers in (sum_.arrays, [_magnitudes(array) for array in sum_.arrays])
        )
    if np.dtype(_numpy_name(sum_.dtype)).kind in "iu":
        values = _wrapped(values, sum_.dtype)
    terms = int(np.prod(summed, dtype=object))
    if accumulate is None or dtype is None or not is_wide:
        return Expected(values, magnitude, terms, len(sum_.arrays), sum_.dtype)
    return Expected(values, magnitude, terms, len(sum_.arrays), dtype, accumulate)


def expect_gradient(
    by: int, cotangent: Any, *operands: Any, conjugate: bool = False, dtype: str | None = None
) -> Expected:
    """The derivative of the plain sum by one operand, contracted with ``cotangent``.

    The gradient of an element sums, over all points of the index space where the element is a factor, the product of
    the other factors and the cotangent.

    Args:
        by: the operand's position.
        cotangent: an array of the result's shape.
        *operands: as for :func:`expect`; floats.
        conjugate: whether the other factors are conjugated, as PyTorch does for complex operands.
        dtype: the name of that operand's dtype, if it is ``"bfloat16"`` or differs from the others'. The gradient by a
            real operand is real.

    >>> expect_gradient(0, np.array([2.0]), "ij,j->i", np.ones((1, 2)), np.array([3.0, 4.0])).values
    array([[6., 8.]], dtype=float128)
    """
    sum_ = resolved(operands, None)
    labels, ranges = list(sum_.sizes), sum_.ranges
    term, target = sum_.terms[by], sum_.arrays[by]
    others = [pair for k, pair in enumerate(zip(sum_.arrays, sum_.terms)) if k != by]
    factors = [(np.conj(array) if conjugate else array, label) for array, label in others]
    factors.append((_wide(np.asarray(cotangent)), sum_.output))
    space = tuple(sum_.sizes.values())
    kept = [size for label, size in sum_.sizes.items() if label in term and target.shape[term.index(label)] == size]
    terms = int(np.prod(space, dtype=object)) // max(int(np.prod(kept, dtype=object)), 1)
    place = np.zeros(space, int)  # the position of the operand's element, in C order
    for indices, size in zip(indices_in(target, term, labels, ranges), target.shape):
        place = place * size + indices
    sums = []
    for numbers in ([array for array, _ in factors], [_magnitudes(array) for array, _ in factors]):
        spread = [_spread(array, label, labels, ranges) for array, (_, label) in zip(numbers, factors)]
        product = np.broadcast_to(reduce(_times, spread), space)
        gathered = np.zeros(target.size, product.dtype)
        np.add.at(gathered, place.ravel(), product.ravel())
        sums.append(gathered.reshape(target.shape))
    gradient, magnitude = sums
    dtype = dtype or sum_.dtype
    if np.dtype(_numpy_name(dtype)).kind != "c":
        gradient = gradient.real
    return Expected(gradient, magnitude, terms, len(sum_.arrays), dtype)


def expect_update(expected: Expected, alpha: Any, before: Any, beta: Any, dtype: str) -> Expected:
    """The sum of a multiple of an expected result and a multiple of an array, in ``dtype``.

    Both factors and the additional term count in the bound as a factor of each product and a term of each sum do.

    Args:
        expected: the result.
        alpha: its factor.
        before: the array; None for none.
        beta: the array's factor; 0 ignores its values, even those that are not finite.
        dtype: the name of the dtype.

    >>> expect_update(expect("i,i->", np.array([1, 2]), np.array([3, 4])), 10, np.array(7), -1, "int64").values
    array(103)
    """
    kind = np.dtype(_numpy_name(dtype)).kind
    wide = object if kind in "iu" else None  # without axes, NumPy returns Python integers in place of object arrays
    values, magnitude = _wide(np.asarray(expected.values)), np.asarray(expected.magnitude)
    left, right = (bool(factor) if kind == "b" else factor for factor in (alpha, beta))
    with np.errstate(all="ignore"):
        values, magnitude = np.asarray(values * left, wide), np.asarray(magnitude * abs(left))
        if before is not None and beta != 0:
            addend = _wide(np.asarray(before))
            values = np.asarray(_plus(values, addend * right), wide)
            magnitude = np.asarray(magnitude + np.abs(addend) * abs(right))
    if kind in "iu":
        values = _wrapped(values, dtype)
    return Expected(values, magnitude, expected.terms + 1, expected.operands + 1, dtype)


def judge(result: Any, expected: Expected) -> Verdict:
    """Whether the error of each element is within the bound: ``c·n·eps·(|A|·|B|·…)`` and one rounding of the result.

    ``eps`` belongs to the dtype in which sums are accumulated, at least float32. Integers, bools and objects must be
    equal. Elements that are not finite must not be finite in the result, and infinities must have the same sign. For an
    expected nan, an infinity is right too, because the order of summation decides: ``inf·(0 + 1)`` is an infinity and
    ``inf·0 + inf·1`` is nan.

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
    values, magnitude = expected.values, expected.magnitude
    if expected.bound is not None:
        error = abs(result - values) / expected.bound  # nan if both are not finite, or equal without a bound
        is_equal = (result == values) | (np.isnan(result) & np.isnan(values))
        return np.where(is_equal, 0.0, np.where(np.isfinite(error), error, np.inf))
    real = _real(expected.dtype)
    eps, largest, tiny = FLOATS[real]
    inner_eps, inner_largest, inner_tiny = FLOATS[inner_dtype(_real(expected.accumulate or expected.dtype))]
    steps = _MARGIN * expected.operands * max(expected.terms, 1)
    bound = np.full(values.shape, np.longdouble(tiny))
    if expected.operands * expected.terms > 1:  # otherwise elements only move, without rounding
        bound += steps * (inner_eps * magnitude + inner_tiny) + eps / 2 * np.abs(values)
    error = np.abs(result - values) / bound
    # If sums of this magnitude overflow, or the exact value rounds to infinity, infinities and nan are right.
    overflows = (magnitude * (1 + steps * inner_eps) > inner_largest) | (np.abs(values) + bound > largest)
    finite = np.isfinite(values)
    error = np.where(np.isfinite(result), error, np.where(overflows, 0.0, np.inf))
    allowed = ~np.isfinite(result)
    if result.dtype.kind == "f":
        allowed &= ~np.isinf(values) | (result == values)
    return np.where(finite, error, np.where(allowed, 0.0, np.inf))


def inner_dtype(real: str) -> str:
    """The float type in which sums of a float type are accumulated by default."""
    return {"float16": "float32", "bfloat16": "float32"}.get(real, real)


# -- the equation ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlainSum:
    """An equation with its operands: wide arrays, the labels of their axes and of the output's, and all sizes."""

    arrays: list[Any]
    terms: list[list[Any]]
    output: list[Any]
    sizes: dict[Any, int]
    dtype: str

    @property
    def ranges(self) -> dict[Any, range]:
        """All indices of each label."""
        return {label: range(size) for label, size in self.sizes.items()}


def resolved(operands: tuple[Any, ...], dtype: str | None) -> PlainSum:
    """An equation, in either form that einsum accepts, with its operands in a wide dtype that holds ``dtype``."""
    terms, output, arrays = _read(operands)
    arrays = [np.asarray(array) for array in arrays]
    if dtype is None:
        dtype = np.result_type(*(array.dtype for array in arrays)).name
    wide = [_wide(array.astype(_numpy_name(dtype))) for array in arrays]
    dots = max((array.ndim - len(term) + 1 for term, array in zip(terms, arrays) if ... in term), default=0)
    expanded = [_expanded(term, dots, array.ndim) for term, array in zip(terms, arrays)]
    result = _expanded(output, dots, len(output) - (... in output) + dots * (... in output))
    sizes = dict.fromkeys(chain(*expanded), 1)
    for term, array in zip(expanded, arrays):
        sizes.update({label: size for label, size in zip(term, array.shape) if size != 1})
    return PlainSum(wide, expanded, result, sizes, dtype)


def _read(operands: tuple[Any, ...]) -> tuple[list[list[Any]], list[Any], list[Any]]:
    """The labels of each operand, the labels of the output, and the arrays; ``...`` is Python's Ellipsis."""
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
        with suppress(TypeError):  # labels without an order keep their order of appearance
            once = sorted(once)
        output = [...] * (... in every) + once
    return terms, output, arrays


def _letters(subscript: str) -> list[Any]:
    return [... if label == "..." else label for label in re.findall(r"\.\.\.|[^\x00-\x20\x85\xa0]", subscript)]


def _expanded(term: list[Any], dots: int, rank: int) -> list[Any]:
    """The term with a label for each axis of its ellipsis: the last of ``dots`` labels."""
    axes = rank - len(term) + 1
    labels = [[("...", k) for k in range(dots - axes, dots)] if label is ... else [label] for label in term]
    return list(chain(*labels))


# -- the sum --------------------------------------------------------------------------------------------------


def _plain_sum(arrays: list[Any], terms: list[list[Any]], output: list[Any], ranges: dict[Any, range]) -> Any:
    """The product of all operands over the whole index space, summed over the labels that the output lacks."""
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
    # Without axes, NumPy returns a Python integer in place of an object array, and would later convert it to int64.
    return np.asarray(np.multiply(first, second), dtype=first.dtype)


def _plus(first: Any, second: Any) -> Any:
    return first | second if np.asarray(first).dtype == bool else first + second  # asarray: objects sum to an integer


def _spread(array: Any, term: list[Any], labels: list[Any], ranges: dict[Any, range]) -> Any:
    """``array`` with an axis for each of ``labels``: a diagonal for repeated labels, size 1 for missing ones."""
    index = indices_in(array, term, labels, ranges)
    spread = array[index] if index else array
    return np.asarray(spread, dtype=array.dtype).reshape((1,) * (len(labels) - np.ndim(spread)) + np.shape(spread))


def indices_in(array: Any, term: list[Any], labels: list[Any], ranges: dict[Any, range]) -> tuple[Any, ...]:
    """For each axis of ``array``, its indices in an array with an axis for each of ``labels``."""
    index = []
    for label, size in zip(term, array.shape):
        indices = np.asarray(ranges[label], dtype=int)
        along = [len(indices) if other == label else 1 for other in labels]
        index.append((indices if size != 1 else np.zeros_like(indices)).reshape(along))
    return tuple(index)


# -- numbers --------------------------------------------------------------------------------------------------


def _wide(array: Any) -> Any:
    """``array`` in a dtype that does not wrap: Python integers, or longdouble."""
    match array.dtype.kind:
        case "i" | "u":
            return array.astype(object)
        case "c":
            return array.astype(np.clongdouble)
        case "b" | "O":
            return array
        case _:  # floats, and bfloat16 from other packages
            return array.astype(np.longdouble)


def _magnitudes(array: Any) -> Any:
    return np.asarray(np.abs(array), dtype=object if array.dtype == object else None)


def _wrapped(values: Any, dtype: str) -> Any:
    """Python integers converted to ``dtype``, modulo its range."""
    info = np.iinfo(dtype)
    span = int(info.max) - int(info.min) + 1
    return np.asarray((values - int(info.min)) % span + int(info.min)).astype(dtype)


def _numpy_name(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


def _real(dtype: str) -> str:
    """The float type of a complex type's parts, as a key of the table of floats."""
    if dtype == "bfloat16":
        return dtype
    name = np.empty(0, dtype).real.dtype.name
    return name if name in FLOATS else "longdouble"
