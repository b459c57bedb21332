"""PaddlePaddle's tensors: transposes are views, but nearly every other kernel copies a view before it reads it.

So plans treat all tensors as C-contiguous, and use the flags of matmul.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array, Signature
from einsumx.adapters.facets import Arithmetic, BlockAccess, Gradients, OutAccess, Semirings
from einsumx.adapters.operand_types import dtype_error, type_name, wrong_type_error
from einsumx.adapters.replacement import Name
from einsumx.backends.paddle.choices import DTYPES, INTEGERS, MAX_AXES, WIDER, adopted, is_number, promoted, workspace
from einsumx.dtypes import kind
from einsumx.errors import BackendError, SizeError
from einsumx.host.free_memory import free_host_bytes
from einsumx.imports import LazyModule, imported
from einsumx.ir.bind import planned_sizes
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Cast, Copy, Diagonal, Matmul, Multiply, Op, Reshape, Sum, Transpose, Zeros
from einsumx.ir.rates import Rates
from einsumx.ir.traits import BLAS, HALVES, Traits

if TYPE_CHECKING:
    import einsumx.backends.paddle.gradients as gradients
else:
    gradients = LazyModule("einsumx.backends.paddle.gradients")

TRAITS = Traits(
    arrays="packed",
    views=False,
    transpose_flags=True,
    outer_by_matmul=True,
    dots_by_sum=True,
    multiply_broadcasts=True,
    dtypes=DTYPES,
    matmul_dtypes=BLAS | INTEGERS,
    matmul_through=(("bool", "float32"),),
    widen=(("float16", "float32"), ("bfloat16", "float32")),
    wide_ops=frozenset({"sum"}),
    rates=Rates(call=3e-6, view=1.5e-6, matrix=0.5e-6, gemm=50e9, stream=10e9, copy=8e9, permute=4e9),
)

# Paddle multiplies matrices of integers in float32. On the CPU, NumPy does it.
ELSEWHERE = replace(TRAITS, matmul_dtypes=BLAS)


class PaddleBlocks(BlockAccess):
    """Blocks of tensors."""

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        return self.adapter._kernels.part(array.detach(), box)

    def add(self, total: Array, part: Array) -> Array:
        return self.adapter._kernels.added(total, part)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        return self.adapter._kernels.empty(shape, self.adapter.dtype(dtype), device)

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        block = self.adapter.arithmetic.as_dtype(block, self.adapter.dtype_name(out.dtype))
        return self.adapter._kernels.put(out, box, block)

    def in_place(self, array: Any) -> Array | None:
        if array.dtype.name not in DTYPES or not array.dtype.isnative or not array.flags.c_contiguous or not array.size:
            return None
        return self.adapter._kernels.shared(array)

    def free_bytes(self, device: str) -> int | None:
        return free_host_bytes() if device in ("", "cpu") else None


class PaddleOut(OutAccess):
    """Tensors that are written to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        if any(map(self.adapter.gradients.needed, (out, *operands))):
            raise BackendError("paddle does not differentiate through out=; omit it, or use paddle.no_grad()")
        if out.size > 1 and any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.strides)):
            raise BackendError("out= is an expanded tensor, whose elements share memory; pass out.clone()")

    def write(self, out: Array, result: Array) -> None:
        self.write_new(out, self.adapter.copy(result) if self.may_overlap(out, result) else result)

    def write_new(self, out: Array, result: Array) -> None:
        out.copy_(self.adapter.arithmetic.as_dtype(result, self.adapter.dtype_name(out.dtype)), True)

    def may_overlap(self, out: Array, array: Array) -> bool:
        return bool(self.adapter._kernels.may_share(out, array))


class PaddleArithmetic(Arithmetic):
    """Sums of tensors of every dtype."""

    def plus(self, lhs: Array, rhs: Array) -> Array:
        xp = self.xp
        if lhs.dtype == xp.bool:
            return xp.logical_or(lhs, rhs)
        if lhs.dtype in (xp.float16, xp.bfloat16):  # Paddle adds no halves on processors
            return (lhs.astype("float32") + rhs.astype("float32")).astype(lhs.dtype)
        return lhs + rhs


class PaddleSemirings(Semirings):
    """Paddle's functions."""

    def named(self, name: str) -> Callable[..., Any]:
        if name not in ("max", "min"):
            return super().named(name)
        function = self.xp.amax if name == "max" else self.xp.amin  # whose gradients are shared by equal elements

        def extreme(array: Array, axis: Sequence[int], keepdims: bool = False) -> Array:
            return function(array, axis=list(axis), keepdim=keepdims)

        return extreme

    def detached(self, array: Array) -> Array:
        return array.detach()

    def elementwise(self, name: str, lhs: Array, rhs: Array) -> Array:
        return self._in_single(partial(super().elementwise, name), lhs, rhs)

    def reduced(self, name: str, array: Array, axes: tuple[int, ...]) -> Array:
        return self._in_single(partial(super().reduced, name, axes=axes), array)

    def _in_single(self, function: Callable[..., Array], *arrays: Array) -> Array:
        """A function of arrays, in float32 for those of half precision, for which Paddle has few functions."""
        dtype = self.adapter.dtype_name(arrays[0].dtype)
        if dtype not in HALVES:
            return function(*arrays)
        return self.adapter.cast(function(*[self.adapter.cast(array, "float32") for array in arrays]), dtype)

    def best(self, array: Array, is_least: bool) -> Array:
        if self.adapter.dtype_name(array.dtype) in HALVES:
            array = self.adapter.cast(array, "float32")
        return super().best(array, is_least)

    def places(self, start: int, stop: int, like: Array) -> Array:
        return self.xp.arange(start, stop, dtype="int64")

    def rows(self, matrix: Array, places: Array) -> Array:
        name = self.adapter.dtype_name(matrix.dtype)
        if name not in HALVES:
            return self.xp.index_select(matrix, places)
        return self.adapter.cast(
            self.xp.index_select(self.adapter.cast(matrix, "float32"), places), name
        )  # has no kernel for these


class PaddleAdapter(Adapter):
    """PaddlePaddle's dense tensors in dynamic mode."""

    name = "paddle"
    module = "paddle"
    import_statement = "import paddle"
    install = "pip install paddlepaddle"
    cpu = TRAITS
    device_kinds = ("cpu", "gpu")
    blocks: cached_property[BlockAccess | None] = cached_property(PaddleBlocks)
    out: cached_property[OutAccess | None] = cached_property(PaddleOut)
    arithmetic = cached_property(PaddleArithmetic)
    semirings = cached_property(PaddleSemirings)

    @cached_property
    def _names(self) -> dict[Any, str]:
        """The name of each dtype that einsum computes in."""
        return {getattr(self.xp, name): name for name in sorted(DTYPES)}

    @cached_property
    def _kernels(self) -> Any:
        """Einsumx's kernels for Paddle, in a module that imports it."""
        return imported("einsumx.backends.paddle.kernels").EagerKernels()

    # -- which tensors ----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if issubclass(kind, self.xp.Tensor) or kind is self.xp.pir.Value:
            return
        if kind.__name__ == "Variable":
            raise BackendError(
                f"einsum takes no {type_name(kind)} of Paddle's old static graphs; do not set FLAGS_enable_pir_api=0"
            )
        raise wrong_type_error(kind, "paddle.Tensor")

    def serving(self, kind: type) -> Adapter:
        return self if issubclass(kind, self.xp.Tensor) else GRAPH

    # -- describing tensors -----------------------------------------------------------------------------

    def traits(self, device: str) -> Traits:
        return TRAITS if device == "cpu" else ELSEWHERE

    def signature(self, array: Array) -> Signature:
        if not array.is_dense():
            raise imported("einsumx.backends.paddle.kernels").not_dense_error(array)
        return array.__class__, tuple(array.shape), array.dtype, _device_name(array.place)

    def device(self, array: Array) -> str:
        return _device_name(array.place)

    def dtype_name(self, dtype: Any) -> str:
        try:
            return self._names[dtype]
        except KeyError:
            raise dtype_error(self.name, dtype) from None

    def dtype(self, name: str) -> Any:
        if name not in DTYPES:
            raise dtype_error(self.name, name)
        return getattr(self.xp, name)

    def promote(self, dtypes: Sequence[str]) -> str:
        return reduce(promoted, dtypes)

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if isinstance(value, list | tuple) or like is None:
            return self.xp.to_tensor(value, place=None if like is None else like.place)
        target = self.dtype(adopted(dtype, type(value)))
        try:
            return self.xp.to_tensor(value, dtype=target, place=like.place)
        except (OverflowError, ValueError):  # the cast of a tensor wraps, or makes an infinity of it
            return self.xp.to_tensor(value, place=like.place).astype(target)

    # -- primitives -------------------------------------------------------------------------------------

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self.xp.transpose(array, list(axes)).contiguous()

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return self.xp.reshape(array, list(shape))

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return self.xp.diagonal(array, axis1=axis1, axis2=axis2).contiguous()

    def copy(self, array: Array) -> Array:
        return self.xp.assign(array)

    def cast(self, array: Array, dtype: str) -> Array:
        return array.astype(dtype)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        name = self.dtype_name(array.dtype)
        if name == "bool":
            return self.xp.any(array, axis=axes)
        return array.sum(axis=axes, dtype=name if kind(name) in "iu" else None)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        name = self.dtype_name(lhs.dtype)
        if name not in WIDER:
            return (self.xp.logical_and if name == "bool" else self.xp.multiply)(lhs, rhs)
        left, right = (self.cast(side, WIDER[name]) for side in (lhs, rhs))
        return self.cast(self.xp.multiply(left, right), name)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        if self.dtype_name(lhs.dtype) not in INTEGERS:
            return self.xp.matmul(lhs, rhs, transpose_x=transpose_lhs, transpose_y=transpose_rhs)
        # Paddle's product of integers computes in float32, or has no kernel; NumPy's does not.
        sides = [(lhs.numpy(), transpose_lhs), (rhs.numpy(), transpose_rhs)]
        left, right = (side.swapaxes(-1, -2) if is_transposed else side for side, is_transposed in sides)
        return self.xp.to_tensor(left @ right)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.zeros(list(shape), dtype=dtype)

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        kernel: Callable[..., Array]
        axes = len(op.shape if isinstance(op, Reshape | Zeros) else op.result_shape(shapes))
        if axes > MAX_AXES:
            raise BackendError(
                f"paddle's tensors have at most {MAX_AXES} axes, and this contraction needs {axes}; merge axes that "
                "always occur together"
            )
        match op:
            case Transpose():
                kernel = self._kernels.transpose(op.axes)
            case Reshape():
                kernel = self._kernels.reshape(op.shape)
            case Diagonal():
                kernel = self._kernels.diagonal(op.axis1, op.axis2, dtype)
            case Copy():
                kernel = self._kernels.copied
            case Cast():
                kernel = partial(self._kernels.cast, dtype=self.dtype(op.dtype))
            case Sum():
                kernel = self._kernels.total(op.axes, dtype)
            case Multiply():
                kernel = self._kernels.multiply(dtype)
            case Matmul():
                kernel = self._kernels.product(op, shapes, dtype)
            case Zeros():
                kernel = partial(self._kernels.zeros, shape=op.shape, dtype=op.dtype)
            case _:
                kernel = super().kernel(op, shapes, dtype)
        return kernel

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        return workspace(op, operands)

    # -- Paddle's own einsum ----------------------------------------------------------------------------

    def names(self) -> Iterable[Name]:
        paddle = self.xp
        # A module of Paddle has the same name as the function.
        for owner in (paddle, paddle.tensor, paddle.functional, sys.modules["paddle.tensor.einsum"]):
            yield Name(owner, "einsum")

    @cached_property
    def gradients(self) -> Gradients:
        return gradients.PaddleGradients()

    # -- to and from the host ----------------------------------------------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        self.dtype(array.dtype.name)  # raises for those that Paddle reads as others
        return self.xp.to_tensor(array, place=device or None)

    def to_numpy(self, array: Array) -> Any:
        if array.dtype is self.xp.bfloat16:
            raise TypeError("bfloat16")  # NumPy has no such dtype
        return array.detach().numpy()

    def synchronize(self, array: Array) -> None:
        if not array.place.is_cpu_place():
            self.xp.device.synchronize()


def _device_name(place: Any) -> str:
    """``gpu:0`` of ``Place(gpu:0)``."""
    return "cpu" if place.is_cpu_place() else str(place)[6:-1]


class GraphAdapter(PaddleAdapter):
    """The values of static graphs, such as those that ``paddle.jit.to_static`` traces."""

    blocks = out = None
    missing = MappingProxyType(
        {
            "blocks": "memory_limit= works for tensors in dynamic mode, not while a static graph is built; call einsum "
            "outside of paddle.jit.to_static, or omit memory_limit=",
            "out": "the values of Paddle's static graphs cannot be written to; omit out=",
        }
    )

    @cached_property
    def _kernels(self) -> Any:
        return imported("einsumx.backends.paddle.kernels").GraphKernels()

    def signature(self, array: Array) -> Signature:
        if not array.is_dense_tensor_type():
            raise BackendError(
                "einsum takes dense tensors, not sparse or distributed values of a static graph; pass a dense tensor"
            )
        shape = planned_sizes([size if is_number(size) else None for size in array.shape])
        return array.__class__, shape, array.dtype, ""

    def size(self, array: Array, axis: int) -> Any:
        return self._kernels.size(array, axis)

    def with_size(self, array: Array, axis: int, size: Any, message: str) -> Array:
        actual = array.shape[axis]
        if is_number(actual) and is_number(size):
            if actual != size:
                raise SizeError(message)
            return array
        return self._kernels.with_size(array, axis, size)

    def device(self, array: Array) -> str:
        return ""

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if isinstance(value, list | tuple):
            return self.xp.to_tensor(value)
        return self.xp.full([], value, self.dtype(adopted(dtype, type(value))))


ADAPTER = PaddleAdapter()
GRAPH = GraphAdapter()
