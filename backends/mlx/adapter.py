"""MLX: lazy arrays that are never changed, whose transposes are views; a product has any number of batch axes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, wraps
from importlib import import_module
from math import e
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any

from einsumx.adapters.base import Adapter, Array, Signature
from einsumx.adapters.facets import Arithmetic, BlockAccess, OutAccess, Semirings
from einsumx.adapters.operand_types import dtype_error, wrong_type_error
from einsumx.adapters.replacement import Function, Name
from einsumx.backends.mlx.choices import integer_workspace, workspace
from einsumx.dtypes import adopts, kind, wrapped
from einsumx.errors import BackendError, shown
from einsumx.host.free_memory import free_host_bytes
from einsumx.imports import imported
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Matmul, Op, Reshape, Transpose
from einsumx.ir.rates import Rates
from einsumx.ir.traits import HALVES, INTEGERS, PRODUCTS, Traits

_FLOATS = frozenset({"float32", "float64", "complex64"}) | HALVES

_DEFAULTS = {int: "int32", float: "float32", complex: "complex64"}
"""The dtype of a Python scalar that changes the kind of a result."""

# Rates of the wheel for Linux, whose products are those of the reference BLAS.
TRAITS = Traits(
    dtypes=_FLOATS | INTEGERS | {"bool"},
    matmul_dtypes=_FLOATS | INTEGERS,
    matmul_through=(("bool", "float32"),),
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    wide_ops=PRODUCTS | {"sum"},
    rates=Rates(call=1.5e-6, view=0.7e-6, matrix=0.1e-6, gemm=3e9, stream=6e9, copy=8e9, permute=4e9),
)


class MlxBlocks(BlockAccess):
    """Blocks of arrays, which are computed at once."""

    def check_eager(self, array: Array) -> None:
        try:
            self.xp.eval(array)
        except ValueError as error:  # of an array that mx.compile or mx.vmap traces
            raise BackendError(
                "memory_limit= works for arrays, not while mx.compile or mx.vmap traces them; call einsum outside of "
                "the trace, or omit memory_limit="
            ) from error

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        return self.adapter._computed(array[box])

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        return self.adapter._computed(self.xp.zeros(shape, self.adapter.dtype(dtype)))

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        out[box] = block.astype(out.dtype)
        return self.adapter._computed(out)

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        device = self.xp.default_device()

        def run(*arguments: Any) -> Any:
            with self.xp.stream(device):
                result = function(*arguments)
                self.xp.eval(result)  # no other thread can compute what this one left undone
            return result

        return run

    def free_bytes(self, device: str) -> int | None:
        return free_host_bytes()

    def move(self, array: Array, device: str) -> Array:
        return array


class MlxOut(OutAccess):
    """Arrays, all of which can be assigned to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        pass  # every array can be assigned to

    def write(self, out: Array, result: Array) -> None:
        out[...] = result.astype(out.dtype)


class MlxArithmetic(Arithmetic):
    """Arithmetic of arrays."""

    def number(self, value: Any, dtype: str, like: Array) -> Array:
        return self.xp.array(value, dtype=self.adapter.dtype(dtype))

    def plus(self, lhs: Array, rhs: Array) -> Array:
        return self.xp.logical_or(lhs, rhs) if lhs.dtype == self.xp.bool_ else self.xp.add(lhs, rhs)


class MlxNames(Semirings):
    """MLX's functions."""

    names = MappingProxyType({"concat": "concatenate"})

    def named(self, name: str) -> Callable[..., Any]:
        return self._exponential if name == "exp" else super().named(name)

    def _exponential(self, array: Array) -> Array:
        if array.dtype != self.xp.float64:
            return self.xp.exp(array)
        return self.xp.power(self.xp.array(e, array.dtype), array)  # MLX's exp of float64 is as exact as float32


class MlxSemirings(MlxNames):
    """The same, and constants."""

    def detached(self, array: Array) -> Array:
        return self.xp.stop_gradient(array)


class MlxAdapter(Adapter):
    """MLX's arrays. They have no device: each op runs on the default one, whose memory all devices share.

    Nothing is computed before a result is read, so operands have strides that only MLX knows. Plans take them for
    C-contiguous, and MLX copies where a reshape needs it.
    """

    name = "mlx"
    module = "mlx.core"
    import_statement = "import mlx.core as mx"
    install = "pip install mlx"
    cpu = TRAITS
    blocks = cached_property(MlxBlocks)
    out = cached_property(MlxOut)
    arithmetic = cached_property(MlxArithmetic)
    semirings: cached_property[Semirings | None] = cached_property(MlxSemirings)

    @cached_property
    def _names(self) -> dict[Any, str]:
        """The name of each dtype."""
        return {self.dtype(name): name for name in sorted(_FLOATS | INTEGERS | {"bool"})}

    @cached_property
    def _kernels(self) -> Any:
        """Einsumx's kernels for MLX, in a module that imports MLX."""
        return imported("einsumx.backends.mlx.kernels")

    # -- which arrays -----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if not issubclass(kind, self.xp.array):
            raise wrong_type_error(kind, "mlx.core.array")

    # -- describing arrays ------------------------------------------------------------------------------

    # A single C call.
    signature = staticmethod(attrgetter("__class__", "shape", "dtype"))  # type: ignore[assignment]

    def device_of(self, signature: Signature) -> str:
        return self.device(None)

    def device(self, array: Array) -> str:
        return str(self.xp.default_device().type).rpartition(".")[2]

    def dtype_name(self, dtype: Any) -> str:
        try:
            return self._names[dtype]
        except KeyError:
            raise dtype_error(self.name, dtype) from None

    def dtype(self, name: str) -> Any:
        dtype = getattr(self.xp, "bool_" if name == "bool" else name, None)
        if not isinstance(dtype, self.xp.Dtype):
            raise dtype_error(self.name, name)
        return dtype

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if like is None or not isinstance(value, int | float | complex):
            return self.xp.array(value)
        if not adopts(dtype, type(value)):
            dtype = _DEFAULTS[type(value)]
        if kind(dtype) in "iu" and wrapped(int(value.real), dtype) != value:
            raise BackendError(f"mlx does not convert {shown(value)} to {dtype}, the dtype of the arrays; pass dtype=")
        return self.xp.array(value, dtype=self.dtype(dtype))

    # -- primitives -------------------------------------------------------------------------------------

    def copy(self, array: Array) -> Array:
        return self.xp.contiguous(array)  # no array is ever changed, so that one in C order need not be copied

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        if array.dtype == self.xp.bool_:
            return self.xp.any(array, axes)
        # MLX sums short integers in 32 bits, which wrap to the same.
        total = self.xp.sum(array, axes)
        return total.astype(array.dtype) if self.dtype_name(array.dtype) in INTEGERS else total

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.zeros(shape, self.dtype(dtype))

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        kernel: Callable[..., Array]
        match op:
            case Matmul() if dtype in INTEGERS:
                kernel = self._kernels.integer_product(shapes[0][-1], dtype)
            case Matmul() if self._has_reference_blas:
                kernel = self._kernels.product(*shapes, dtype)
            case Matmul():
                kernel = self.xp.matmul
            case Transpose():
                kernel = methodcaller("transpose", *op.axes)
            case Reshape():
                kernel = self._kernels.reshape(shapes[0], op.shape)
            case _:
                kernel = super().kernel(op, shapes, dtype)
        return kernel

    @property
    def _has_reference_blas(self) -> bool:
        """Whether products run in the BLAS of MLX's wheel for Linux, which is slow for some layouts."""
        return sys.platform == "linux" and self.device(None) == "cpu"

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        if not isinstance(op, Matmul):
            return 0
        lhs, rhs = [operand.shape for operand in operands]
        dtype = operands[0].dtype
        return integer_workspace(lhs, rhs, dtype) if dtype in INTEGERS else workspace(lhs, rhs, dtype)

    def public_class(self) -> type[Adapter]:
        return _PublicMlx

    def _computed(self, array: Array) -> Array:
        """An array whose elements are computed now: queued operations keep their operands, and belong to a thread."""
        self.xp.eval(array)
        return array

    # -- to and from the host ---------------------------------------------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        dtype = self.dtype(array.dtype.name)
        if array.flags.c_contiguous and array.dtype.isnative:
            return self.xp.array(array, dtype=dtype)
        # MLX would also copy the memory between the elements.
        result = self._computed(self.xp.zeros(array.shape, dtype))
        if array.size:
            numpy = import_module("numpy")
            numpy.copyto(numpy.asarray(result), array)
        return result

    def to_numpy(self, array: Array) -> Any:
        if array.dtype == self.xp.bfloat16:
            raise TypeError("NumPy has no bfloat16; cast the array to float32 first")
        return import_module("numpy").array(array)  # a copy, as an array may be assigned to later

    def synchronize(self, array: Array) -> None:
        self.xp.eval(array)

    # -- einsumx behind MLX's own name --------------------------------------------------------------------

    def names(self) -> Iterable[Name]:
        def around(native: Function, call: Function) -> Function:
            @wraps(native)
            def function(*operands: Any, stream: Any = None, **options: Any) -> Any:
                """Compute on a stream, as MLX does."""
                if stream is None:
                    return call(*operands, **options)
                with self.xp.stream(stream):
                    return call(*operands, **options)

            return function

        yield Name(self.xp, "einsum", around=around)


class _PublicMlx(MlxAdapter):
    """MLX's functions; a product of integers, which it does not have, is a sum."""

    semirings = cached_property(MlxNames)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        if lhs.dtype.name not in INTEGERS:
            return self.xp.matmul(lhs, rhs)
        left = lhs[..., None] if rhs.ndim > 1 else lhs
        right = rhs[..., None, :, :] if min(lhs.ndim, rhs.ndim) > 1 else rhs
        return self.xp.multiply(left, right).sum(-1 if rhs.ndim == 1 else -2).astype(lhs.dtype)


ADAPTER = MlxAdapter()
