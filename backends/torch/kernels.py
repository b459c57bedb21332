"""How PyTorch runs a plan's matrix products: for the shapes at hand, the quickest of its kernels.

This module imports torch, and is imported when the first product of a plan is made ready to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

from einsumx.adapters.typing import Array
from einsumx.backends.torch.choices import LARGEST, loop_axis, pays_in_floats
from einsumx.dtypes import itemsize
from einsumx.ir.layout import broadcast

__all__ = ["copied", "integer_product", "is_plain", "is_recorded", "product"]

Shape: TypeAlias = tuple[int, ...]
Kernel: TypeAlias = Callable[[Array, Array], Array]

torch: Any = import_module("torch")
_mm: Kernel = torch.mm
_bmm: Kernel = torch.bmm
_matmul: Kernel = torch.matmul
_PLAIN = (torch.Tensor, torch.nn.Parameter)

# How many cache lines a copy reads from before it comes back to the first: what the cache holds, and what the processor
# remembers the pages of; and how many elements make a part of a copy worth its call.
_LINES = 4096
_LINES_OF_PAGES = 256
_PAGE = 4096
_BLOCK = 1 << 16


def product(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """The kernel for ``[..., rows, contracted] @ [..., contracted, cols]`` in these shapes.

    Args:
        lhs, rhs: the shapes; a batch axis of size 1 broadcasts.
        dtype: of both.
    """
    if min(len(lhs), len(rhs)) == 1:
        return _by_vector(len(lhs), len(rhs))
    rows, cols = lhs[-2], rhs[-1]
    if len(lhs) == 2:
        return _single(rows, cols)
    batch = broadcast(lhs[:-2], rhs[:-2])
    kernel = _looped(batch, lhs, rhs, itemsize(dtype)) if len(batch) > 1 else _batched(batch[0], lhs[0] == rhs[0])
    return _vector_first(kernel, rows, cols) if 1 in (rows, cols) else kernel


def integer_product(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """The same for integers, for which torch has plain loops: where there is work enough, a product in float64.

    It is exact while no sum can reach 2**53, which the dtype tells for short integers, and the operands for long ones.
    """
    narrow = product(lhs, rhs, dtype)
    inner = lhs[-1]
    if not pays_in_floats(lhs, rhs):
        return narrow
    wide = product(lhs, rhs, "float64")
    known = LARGEST.get(dtype)

    def run(lhs: Array, rhs: Array) -> Array:
        if known is None and not (is_plain(lhs) and is_plain(rhs)):
            return narrow(lhs, rhs)
        bound = known**2 if known is not None else _largest(lhs) * _largest(rhs)
        if bound * inner > 2**53:
            return narrow(lhs, rhs)
        # By way of int64, as only from there a cast wraps.
        return wide(lhs.double(), rhs.double()).long().to(lhs.dtype)

    return run


def _largest(array: Array) -> int:
    """The largest magnitude in a tensor of integers."""
    return max(abs(int(bound)) for bound in array.aminmax())


def _by_vector(lhs: int, rhs: int) -> Kernel:
    """A product with a vector, from the number of axes of each side."""
    if lhs == rhs == 1:
        return torch.dot  # type: ignore[no-any-return]
    return torch.mv if rhs == 1 else lambda vector, matrix: matrix.mT.mv(vector)


def _single(rows: int, cols: int) -> Kernel:
    """One product; with a vector the kernels that read a matrix in either order at the speed of memory."""
    if rows == 1 and cols == 1:
        return lambda lhs, rhs: lhs.squeeze(0).dot(rhs.squeeze(1)).view(1, 1)
    if cols == 1:
        return lambda lhs, rhs: lhs.mv(rhs.squeeze(1)).unsqueeze(1)
    if rows == 1:
        return lambda lhs, rhs: rhs.mT.mv(lhs.squeeze(0)).unsqueeze(0)
    return _mm


def _batched(count: int, alike: bool) -> Kernel:
    """One batch axis, which one of the operands may lack."""
    if alike:
        return _bmm
    return lambda lhs, rhs: lhs.expand(count, -1, -1).bmm(rhs.expand(count, -1, -1))


def _vector_first(kernel: Kernel, rows: int, cols: int) -> Kernel:
    """A batch of products with vectors: MKL is quickest with rows on the left, each as long as its stride says.

    The same numbers on the right, or with a stride of 1 along the axis of size 1, take it up to five times as long.
    """

    def row(array: Array, axis: int) -> Array:
        return array.squeeze(axis).unsqueeze(-2)

    if rows == 1 and cols == 1:
        return lambda lhs, rhs: kernel(row(lhs, -2), row(rhs, -1).mT)
    if rows == 1:
        return lambda lhs, rhs: kernel(row(lhs, -2), rhs)
    return lambda lhs, rhs: kernel(row(rhs, -1), lhs.mT).mT


def _looped(batch: Shape, lhs: Shape, rhs: Shape, itemsize: int) -> Kernel:
    """Several batch axes, of which torch's kernels take one: a loop over the others, where copies would cost more.

    The operands are read where they lie and the result is written in place, which nothing that records or transforms
    the calls may see; there torch.matmul copies, and has derivatives that copy nothing.
    """
    axis = loop_axis(lhs, rhs, itemsize)
    if axis is None:
        return _matmul
    last = len(batch) - 1

    def run(lhs: Array, rhs: Array) -> Array:
        if not (is_plain(lhs) and is_plain(rhs)):
            return _matmul(lhs, rhs)
        lhs, rhs = (side.expand(*batch, -1, -1).movedim(axis, last) for side in (lhs, rhs))
        result = lhs.new_empty(*lhs.shape[:-1], rhs.shape[-1])
        for left, right, out in zip(_items(lhs), _items(rhs), _items(result)):
            torch.bmm(left, right, out=out)
        return result.movedim(last, axis).contiguous()

    return run


def _items(array: Array) -> Iterator[Array]:
    """The views of three axes that make up an array of more, in C order."""
    if array.ndim == 3:
        yield array
    else:
        for part in array.unbind(0):
            yield from _items(part)


def copied(array: Array) -> Array:
    """A C-contiguous copy, block by block where the axes change places.

    torch walks along the rows of the result. Where each of their elements is in another cache line, or another page,
    a line must still be in the cache when the next row wants the rest of it.
    """
    if array.numel() < 2 * _BLOCK or not is_plain(array):
        return array.clone(memory_format=torch.contiguous_format)
    result = array.new_empty(array.shape)
    strides = [(stride, axis) for axis, (size, stride) in enumerate(zip(array.shape, array.stride())) if size > 1]
    innermost = min((each for each in strides if each[0]), default=strides[-1])[1]
    behind = prod(array.shape[innermost + 1 :])
    lines = _LINES_OF_PAGES if strides[-1][0] * array.element_size() >= _PAGE else _LINES
    _copy_blocks(result, array, innermost + 1, max(lines, _BLOCK * behind // array.numel()))
    return result


def _copy_blocks(target: Array, source: Array, axis: int, limit: int) -> None:
    """Copy so that the axes from ``axis`` on span ``limit`` elements at most at a time."""
    span = prod(source.shape[axis:])
    if span <= limit:
        target.copy_(source)
        return
    parts = min(-(-span // limit), source.shape[axis])
    size = -(-source.shape[axis] // parts)
    for out, part in zip(target.split(size, axis), source.split(size, axis)):
        _copy_blocks(out, part, axis + 1, limit)


def is_plain(array: Array) -> bool:
    """Whether the tensor is memory of the CPU, and nothing records or transforms what is done with it."""
    if type(array) not in _PLAIN or not array.is_cpu or is_recorded(array):
        return False
    return torch.autograd.forward_ad.unpack_dual(array).tangent is None


def is_recorded(array: Array) -> bool:
    """Whether what is done with the tensor is recorded for derivatives; taken for granted of torch.func's wrappers."""
    if array.requires_grad and torch.is_grad_enabled():
        return True
    if type(array) not in _PLAIN:  # what torch.compile traces with
        return False
    try:
        array.data_ptr()  # wrappers have no address
    except RuntimeError:
        return True
    return False
