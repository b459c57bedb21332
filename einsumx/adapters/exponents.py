"""Adapters that run plans on mantissas and exponents: the same ops, with each intermediate scaled by a power of two.

Paths, layouts and blocks do not depend on how large numbers are. So a program of :func:`einsumx.einsum_frexp` has
the ops of any other, and :func:`stripping` derives the adapter that runs them from the framework's own. Its arrays are
:class:`Scaled`, pairs of the framework's arrays and exponents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.adapters.base import Adapter
from einsumx.adapters.derived import derived
from einsumx.adapters.traits import HALVES
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError
from einsumx.ir import ops

if TYPE_CHECKING:
    from einsumx.adapters.traits import Traits
    from einsumx.adapters.typing import Array, Run
    from einsumx.ir.program import Operand, Program

__all__ = ["FrexpResult", "Scaled", "stripping"]


class FrexpResult(NamedTuple):
    """What :func:`einsumx.einsum_frexp` returns; the result of the contraction is ``mantissa * 2**exponent``.

    Attributes:
        mantissa: an array whose largest element is in ``[0.5, 1)``.
        exponent: an int; where values are not known, as under ``jax.jit``, an integer array without axes.
    """

    mantissa: Any
    exponent: Any


@dataclass(slots=True)
class Scaled:
    """An array of a framework and the power of two by which it is multiplied.

    Attributes:
        mantissa: the array.
        exponent: an int, or an integer array in a trace; None for an array of nothing but 0, infinities and nan.
        is_normal: whether the largest part of the mantissa is in ``[0.5, 1)``, so that products may read it.
    """

    mantissa: Array
    exponent: Any = 0
    is_normal: bool = False


def stripping(adapter: Adapter) -> Adapter:
    """The adapter that runs plans with exponents, and returns pairs. It is the same for equal arguments.

    Raises:
        BackendError: the framework cannot.
    """
    if adapter.no_exponents:
        raise BackendError(f"{adapter.name}: {adapter.no_exponents}")
    return _stripping(adapter)


@lru_cache(maxsize=64)
def _stripping(adapter: Adapter) -> Adapter:
    return derived(adapter, _WithExponents, _of_mantissas)


@lru_cache(maxsize=256)
def _of_mantissas(traits: Traits) -> Traits:
    """The traits of a framework that casts halves before anything else, because they have too few exponents."""
    return replace(
        traits,
        matmul_dtypes=traits.matmul_dtypes - HALVES,
        native_dtypes=traits.native_dtypes - HALVES,
        wide_matmul=frozenset(),
        wide_sum=frozenset(),
    )


class _WithExponents(Adapter):
    """An adapter whose arrays are :class:`Scaled`; the class of its framework comes second."""

    measured_plans = False  # the framework's rates were measured without scaling
    framework: Adapter

    def traits(self, device: str) -> Traits:
        return _of_mantissas(self.framework.traits(device))

    def kernel(self, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Scaled]:
        framework = self.framework
        match op:
            case ops.Cast():
                return self._cast(op, shapes, dtype)
            case ops.Transpose() | ops.Reshape() | ops.Expand():
                move = framework.kernel(op, shapes, dtype)
                return lambda source: Scaled(move(source.mantissa), source.exponent, source.is_normal)
            case ops.Copy():
                copy = framework.kernel(op, shapes, dtype)
                return lambda source: Scaled(*framework.normalized(copy(source.mantissa), source.exponent, True), True)
            case ops.First() | ops.Diagonal():  # of which the largest element need not be one
                pick = framework.kernel(op, shapes, dtype)
                return lambda source: Scaled(pick(source.mantissa), source.exponent)
            case ops.Zeros():
                zeros = framework.kernel(op, shapes, dtype)
                return lambda *sources: Scaled(zeros(*[source.mantissa for source in sources]), None, True)
            case _:
                return self._product(op, framework.kernel(op, shapes, dtype))

    def _product(self, op: ops.Op, kernel: Callable[..., Array]) -> Callable[..., Scaled]:
        """The function that scales operands, runs ``kernel`` on their mantissas, and scales the result."""
        is_new = isinstance(op, ops.Matmul | ops.Multiply)

        def run(*sources: Scaled) -> Scaled:
            scaled = [self._normal(source) for source in sources]
            result = kernel(*[source.mantissa for source in scaled])
            exponents = [source.exponent for source in scaled if source.exponent is not None]
            return Scaled(*self.framework.normalized(result, sum(exponents), is_new), True)

        return run

    def _cast(self, op: ops.Cast, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Scaled]:
        framework = self.framework
        if dtype in HALVES:  # not the kernel, which may leave this to the next op
            return lambda source: Scaled(framework.cast(source.mantissa, op.dtype), source.exponent, source.is_normal)
        cast = framework.kernel(op, shapes, dtype)
        if kind(dtype) not in "fc" or _part(op.dtype) >= _part(dtype):
            return lambda source: Scaled(cast(source.mantissa), source.exponent, source.is_normal)

        def narrowed(source: Scaled) -> Scaled:
            source = self._normal(source)
            return Scaled(cast(source.mantissa), source.exponent)  # in which 1 may have been rounded to

        return narrowed

    def _normal(self, source: Scaled) -> Scaled:
        if source.is_normal:
            return source
        return Scaled(*self.framework.normalized(source.mantissa, source.exponent), True)

    def workspace(self, op: ops.Op, operands: Sequence[Operand], device: str = "") -> int:
        own = self.framework.workspace(op, operands, device)
        match op:
            case ops.Matmul() | ops.Multiply() | ops.Native() | ops.Sum() | ops.Scale():
                copies = sum(operand.nbytes for operand in operands)
                if isinstance(op, ops.Matmul | ops.Multiply):
                    return own + copies
                shape = op.result_shape([operand.shape for operand in operands])
                return own + copies + replace(operands[0], shape=shape, strides=None).nbytes
            case ops.Cast():
                return own + operands[0].nbytes
            case _:
                return own

    def prepare(self, run: Run, program: Program) -> Run:
        framework = self.framework
        finish = framework.element if not program.shape else None

        def pairs(*arrays: Array) -> Any:
            result = self._normal(run(*map(Scaled, arrays)))
            return result.mantissa if finish is None else finish(result.mantissa), result.exponent

        prepared = framework.prepare(pairs, program)

        def stripped(*arrays: Array) -> FrexpResult:
            mantissa, exponent = prepared(*arrays)
            return FrexpResult(mantissa, framework.as_exponent(exponent))

        return stripped

    def element(self, array: Any) -> Any:
        return array  # of which prepare() makes an element

    # Blocks under a memory limit are pairs, too.

    def move(self, array: Any, device: str) -> Any:
        return Scaled(self.framework.move(array.mantissa, device), array.exponent, array.is_normal)

    def synchronize(self, array: Any) -> None:
        self.framework.synchronize(array.mantissa)

    def to_numpy(self, array: Any) -> Any:
        return self.framework.to_numpy(array.mantissa), array.exponent

    def from_numpy(self, array: Any, device: str = "") -> Any:
        mantissa, exponent = array
        if not mantissa.flags.writeable:
            mantissa = mantissa.copy()
        return Scaled(self.framework.from_numpy(mantissa, device), exponent, True)

    def size(self, array: Any, axis: int) -> Any:
        return self.framework.size(array.mantissa, axis)

    def with_size(self, array: Any, axis: int, size: Any, message: str) -> Any:
        return Scaled(self.framework.with_size(array.mantissa, axis, size, message), array.exponent, array.is_normal)

    def add(self, total: Any, part: Any) -> Any:
        framework = self.framework
        if total.exponent is None or part.exponent is None:
            exponent = part.exponent if total.exponent is None else total.exponent
            return Scaled(framework.add(total.mantissa, part.mantissa), exponent, True)
        exponent = max(total.exponent, part.exponent)
        aligned = [framework.times_power(each.mantissa, each.exponent - exponent, True) for each in (total, part)]
        return Scaled(*framework.normalized(framework.add(*aligned), exponent, True), True)


def _part(dtype: str) -> int:
    """Bytes of a real number, or of a part of a complex one."""
    return itemsize(dtype) // (2 if kind(dtype) == "c" else 1)
