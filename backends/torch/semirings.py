"""Products of matrices in a semiring on tensors: NumPy's kernels in host memory, otherwise rows at a time.

This module imports torch; the adapter imports it when it prepares the first plan in a semiring.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from einsumx.backends.numpy.kernels import matmul
from einsumx.backends.numpy.semirings import product as product_of_arrays
from einsumx.backends.torch.choices import IN_NUMPY, TERMS, rows_at_once
from einsumx.backends.torch.kernels import is_eager, is_observed

__all__ = ["elementwise", "product", "reduced"]

torch: Any = import_module("torch")

Shape: TypeAlias = tuple[int, ...]
Product: TypeAlias = Callable[[Any, Any], Any]


def elementwise(name: str, lhs: Any, rhs: Any) -> Any:
    """An elementwise function, which broadcasts."""
    return getattr(torch, name)(lhs, rhs)


def reduced(name: str, array: Any, axes: tuple[int, ...]) -> Any:
    """The reduction over ``axes``; its gradient is shared by equal maxima, and 0 for a sum of minus infinities."""
    if name != "logaddexp":
        return array.amax(axes) if name == "maximum" else array.amin(axes)
    if not is_observed((array,)):
        return torch.logsumexp(array, axes)
    shift = _shift(array, axes)
    total = (array - shift).exp().sum(axes)
    return _log(total) + shift.reshape(total.shape)


def product(add: str, multiply: str, lhs: Shape, rhs: Shape, dtype: str) -> Product:
    """The function that multiplies tensors ``[batch, m, k]`` and ``[batch, k, n]`` in a semiring.

    Tensors that autograd records go through torch's own functions: log-sum-exps through products of matrices; maxima
    and minima are computed as ever, and their terms again for the derivatives. Under a transform or a trace, which
    cannot branch on values, rows are broadcast.
    """
    in_rows = partial(_in_rows, add, multiply, rows_at_once(lhs, rhs))
    on_host: Product = in_rows
    if dtype in IN_NUMPY:
        on_host = partial(_in_numpy, product_of_arrays(add, multiply, lhs, rhs, matmul((lhs, rhs), dtype, "")))
    is_log = add == "logaddexp"
    on_device: Product = _log_product if is_log else in_rows

    def run(left: Any, right: Any) -> Any:
        if not is_observed((left, right)):
            return on_host(left, right)
        if not is_eager((left.detach(), right.detach())):
            return in_rows(left, right)
        if is_log or is_eager((left, right)):
            return on_device(left, right)
        return _Recomputed.apply(on_host if left.is_cpu else on_device, (add, multiply), left, right)

    return run


def _in_numpy(kernel: Product, left: Any, right: Any) -> Any:
    return torch.from_numpy(kernel(_as_numpy(left), _as_numpy(right)))


def _as_numpy(tensor: Any) -> Any:
    return tensor.detach().resolve_neg().numpy()


def _in_rows(add: str, multiply: str, step: int, left: Any, right: Any) -> Any:
    """The product by torch's own functions, from the terms of ``step`` rows at a time."""
    parts = []
    for start in range(0, left.shape[1], step):
        terms = elementwise(multiply, left[:, start : start + step, :, None], right[:, None])
        parts.append(reduced(add, terms, (2,)))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


# -- derivatives ----------------------------------------------------------------------------------------------------


class _Recomputed(torch.autograd.Function):  # type: ignore[misc]
    """A product whose terms are computed again for its derivatives, some rows at a time."""

    @staticmethod
    def forward(ctx: Any, kernel: Product, functions: tuple[str, str], left: Any, right: Any) -> Any:
        """Compute it by ``kernel``."""
        ctx.functions = functions
        ctx.save_for_backward(left, right)
        return kernel(left, right)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> tuple[Any, ...]:
        """The gradients of the product from :func:`_in_rows`, which autograd finds."""
        left, right = ctx.saved_tensors
        step = rows_at_once(left.shape, right.shape)
        if torch.is_grad_enabled():  # for gradients of gradients, which need the whole graph
            return None, None, *_gradients(ctx.functions, step, left, right, cotangent)
        by_left, by_right = torch.zeros_like(left), torch.zeros_like(right)
        for start in range(0, left.shape[1], step):
            rows = slice(start, start + step)
            some, total = _gradients(ctx.functions, step, left[:, rows], right, cotangent[:, rows])
            by_left[:, rows] = some
            by_right += total
        return None, None, by_left, by_right


def _gradients(functions: tuple[str, str], step: int, left: Any, right: Any, cotangent: Any) -> Any:
    is_graph_kept = torch.is_grad_enabled()
    with torch.enable_grad():
        operands = left.view_as(left).requires_grad_(), right.view_as(right).requires_grad_()
        result = _in_rows(*functions, step, *operands)
        return torch.autograd.grad(result, operands, cotangent, create_graph=is_graph_kept)


def _log_product(left: Any, right: Any) -> Any:
    """``log(exp(left) @ exp(right))``, shifted by the maxima of rows and columns, by functions with derivatives.

    Where all terms of a sum may have underflowed, it is computed again from its terms; so is a sum with infinities or
    nan. See :func:`einsumx.backends.numpy.semirings.product`.
    """
    row, column = _shift(left, 2), _shift(right, 1)
    sums = torch.matmul((left - row).exp(), (right - column).exp())
    finfo = torch.finfo(sums.dtype)
    is_right = sums.detach() >= left.shape[2] * finfo.tiny / finfo.eps  # not so for nan
    result = _log(torch.where(is_right, sums, 0)) + row + column
    places = (~is_right).nonzero()
    step = max(1, TERMS // max(1, left.shape[2]))
    for some in places.split(step):
        b, i, j = some.unbind(1)
        terms = left[b if len(left) > 1 else 0, i] + right.mT[b if len(right) > 1 else 0, j]
        result = result.index_put((b, i, j), reduced("logaddexp", terms, (1,)))
    return result


def _shift(array: Any, axes: int | tuple[int, ...]) -> Any:
    """The maxima along axes, as a constant; 0 in the place of an infinity or nan."""
    shift = array.detach().amax(axes, keepdim=True)
    return torch.where(shift.isfinite(), shift, 0)


def _log(sums: Any) -> Any:
    """Logarithms, with derivatives of 0 instead of nan for that of 0."""
    is_possible = sums != 0
    return torch.where(is_possible, torch.where(is_possible, sums, 1).log(), -torch.inf)
