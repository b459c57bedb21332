"""Integer matrix products, exact modulo 2^bits, by floating-point BLAS, because there is no BLAS for integers.

A floating-point product is exact if no sum of products exceeds the integers that the type represents exactly: 2^24 in
float32, 2^53 in float64. For narrow integers the dtype guarantees this, for wide ones the operands' largest numbers
may. A sum that is too long for float32 is cut into blocks that are not, because BLAS is twice as fast in float32 as in
float64. Otherwise this module splits operands into limbs that are short enough for exact products, and shifts and adds
the products that affect the result's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product as pairs
from math import ceil, prod
from typing import Any, TypeAlias

import numpy as np

from einsumx.backends.numpy import kernels
from einsumx.host.threads import get_num_threads, run
from einsumx.ir.layout import broadcast

Kernel: TypeAlias = Callable[..., Any]
Shape: TypeAlias = tuple[int, ...]

_EXACT = {"float32": 24, "float64": 53}
"""The most bits of an integer that a float type represents exactly."""

# Rates in seconds, to compare the methods.
_CALLS = 4e-6
_CONVERSION = 3e-9
_BLAS = 5e-11
_LOOP_START = 20e-9
_LOOP = {1: 0.15e-9, 2: 0.3e-9, 4: 0.45e-9, 8: 0.7e-9}
_MATMUL = 1e-9

_SHORTEST = 128
"""The fewest terms of a block of a sum: with fewer, adding the blocks takes longer than float64 does."""


def matmul(shapes: Sequence[Shape], dtype: str) -> Kernel:
    """The kernel of ``lhs[..., m, k] @ rhs[..., k, n]`` for integers."""
    lhs, rhs = shapes
    shape = _product_shape(shapes)
    match _fastest_method(shapes, dtype):
        case "matmul":
            return partial(np.matmul, order="C")
        case "loop":
            batch = "".join(chr(ord("d") + axis) for axis in range(len(lhs) - 2))
            if 1 in shape[-2:] or len(batch) > 20 or lhs[:-2] != rhs[:-2]:
                return kernels.einsum_into("...ab,...bc->...ac", shape, dtype)
            return kernels.native(f"{batch}ab,{batch}bc->{batch}ac", shapes, dtype)
    return _through_blas(shapes, dtype)


def _product_shape(shapes: Sequence[Shape]) -> Shape:
    lhs, rhs = shapes
    return (*broadcast(lhs[:-2], rhs[:-2]), lhs[-2], rhs[-1])


def _fastest_method(shapes: Sequence[Shape], dtype: str) -> str:
    lhs, rhs = shapes
    inner, cols = lhs[-1], rhs[-1]
    elements = prod(_product_shape(shapes))
    work = elements * inner
    seconds = {
        "matmul": work * _MATMUL,
        "loop": _CALLS / 2 + work * _LOOP[np.dtype(dtype).itemsize] + work / max(cols, inner, 1) * _LOOP_START,
        "blas": _CALLS + (prod(lhs) + prod(rhs) + elements) * _CONVERSION + work * _BLAS,
    }
    return min(seconds, key=lambda method: seconds[method])


def workspace(shapes: Sequence[Shape], dtype: str) -> int:
    """The most bytes that a product allocates, without its result: for the largest numbers of the dtype."""
    if min(map(len, shapes)) == 1 or _fastest_method(shapes, dtype) != "blas":
        return 0
    size = np.dtype(dtype).itemsize
    left, right = map(prod, shapes)
    out = prod(_product_shape(shapes))
    through = _exact(shapes[0][-1], _bound(dtype))
    if through is not None:
        width = np.dtype(through).itemsize
        is_narrow = np.dtype(dtype) != _wide(through)
        return max((left + right + out) * width, out * (2 * width + size * is_narrow)) - out * size
    bits = 8 * size
    steps = _limb_widths(bits, bits, _budget(shapes), bits)
    floats = [8 * elements * ceil(bits / step) for elements, step in zip((left, right), steps)]
    splitting = max(floats[0] + left * size, sum(floats) + right * size)
    return max(splitting, sum(floats) + 24 * out) - out * size


def wide_matmul(shapes: Sequence[Shape], dtype: str, sums: str) -> Kernel:
    """The kernel of the same product for narrow integers with sums in the wider dtype ``sums``."""
    inner, step = shapes[0][-1], _block(_bound(dtype), _bound(dtype))
    if _is_thin(shapes):
        return _thin_matmul(shapes, sums, step)
    return _in_blocks(sums, step) if inner > step else _whole(shapes, dtype, "float32", sums)


def wide_workspace(shapes: Sequence[Shape], dtype: str, sums: str) -> int:
    """The most bytes that such a product allocates, without its result."""
    inner, step = shapes[0][-1], _block(_bound(dtype), _bound(dtype))
    if _is_thin(shapes):
        return _thin_workspace(shapes, step)
    out, size = prod(_product_shape(shapes)), np.dtype(sums).itemsize
    operands = sum(map(prod, shapes)) // max(inner, 1) * min(step, inner)
    # The product of a block of floats is cast when its operands are freed, next to the sum of the blocks before it.
    floats = 4 * out + max(4 * operands, size * out)
    return floats if inner > step else floats - size * out


def _bound(dtype: str) -> int:
    """The largest absolute value of a dtype."""
    info = np.iinfo(dtype)
    return max(-int(info.min), int(info.max))


def _exact(inner: int, left: int, right: int | None = None) -> str | None:
    """The narrowest float type that holds every sum of ``inner`` products of numbers up to ``left`` and ``right``."""
    largest = inner * left * (left if right is None else right)
    return next((through for through, bits in _EXACT.items() if largest <= 1 << bits), None)


def _through_blas(shapes: Sequence[Shape], dtype: str) -> Kernel:
    inner = shapes[0][-1]
    through = _exact(inner, _bound(dtype))
    if through is not None:
        step = _block(_bound(dtype), _bound(dtype))
        return _in_blocks(dtype, step) if through == "float64" and step else _whole(shapes, dtype, through)
    in_floats = {through: _whole(shapes, dtype, through) for through in _EXACT}
    in_limbs = _by_limbs(shapes, dtype)

    def by_largest(lhs: Any, rhs: Any) -> Any:
        left, right = _largest(lhs), _largest(rhs)
        through = _exact(inner, left, right)
        if through != "float32" and (step := _block(left, right)):
            return _in_blocks(dtype, step)(lhs, rhs)
        if through is not None:
            return in_floats[through](lhs, rhs)
        return in_limbs(lhs, rhs, left.bit_length(), right.bit_length())

    return by_largest


def _largest(array: Any) -> int:
    """The largest absolute value."""
    return max(int(array.max()), -int(array.min()))


def _whole(shapes: Sequence[Shape], dtype: str, through: str, sums: str = "") -> Kernel:
    """A product that is exact in the float type ``through``, as ``sums`` or in the operands' dtype."""
    to_floats = [kernels.cast(shape, dtype, through) for shape in shapes]
    product = kernels.matmul(shapes, through)
    wide = _wide(through)

    def whole(lhs: Any, rhs: Any) -> Any:
        result = product(*(to_float(array) for to_float, array in zip(to_floats, (lhs, rhs))))
        return result.astype(wide).astype(sums or dtype, copy=False)

    return whole


def _block(left: int, right: int) -> int:
    """How many products of numbers up to ``left`` and ``right`` float32 sums exactly; 0 if they are too few."""
    most = (1 << _EXACT["float32"]) // max(left * right, 1)
    return most if most >= _SHORTEST else 0


def _in_blocks(sums: str, step: int) -> Kernel:
    """A product whose sum is cut into blocks of ``step`` terms, each exact in float32, and added in dtype ``sums``."""

    def in_blocks(lhs: Any, rhs: Any) -> Any:
        total: Any = None
        for start in range(0, lhs.shape[-1], step):
            blocks = lhs[..., start : start + step], rhs[..., start : start + step, :]
            part = _whole([block.shape for block in blocks], blocks[0].dtype.name, "float32", sums)(*blocks)
            total = part if total is None else np.add(total, part, out=total)
            del part
        return total

    return in_blocks


def _wide(through: str) -> str:
    """An integer type for every exact sum; casting it to a narrower type wraps, which casting the float would not."""
    return "int32" if through == "float32" else "int64"


def _budget(shapes: Sequence[Shape]) -> int:
    """The most bits that two limbs have together."""
    return _EXACT["float64"] - (shapes[0][-1] - 1).bit_length()


def _by_limbs(shapes: Sequence[Shape], dtype: str) -> Kernel:
    """A product of numbers that are too large for any float type; it takes the bits of the largest ones."""
    to_floats = [kernels.cast(shape, dtype, "float64") for shape in shapes]
    product = kernels.matmul(shapes, "float64")
    width = 8 * np.dtype(dtype).itemsize
    budget = _budget(shapes)

    def by_limbs(lhs: Any, rhs: Any, lhs_bits: int, rhs_bits: int) -> Any:
        lhs_step, rhs_step = _limb_widths(lhs_bits, rhs_bits, budget, width)
        left, right = (
            [to_float(limb) for limb in _limbs(array, bits, step)]
            for to_float, array, bits, step in zip(to_floats, (lhs, rhs), (lhs_bits, rhs_bits), (lhs_step, rhs_step))
        )
        total: Any = None
        for i, j in pairs(range(len(left)), range(len(right))):
            shift = i * lhs_step + j * rhs_step
            if shift < width:
                part = product(left[i], right[j]).astype("int64").view("uint64")
                part <<= np.uint64(shift)
                total = part if total is None else np.add(total, part, out=total)
                del part
        return total.astype(dtype)

    return by_limbs


def _limb_widths(lhs_bits: int, rhs_bits: int, budget: int, width: int) -> tuple[int, int]:
    """The widths of limbs, ``budget`` bits together, that need the fewest products for a result of ``width`` bits.

    >>> _limb_widths(32, 32, 43, 32), _limb_widths(40, 7, 43, 64)
    ((11, 32), (36, 7))
    """

    def products(steps: tuple[int, int]) -> int:
        return sum(
            left + right < width for left in range(0, lhs_bits, steps[0]) for right in range(0, rhs_bits, steps[1])
        )

    right = (ceil(rhs_bits / count) for count in range(1, rhs_bits + 1))
    return min(((budget - step, step) for step in right if step < budget), key=products)


def _limbs(array: Any, bits: int, step: int) -> Iterator[Any]:
    """``array`` as a sum of limbs, each shifted by ``step`` more bits than the previous one; the last has the sign."""
    last = max(bits - 1, 0) // step * step
    for start in range(0, last, step):
        yield (array >> start) & ((1 << step) - 1)
    yield array >> last


# -- large arrays of narrow integers times a few vectors ------------------------------------------------------

# Their time is that of reading the array. Each part of it is cast to float32 in a cache, and read from there.

_THIN = 8
"""The most rows or columns of the other operand."""

_PART = 1 << 17
"""The elements of a part: in float32, half of a core's cache."""

_LEAST = 1 << 18
"""The least elements of the large operand."""

_SHARED = 1 << 20
"""The least elements for more than one thread."""


def _is_thin(shapes: Sequence[Shape]) -> bool:
    """Whether BLAS in float32 multiplies ``[..., m, k]`` by ``[..., k, n]``."""
    lhs, rhs = shapes
    return min(lhs[-2], rhs[-1]) <= _THIN and max(map(prod, shapes)) >= _LEAST and lhs[:-2] == rhs[:-2]


def _thin_matmul(shapes: Sequence[Shape], sums: str, step: int) -> Callable[[Any, Any], Any]:
    """The kernel of such a product.

    Args:
        shapes: of the operands.
        sums: the dtype of the result.
        step: how many products float32 sums exactly.
    """
    lhs, rhs = shapes
    shape = (*broadcast(lhs[:-2], rhs[:-2]), lhs[-2], rhs[-1])
    is_tall = lhs[-2] >= rhs[-1]
    boxes = list(_boxes(shape[:-2], max(shape[-2:]), min(lhs[-1], step)))
    blocks = [slice(start, start + step) for start in range(0, lhs[-1], step)]

    def kernel(lhs: Any, rhs: Any) -> Any:
        out = np.empty(shape, sums)
        # The large operand is on the left.
        left, right, target = (
            (lhs, rhs, out) if is_tall else (rhs.swapaxes(-1, -2), lhs.swapaxes(-1, -2), out.swapaxes(-1, -2))
        )
        right = right.astype(np.float32)
        count = get_num_threads() if left.size >= _SHARED else 1
        jobs = [partial(_multiply, left, right, target, boxes[first::count], blocks) for first in range(count)]
        if count == 1:
            jobs[0]()
        else:
            run(jobs)
        return out

    return kernel


def _boxes(batch: Shape, rows: int, inner: int) -> Iterator[tuple[slice, ...]]:
    """Parts of a batch, and of the rows of each matrix, of about as many elements as fit the cache."""
    within = max(1, _PART // max(inner, 1))
    sizes, steps = (*batch, rows), []
    for size in reversed(sizes):
        steps.append(max(1, min(size, within)))
        within //= size or 1
    cuts = [[slice(at, at + step) for at in range(0, size, step)] for size, step in zip(sizes, reversed(steps))]
    return pairs(*cuts)


def _multiply(left: Any, right: Any, out: Any, boxes: Sequence[tuple[slice, ...]], blocks: Sequence[slice]) -> None:
    for box in boxes:
        target, batch = out[box], box[:-1]
        for number, block in enumerate(blocks):
            places, few = (*box, block), (*batch, block)
            part = np.matmul(left[places].astype(np.float32), right[few])
            if number == 0:
                np.copyto(target, part, casting="unsafe")
            else:
                target += part.astype(out.dtype)


def _thin_workspace(shapes: Sequence[Shape], step: int) -> int:
    """The most bytes that such a product allocates, without its result."""
    lhs, rhs = shapes
    small, threads = min(prod(lhs), prod(rhs)), get_num_threads()
    cols, block = min(lhs[-2], rhs[-1]), min(lhs[-1], step)
    rows = max(1, min(max(map(prod, shapes)), _PART) // block)
    return 4 * small + threads * (4 * rows * block + 8 * rows * cols)
