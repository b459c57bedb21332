"""PyTorch on CPUs and accelerators: transposes are views, and a batched product has one batch axis."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial, reduce
from importlib import import_module
from math import inf
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.facets import (
    Arithmetic,
    BlockAccess,
    Exponents,
    Gradients,
    MemoryOrders,
    OutAccess,
    Semirings,
    TracedLoops,
)
from einsumx.adapters.gpus import A100, Gpu, gpu_rates
from einsumx.adapters.operand_types import dtype_error, top_package, wrong_type_error
from einsumx.adapters.options import NO_OPTIONS, FrameworkOptions
from einsumx.adapters.staging import Ring
from einsumx.backends.torch.choices import (
    INTEGERS,
    SIGNED,
    digits_workspace,
    half_sum_workspace,
    multiplies_rows,
    multiply_workspace,
    narrow_workspace,
    own_gradients,
    product_workspace,
)
from einsumx.dtypes import adopts, itemsize, kind, wrapped
from einsumx.errors import BackendError
from einsumx.host.free_memory import free_host_bytes
from einsumx.imports import LazyModule, imported
from einsumx.ir.layout import inverse, memory_order
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Cast, Matmul, Multiply, Op, Reshape, Sum, Transpose
from einsumx.ir.program import Program
from einsumx.ir.rates import Rates
from einsumx.ir.sizes import is_known
from einsumx.ir.traits import BLAS, HALVES, PRODUCTS, Layouts, Traits
from einsumx.runtime.request import Request, joined

if TYPE_CHECKING:
    from typing_extensions import Self

    import einsumx.backends.torch.autocast as autocasting
    import einsumx.backends.torch.gradients as gradients
    import einsumx.backends.torch.loops as loops_in_graphs
    import einsumx.backends.torch.patch as patch
    import einsumx.backends.torch.staging as staging
    from einsumx.adapters.replacement import Name
    from einsumx.ir.bind import SizedEquation
    from einsumx.ir.contraction import Contraction
    from einsumx.storage import maps
else:
    autocasting = LazyModule("einsumx.backends.torch.autocast")
    gradients = LazyModule("einsumx.backends.torch.gradients")
    loops_in_graphs = LazyModule("einsumx.backends.torch.loops")
    maps = LazyModule("einsumx.storage.maps")
    patch = LazyModule("einsumx.backends.torch.patch")
    staging = LazyModule("einsumx.backends.torch.staging")

_DTYPES = frozenset({"bool", "complex32", *BLAS, *HALVES, *INTEGERS, *SIGNED})

_LARGE = 3e38
"""Less than the largest number in float32."""


class CpuTraits(Traits):
    """Traits of batches of tiny matrices that torch multiplies in loops of its own, and larger ones by BLAS."""

    __slots__ = ()

    def layouts(self, dtype: str) -> Layouts:
        return _LAYOUTS


_LAYOUTS = Layouts(tiny=400)

# Products of half precision are computed in float32 on the CPU. oneDNN accumulates bfloat16 in float32, but only on
# processors with instructions for it; on others torch's own loop is up to a hundred times slower than casts and sgemm.
CPU = CpuTraits(
    max_batch_axes=1,
    long_side="left",
    dtypes=_DTYPES,
    matmul_dtypes=BLAS | INTEGERS,
    matmul_through=(("bool", "float32"), *SIGNED.items()),
    # torch.set_float32_matmul_precision("medium") rounds the factors of float32 products to bfloat16, which has 8 bits.
    exact_products=(("float32", 8), ("float64", 53)),
    wide_products=(("int8", "int32"), ("uint8", "int32"), ("float32", "complex64"), ("float64", "complex128")),
    widen=(("float16", "float32"), ("bfloat16", "float32"), ("complex32", "complex64")),
    wide_ops=frozenset({"sum"}),
    rates=Rates(call=2.5e-6, view=1.2e-6, matrix=0.1e-6, gemm=100e9, stream=20e9, copy=14e9, permute=7e9),
)

# Accelerators multiply half precision in units that accumulate in float32; a setting of torch decides whether they
# round partial sums (torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction). They do not multiply integers.
ACCELERATOR = Traits(
    max_batch_axes=1,
    dtypes=_DTYPES,
    matmul_dtypes=BLAS | HALVES,
    matmul_through=(("bool", "float32"),),
    exact_products=CPU.exact_products,
    widen=CPU.widen,
    wide_ops=PRODUCTS | {"sum"},
    rates=gpu_rates(A100, Rates(call=8e-6, view=1.5e-6)),  # as on the host of an H200
)

# The kernel multiplies integers as digits in float64, which other accelerators lack.
CUDA = replace(ACCELERATOR, matmul_dtypes=BLAS | HALVES | INTEGERS, matmul_through=CPU.matmul_through)


class TorchBlocks(BlockAccess):
    """Blocks of tensors."""

    def check_eager(self, array: Array) -> None:
        self.adapter.signature(array)  # raises for a tensor that is not dense
        is_recorded = self.adapter.gradients.needed(array) and self.xp._C._are_functorch_transforms_active()
        if is_recorded or not self.adapter._kernels.has_memory(array):
            raise BackendError(
                "memory_limit= works for tensors that have memory, not while torch.func, torch.export or make_fx "
                f"traces them ({type(array).__name__}); call einsum outside of the trace, or omit memory_limit="
            )
        if self.xp.autograd.forward_ad.unpack_dual(array).tangent is not None:
            raise BackendError(
                "under memory_limit= there are no derivatives in forward mode, and the operand has a tangent; use "
                "backward(), or omit memory_limit="
            )

    def is_lazy(self, array: Array) -> bool:
        return bool(array.is_conj() or array.is_neg())  # kernels copy tensors with these flags

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        return array.detach()[box]  # blocks are also computed in other threads, in which autograd is on

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        return self.xp.empty(shape, dtype=self.adapter.dtype(dtype), device=device or None)

    def free_bytes(self, device: str) -> int | None:
        kind = device.partition(":")[0]
        if kind in ("", "cpu"):
            return free_host_bytes()
        if kind != "cuda":
            return None
        free, _ = self.xp.cuda.mem_get_info(device)
        # torch can reuse the memory that it caches.
        return int(free + self.xp.cuda.memory_reserved(device) - self.xp.cuda.memory_allocated(device))

    def in_place(self, array: Any) -> Array | None:
        if array.dtype.name not in _DTYPES or not array.dtype.isnative or min(array.strides, default=0) < 0:
            return None
        try:
            return self.xp.as_tensor(array if array.flags.writeable else _Writeable(array).view())
        except (TypeError, ValueError):  # a dtype that this torch lacks, or strides that are not multiples of its size
            return None

    def move(self, array: Array, device: str) -> Array:
        return array.to(device, memory_format=self.xp.contiguous_format) if device else array

    def ring(self, device: str) -> Ring | None:
        if device.partition(":")[0] != "cuda":
            return None
        fill = imported("einsumx.backends.numpy.kernels").copy_into
        return Ring(staging.CudaUploads(self.xp.device(device), self.adapter.dtype), fill)


class TorchExponents(Exponents):
    """Exponents of tensors, by a module that imports torch."""

    @cached_property
    def _functions(self) -> Any:
        return imported("einsumx.backends.torch.exponents")

    def magnitudes(self, array: Array) -> Any:
        return self._functions.magnitudes(array)

    def normalized_in_trace(self, array: Array, exponent: Any) -> tuple[Array, Array] | None:
        if self.adapter._kernels.has_values(array):
            return None
        pair: tuple[Array, Array] = self._functions.normalized(array, exponent)
        return pair


class TorchOrders(MemoryOrders):
    """Memory orders of tensors."""

    def arrange(self, array: Array, order: str) -> Array:
        if order == "C":
            return array.contiguous()
        axes = tuple(range(array.ndim))[::-1]
        return array.permute(axes).contiguous().permute(axes)

    def is_fortran(self, array: Array) -> bool:
        return bool(array.permute(tuple(range(array.ndim))[::-1]).is_contiguous())


class TorchOut(OutAccess):
    """Tensors that are written to."""

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        needed = self.adapter.gradients.needed
        if (out.requires_grad and needed(out)) or any(map(needed, operands)):
            raise BackendError("torch does not differentiate through out=; omit it, or use torch.no_grad()")
        if out.is_inference() and not self.xp.is_inference_mode_enabled():
            raise BackendError(
                "out= was made in inference mode, and torch writes to it only there; call einsum in "
                "torch.inference_mode(), or pass out.clone()"
            )
        is_known = not out._has_symbolic_sizes_strides
        if is_known and not out.is_contiguous() and self.adapter._kernels.shares_elements(out.shape, out.stride()):
            raise BackendError(
                "out= is an expanded tensor, or its strides overlap, so its elements share memory; pass out.clone(), "
                "or omit out="
            )

    def write(self, out: Array, result: Array) -> None:
        out.copy_(result.clone() if _may_share(out, result) else result)

    def write_new(self, out: Array, result: Array) -> None:
        out.copy_(result)

    def update(self, alpha: Any, result: Array, beta: Any, out: Array, dtype: str) -> None:
        if out.dtype is not self.adapter.dtype(dtype) or not self._adds_in_place(dtype, alpha, beta):
            super().update(alpha, result, beta, out, dtype)
            return
        if beta == 0:
            out.copy_(result * alpha)
        else:
            (out if beta == 1 else out.mul_(beta)).add_(result, alpha=alpha)

    def kernel_into(
        self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str, out: Signature
    ) -> Callable[..., object] | None:
        kernels, write = self.adapter._kernels, None
        if out[0] not in (self.xp.Tensor, self.xp.nn.Parameter):  # a trace's tensors have no addresses to compare
            return None
        match op:
            case Matmul() if dtype in BLAS | HALVES and not op.sums:
                write = kernels.matmul_into(*shapes)
            case Multiply() if dtype not in SIGNED:
                write = self.xp.mul
            case Sum() if dtype != "bool" and dtype not in SIGNED:
                write = partial(self.xp.sum, dim=op.axes, dtype=self.adapter.dtype(dtype))
        return None if write is None else kernels.writing(write, self.adapter.kernel(op, shapes, dtype))

    def product_into(self, op: Matmul, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., None] | None:
        product = self.adapter._kernels.product_into(*shapes) if dtype in BLAS else None
        if product is None:
            return None

        def run(alpha: Any, lhs: Array, rhs: Array, beta: Any, out: Array) -> None:
            # BLAS takes a factor of 0 as a word to ignore nan and infinities.
            if alpha != 0 and self._adds_in_place(dtype, alpha, beta):
                product(alpha, lhs, rhs, beta, out)
            else:
                self.update(alpha, self.xp.matmul(lhs, rhs), beta, out, dtype)

        return run

    def _adds_in_place(self, dtype: str, alpha: Any, beta: Any) -> bool:
        """Whether torch's in-place functions accept factors; some refuse those that overflow in float32."""
        return kind(dtype) in "fc" and all(abs(factor) < _LARGE for factor in (alpha, beta))

    def may_overlap(self, out: Array, array: Array) -> bool:
        return _may_share(out, array)


class TorchArithmetic(Arithmetic):
    """Arithmetic in the memory of new tensors."""

    def number(self, value: Any, dtype: str, like: Array) -> Any:
        # An argument of the kernel: a tensor would be copied to the device, which waits for the stream.
        if kind(dtype) == "b":
            return bool(value)
        if kind(dtype) in "fc" and not _LARGE <= abs(value) < inf:
            return complex(value) if kind(dtype) == "c" else float(value)
        return wrapped(value, dtype) if dtype in INTEGERS else super().number(value, dtype, like)

    def scaled_new(self, array: Array, factor: Any, dtype: str) -> Array:
        if kind(dtype) not in "fc" or not self.adapter._kernels.is_plain(array):
            return self.scaled(array, factor, dtype)
        return array.mul_(factor)

    def plus(self, lhs: Array, rhs: Array) -> Array:
        signed = self.adapter._signed.get(lhs.dtype)
        if signed is not None:
            lhs.view(signed).add_(rhs.view(signed))
            return lhs
        return lhs.add_(rhs)


class TorchAdapter(Adapter):
    """PyTorch's dense tensors on any device."""

    name = "torch"
    module = "torch"
    import_statement = "import torch"
    install = "pip install torch"
    cpu = CPU
    blocks: cached_property[BlockAccess | None] = cached_property(TorchBlocks)

    @cached_property
    def loops(self) -> TracedLoops | None:
        return loops_in_graphs.TorchLoops(self)

    out = cached_property(TorchOut)
    arithmetic = cached_property(TorchArithmetic)
    orders = cached_property(TorchOrders)
    least_recorded = 1 << 13
    exponents: cached_property[Exponents | None] = cached_property(TorchExponents)

    def __init__(self, options: FrameworkOptions = NO_OPTIONS) -> None:
        self._options = options

    @cached_property
    def _names(self) -> dict[Any, str]:
        """The name of each dtype that einsum computes in."""
        return {getattr(self.xp, name): name for name in sorted(_DTYPES) if hasattr(self.xp, name)}

    @cached_property
    def _strided(self) -> Any:
        """The layout of dense tensors."""
        return self.xp.strided

    @cached_property
    def _symbols(self) -> dict[type, type]:
        """The types of numbers that change between the calls of a graph, and those of Python that they stand for."""
        return {self.xp.SymBool: bool, self.xp.SymInt: int, self.xp.SymFloat: float}

    @cached_property
    def _signed(self) -> dict[Any, Any]:
        """For the unsigned dtypes that torch cannot sum, the signed ones whose sums have the same bits."""
        return {self.dtype(name): self.dtype(signed) for name, signed in SIGNED.items() if hasattr(self.xp, name)}

    @cached_property
    def semirings(self) -> Semirings | None:
        functions: Semirings = imported("einsumx.backends.torch.semirings").TorchSemirings(self)
        return functions

    @cached_property
    def _kernels(self) -> Any:
        """Einsumx's kernels for torch, in a module that imports torch."""
        return imported("einsumx.backends.torch.kernels")

    @cached_property
    def _integers(self) -> Any:
        return imported("einsumx.backends.torch.integers")

    # -- which tensors ----------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if not issubclass(kind, self.xp.Tensor):
            raise wrong_type_error(kind, "tensors")

    def serving(self, kind: type) -> Adapter:
        if any(base.__name__ == "DTensor" and top_package(base.__module__) == "torch" for base in kind.__mro__):
            sharded: Adapter = imported("einsumx.backends.torch.sharding").ADAPTER
            return sharded
        return self

    def configured(self, options: FrameworkOptions) -> Self:
        super().configured(options._replace(precision=None))
        imported("einsumx.backends.torch.precision").check(options.precision)
        return type(self)(options)

    def prepare(self, run: Run, program: Program) -> Run:
        if self.planning_mode(program.device) is not None:
            run = autocasting.outside(run, program.device)
        precision = self._options.precision
        if precision is None:
            return super().prepare(run, program)
        at_precision = imported("einsumx.backends.torch.precision").at_precision
        return super().prepare(at_precision(precision, run, program), program)

    def prepare_plain(self, run: Run, is_loud: bool) -> Run | None:
        return run if self._options is NO_OPTIONS else None

    def recording(self, run: Run, contraction: Contraction, steps: Sequence[Op]) -> Run:
        chosen: Run = run
        if contraction.place.device != "cpu":
            return run
        if multiplies_rows(contraction, steps):
            chosen = self._kernels.recording(run, lambda: self._kernels.summed_rows(contraction.equation))
        elif own_gradients(contraction, steps):
            chosen = self._kernels.recording(run, lambda: gradients.with_own(run, self, contraction))
        return chosen

    @cached_property
    def gradients(self) -> Gradients:
        return gradients.TorchGradients()

    # -- describing tensors -----------------------------------------------------------------------------

    def traits(self, device: str) -> Traits:
        kind = device.partition(":")[0]
        if kind == "cpu" and "torch" in sys.modules:  # which knows the processor
            return self._on_this_processor
        return {"": CPU, "cpu": CPU, "meta": CPU, "cuda": CUDA}.get(kind, ACCELERATOR)

    @cached_property
    def _on_this_processor(self) -> Traits:
        products = imported("einsumx.backends.torch.halves").wide_products()
        if not products:
            return CPU
        return replace(CPU, matmul_dtypes=CPU.matmul_dtypes | {"bfloat16"}, wide_ops=CPU.wide_ops | products)

    def device_model(self, device: str) -> str:
        cuda = self.xp.cuda
        return cuda.get_device_name(device) if device.startswith("cuda") and cuda.is_initialized() else ""

    def gpu(self, device: str) -> Gpu | None:
        cuda = self.xp.cuda
        if device.partition(":")[0] != "cuda" or self.xp.version.hip or not cuda.is_initialized():
            return None
        found = cuda.get_device_properties(device)
        try:
            return Gpu.of_properties(
                (found.major, found.minor),
                found.multi_processor_count,
                found.clock_rate,
                found.memory_clock_rate,
                found.memory_bus_width,
            )
        except AttributeError:  # an older torch does not tell clocks
            return None

    def signature(self, array: Array) -> Signature:
        if array.layout is not self._strided:
            raise BackendError(
                f"einsum takes dense tensors, not layout {array.layout}; x.to_dense() makes one. With "
                "c = x.to_sparse_coo().coalesce(), sparse.COO(c.indices().numpy(), c.values().numpy(), tuple(c.shape)) "
                "makes an array that stays sparse, and that einsum takes"
            )
        try:
            shape, strides = array.shape, array.stride()
        except RuntimeError as error:  # nested tensors have no shape
            raise BackendError(f"einsum takes dense tensors: {error}") from error
        if array._has_symbolic_sizes_strides:
            shape, strides = self._kernels.layout_without_guards(shape, strides)
        elif 0 in strides and self._kernels.is_recorded(array):
            strides = _packed_strides(shape, strides)
        return array.__class__, shape, array.dtype, array.device, strides

    kind_of = staticmethod(itemgetter(0, 2, 3))  # type: ignore[assignment]

    def operand(self, signature: Signature) -> Operand:
        if self.xp._C._get_tracing_state():  # torch.jit.trace has tensors in the place of sizes
            kind, shape, *others = signature
            signature = (kind, tuple(map(int, shape)), *others)
        return super().operand(signature)

    @cached_property
    def is_mode_set(self) -> Callable[[], bool] | None:  # type: ignore[override]
        is_mode_set: Callable[[], bool] | None = getattr(self.xp._C, "_is_any_autocast_enabled", None)
        return is_mode_set

    def planning_mode(self, device: str) -> str | None:
        """The dtype of ``torch.autocast`` on a device; None if it is off. Programs run outside of it."""
        if "torch" not in sys.modules or self.is_mode_set is None or not self.is_mode_set():
            return None
        kind = device.partition(":")[0] or "cpu"
        try:
            return self.dtype_name(self.xp.get_autocast_dtype(kind)) if self.xp.is_autocast_enabled(kind) else None
        except RuntimeError:  # there is none for this kind of device
            return None

    def autocast_dtype(self, sized: SizedEquation, dtypes: Sequence[str], device: str, mode: str) -> str:
        return autocasting.result_dtype(sized, dtypes, device, mode, self.promote)

    def device(self, array: Array) -> str:
        return str(array.device)

    def dtype_name(self, dtype: Any) -> str:
        try:
            return self._names[dtype]
        except KeyError:
            raise dtype_error(self.name, dtype) from None

    def dtype(self, name: str) -> Any:
        dtype = getattr(self.xp, name, None) if name in _DTYPES else None
        if dtype is None:
            raise dtype_error(self.name, name)
        return dtype

    def promote(self, dtypes: Sequence[str]) -> str:
        try:
            return self.dtype_name(reduce(self.xp.promote_types, map(self.dtype, dtypes)))
        except RuntimeError as error:
            raise BackendError(f"torch does not promote {' and '.join(dtypes)}; pass dtype=") from error

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if like is None:
            return self.xp.as_tensor(value)
        if isinstance(value, list | tuple):
            return self._kernels.nested(value, like.device)
        target = self.dtype(dtype)
        if not adopts(dtype, self._symbols.get(type(value), type(value))):
            # As in torch, a Python scalar only changes the result to another kind of number, in its default dtype.
            target = self.xp.result_type(self.xp.empty(1, dtype=target), value)
        try:
            if type(like) is self.xp.Tensor:
                return self.xp.scalar_tensor(value, dtype=target, device=like.device)
            return self._kernels.traced_number(value, target, like.device)
        except (OverflowError, RuntimeError):  # the cast of a tensor wraps, or makes an infinity of it
            return self.xp.as_tensor(value, device=like.device).to(target)

    def with_size(self, array: Array, axis: int, size: Any, message: str) -> Array:
        actual = array.shape[axis]
        if type(actual) is int and type(size) is int:
            return super().with_size(array, axis, size, message)
        self.xp._check(actual == size, lambda: message)
        return array

    # -- primitives -------------------------------------------------------------------------------------

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.permute(axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)

    def expand(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.expand(shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return array.diagonal(0, axis1, axis2)

    def copy(self, array: Array) -> Array:
        return self._kernels.copied(array)

    def cast(self, array: Array, dtype: str) -> Array:
        steps = array.stride()
        if 0 not in steps:
            return array.to(self.dtype(dtype))
        order = memory_order(steps)  # torch would keep the order, except of expanded axes
        packed = array.permute(order).to(self.dtype(dtype), memory_format=self.xp.contiguous_format)
        return packed.permute(inverse(order))

    def conjugate(self, array: Array, lazily: bool) -> Array:
        if lazily and array.is_contiguous():
            return array.conj()  # sets a bit, which products read
        return self.xp.conj_physical(array).contiguous()

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        dtype = array.dtype
        if dtype is self.xp.bool:
            return array.view(self.xp.uint8).amax(axes).view(dtype)  # an or, seven times as fast as any()
        signed = self._signed.get(dtype)
        if signed is not None:
            return array.view(signed).sum(axes, dtype=signed).view(dtype)
        return array.sum(axes, dtype=dtype)

    def scale(self, array: Array, count: int) -> Array:
        torch, dtype = self.xp, array.dtype
        signed = self._signed.get(dtype)
        if signed is not None:
            return self.scale(array.view(signed), count).view(dtype)
        array = array.contiguous()
        if dtype.is_complex:  # separate parts, because an infinity times a complex number contains nan
            return torch.view_as_complex(torch.view_as_real(array.resolve_conj()) * float(count))
        return array * (float(count) if dtype.is_floating_point else wrapped(count, self._names[dtype]))

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        if kind(dtype) not in "fc":
            return arrays[0].new_zeros(shape, dtype=self.dtype(dtype))
        # Adding a product of empty sums records derivatives of every order, all of them zero. All have an axis, because
        # torch.func.vmap neither multiplies nor adds arrays without axes if its batch is empty.
        result = arrays[0].new_zeros((1, *shape), dtype=self.dtype(dtype))
        sums = [array[None].narrow(0, 0, 0).sum()[None].to(self.dtype(dtype)) for array in arrays]
        return (result + reduce(self.xp.mul, sums)).squeeze(0)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        signed = self._signed.get(lhs.dtype)
        if signed is not None:
            return self.multiply(lhs.view(signed), rhs.view(signed)).view(lhs.dtype)
        return self.xp.mul(lhs, rhs).contiguous()  # mul can keep the memory order of its operands

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        kernel: Callable[..., Array]
        if not all(map(is_known, shapes)):
            return self._traced_kernel(op, shapes, dtype)
        match op:
            case Matmul() if op.sums and dtype in BLAS:
                kernel = self._kernels.product_of_parts(*shapes, dtype)
            case Matmul() if op.sums:
                kernel = self._integers.product(*shapes, dtype, op.sums)
            case Matmul() if dtype in INTEGERS:
                kernel = self._kernels.integer_product(*shapes, dtype)
            case Matmul():
                kernel = self._kernels.product(*shapes, dtype)
            case Multiply():
                kernel = self._kernels.multiply(op.result_shape(shapes), dtype)
            case Cast():
                kernel = self._kernels.cast(super().kernel(op, shapes, dtype), shapes[0], op.dtype)
            case Transpose():
                kernel = methodcaller("permute", op.axes)
            case Reshape():
                kernel = methodcaller("reshape", op.shape)
            case _:
                kernel = super().kernel(op, shapes, dtype)
        return kernel

    def _traced_kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        """The kernel of an op for a graph that serves any size: no choice by size, and no question about a symbol."""
        match op:
            case Matmul() if op.sums:
                return self._integers.any_product(op.sums)  # type: ignore[no-any-return]
            case Matmul():
                return self._kernels.any_product(dtype)  # type: ignore[no-any-return]
            case Cast():
                target = self.dtype(op.dtype)
                return lambda source: source.to(target)
            case Sum() if dtype == "bool":
                return lambda source: source.any(op.axes)  # amax() takes no axis of size 0
            case _:
                return super().kernel(op, shapes, dtype)

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        match op:
            case Matmul() if op.sums and operands[0].dtype not in BLAS:
                return narrow_workspace(operands)
            case Matmul() if op.sums and operands[1].shape[-1] == 1:  # the parts of a product with a vector
                return 2 * operands[0].shape[-2] * itemsize(operands[0].dtype)
            case Matmul() if operands[0].dtype in INTEGERS and device.startswith("cuda"):
                return digits_workspace(operands)
            case Matmul():
                return product_workspace(operands, device.partition(":")[0] in ("", "cpu"))
            case Multiply():
                return multiply_workspace(operands, op.result_shape([operand.shape for operand in operands]))
            case Sum() if operands[0].dtype in HALVES:
                return half_sum_workspace(operands[0], op.axes)
            case _:
                return 0

    def public_class(self) -> type[Adapter]:
        return _PublicTorch

    # -- torch's own einsum -----------------------------------------------------------------------------

    def names(self) -> Iterable[Name]:
        return patch.names()

    def has_values(self, array: Array) -> bool:
        # Waiting for a stream that a graph is captured from is an error.
        return super().has_values(array) and not (array.is_cuda and self.xp.cuda.is_current_stream_capturing())

    def lasting(self, arrays: Sequence[Array]) -> AbstractContextManager[Any] | None:
        if any(array.is_cuda for array in arrays) and self.xp.cuda.is_current_stream_capturing():
            return None
        context: AbstractContextManager[Any] | None = self._kernels.lasting(arrays)
        return context

    # -- to and from the host ----------------------------------------------------------------------------

    def from_numpy(self, array: Any, device: str = "") -> Array:
        return self.xp.as_tensor(array, device=device or None)

    def to_numpy(self, array: Array) -> Any:
        return array.detach().resolve_conj().resolve_neg().cpu().numpy()

    def synchronize(self, array: Array) -> None:
        if array.device.type == "cuda":
            self.xp.cuda.current_stream(array.device).synchronize()  # not the stream that copies to the device


class _PublicTorch(TorchAdapter):
    """torch's functions in the place of kernels."""

    @cached_property
    def semirings(self) -> Semirings:
        functions: Semirings = imported("einsumx.backends.torch.semirings").PublicSemirings(self)
        return functions

    def copy(self, array: Array) -> Array:
        return array.clone(memory_format=self.xp.contiguous_format)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        if array.dtype.kind in "iu":
            return super().sum(array, axes)
        return array.any(axes) if array.dtype.kind == "b" else array.sum(axes)


class _Writeable:
    """Makes torch accept a read-only NumPy array without a warning, for a tensor that is only read."""

    def __init__(self, array: Any) -> None:
        pointer, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (pointer, False)}
        self._array = array  # keeps the memory alive

    def view(self) -> Any:
        return import_module("numpy").asarray(self)


def _packed_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor as if its expanded axes were stored, as the outermost axes.

    With strides of 0 the planner would use one slice for all. The result would be right, but the derivative by the
    expanded tensor would be that of one slice.
    """
    packed = list(strides)
    step = 2 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    for axis in reversed(range(len(packed))):
        if packed[axis] == 0:
            packed[axis] = step
            step *= max(shape[axis], 1)
    return tuple(packed)


def _may_share(out: Array, result: Array) -> bool:
    """Whether ``result`` may share memory with ``out``: a pure rearrangement returns a view of an operand.

    Two storages can have the same memory, such as those of two tensors made of one NumPy array, or mapped from a file.
    """
    try:
        storage, other = out.untyped_storage(), result.untyped_storage()
        start, other_start = storage.data_ptr(), other.data_ptr()
        if start < other_start + other.nbytes() and other_start < start + storage.nbytes():
            (start, stop), (other_start, other_stop) = _addresses(out), _addresses(result)
            return start < other_stop and other_start < stop
    except RuntimeError:  # torch.compile's tensors have no address
        return True
    if not out.is_cpu or _is_allocated(storage) or _is_allocated(other):
        return False
    return result.nbytes <= _SMALL or maps.share_file_at(_addresses(out), _addresses(result))


_SMALL = 1 << 20
"""Copying so many bytes takes less time than to ask the system what is mapped."""


def _is_allocated(storage: Any) -> bool:
    """Whether torch allocated the memory of a storage for this process alone, so that no other one maps it."""
    return storage.resizable() and not storage.is_shared()


def _addresses(tensor: Array) -> tuple[int, int]:
    """The first address of a tensor's elements, and the one after the last."""
    start = tensor.data_ptr()
    span = sum([(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())])
    return start, start + (span + 1) * tensor.element_size()


def einsum(request: Request) -> Any:
    """A proxy of ``torch.fx`` for the result: the graph calls the same function of einsumx on the same arguments.

    Errors come when the graph runs, because proxies have neither shapes nor dtypes.
    """
    function, first, keywords = request.call()
    operands = tuple(request.operands)
    arguments = *first, *joined(request.written, operands)
    return ADAPTER.xp.overrides.handle_torch_function(function, (*first, *operands), *arguments, **keywords)


ADAPTER = TorchAdapter()
