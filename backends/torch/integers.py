"""Products of matrices of int8 and uint8 with their sums in int32, exact modulo 2^32.

``torch._int_mm`` multiplies int8 on the CPU by oneDNN. On processors without instructions for such sums (VNNI), it is a
plain loop, or saturates in 16 bits: it is used only where there are such instructions, and it multiplies the extreme
values without a fault. Otherwise, and where operations are observed, the factors are floats: a sum of few products is
exact in float32, and a longer one is a sum of such blocks.

This module imports torch; the adapter imports it when it prepares the first such product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import product as combinations
from typing import Any, TypeAlias

from einsumx.adapters.typing import Array
from einsumx.backends.torch import kernels
from einsumx.backends.torch.choices import LEAST_INT_MM, exact_block, may_be_int_mm
from einsumx.ir.layout import broadcast

Shape: TypeAlias = tuple[int, ...]
Kernel: TypeAlias = Callable[..., Array]

torch: Any = import_module("torch")


def product(lhs: Shape, rhs: Shape, dtype: str, sums: str) -> Kernel:
    """The kernel for ``[..., rows, contracted] @ [..., contracted, cols]`` in these shapes.

    Args:
        lhs, rhs: the shapes; a batch axis of size 1 broadcasts.
        dtype: the dtype of both.
        sums: that of the result.
    """
    in_floats = _in_floats(lhs, rhs, dtype, sums)
    if not may_be_int_mm(lhs, rhs, dtype):
        return in_floats
    batch = broadcast(lhs[:-2], rhs[:-2])

    def run(lhs: Array, rhs: Array) -> Array:
        if kernels.is_observed([lhs, rhs]) or not torch._C._get_mkldnn_enabled() or not int_mm_serves():
            return in_floats(lhs, rhs)
        if not batch:
            return _int_mm(lhs, rhs)
        result = lhs.new_empty((*batch, lhs.shape[-2], rhs.shape[-1]), dtype=torch.int32)
        _each(lhs.expand(*batch, -1, -1), rhs.expand(*batch, -1, -1), result)
        return result

    return run


def _int_mm(lhs: Array, rhs: Array) -> Array:
    """One product; a few rows or columns get zeros beside them."""
    rows, cols = lhs.shape[0], rhs.shape[1]
    if min(rows, cols) >= LEAST_INT_MM:
        return torch._int_mm(lhs, rhs)
    pad = torch.nn.functional.pad
    left = pad(lhs, (0, 0, 0, max(LEAST_INT_MM - rows, 0)))
    right = pad(rhs, (0, max(LEAST_INT_MM - cols, 0)))
    return torch._int_mm(left, right)[:rows, :cols].contiguous()


def _each(lhs: Array, rhs: Array, out: Array) -> None:
    """Write a product for each index of the batch axes."""
    if lhs.ndim == 2:
        torch._int_mm(lhs, rhs, out=out)
        return
    for left, right, part in zip(lhs.unbind(0), rhs.unbind(0), out.unbind(0)):
        _each(left, right, part)


@cache
def int_mm_serves() -> bool:
    """Whether ``torch._int_mm`` is fast on this processor, and multiplies the extreme values exactly in any layout."""
    try:
        if not getattr(torch.cpu, "_is_vnni_supported", lambda: True)():  # an older torch does not say
            return False
        return all(map(_is_exact, combinations((-128, 127), (-128, 127), (False, True), (False, True))))
    except (AttributeError, RuntimeError):  # a torch without it, or one that cannot multiply here
        return False


def _is_exact(case: tuple[int, int, bool, bool]) -> bool:
    left, right, is_left_turned, is_right_turned = case
    for rows, inner, cols in ((16, 16, 16), (17, 67, 33), (64, 256, 48)):
        lhs = torch.full((inner, rows) if is_left_turned else (rows, inner), left, dtype=torch.int8)
        rhs = torch.full((cols, inner) if is_right_turned else (inner, cols), right, dtype=torch.int8)
        found = torch._int_mm(lhs.T if is_left_turned else lhs, rhs.T if is_right_turned else rhs)
        if not bool((found == left * right * inner).all()):
            return False
    return True


def _in_floats(lhs: Shape, rhs: Shape, dtype: str, sums: str) -> Kernel:
    """The product by blocks of float32, each exact."""
    step = exact_block(dtype)
    starts = range(0, lhs[-1], step)
    ends = [min(start + step, lhs[-1]) for start in starts]
    blocks = [
        (start, end - start, kernels.product((*lhs[:-1], end - start), (*rhs[:-2], end - start, rhs[-1]), "float32"))
        for start, end in zip(starts, ends)
    ]
    target = getattr(torch, sums)

    if len(blocks) == 1:
        return lambda lhs, rhs: blocks[0][2](lhs.float(), rhs.float()).to(target)

    def run(lhs: Array, rhs: Array) -> Array:
        total = None
        for start, length, multiply in blocks:
            left, right = lhs.narrow(-1, start, length), rhs.narrow(-2, start, length)
            part = multiply(left.float(), right.float()).to(target)
            total = part if total is None else total.add_(part)
            del left, right, part
        return total

    return run


def any_product(sums: str) -> Kernel:
    """A product whose sizes are symbols."""
    target = getattr(torch, sums)
    return lambda lhs, rhs: torch.matmul(lhs.to(target), rhs.to(target))
