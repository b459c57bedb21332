"""Runs a plan's matrix products with the fastest of PyTorch's kernels for their shapes.

This module imports torch; the adapter imports it when it prepares the first product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache, partial
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

from einsumx.adapters.typing import Array
from einsumx.backends.torch.choices import (
    BLOCK_OF_VECTORS,
    INTEGERS,
    LARGEST,
    SIGNED,
    copies_turned,
    digits_of,
    is_by_columns,
    loop_axis,
    pays_in_floats,
)
from einsumx.dtypes import itemsize
from einsumx.host import array_memory
from einsumx.ir.bind import SizedEquation, planned_sizes
from einsumx.ir.layout import broadcast, contiguous, inverse, layout_pattern, memory_order, pattern_strides
from einsumx.ir.operand import Operand

Shape: TypeAlias = tuple[int, ...]
Kernel: TypeAlias = Callable[..., Array]

torch: Any = import_module("torch")
_is_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active
_mm: Kernel = torch.mm
_bmm: Kernel = torch.bmm
_matmul: Kernel = torch.matmul
_PLAIN = (torch.Tensor, torch.nn.Parameter)

# The most multiply-adds of one product of vectors, or of a vector and a matrix, and the most elements of operands of
# several products for which torch's own call is faster: other kernels need views, which take half a microsecond each.
_SMALL = 1 << 10
_SMALL_MATRIX = 1 << 14

# The bytes of an operand from which a product of single-precision floats with a vector is summed in parts, and the
# terms of a part. BLAS adds the terms one after the other in a few sums: of 2**25 equal ones, two digits are right.
_LONG_PRODUCT = 1 << 24
_PART = 1 << 12

# The most cache lines that a copy reads before it returns to the first: limited by the cache, and by the processor's
# table of pages. And the least elements of a separate part of a copy.
_LINES = 4096
_LINES_OF_PAGES = 256
_PAGE = 4096
_ALIASED = 2048  # bytes between elements, or a multiple of them, with which cache lines collide
_BLOCK = 1 << 16

# More elements than a tensor of integers has along a summed axis of unknown size.
_LONGEST = 1 << 35


# -- new tensors --------------------------------------------------------------------------------------------------


def _observers() -> tuple[Callable[[], Any], ...] | None:
    """Functions that tell whether modes or a trace observe operations; None if this torch lacks them."""
    names = ("_len_torch_dispatch_stack", "_len_torch_function_stack", "_get_tracing_state")
    if not all(hasattr(torch._C, name) for name in names):
        return None
    return tuple([getattr(torch._C, name) for name in names])


_OBSERVERS = _observers()


def is_observed(operands: Sequence[Array]) -> bool:
    """Whether autograd, a transform, a mode or a trace observes operations, or they are not on the CPU."""
    return not (is_eager(operands) and all(array.is_cpu for array in operands))


_COUNTED = 1 << 16
"""The most elements whose places in memory are counted one by one."""


def shares_elements(shape: Shape, strides: Shape) -> bool:
    """Whether several elements of a tensor of this layout share one place in memory."""
    axes = sorted(zip(strides, shape))
    span, is_nested = 1, True
    for stride, size in axes:
        if size > 1:
            is_nested = is_nested and stride >= span  # between two places of an axis lie those of the axes before it
            span += stride * (size - 1)
    if is_nested:
        return False
    count = prod(shape)
    if count == 0 or count > span:
        return count > 0
    if count > _COUNTED:
        return False  # as torch's own check of such tensors says
    places = {0}
    for stride, size in axes:
        places = {place + stride * step for place in places for step in range(size)}
    return len(places) < count


def is_eager(operands: Sequence[Array]) -> bool:
    """Whether nothing observes operations on the tensors, wherever they are."""
    if _OBSERVERS is None or any(observe() for observe in _OBSERVERS):
        return False
    return all(map(_is_unrecorded, operands))


def lasting(arrays: Sequence[Array]) -> AbstractContextManager[None] | None:
    """As :meth:`einsumx.adapters.base.Adapter.lasting`; None for tensors of the modes and transforms that are on."""
    is_traced = _is_transformed() or not is_eager([])
    return None if is_traced and not all(map(_is_unrecorded, arrays)) else _unobserved(is_traced)


@contextmanager
def _unobserved(is_traced: bool) -> Iterator[None]:
    """A context without inference mode, gradients and autocast; if ``is_traced``, also without modes and transforms."""
    with torch.inference_mode(False), torch.no_grad(), torch._C._DisableAutocast(), ExitStack() as stack:
        if is_traced:
            modes = import_module("torch.utils._python_dispatch")._disable_current_modes
            for context in (torch._C.DisableTorchFunction, torch._C._DisableFuncTorch, modes):
                stack.enter_context(context())
        yield


def _in_pool(shape: Sequence[int], dtype: Any, operands: Sequence[Array]) -> Array | None:
    """A large C-contiguous tensor in the memory pool; None if operations on the operands are observed.

    The tensor is not a view, so it may ask for a gradient later.
    """
    memory = None if is_observed(operands) else array_memory.memory(prod(shape) * dtype.itemsize)
    if memory is None:
        return None
    return torch.empty(0, dtype=dtype).set_(torch.from_numpy(memory).untyped_storage(), 0, tuple(shape))


def _new(shape: Sequence[int], like: Array) -> Array:
    """A new C-contiguous tensor of the dtype of a plain tensor: a large one in the memory pool."""
    result = _in_pool(shape, like.dtype, [like]) if array_memory.is_large(shape, like.element_size()) else None
    return like.new_empty(tuple(shape)) if result is None else result


def _placed(kernel: Kernel, shape: Shape, dtype: str) -> Kernel:
    """``kernel``, which takes ``out=``, with its result in the memory pool if it is large."""
    if not array_memory.is_large(shape, itemsize(dtype)):
        return kernel
    result_dtype = getattr(torch, dtype)
    return lambda *arrays: kernel(*arrays, out=_in_pool(shape, result_dtype, arrays))


# -- casts and elementwise products -------------------------------------------------------------------------------


def multiply(shape: Shape, dtype: str) -> Kernel:
    """The kernel of the elementwise product, of this shape."""
    if dtype in SIGNED:  # which CUDA does not multiply
        unsigned, signed = getattr(torch, dtype), getattr(torch, SIGNED[dtype])
        return lambda lhs, rhs: torch.mul(lhs.view(signed), rhs.view(signed)).contiguous().view(unsigned)
    # mul may keep the memory order of its operands. If that is not C order, it writes to a new tensor, as a copy takes
    # longer; but of a small tensor, a copy takes less time than to find out whether that is allowed.
    is_small, keeps = prod(shape) <= _SMALL_MATRIX, not array_memory.is_large(shape, itemsize(dtype))

    def product(lhs: Array, rhs: Array) -> Array:
        nonlocal keeps
        if keeps or is_small:
            try:
                result = torch.mul(lhs, rhs)
            except IndexError:  # torch.func.vmap of an empty batch multiplies no arrays without axes
                result = torch.mul(lhs.expand(shape), rhs.expand(shape))
            keeps = result.is_contiguous()
            return result if keeps else result.contiguous()
        out = None if is_observed([lhs, rhs]) else _new(shape, lhs)
        return torch.mul(lhs, rhs, out=out).contiguous()

    return product


def cast(plain: Kernel, shape: Shape, dtype: str) -> Kernel:
    """``plain``, a cast that keeps the memory order of the axes, with its result in the memory pool if it is large."""
    if not array_memory.is_large(shape, itemsize(dtype)):
        return plain
    target = getattr(torch, dtype)

    def run(array: Array) -> Array:
        if is_observed([array]):
            return plain(array)
        order = memory_order(array.stride())
        packed = array.permute(order)
        result = _in_pool(packed.shape, target, [array])
        if result is None:
            return plain(array)
        result.copy_(packed)
        return result if order == tuple(range(len(order))) else result.permute(inverse(order))

    return run


# -- products -----------------------------------------------------------------------------------------------------


def product(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """The kernel for ``[..., rows, contracted] @ [..., contracted, cols]`` in these shapes.

    Args:
        lhs, rhs: the shapes; a batch axis of size 1 broadcasts.
        dtype: the dtype of both.
    """
    if min(len(lhs), len(rhs)) == 1:
        return _in_parts(_by_vector(len(lhs), len(rhs)), lhs, rhs, dtype)
    rows, cols = lhs[-2], rhs[-1]
    if len(lhs) == 2:
        kernel = _single(rows, lhs[1], cols)
        is_by_vector = 1 in (rows, cols)
        return _in_parts(kernel, lhs, rhs, dtype) if is_by_vector else _placed(kernel, (rows, cols), dtype)
    batch = broadcast(lhs[:-2], rhs[:-2])
    if len(batch) > 1:
        kernel = _several(batch, lhs, rhs, dtype)
    else:
        kernel = _batched(batch[0], lhs[0] == rhs[0])
        kernel = kernel if 1 in (rows, cols) else _placed(kernel, (*batch, rows, cols), dtype)
    is_by_vectors = 1 in (rows, cols) and rows * lhs[-1] * cols > _SMALL
    kernel = _vector_first(kernel, rows, cols) if is_by_vectors else kernel
    return _by_columns(kernel, batch[0], lhs[-1]) if is_by_columns(lhs, rhs, dtype) else kernel


def product_of_parts(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """The kernel of a product of a real matrix and a complex one, which is read as a real one of twice as many columns.

    Args:
        lhs, rhs: the shapes.
        dtype: of the real matrix.
    """
    multiply = product(lhs, (*rhs[:-1], 2 * rhs[-1]), dtype)

    def of_vector(real: Array, other: Array) -> Array:  # a product with two columns takes three times as long
        vector = other[:, 0]
        return torch.complex(torch.mv(real, vector.real), torch.mv(real, vector.imag)).unsqueeze(1)

    def by_parts(real: Array, other: Array) -> Array:
        parts = torch.view_as_real(other.resolve_conj()).flatten(-2)
        return torch.view_as_complex(multiply(real, parts).contiguous().unflatten(-1, (-1, 2)))

    return of_vector if len(lhs) == 2 and rhs[-1] == 1 else by_parts


def product_into(lhs: Shape, rhs: Shape) -> Kernel | None:
    """The function that adds such a product of floats to ``out``, as :meth:`OutAccess.product_into` has it; or None.

    BLAS does not add products with vectors faster, and one call adds only products along a single batch axis.
    """
    if len(lhs) != len(rhs) or len(lhs) > 3 or 1 in (lhs[-2], rhs[-1]):
        return None
    if len(lhs) == 2:
        return lambda alpha, lhs, rhs, beta, out: out.addmm_(lhs, rhs, beta=beta, alpha=alpha)
    (batch,) = broadcast(lhs[:1], rhs[:1])
    return lambda alpha, lhs, rhs, beta, out: out.baddbmm_(
        lhs.expand(batch, -1, -1), rhs.expand(batch, -1, -1), beta=beta, alpha=alpha
    )


def matmul_into(lhs: Shape, rhs: Shape) -> Kernel | None:
    """The kernel of such a product of floats that writes to ``out``; None where others are as fast."""
    if product_into(lhs, rhs) is None:
        return None
    if len(lhs) == 2:
        return _mm
    product = _batched(max(lhs[0], rhs[0]), lhs[0] == rhs[0])

    def run(lhs: Array, rhs: Array, out: Array) -> Array:
        if out.is_contiguous():
            return product(lhs, rhs, out=out)
        if out.mT.is_contiguous():
            return product(rhs.mT, lhs.mT, out=out.mT)
        return out.copy_(product(lhs, rhs))  # torch would multiply and write the matrices one by one

    return run


def writing(write: Kernel, kernel: Kernel) -> Kernel:
    """A kernel that writes to ``out``: by ``write``, or by a copy where something observes operations."""

    def run(*arrays: Array, out: Array) -> Array:
        if is_eager((*arrays, out)) and not (out.is_conj() or out.is_neg()):
            return write(*arrays, out=out)
        return out.copy_(kernel(*arrays))

    return run


def integer_product(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """The same for integers: a large product is computed in float64, because torch only has plain loops for integers.

    This is exact if no sum exceeds 2**53. Short integers guarantee that by their dtype; for long ones the kernel checks
    the operands. CUDA has no products of integers: vectors are multiplied and summed, matrices as digits in float64.
    """
    on_host = _integer_product_on_host(lhs, rhs, dtype)
    if min(len(lhs), len(rhs)) > 1 and 1 in (lhs[-2], rhs[-1]):
        on_cuda = _summed_by_rows if rhs[-1] == 1 else lambda lhs, rhs: _summed_by_rows(rhs.mT, lhs.mT).mT
    else:
        on_cuda = _product_of_digits(product(lhs, rhs, "float64"), dtype, lhs[-1])
    return lambda lhs, rhs: (on_cuda if lhs.is_cuda else on_host)(lhs, rhs)


def _summed_by_rows(matrix: Array, vector: Array) -> Array:
    """The product of a matrix of integers and a column."""
    return (matrix * vector.mT).sum(-1, keepdim=True, dtype=matrix.dtype)


def _product_of_digits(wide: Kernel, dtype: str, inner: int) -> Kernel:
    """A product of integers from products of their digits, which have so few bits that sums in float64 are exact.

    Args:
        wide: the product in float64.
        dtype: of the integers.
        inner: the most elements that are summed.
    """
    width, count = digits_of(dtype, inner)

    def digits(array: Array) -> list[Array]:
        if count == 1:
            return [array.double()]
        mask = (1 << width) - 1
        shifted = [array >> (width * place) for place in range(count)]
        return [*[(part & mask).double() for part in shifted[:-1]], shifted[-1].double()]

    def run(lhs: Array, rhs: Array) -> Array:
        left, right = digits(lhs), digits(rhs)
        total = None
        for place in range(count):  # those beyond add multiples of 2**bits
            for first in range(place + 1):
                part = wide(left[first], right[place - first]).long() << (width * place)
                total = part if total is None else total.add_(part)
        return total.to(lhs.dtype)  # type: ignore[union-attr]

    return run


def _integer_product_on_host(lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    narrow = product(lhs, rhs, dtype)
    inner = lhs[-1]
    if not pays_in_floats(lhs, rhs):
        return narrow
    wide = product(lhs, rhs, "float64")
    known = LARGEST.get(dtype)

    def run(lhs: Array, rhs: Array) -> Array:
        if known is None and not (is_plain(lhs) and is_plain(rhs) and has_values(lhs) and has_values(rhs)):
            return narrow(lhs, rhs)
        bound = known**2 if known is not None else _largest(lhs) * _largest(rhs)
        if bound * inner > 2**53:
            return narrow(lhs, rhs)
        # Casts from int64 wrap; those from float64 do not.
        return wide(lhs.double(), rhs.double()).long().to(lhs.dtype)

    return run


def _largest(array: Array) -> int:
    """The largest magnitude in a tensor of integers."""
    return max(abs(int(bound)) for bound in array.aminmax())


def _by_vector(lhs: int, rhs: int) -> Kernel:
    """A product with a vector, for sides with ``lhs`` and ``rhs`` axes."""
    if lhs == rhs == 1:
        return _dot
    return torch.mv if rhs == 1 else lambda vector, matrix: matrix.mT.mv(vector)


def _dot(lhs: Array, rhs: Array) -> Array:
    """A product of two vectors. Under torch.func.vmap of an empty batch, the derivative of torch.dot is an error."""
    return torch.mm(lhs[None], rhs[:, None]).reshape(()) if _is_transformed() else torch.dot(lhs, rhs)


def _in_parts(kernel: Kernel, lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """``kernel``, a product with a vector, but summed in parts if it is long and nothing observes operations.

    It is one batch of products with rows on the left, as in :func:`_vector_first`.
    """
    inner, shape = lhs[-1], (*lhs[:-1], *rhs[1:])
    is_long = max(prod(lhs), prod(rhs)) * itemsize(dtype) >= _LONG_PRODUCT and inner >= 2 * _PART
    if not is_long or dtype not in ("float32", "complex64"):
        return kernel
    count, others, is_first = inner // _PART, prod(shape), prod(lhs) == inner
    rest = inner - count * _PART

    def product(lhs: Array, rhs: Array) -> Array:
        vector, along, matrix, steps = lhs, lhs.stride(-1), rhs, (*rhs.stride(), _PART)
        if not is_first:
            vector, along, matrix, steps = rhs, rhs.stride(0), lhs, lhs.stride()[::-1]
        step, across = (steps[0], _PART) if others == 1 else steps[:2]
        if along != 1 or 1 not in (step, across) or is_observed([lhs, rhs]):
            return kernel(lhs, rhs)
        rows = vector.as_strided((count, 1, _PART), (_PART, _PART, 1))
        total = _bmm(rows, matrix.as_strided((count, _PART, others), (_PART * step, step, across))).sum(0).view(shape)
        return total.add_(kernel(lhs[..., -rest:], rhs[-rest:])) if rest else total

    return product


def _single(rows: int, inner: int, cols: int) -> Kernel:
    """One product; a large one with a vector by kernels that read a matrix in any order at the speed of memory."""
    if rows * inner * cols <= (_SMALL if rows == cols else _SMALL_MATRIX):
        return _mm
    if rows == 1 and cols == 1:
        return lambda lhs, rhs: lhs.squeeze(0).dot(rhs.squeeze(1)).view(1, 1)
    if cols == 1:
        return lambda lhs, rhs: lhs.mv(rhs.squeeze(1)).unsqueeze(1)
    if rows == 1:
        return lambda lhs, rhs: rhs.mT.mv(lhs.squeeze(0)).unsqueeze(0)
    return _mm


def _batched(count: int, same_batch: bool) -> Kernel:
    """Products along one batch axis, which may broadcast."""
    if same_batch:
        return _bmm
    return lambda lhs, rhs, out=None: _bmm(lhs.expand(count, -1, -1), rhs.expand(count, -1, -1), out=out)


def _by_columns(kernel: Kernel, count: int, length: int) -> Kernel:
    """Dot products of many pairs of short vectors, column by column: MKL starts a product for each pair."""
    blocks = [slice(start, start + BLOCK_OF_VECTORS) for start in range(0, count, BLOCK_OF_VECTORS)]

    def product(lhs: Array, rhs: Array) -> Array:
        if is_observed((lhs, rhs)):
            return kernel(lhs, rhs)
        left, right, result = lhs[:, 0], rhs[:, :, 0], lhs.new_empty(count)
        products = lhs.new_empty(min(count, BLOCK_OF_VECTORS), length)
        for rows in blocks:
            terms = torch.mul(left[rows], right[rows], out=products[: min(rows.stop, count) - rows.start])
            total = torch.add(terms[:, 0], terms[:, 1], out=result[rows])
            for column in range(2, length):
                total.add_(terms[:, column])
        return result[:, None, None]

    return product


def _vector_first(kernel: Kernel, rows: int, cols: int) -> Kernel:
    """A batch of products with vectors as contiguous rows on the left, for which MKL is fastest.

    With the vectors on the right, or with a stride of 1 along the axis of size 1, it takes up to five times as long.
    """

    def row(array: Array, axis: int) -> Array:
        return array.squeeze(axis).unsqueeze(-2)

    if rows == 1 and cols == 1:
        return lambda lhs, rhs: kernel(row(lhs, -2), row(rhs, -1).mT)
    if rows == 1:
        return lambda lhs, rhs: kernel(row(lhs, -2), rhs)
    return lambda lhs, rhs: kernel(row(rhs, -1), lhs.mT).mT


def _several(batch: Shape, lhs: Shape, rhs: Shape, dtype: str) -> Kernel:
    """Products along several batch axes.

    torch.matmul merges the axes, and copies an operand if its axes do not merge. Large copies are avoided by a loop, or
    are made in the order in which BLAS reads the matrices. Autograd and transforms must not see the loop, which writes
    its result in place; they get torch.matmul.
    """
    if 0 in batch or prod(batch) * lhs[-1] * (lhs[-2] + rhs[-1]) <= _SMALL_MATRIX:
        return _matmul
    is_large = array_memory.is_large((*batch, lhs[-2], rhs[-1]), itemsize(dtype))

    @lru_cache(maxsize=16)
    def faster(left: Shape, right: Shape, on_cpu: bool) -> Kernel | None:
        operands = Operand(lhs, dtype, left), Operand(rhs, dtype, right)
        axis = loop_axis(operands, on_cpu)
        if axis is not None:
            return partial(_looped, batch, axis)
        return partial(_merged, batch) if is_large or copies_turned(operands) else None

    def run(lhs: Array, rhs: Array) -> Array:
        # The strides of torch.compile's tensors can be symbols, which have no hash.
        is_plain = type(lhs) in _PLAIN and type(rhs) in _PLAIN
        kernel = faster(lhs.stride(), rhs.stride(), lhs.is_cpu) if is_plain else None
        if kernel is None or not (_is_unrecorded(lhs) and _is_unrecorded(rhs)):
            return _matmul(lhs, rhs)
        return kernel(lhs, rhs)

    return run


def _looped(batch: Shape, axis: int, lhs: Array, rhs: Array) -> Array:
    """A batched product along ``axis`` for each index of the other batch axes."""
    last = len(batch) - 1
    lhs, rhs = (side.expand(*batch, -1, -1).movedim(axis, last) for side in (lhs, rhs))
    result = _new((*lhs.shape[:-1], rhs.shape[-1]), lhs)
    for left, right, out in zip(_items(lhs), _items(rhs), _items(result)):
        torch.bmm(left, right, out=out)
    moved = result.movedim(last, axis)
    return moved if moved.is_contiguous() else copied(moved)


def _merged(batch: Shape, lhs: Array, rhs: Array) -> Array:
    """One batched product of both operands with merged batch axes; copies keep transposed matrices transposed."""

    def merged(array: Array) -> Array:
        array = array.expand(*batch, -1, -1)
        return array.flatten(0, -3) if array.stride(-1) == 1 else array.mT.flatten(0, -3).mT

    shape = (*batch, lhs.shape[-2], rhs.shape[-1])
    if not array_memory.is_large(shape, lhs.element_size()):
        return _bmm(merged(lhs), merged(rhs)).view(shape)
    result = _new(shape, lhs)
    _bmm(merged(lhs), merged(rhs), out=result.flatten(0, -3))
    return result


def _items(array: Array) -> Iterator[Array]:
    """Views with three axes that make up an array with more, in C order."""
    if array.ndim == 3:
        yield array
    else:
        for part in array.unbind(0):
            yield from _items(part)


def copied(array: Array) -> Array:
    """A C-contiguous copy, in blocks if it permutes axes.

    torch iterates along the rows of the result. If each element of a row is in a different cache line of the source,
    these lines must stay in the cache until the next row reads from them.
    """
    if array.numel() < 2 * _BLOCK or not is_plain(array):
        return array.clone(memory_format=torch.contiguous_format)
    result = _new(array.shape, array)
    strides = [(stride, axis) for axis, (size, stride) in enumerate(zip(array.shape, array.stride())) if size > 1]
    if array.dim() == 2 and strides[-1][0] * array.element_size() % _ALIASED == 0:
        return result.copy_(array)  # torch's own blocks of matrices go through a buffer, in which no lines collide
    innermost = min((each for each in strides if each[0]), default=strides[-1])[1]
    behind = prod(array.shape[innermost + 1 :])
    lines = _LINES_OF_PAGES if strides[-1][0] * array.element_size() >= _PAGE else _LINES
    _copy_blocks(result, array, innermost + 1, max(lines, _BLOCK * behind // array.numel()))
    return result


def _copy_blocks(target: Array, source: Array, axis: int, limit: int) -> None:
    """Copy in blocks in which the axes from ``axis`` on have at most ``limit`` elements."""
    span = prod(source.shape[axis:])
    if span <= limit:
        target.copy_(source)
        return
    parts = min(-(-span // limit), source.shape[axis])
    size = -(-source.shape[axis] // parts)
    for out, part in zip(target.split(size, axis), source.split(size, axis)):
        _copy_blocks(out, part, axis + 1, limit)


# -- unknown sizes ------------------------------------------------------------------------------------------------


def any_product(dtype: str) -> Kernel:
    """A product whose sizes are symbols."""
    if dtype not in INTEGERS:
        return _matmul
    in_digits = _product_of_digits(_matmul, dtype, _LONGEST)
    return lambda lhs, rhs: (in_digits if lhs.is_cuda else _matmul)(lhs, rhs)


def layout_without_guards(shape: Sequence[Any], strides: Sequence[Any]) -> tuple[Shape, Shape]:
    """A shape with unknown sizes for symbols, and strides of the layout that the tensor at hand has.

    torch.compile and torch.export restrict a graph to the sizes that were compared or made a number; their hints may be
    read. A graph for another layout is right too, as reshapes copy where they must.
    """
    planned = planned_sizes([size if type(size) is int else None for size in shape])
    hints = [hint for size in (*shape, *strides) if (hint := _hint(size)) is not None]
    sizes, steps = hints[: len(planned)], hints[len(planned) :]
    if len(steps) < len(planned) or 0 in sizes:
        return planned, contiguous(planned)
    pattern = layout_pattern(sizes, steps) or ()
    # An axis of stride 0 counts as stored, with a gap, because its derivative is not that of one slice.
    pattern = tuple([(axis, step or 2) for axis, step in pattern])
    return planned, pattern_strides(pattern, planned) or contiguous(planned)


def _hint(size: Any) -> int | None:
    """A size, or what a symbol stands for in the arrays at hand; None for a symbol that depends on values."""
    if type(size) is int:
        return size
    hint = size.node.hint
    return hint if type(hint) is int else None


def is_plain(array: Array) -> bool:
    """Whether this is a CPU tensor and no autograd or transform observes operations on it."""
    return type(array) in _PLAIN and array.is_cpu and _is_unrecorded(array)


def _is_unrecorded(array: Array) -> bool:
    """Whether no autograd or transform observes operations on a tensor."""
    if type(array) not in _PLAIN or is_recorded(array):
        return False
    return torch.autograd.forward_ad.unpack_dual(array).tangent is None


def is_recorded(array: Array) -> bool:
    """Whether operations on the tensor are recorded for derivatives; torch.func's wrappers count as recorded."""
    if array.requires_grad and torch.is_grad_enabled():
        return True
    if type(array) not in _PLAIN:  # torch.compile's tensors
        return False
    return not has_memory(array)


def summed_rows(equation: SizedEquation) -> Kernel:
    """The products of rows with rows of two tensors, as one product and its sum."""
    lhs, rhs = equation.inputs
    order, kept = tuple(map(rhs.index, lhs)), [label for label in lhs if label in equation.output]
    axes = [axis for axis, label in enumerate(lhs) if label not in kept]
    last = tuple(map(kept.index, equation.output))
    return lambda lhs, rhs: (lhs * rhs.permute(order)).sum(axes).permute(last)


def recording(run: Kernel, recorded: Callable[[], Kernel]) -> Kernel:
    """``run``; or another function of the same tensors, which ``recorded`` makes, where autograd alone records it."""
    made: Kernel | None = None

    def call(*arrays: Array) -> Array:
        nonlocal made
        if not _records_alone(arrays):
            return run(*arrays)
        made = made or recorded()
        return made(*arrays)

    return call


def _records_alone(arrays: Sequence[Array]) -> bool:
    """Whether autograd records operations on some tensors for a backward pass, and nothing else observes them."""
    for array in arrays:
        if array.requires_grad:
            break
    else:
        return False
    if not torch.is_grad_enabled() or _is_transformed() or not is_eager([]):
        return False
    tangent_of = torch.autograd.forward_ad.unpack_dual
    return all(type(array) in _PLAIN and tangent_of(array).tangent is None for array in arrays)


def has_memory(array: Array) -> bool:
    """Whether a tensor has elements in memory; torch.func's wrappers have no address, or one of nothing."""
    try:
        array.data_ptr()
    except RuntimeError:
        return False
    return not torch._is_functional_tensor(array)


def has_values(array: Array) -> bool:
    """Whether the values of a tensor are known, and nothing traces what is done with them."""
    if type(array) not in _PLAIN or array.is_meta or torch.compiler.is_compiling() or not has_memory(array):
        return False
    return not (torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state())


def traced_number(value: Any, dtype: Any, device: Any) -> Array:
    """A Python number, or a symbol for one, as a tensor in a graph."""
    if type(value) is torch.SymFloat:  # torch.compile makes one graph of products for all floats
        return torch.ones((), dtype=dtype, device=device) * value
    # In a graph, a number that the dtype does not hold would be an error of a later call.
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    if not dtype.is_floating_point and not dtype.is_complex:
        wide = torch.int64
    return torch.scalar_tensor(value, dtype=wide, device=device).to(dtype)


def nested(values: Sequence[Any], device: Any) -> Array:
    """A nested list as a tensor; some of its numbers may be symbols."""
    kinds = set(_kinds(values))
    if kinds.isdisjoint(_SYMBOLS):
        return torch.as_tensor(values, device=device)
    dtype = torch.get_default_dtype() if kinds & {float, torch.SymFloat} else torch.int64
    return _stacked(values, dtype, device)


_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _kinds(values: Any) -> Iterator[type]:
    if not isinstance(values, list | tuple):
        yield type(values)
        return
    for value in values:
        yield from _kinds(value)


def _stacked(values: Any, dtype: Any, device: Any) -> Array:
    if not isinstance(values, list | tuple):
        return traced_number(values, dtype, device)
    return torch.stack([_stacked(value, dtype, device) for value in values])
