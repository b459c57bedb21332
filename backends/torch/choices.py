"""Which of PyTorch's kernels runs a matrix product, and what it allocates: decided from shapes alone, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import TypeAlias

from einsumx.dtypes import itemsize, kind
from einsumx.ir.contraction import Contraction
from einsumx.ir.layout import broadcast, contiguous, memory_order, merged_stride
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Matmul, Op
from einsumx.ir.traits import BLAS, HALVES

Shape: TypeAlias = tuple[int, ...]

INTEGERS = frozenset({"uint8", "int8", "int16", "int32", "int64"})
SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}
"""Unsigned dtypes without arithmetic in torch, and the signed ones whose sums have the same bits."""

# The least bytes that each step of a loop of batched products must save in copies. Fitted to the times of loops and of
# copies for 580 random products with two and three batch axes in random memory orders, of 1e3 to 1e9 multiply-adds: the
# chosen kernel takes 1.03 times as long as the best one (geometric mean). On an H200 a step takes 17 us of the host's
# time, in which 20 to 30 MB are copied.
_STEP, _STEP_ON_GPU = 250_000, 32_000_000

# The least bytes that are copied without turning each matrix by more calls than torch.matmul.
_TURNED = 1 << 16

# The least multiply-adds and the least size of each axis for which casts to float64 and back pay; and the largest
# magnitudes of short integers.
_INTEGER_WORK = 300_000
_INTEGER_SIZE = 16
LARGEST = {"int8": 1 << 7, "uint8": (1 << 8) - 1, "int16": 1 << 15}


def pays_in_floats(lhs: Shape, rhs: Shape) -> bool:
    """Whether a product of integers is large enough for casts to float64 and back."""
    rows, inner, cols = lhs[-2], lhs[-1], rhs[-1]
    if min(rows, inner, cols) < _INTEGER_SIZE:
        return False
    return prod(broadcast(lhs[:-2], rhs[:-2])) * rows * inner * cols >= _INTEGER_WORK


def digits_of(dtype: str, inner: int) -> tuple[int, int]:
    """The bits of a digit, so that a sum of ``inner`` products is exact in float64, and the digits of an integer.

    >>> digits_of("int16", 1000), digits_of("int64", 1000)
    ((21, 1), (21, 4))
    """
    width = (53 - max(inner - 1, 1).bit_length()) // 2
    return width, -(-8 * itemsize(dtype) // width)


def digits_workspace(operands: Sequence[Operand]) -> int:
    """The most bytes that a product of integers on CUDA allocates, without its result."""
    lhs, rhs = operands
    out = prod(broadcast(lhs.shape[:-2], rhs.shape[:-2])) * lhs.shape[-2] * rhs.shape[-1]
    if 1 in (lhs.shape[-2], rhs.shape[-1]):
        return out * (lhs.shape[-1] * itemsize(lhs.dtype) + 2 * 8)
    _, count = digits_of(lhs.dtype, lhs.shape[-1])
    digits = [Operand(operand.shape, "float64", operand.strides) for operand in operands]
    # The digits, first as integers, and in int64 a sum, a product, and the product shifted.
    return (2 * count + 1) * sum(digit.nbytes for digit in digits) + product_workspace(digits, False) + 4 * 8 * out


_EXACT = 1 << 24
"""float32 represents all integers up to this one."""

LEAST_INT_MM = 16
"""The least size of each axis for ``torch._int_mm``: oneDNN reads matrices of one row or column with strides that torch
gives it wrongly, and smaller ones take no less time than in floats. A few rows or columns get zeros beside them."""

_LEAST_PADDED = 1 << 14
"""The least elements of the other operand for that."""

_LEAST_OF_BATCH = 1 << 21
"""The least multiply-adds of each matrix of a batch, as these are multiplied one after the other."""


def exact_block(dtype: str) -> int:
    """How many products of a dtype float32 sums exactly."""
    return _EXACT // LARGEST[dtype] ** 2


def may_be_int_mm(lhs: Shape, rhs: Shape, dtype: str) -> bool:
    """Whether ``torch._int_mm`` may multiply such matrices, one of a batch after the other."""
    rows, inner, cols = lhs[-2], lhs[-1], rhs[-1]
    if dtype != "int8" or min(inner, max(rows, cols)) < LEAST_INT_MM:
        return False
    if min(rows, cols) < LEAST_INT_MM:
        return len(lhs) == 2 and max(rows, cols) * inner >= _LEAST_PADDED
    return len(lhs) == 2 or rows * inner * cols >= _LEAST_OF_BATCH


def narrow_workspace(operands: Sequence[Operand]) -> int:
    """The most bytes that a product of narrow integers with sums in int32 allocates, without its result."""
    lhs, rhs = (operand.shape for operand in operands)
    out = prod(broadcast(lhs[:-2], rhs[:-2])) * lhs[-2] * rhs[-1]
    step = exact_block(operands[0].dtype)
    length = min(lhs[-1], step)
    blocks = [
        Operand((*lhs[:-1], length), "float32", operands[0].strides),
        Operand((*rhs[:-2], length, rhs[-1]), "float32", operands[1].strides),
    ]
    # A block of floats with its factors, or its cast, next to the sum of the blocks before it.
    casts = sum(block.nbytes for block in blocks) + product_workspace(blocks)
    # Or the operand of few rows or columns, and the result, with zeros beside them.
    narrow = max(lhs[-2] + rhs[-1], 2 * LEAST_INT_MM)
    padded = LEAST_INT_MM * (4 * narrow + lhs[-1]) if may_be_int_mm(lhs, rhs, operands[0].dtype) else 0
    return max(padded, 4 * out + max(casts, 4 * out if lhs[-1] > step else 0))


def loop_axis(operands: Sequence[Operand], on_cpu: bool = True) -> int | None:
    """The batch axis of each call in a loop over the other batch axes; None if copying the operands is faster.

    Args:
        operands: both sides, with the same number of batch axes.
        on_cpu: whether they are on the CPU, not on a GPU.
    """
    lhs, rhs = (operand.shape for operand in operands)
    batch = broadcast(lhs[:-2], rhs[:-2])
    result = prod(batch) * lhs[-2] * rhs[-1] * itemsize(operands[0].dtype)
    steps = [prod(batch) // max(size, 1) for size in batch]
    step = _STEP if on_cpu else _STEP_ON_GPU
    costs = [step * count + (0 if axis == len(batch) - 1 else result) for axis, count in enumerate(steps)]
    axis = costs.index(min(costs))
    return axis if costs[axis] < sum(_copied_bytes(operands)) else None


def copies_turned(operands: Sequence[Operand]) -> bool:
    """Whether copies should keep the matrices of an operand transposed, as they are stored; torch.matmul turns them."""
    turned = (nbytes for operand, nbytes in zip(operands, _copied_bytes(operands)) if _steps(operand)[-1] != 1)
    return sum(turned) >= _TURNED


def _copied_bytes(operands: Sequence[Operand]) -> list[int]:
    """The bytes of the copies that give each side a single batch axis."""
    batch = broadcast(operands[0].shape[:-2], operands[1].shape[:-2])
    wide = [_expanded(operand, batch) for operand in operands]
    return [0 if _merges(operand) else operand.nbytes for operand in wide]


_COLUMNS, _MANY_VECTORS = {"float32": 3, "float64": 3}, 1 << 14
"""The most elements of vectors, by dtype, and the least pairs of them, whose dot products are faster by columns."""

BLOCK_OF_VECTORS = 1 << 16
"""The vectors that are multiplied at a time, so that they stay in the cache from one column to the next."""


def is_by_columns(lhs: Shape, rhs: Shape, dtype: str) -> bool:
    """Whether a product is one of many pairs of short vectors, which is faster column by column.

    >>> is_by_columns((100000, 1, 3), (100000, 3, 1), "float64"), is_by_columns((100, 1, 3), (100, 3, 1), "float64")
    (True, False)
    """
    if len(lhs) != 3 or lhs[0] != rhs[0] or not lhs[1] == rhs[2] == 1:
        return False
    return lhs[0] >= _MANY_VECTORS and 1 < lhs[2] <= _COLUMNS.get(dtype, 0)


def product_workspace(operands: Sequence[Operand], on_cpu: bool = True) -> int:
    """The most bytes that a product allocates, without its result; for the arguments, see :func:`loop_axis`."""
    lhs, rhs = (operand.shape for operand in operands)
    if min(len(lhs), len(rhs)) == 1:
        return sum(0 if _is_readable(operand) else operand.nbytes for operand in operands)
    batch = broadcast(lhs[:-2], rhs[:-2])
    if operands[0].dtype in INTEGERS and pays_in_floats(lhs, rhs):
        out = prod(batch) * lhs[-2] * rhs[-1]
        short = operands[0].dtype != "int64"
        casts = [Operand(operand.shape, "float64", operand.strides) for operand in operands]
        product = 8 * (prod(lhs) + prod(rhs) + out) + product_workspace(casts)
        back = out * (16 + itemsize(operands[0].dtype) * short)
        return max(product, back) - out * itemsize(operands[0].dtype)
    copies = sum(0 if _is_readable(operand) else operand.nbytes for operand in operands)
    if is_by_columns(lhs, rhs, operands[0].dtype):
        return min(lhs[0], BLOCK_OF_VECTORS) * lhs[2] * itemsize(operands[0].dtype)
    if len(batch) < 2:
        return copies if not batch else 0
    axis = loop_axis(operands, on_cpu)
    if axis is None:
        return sum(_copied_bytes(operands))
    return 0 if axis == len(batch) - 1 else prod(batch) * lhs[-2] * rhs[-1] * itemsize(operands[0].dtype)


def multiply_workspace(operands: Sequence[Operand], shape: Shape) -> int:
    """Bytes of an elementwise product in the memory order of its operands, if it has to be copied to C order."""
    rank = len(shape)
    steps = []
    for operand in operands:
        missing = rank - len(operand.shape)
        own = (step if size > 1 else 0 for size, step in zip(operand.shape, _steps(operand)))
        steps.append((*[0] * missing, *own))
    for outer, inner in combinations(range(rank), 2):  # the first operand with both axes determines their order
        orders = [own[outer] >= own[inner] for own in steps if own[outer] and own[inner]]
        if orders and not orders[0]:
            return prod(shape) * itemsize(operands[0].dtype)
    return 0


def half_sum_workspace(operand: Operand, axes: Sequence[int]) -> int:
    """Bytes of a half-precision sum: torch casts the operand to float32 if the summed axes do not merge into one."""
    steps = _steps(operand)
    summed = [axis for axis in memory_order(steps) if axis in axes]
    if merged_stride([operand.shape[axis] for axis in summed], [steps[axis] for axis in summed]) is not None:
        return 0
    kept = prod(size for axis, size in enumerate(operand.shape) if axis not in axes)
    return (prod(operand.shape) + kept) * itemsize("float32")


def _expanded(operand: Operand, batch: Shape) -> Operand:
    """An operand of a product with its batch axes broadcast."""
    steps = _steps(operand)
    wide = tuple(0 if size != whole else step for size, whole, step in zip(operand.shape, batch, steps))
    return Operand((*batch, *operand.shape[-2:]), operand.dtype, (*wide, *steps[-2:]))


def _merges(operand: Operand) -> bool:
    """Whether the batch axes merge into one without a copy."""
    return merged_stride(operand.shape[:-2], _steps(operand)[:-2]) is not None


def _is_readable(operand: Operand) -> bool:
    """Whether BLAS can read the matrix: one axis has unit stride, and rows or columns do not overlap."""
    if len(operand.shape) < 2:
        return True
    (rows, cols), (down, along) = operand.shape[-2:], _steps(operand)[-2:]
    return (along == 1 and down >= max(cols, 1)) or (down == 1 and along >= max(rows, 1)) or 1 in (rows, cols)


def _steps(operand: Operand) -> tuple[int, ...]:
    return contiguous(operand.shape) if operand.strides is None else operand.strides


IN_NUMPY = frozenset({"float16", "float32", "float64"})
"""The floating-point dtypes that NumPy has, too."""


_KEPT = 1 << 17
"""The bytes of casts and copies that autograd should not keep; to avoid fewer takes longer than it is worth."""

_LEAST = {"rows": 1 << 13, "vectors": 1 << 19, "broadcast": 1 << 18}
"""The multiply-adds from which gradients are not autograd's of a product, by :func:`_form`. Fitted to the times of 80
contractions with their gradients.
"""


@lru_cache(maxsize=1024)
def _form(inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...]) -> str:
    """The form of a product whose gradients autograd computes slowly; empty for others.

    ``"rows"`` with rows and batches of ``"vectors"`` with matrices have gradients by products of matrices with one row
    or column. Those of a product that ``"broadcast"``s both operands are large before they are summed.
    """
    if len(inputs) != 2:
        return ""
    lhs, rhs = map(set, inputs)
    both, kept = lhs & rhs, lhs & rhs & set(output)
    if lhs <= rhs or rhs <= lhs:
        is_batch, has_repeats = set() < kept < both, len(both) < min(map(len, inputs))
        return "" if not is_batch or has_repeats else "rows" if lhs == rhs else "vectors"
    return "broadcast" if kept == both else ""


def multiplies_rows(contraction: Contraction, ops: Sequence[Op]) -> bool:
    """Whether products of rows by the ops of matrices have faster gradients as one product that is summed."""
    equation, operands, dtype = contraction.equation, contraction.operands, contraction.dtype
    if _form(equation.inputs, equation.output) != "rows" or prod(equation.sizes) < _LEAST["rows"]:
        return False
    is_plain = dtype in BLAS and not contraction.conjugated and all(each.dtype == dtype for each in operands)
    return is_plain and any(isinstance(op, Matmul) for op in ops)


def own_gradients(contraction: Contraction, ops: Sequence[Op]) -> bool:
    """Whether einsumx supplies the gradients of a contraction, as those of its ops would cost more time or memory.

    Autograd keeps the casts and copies that products read.
    """
    operands, equation, dtype = contraction.operands, contraction.equation, contraction.dtype
    copies = "copy" in [op.effect for op in ops]
    if copies and sum([prod(operand.shape) for operand in operands]) * max(itemsize(dtype), 4) > _KEPT:
        is_own = len(operands) == 2 or (len(operands) > 2 and dtype in HALVES)
    else:
        form = _form(equation.inputs, equation.output)
        is_own = form in ("vectors", "broadcast") and prod(equation.sizes) >= _LEAST[form]
    # Where a real result has complex operands, imaginary parts are dropped before the product.
    return is_own and (kind(dtype) == "c" or "c" not in [kind(operand.dtype) for operand in operands])
