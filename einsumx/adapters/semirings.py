"""Adapters that run plans in a semiring: the same ops, with other functions for sums and products.

Paths, layouts and blocks do not depend on what a sum and a product mean. So a program in a semiring has the ops of any
other, and :func:`in_semiring` derives the adapter that runs them from the framework's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import log, prod
from typing import TYPE_CHECKING

from einsumx.adapters.base import Adapter
from einsumx.adapters.derived import derived
from einsumx.dtypes import NAMED, kind
from einsumx.errors import BackendError
from einsumx.ir import ops
from einsumx.ir.sizes import is_known

if TYPE_CHECKING:
    from einsumx.adapters.traits import Traits
    from einsumx.adapters.typing import Array
    from einsumx.ir.program import Operand
    from einsumx.ir.semiring import Algebra

__all__ = ["in_semiring"]

_FLOATS = frozenset(name for name in NAMED if kind(name) == "f")

_ELEMENTS = 2e9
"""Multiply-adds of a product by elementwise functions in a second: about those of two cores."""


def in_semiring(adapter: Adapter, semiring: Algebra | None) -> Adapter:
    """The adapter that runs plans in a semiring. It is the same object for equal arguments.

    Truth values need no other, because a sum of bools is an or in every plan, and their product an and.

    Raises:
        BackendError: the framework does not have the functions.
    """
    return adapter if semiring is None or semiring.is_boolean else _in_semiring(adapter, semiring)


@lru_cache(maxsize=256)
def _in_semiring(adapter: Adapter, semiring: Algebra) -> Adapter:
    if not adapter.has_semirings:
        raise BackendError(
            f"{adapter.name}: einsum computes in no semiring but 'boolean', so not in {semiring.name!r}; "
            f"{adapter.no_semirings}"
        )
    return derived(adapter, _InSemiring, partial(_in_elements, semiring=semiring), semiring=semiring)


@lru_cache(maxsize=256)
def _in_elements(traits: Traits, semiring: Algebra) -> Traits:
    """The traits of a framework whose only product is that of the semiring, with one batch axis."""
    is_log = semiring.add == "logaddexp"
    halves = tuple((name, wide) for name, wide in traits.widen if name in _FLOATS)
    rates = traits.rates
    if not is_log:
        rates = replace(rates, gemm=min(_ELEMENTS, rates.gemm))
    return replace(
        traits,
        matmul_dtypes=_FLOATS - {name for name, _ in halves} if is_log else _FLOATS,
        matmul_through=(),
        wide_products=(),
        pool_products=frozenset(),
        widen=halves if is_log else (),  # a maximum is exact in any dtype
        wide_matmul=frozenset(),
        wide_sum=frozenset(),
        min_batch_axes=0,
        max_batch_axes=1,
        transpose_flags=False,
        multiply_broadcasts=False,
        inner_batch=False,
        outer_by_matmul=False,
        dots_by_sum=False,
        pairs_by_einsum=False,
        native_dtypes=frozenset(),
        native_any_labels=False,
        native_max_labels=0,
        native_max_operands=0,
        rates=replace(rates, native=0.0, sweep=0.0),
    )


class _InSemiring(Adapter):
    """An adapter whose sums, products and zeros are those of a semiring; the class of its framework comes second."""

    sums_are_elements = False

    measured_plans = False  # the framework's rates were measured for plus and times
    framework: Adapter
    semiring: Algebra

    def traits(self, device: str) -> Traits:
        return _in_elements(self.framework.traits(device), self.semiring)

    def kernel(self, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        semiring = self.semiring
        match op:
            case ops.Matmul():
                product = self.framework.semiring_product(semiring, *_as_matrices(*shapes), dtype)
                return _of_matrices(self.framework, product, *shapes)
            case ops.Sum() | ops.Scale() | ops.Multiply() | ops.Zeros():
                return Adapter.kernel(self, op, shapes, dtype)
            case _:  # the framework's own, which may take a diagonal by a sum
                return self.framework.kernel(op, shapes, dtype)

    def workspace(self, op: ops.Op, operands: Sequence[Operand], device: str = "") -> int:
        match op:
            case ops.Matmul():
                shapes = _as_matrices(*[operand.shape for operand in operands])
                return self.framework.semiring_workspace(self.semiring, *shapes, operands[0].dtype)
            case ops.Sum() if self.semiring.add == "logaddexp":
                return 2 * operands[0].nbytes  # the shifted terms and their exponentials
            case ops.Sum() | ops.Scale() | ops.Multiply() | ops.Zeros():
                return 0
            case _:
                return self.framework.workspace(op, operands, device)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self.framework.reduced(self.semiring.add, array, axes)

    def scale(self, array: Array, count: int) -> Array:
        # The maximum of equal elements is that element; so many equal terms of a sum add the logarithm of their number.
        if self.semiring.add != "logaddexp":
            return self.framework.copy(array)
        number = self.framework.number(log(count), self.dtype_name(array.dtype), array)
        return self.framework.elementwise("add", array, number)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self.framework.copied_order(self.framework.elementwise(self.semiring.multiply, lhs, rhs))

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        zeros = self.framework.zeros(arrays, shape, dtype)
        zero = self.framework.number(self.semiring.zero, dtype, zeros)
        return self.framework.elementwise("add", zeros, zero)

    def add(self, total: Array, part: Array) -> Array:
        return self.framework.elementwise(self.semiring.add, total, part)


def _as_matrices(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a product with a batch axis each: vectors are a row, or a column, and batch axes one."""
    lhs, rhs = (1, *lhs) if len(lhs) == 1 else lhs, (*rhs, 1) if len(rhs) == 1 else rhs
    return (prod(lhs[:-2]), *lhs[-2:]), (prod(rhs[:-2]), *rhs[-2:])


def _of_matrices(
    framework: Adapter,
    product: Callable[[Array, Array], Array],
    lhs_shape: tuple[int, ...],
    rhs_shape: tuple[int, ...],
) -> Callable[[Array, Array], Array]:
    """``product``, which takes matrices with a batch axis, for operands of these shapes."""
    first, second = _as_matrices(lhs_shape, rhs_shape)
    result = ops.Matmul(2, 0, 1).result_shape([lhs_shape, rhs_shape])
    if len(result) == 3 and (first, second) == (lhs_shape, rhs_shape):
        return product
    reshape = framework.reshape
    if is_known((*lhs_shape, *rhs_shape)):
        return lambda lhs, rhs: reshape(product(reshape(lhs, first), reshape(rhs, second)), result)
    # New axes of size 1, which are taken off the result again, need no sizes.
    left, right = _new_axes(lhs_shape, 1), _new_axes(rhs_shape, 2)
    taken = (
        slice(None) if len(result) == 3 else 0,
        *[0 if len(shape) == 1 else slice(None) for shape in (lhs_shape, rhs_shape)],
    )
    return lambda lhs, rhs: product(lhs[left], rhs[right])[taken]


def _new_axes(shape: tuple[int, ...], place: int) -> tuple[slice | None, ...]:
    """The index that makes a batch of matrices of an array of up to three axes; a vector's new axis is at ``place``."""
    axes: list[slice | None] = [slice(None)] * len(shape)
    if len(shape) == 1:
        axes.insert(place - 1, None)
    return (*[None] * (3 - len(axes)), *axes)
