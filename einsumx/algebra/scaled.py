"""The algebra of :func:`einsumx.einsum_frexp`: sums of products of arrays that are scaled by powers of two.

Paths, layouts and blocks do not depend on how large numbers are, so programs have the ops of any other. Each
intermediate is a :class:`ScaledArray`, an array of the framework and an exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import frexp, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.adapters.facets import exponents_of
from einsumx.dtypes import itemsize, kind
from einsumx.errors import REFUSALS, BackendError
from einsumx.ir import ops
from einsumx.ir.algebra import Algebra, Kernels
from einsumx.ir.traits import HALVES

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.adapters.typing import Array, Run
    from einsumx.ir.operand import Operand
    from einsumx.ir.program import Program
    from einsumx.ir.traits import Traits


class FrexpResult(NamedTuple):
    """What :func:`einsumx.einsum_frexp` returns; the result of the contraction is ``mantissa * 2**exponent``.

    Attributes:
        mantissa: an array whose largest element is in ``[0.5, 1)``.
        exponent: an int; where values are not known, as under ``jax.jit``, an integer array without axes.
    """

    mantissa: Any
    exponent: Any


@dataclass(slots=True)
class ScaledArray:
    """An array of a framework and the power of two by which it is multiplied.

    Attributes:
        mantissa: the array.
        exponent: an int, or an integer array in a trace; None for an array of nothing but 0, infinities and nan.
        is_normal: whether the largest part of the mantissa is in ``[0.5, 1)``, so that products may read it.
    """

    mantissa: Array
    exponent: Any = 0
    is_normal: bool = False


class Scaled(Algebra):
    """Plus and times of :class:`ScaledArray`; results are pairs of a mantissa and an exponent."""

    text = " with exponents"
    is_plain = False
    has_exponents = True
    function = "einsum_frexp"

    def __reduce__(self) -> str:
        return "SCALED"

    def check_dtype(self, dtype: str) -> None:
        if kind(dtype) not in "fc":
            raise BackendError(
                f"einsum_frexp returns a mantissa below 1, which {dtype} cannot hold; pass dtype='float64'"
            )

    def traits(self, adapter: Adapter, device: str) -> Traits:
        exponents_of(adapter)
        return _of_mantissas(adapter.traits(device))

    def lowered(self, program: Program) -> Program:
        """The program, with a copy if it would return a view of an operand, because results are scaled."""
        if not program.returns_view:
            return program
        result = max([op.out for op in program.ops], default=len(program.operands) - 1) + 1
        return replace(program, ops=(*program.ops, ops.Copy(result, program.result, "scaled")), result=result)

    def workspace(self, kernels: Kernels, op: ops.Op, operands: Sequence[Operand], device: str) -> int:
        own = kernels.workspace(op, operands, device)
        if isinstance(op, ops.Cast):
            return own + operands[0].nbytes
        if op.effect != "work" or isinstance(op, ops.Zeros):
            return own
        own += sum(operand.nbytes for operand in operands)
        if isinstance(op, ops.Matmul | ops.Multiply):
            return own
        shape = op.result_shape([operand.shape for operand in operands])
        return own + replace(operands[0], shape=shape, strides=None).nbytes

    def kernel(
        self, adapter: Adapter, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str
    ) -> Callable[..., ScaledArray]:
        kernel = adapter.kernel(op, shapes, dtype)
        match op:
            case ops.Cast():
                return _cast(adapter, op, kernel, dtype)
            case ops.Transpose() | ops.Reshape() | ops.Expand() | ops.Conjugate():
                return lambda source: self.mapped(kernel, source)
            case ops.Copy():
                return lambda source: _normal(adapter, self.mapped(kernel, source), is_new=True)
            case ops.First() | ops.Diagonal():  # of which the largest element need not be one
                return lambda source: replace(self.mapped(kernel, source), is_normal=False)
            case ops.Zeros():
                return lambda *sources: ScaledArray(kernel(*[_scaled(each).mantissa for each in sources]), None, True)
            case _:
                return _product(adapter, kernel, is_new=isinstance(op, ops.Matmul | ops.Multiply))

    def finish(self, adapter: Adapter) -> None:
        return None  # prepare() makes an element of the mantissa

    def prepare(self, adapter: Adapter, run: Run, program: Program) -> Run:
        finish = adapter.element if not program.shape else None

        def pairs(*arrays: Array) -> Any:
            result = _normal(adapter, run(*arrays))
            return result.mantissa if finish is None else finish(result.mantissa), result.exponent

        prepared = adapter.prepare(pairs, program)

        def stripped(*arrays: Array) -> FrexpResult:
            mantissa, exponent = prepared(*arrays)
            return FrexpResult(mantissa, 0 if exponent is None else exponents_of(adapter).as_exponent(exponent))

        return stripped

    def added(self, adapter: Adapter, total: ScaledArray, part: ScaledArray) -> ScaledArray:
        if total.exponent is None or part.exponent is None:
            exponent = part.exponent if total.exponent is None else total.exponent
            return ScaledArray(super().added(adapter, total.mantissa, part.mantissa), exponent, True)
        exponent = max(total.exponent, part.exponent)
        aligned = [times_power(adapter, each.mantissa, each.exponent - exponent, True) for each in (total, part)]
        return _normal(adapter, ScaledArray(super().added(adapter, *aligned), exponent), is_new=True)

    def mapped(self, function: Callable[[Array], Array], value: Any) -> ScaledArray:
        source = _scaled(value)
        return ScaledArray(function(source.mantissa), source.exponent, source.is_normal)


SCALED = Scaled()
"""The meaning of :func:`einsumx.einsum_frexp`."""


def _of_mantissas(traits: Traits) -> Traits:
    """The traits of a framework that casts halves before anything else, because they have too few exponents."""
    return replace(
        traits,
        matmul_dtypes=traits.matmul_dtypes - HALVES,
        native_dtypes=traits.native_dtypes - HALVES,
        wide_ops=frozenset(),
    )


def _scaled(value: Any) -> ScaledArray:
    """An intermediate as it is, and an operand with the exponent 0."""
    return value if isinstance(value, ScaledArray) else ScaledArray(value)


def _normal(adapter: Adapter, value: Any, is_new: bool = False) -> ScaledArray:
    """A value scaled such that products may read it; ``is_new`` if nothing else refers to its array."""
    source = _scaled(value)
    if source.is_normal:
        return source
    return ScaledArray(*normalized(adapter, source.mantissa, source.exponent, is_new), True)


def _product(adapter: Adapter, kernel: Callable[..., Array], is_new: bool) -> Callable[..., ScaledArray]:
    """The function that scales operands, runs ``kernel`` on their mantissas, and scales the result."""

    def run(*sources: Any) -> ScaledArray:
        scaled = [_normal(adapter, source) for source in sources]
        result = kernel(*[source.mantissa for source in scaled])
        exponents = [source.exponent for source in scaled if source.exponent is not None]
        return ScaledArray(*normalized(adapter, result, sum(exponents), is_new), True)

    return run


def _cast(adapter: Adapter, op: ops.Cast, kernel: Callable[..., Array], dtype: str) -> Callable[..., ScaledArray]:
    if dtype in HALVES:  # not the kernel, which may leave this to the next op
        return lambda source: SCALED.mapped(lambda array: adapter.cast(array, op.dtype), source)
    if kind(dtype) not in "fc" or _part(op.dtype) >= _part(dtype):
        return lambda source: SCALED.mapped(kernel, source)

    def narrowed(source: Any) -> ScaledArray:
        source = _normal(adapter, source)
        return ScaledArray(kernel(source.mantissa), source.exponent)  # in which 1 may have been rounded to

    return narrowed


def _part(dtype: str) -> int:
    """Bytes of a real number, or of a part of a complex one."""
    return itemsize(dtype) // (2 if kind(dtype) == "c" else 1)


# -- powers of two ----------------------------------------------------------------------------------------------------


def normalized(adapter: Adapter, array: Array, exponent: Any, is_new: bool = False) -> tuple[Array, Any]:
    """``array * 2**exponent`` as a mantissa, whose largest finite part is in ``[0.5, 1)``, and an exponent.

    None stands for the exponent of 0. While a graph is traced, an exponent is an integer array without axes.
    """
    traced = exponents_of(adapter).normalized_in_trace(array, exponent)
    if traced is not None:
        return traced
    own = binary_exponent(adapter, array)
    if own is None:
        return array, None
    return times_power(adapter, array, -own, is_new), (exponent or 0) + own


def binary_exponent(adapter: Adapter, array: Array) -> int | None:
    """The exponent ``e`` with ``2**(e-1) <= m < 2**e``, where ``m`` is the largest magnitude of a finite part.

    The parts of a complex number are its real and its imaginary part. It is 0 for complex arrays with an infinity or
    nan, which no factor would leave as they are, and None if there is no finite part but 0.

    Raises:
        BackendError: the values are not known, as while a graph is traced.
    """
    try:
        values = exponents_of(adapter).magnitudes(array)
    except REFUSALS as error:
        raise BackendError(
            f"{adapter.name}: einsum_frexp reads the largest element of each intermediate, and a trace has "
            f"none; call einsum outside of it ({type(error).__name__})"
        ) from error
    return _largest_exponent(values)


def _largest_exponent(values: Any) -> int | None:
    """As :func:`binary_exponent`, of a number or a NumPy array.

    >>> import numpy
    >>> _largest_exponent(numpy.array([3.0, -9.0])), _largest_exponent(0.0)
    (4, None)
    """
    if type(values) is float and isfinite(values):
        return frexp(values)[1] if values else None
    np = import_module("numpy")
    values = np.asarray(values)
    if not values.size:
        return None
    is_complex = values.dtype.kind == "c"
    parts = (values.real, values.imag) if is_complex else (values,)
    with np.errstate(all="ignore"):
        bounds = [bound for part in parts for bound in (part.max(), -part.min())]
        if not all(np.isfinite(bound) for bound in bounds):
            if is_complex:
                return 0
            finite = np.abs(values[np.isfinite(values)])
            bounds = [finite.max()] if finite.size else [bounds[0] * 0]
    largest = max(bounds)
    if not largest > 0:
        return None
    return int(np.frexp(largest if values.dtype.kind in "fc" else float(largest))[1])


_SINGLE = frozenset({"bfloat16", "float32", "complex64"})

_FARTHEST = 4 * 16_500
"""An exponent beyond which every number of every dtype is 0 or infinite."""


def times_power(adapter: Adapter, array: Array, exponent: int, is_new: bool = False) -> Array:
    """``array * 2**exponent``, exact unless it under- or overflows, in steps that the dtype holds.

    Args:
        adapter: of the framework.
        array: of floating-point or complex numbers.
        exponent: any integer.
        is_new: whether nothing else refers to ``array``, which may then be written to.
    """
    dtype, times_factor = adapter.dtype_name(array.dtype), exponents_of(adapter).times_factor
    most = 14 if dtype in ("float16", "complex32") else 126 if dtype in _SINGLE else 1022
    exponent = max(-_FARTHEST, min(exponent, _FARTHEST))
    while exponent:
        step = max(-most, min(exponent, most))
        exponent -= step
        array = times_factor(array, 2.0**step, dtype, is_new)
        is_new = True
    return array
