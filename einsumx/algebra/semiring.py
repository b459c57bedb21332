"""The algebra of a semiring: other functions in the place of the sum and the product of a contraction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from einsumx.adapters.facets import semirings_of, why_missing
from einsumx.algebra.products import composed, composed_workspace
from einsumx.dtypes import NAMED, kind
from einsumx.errors import BackendError, shown
from einsumx.ir import ops
from einsumx.ir.algebra import Algebra, Kernels
from einsumx.ir.sizes import is_known
from einsumx.ir.traits import Traits

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.adapters.typing import Array
    from einsumx.ir.operand import Operand

Addition: TypeAlias = Literal["maximum", "minimum", "logaddexp", "or"]
Multiplication: TypeAlias = Literal["add", "multiply", "maximum", "minimum", "and"]

_INFINITY = float("inf")

_CONSTANTS: dict[tuple[str, str], tuple[float, float]] = {
    ("maximum", "add"): (-_INFINITY, 0.0),
    ("minimum", "add"): (_INFINITY, 0.0),
    ("maximum", "multiply"): (0.0, 1.0),
    ("minimum", "multiply"): (_INFINITY, 1.0),
    ("maximum", "minimum"): (-_INFINITY, _INFINITY),
    ("minimum", "maximum"): (_INFINITY, -_INFINITY),
    ("logaddexp", "add"): (-_INFINITY, 0.0),
    ("or", "and"): (False, True),
}
"""The zero and the one of each pair of functions that distribute over each other."""

_LONGEST = 60
"""The most letters in a name."""

_FLOATS = frozenset(name for name in NAMED if kind(name) == "f")

_ELEMENTS = 2e9
"""Multiply-adds of a product by elementwise functions in a second: about those of two cores."""


@dataclass(frozen=True)
class SemiringAlgebra(Algebra):
    """The functions of a semiring, as programs have them; users have :class:`einsumx.Semiring`.

    Truth values need no other functions, because a sum of bools is an or in every plan, and their product an and.

    Attributes:
        name: for plans and messages.
        add: the function of two elements that replaces the sum.
        multiply: the function that replaces the product, over which ``add`` distributes.
        zero, one: the sum of no terms, and the product of no factors.

    Raises:
        ValueError: the functions are unknown, or do not distribute.

    >>> SemiringAlgebra("widest path", "maximum", "minimum").zero, SemiringAlgebra("log", "logaddexp", "add").one
    (-inf, 0.0)

    >>> import einsumx
    >>> print(einsumx.semirings.max_plus.plan("ij,jk->ik", (2, 3), (3, 4)))
    ij,jk->ik  (2,3) (3,4)  float64 on numpy in max-plus (maximum, add)
      %2 = matmul %0 %1  24 multiply-adds
      result %2          (2,4) float64
    """

    name: str
    add: Addition
    multiply: Multiplication

    function = "in_semiring"

    def __post_init__(self) -> None:
        if (self.add, self.multiply) not in _CONSTANTS:
            pairs = ", ".join(f"{add}/{multiply}" for add, multiply in _CONSTANTS)
            raise ValueError(
                f"einsumx has no semiring of {shown(self.add)} and {shown(self.multiply)}; it has: {pairs}"
            )
        if type(self.name) is not str or not self.name.isprintable() or not 0 < len(self.name) <= _LONGEST:
            raise ValueError(f"the name of a semiring must be a printable text of up to {_LONGEST} letters")
        zero, one = _CONSTANTS[self.add, self.multiply]
        is_boolean = self.add == "or"
        self.__dict__.update(
            arguments=(self.name, self.add, self.multiply),
            text=f" in {self.name} ({self.add}, {self.multiply})",
            zero=zero,
            one=one,
            is_boolean=is_boolean,
            is_plain=is_boolean,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return SemiringAlgebra, self.arguments

    def check_dtype(self, dtype: str) -> None:
        """Raise BackendError if arrays of a dtype cannot hold its elements.

        Integers lack the infinities, and would wrap around; complex numbers have no order.

        >>> SemiringAlgebra("max-plus", "maximum", "add").check_dtype("float16")
        """
        if kind(dtype) == ("b" if self.is_boolean else "f"):
            return
        if self.is_boolean:
            raise BackendError(f"the semiring {self.name!r} computes in bool, not in {dtype}; omit dtype=")
        if kind(dtype) == "c":
            why = "complex numbers have no order"
        elif kind(dtype) == "O":
            why = "it needs floating-point numbers"
        else:
            why = f"{dtype} has no infinity, and its sums wrap"
        raise BackendError(f"the semiring {self.name!r} does not compute in {dtype}, as {why}; pass dtype='float64'")

    def traits(self, adapter: Adapter, device: str) -> Traits:
        traits = adapter.traits(device)
        if self.is_boolean:
            return traits
        if adapter.semirings is None:
            raise BackendError(
                f"{adapter.name}: einsum supports only the semiring 'boolean', not {self.name!r}; "
                f"{why_missing(adapter, 'semirings')}"
            )
        return _in_elements(traits, self.add == "logaddexp")

    def workspace(self, kernels: Kernels, op: ops.Op, operands: Sequence[Operand], device: str) -> int:
        adapter: Any = kernels
        match op:
            case _ if self.is_boolean:
                return kernels.workspace(op, operands, device)
            case ops.Matmul():
                shapes = _as_matrices(*[operand.shape for operand in operands])
                functions, dtype = adapter.semirings, operands[0].dtype
                own = functions.workspace(self.add, self.multiply, *shapes, dtype)
                return composed_workspace(functions, self.add, *shapes, dtype) if own is None else int(own)
            case ops.Sum() if self.add == "logaddexp":
                return 2 * operands[0].nbytes  # the shifted terms and their exponentials
            case ops.Sum() | ops.Scale() | ops.Multiply() | ops.Zeros():
                return 0
            case _:
                return kernels.workspace(op, operands, device)

    def kernel(self, adapter: Adapter, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Any]:
        if self.is_boolean:
            return adapter.kernel(op, shapes, dtype)
        functions = semirings_of(adapter)
        match op:
            case ops.Matmul():
                return self._matmul(adapter, shapes, dtype)
            case ops.Multiply():
                return lambda lhs, rhs: functions.copied_order(functions.elementwise(self.multiply, lhs, rhs))
            case ops.Sum():
                return lambda source: functions.reduced(self.add, source, op.axes)
            case ops.Scale() if self.add == "logaddexp":
                return lambda source: self._repeated(adapter, source, op.count)
            case ops.Scale():  # the maximum of equal elements is that element
                return adapter.copy
            case ops.Zeros():
                zeros = adapter.kernel(op, shapes, dtype)
                return lambda *sources: self._sums_of_nothing(adapter, zeros(*sources), op.dtype)
            case _:
                return adapter.kernel(op, shapes, dtype)  # which may take a diagonal by a sum

    def added(self, adapter: Adapter, total: Array, part: Array) -> Array:
        if self.is_boolean:
            return super().added(adapter, total, part)
        functions = semirings_of(adapter)
        with functions.mode(total):
            return functions.elementwise(self.add, total, part)

    def _repeated(self, adapter: Adapter, source: Array, count: int) -> Array:
        """So many equal terms of a sum of exponentials, which add the logarithm of their number."""
        number = adapter.arithmetic.number(log(count), adapter.dtype_name(source.dtype), source)
        return semirings_of(adapter).elementwise("add", source, number)

    def _sums_of_nothing(self, adapter: Adapter, zeros: Array, dtype: str) -> Array:
        return semirings_of(adapter).elementwise("add", zeros, adapter.arithmetic.number(self.zero, dtype, zeros))

    def _matmul(
        self, adapter: Adapter, shapes: Sequence[tuple[int, ...]], dtype: str
    ) -> Callable[[Array, Array], Array]:
        """The product of vectors, matrices or batches of them, as one of matrices with a batch axis."""
        lhs_shape, rhs_shape = shapes
        first, second = _as_matrices(lhs_shape, rhs_shape)
        functions = semirings_of(adapter)
        product = functions.product(self.add, self.multiply, first, second, dtype)
        if product is None:
            product = composed(functions, self.add, self.multiply, first, second, dtype)
        multiply, result = product, ops.Matmul(2, 0, 1).result_shape([lhs_shape, rhs_shape])
        if len(result) == 3 and (first, second) == (lhs_shape, rhs_shape):
            return multiply
        reshape = adapter.reshape
        if is_known((*lhs_shape, *rhs_shape)):
            return lambda lhs, rhs: reshape(multiply(reshape(lhs, first), reshape(rhs, second)), result)
        # New axes of size 1, which are taken off the result again, need no sizes.
        left, right = _new_axes(lhs_shape, 1), _new_axes(rhs_shape, 2)
        taken = (
            slice(None) if len(result) == 3 else 0,
            *[0 if len(shape) == 1 else slice(None) for shape in (lhs_shape, rhs_shape)],
        )
        return lambda lhs, rhs: multiply(lhs[left], rhs[right])[taken]


def _in_elements(traits: Traits, is_log: bool) -> Traits:
    """The traits of a framework whose only product is that of a semiring, with one batch axis."""
    halves = tuple((name, wide) for name, wide in traits.widen if name in _FLOATS)
    rates = traits.rates
    if not is_log:
        rates = replace(rates, gemm=min(_ELEMENTS, rates.gemm))
    return Traits(
        arrays="strided" if traits.strided else "packed",
        views=traits.views,
        dtypes=traits.dtypes,
        max_batch_axes=1,
        long_side=traits.long_side,
        matmul_dtypes=_FLOATS - {name for name, _ in halves} if is_log else _FLOATS,
        widen=halves if is_log else (),  # a maximum is exact in any dtype
        rates=replace(rates, native=0.0, sweep=0.0),
    )


def _as_matrices(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a product with a batch axis each: vectors are a row, or a column, and batch axes one."""
    lhs, rhs = (1, *lhs) if len(lhs) == 1 else lhs, (*rhs, 1) if len(rhs) == 1 else rhs
    return (prod(lhs[:-2]), *lhs[-2:]), (prod(rhs[:-2]), *rhs[-2:])


def _new_axes(shape: tuple[int, ...], place: int) -> tuple[slice | None, ...]:
    """The index that makes a batch of matrices of an array of up to three axes; a vector's new axis is at ``place``."""
    axes: list[slice | None] = [slice(None)] * len(shape)
    if len(shape) == 1:
        axes.insert(place - 1, None)
    return (*[None] * (3 - len(axes)), *axes)
