"""CuPy: NumPy's adapter for arrays on CUDA devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property, wraps
from itertools import product
from math import prod
from operator import itemgetter
from typing import Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.facets import Arithmetic, Exponents, OutAccess
from einsumx.adapters.gpus import A100, Gpu, gpu_rates
from einsumx.adapters.operand_types import dtype_error, wrong_type_error
from einsumx.adapters.staging import Event, Ring, copy_stream
from einsumx.backends.numpy.adapter import NumpyAdapter
from einsumx.backends.numpy.parts import NumpyArithmetic, NumpyBlocks, NumpyNames, NumpyOrders, NumpyOut
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError
from einsumx.imports import imported
from einsumx.ir.layout import broadcast
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Matmul, Multiply, Op, Sum
from einsumx.ir.program import Program
from einsumx.ir.rates import Rates
from einsumx.ir.traits import INTEGERS, Layouts, Traits

_DTYPES = INTEGERS | {"bool", "float16", "float32", "float64", "complex64", "complex128"}


class CupyTraits(Traits):
    """Traits of matrix products that copy operands which have gaps."""

    __slots__ = ()

    def layouts(self, dtype: str) -> Layouts:
        # cupy/_core/_routines_linalg.pyx: dot() copies what is neither C- nor F-contiguous (_mat_to_cublas_contiguous),
        # matmul() passes three axes or more through ascontiguousarray(), and kernels for integers take C order alone.
        return Layouts("C" if dtype in INTEGERS else "contiguous", "C")


TRAITS = CupyTraits(
    dtypes=_DTYPES,
    matmul_dtypes=_DTYPES - {"bool"},
    matmul_through=(("bool", "float32"),),
    # The same file, tensordot_core_v11(): float16 accumulates in float32, and CUPY_TF32 rounds factors to 11 bits.
    # matmul() casts batches of float16 to float32, and casts the result back; plans do that themselves. So they do for
    # products of vectors, which are multiplied in float16 and summed (tensordot_core() with the accelerator cub), and
    # for sums, which CUB may accumulate in float16 (cupy/cuda/cupy_cub.cu).
    exact_products=(("float32", 11), ("float64", 53)),
    widen=(("float16", "float32"),),
    wide_ops=frozenset({"matmul"}),
    rates=gpu_rates(A100, Rates(call=1.3e-5, view=0.8e-6)),  # as on the host of an H200
)


def _on_device(method: Callable[..., Any], at: int = 0) -> Callable[..., Any]:
    """A method on the device of the array that is argument number ``at``."""

    @wraps(method)
    def on_device(self: Any, *arguments: Any) -> Any:
        with arguments[at].device:
            return method(self, *arguments)

    return on_device


class CupyBlocks(NumpyBlocks):
    """Blocks on the devices of arrays."""

    def in_place(self, array: Any) -> None:
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        with self.adapter._device(device):
            return self.xp.empty(shape, self.adapter.dtype(dtype))

    def free_bytes(self, device: str) -> int | None:
        try:
            with self.adapter._device(device):
                # CuPy's pool can reuse the memory that it caches.
                return int(self.xp.cuda.runtime.memGetInfo()[0] + self.xp.get_default_memory_pool().free_bytes())
        except RuntimeError:  # there is no driver, or no such device
            return None

    def move(self, array: Array, device: str) -> Array:
        if device in ("", self.adapter.device(array)):
            return array
        with array.device:  # CuPy refuses to copy an array with gaps to another device
            array = self.xp.ascontiguousarray(array).reshape(array.shape)
            self.adapter.synchronize(array)
        with self.adapter._device(device):
            moved = array.copy()
        self.adapter.synchronize(moved)
        return moved

    def ring(self, device: str) -> Ring | None:
        fill = imported("einsumx.backends.numpy.kernels").copy_into
        return Ring(_Uploads(self.xp, self.adapter._device(device)), fill)

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        cuda = self.xp.cuda
        streams = [cuda.get_current_stream(number) for number in range(cuda.runtime.getDeviceCount())]

        def on_streams(*arguments: Any) -> Any:
            with ExitStack() as stack:
                for number, stream in enumerate(streams):
                    with cuda.Device(number):
                        stack.enter_context(stream)
                return function(*arguments)

        return on_streams


class CupyOrders(NumpyOrders):
    """Memory orders of arrays on their devices."""

    arrange = _on_device(NumpyOrders.arrange)


class CupyExponents(Exponents):
    """The largest elements, found on the device."""

    def magnitudes(self, array: Array) -> Any:
        if not array.size:
            return self.adapter.to_numpy(array)
        xp = self.xp
        with array.device:
            parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
            finite = [xp.where(xp.isfinite(part), part, 0) for part in parts]
            bounds = self.adapter.to_numpy(xp.stack([bound for part in finite for bound in (part.max(), part.min())]))
            if len(parts) == 1 or bool(xp.stack([xp.isfinite(part).all() for part in parts]).all()):
                return bounds
        return bounds * complex("nan")  # complex arrays with an infinity or nan have the exponent 0


class CupySemirings(NumpyNames):
    """CuPy's functions, on the device of the arrays."""

    def elementwise(self, name: str, lhs: Array, rhs: Array) -> Array:
        with lhs.device:
            return super().elementwise(name, lhs, rhs)

    def copied_order(self, array: Array) -> Array:
        return array if array.flags.c_contiguous else self.xp.ascontiguousarray(array)


class CupyOut(NumpyOut):
    """Arrays that are written to on their devices."""

    update = OutAccess.update
    write_new = OutAccess.write_new
    written = OutAccess.written

    def check(self, out: Array, operands: Sequence[Array]) -> None:
        if out.size and any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.strides)):
            raise BackendError("out= is a broadcast array, whose elements share memory; pass out.copy()")

    def kernel_into(
        self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str, out: Signature
    ) -> Callable[..., object] | None:
        xp = self.xp
        match op:
            case Multiply():
                return xp.multiply  # type: ignore[no-any-return]
            case Sum() if dtype != "bool":
                return lambda array, out: array.sum(op.axes, dtype, out)
            case Matmul() if [len(shape) for shape in shapes] == [2, 2]:
                # dot() writes to contiguous arrays alone. Batches are copied in matmul() itself.
                return lambda lhs, rhs, out: (
                    xp.dot(lhs, rhs, out) if out.flags.c_contiguous else xp.copyto(out, xp.dot(lhs, rhs))
                )
        return None

    def may_overlap(self, out: Array, array: Array) -> bool:
        return bool(self.xp.may_share_memory(out, array))

    def write(self, out: Array, result: Array) -> None:
        with out.device:
            self.xp.copyto(out, result, casting="unsafe")


class CupyArithmetic(NumpyArithmetic):
    """Arithmetic on the devices of arrays."""

    scaled = _on_device(Arithmetic.scaled)
    scaled_new = scaled
    combined = _on_device(Arithmetic.combined, at=1)

    def number(self, value: Any, dtype: str, like: Array) -> Any:
        # An argument of the kernel: an array would be copied to the device.
        return self.adapter.dtype(dtype).type(value)


class CupyAdapter(NumpyAdapter):
    """CuPy arrays. Daily tests use a fake of CuPy; docs/gpu.md has what ran on a GPU.

    CuPy allocates on the current device, so a call is made on the device of its operands: a plan as a whole, any other
    call by itself.
    """

    name = "cupy"
    module = "cupy"
    import_statement = "import cupy as cp"
    install = "pip install cupy-cuda12x"
    cpu = TRAITS
    device_kinds = ("cuda",)
    # The kernels of the NumPy adapter run on the CPU.
    kernel = Adapter.kernel
    plain = _on_device(NumpyAdapter.plain)
    copy = _on_device(NumpyAdapter.copy)
    blocks = cached_property(CupyBlocks)
    out = cached_property(CupyOut)
    arithmetic = cached_property(CupyArithmetic)
    exponents = cached_property(CupyExponents)
    orders = cached_property(CupyOrders)
    semirings = cached_property(CupySemirings)

    def check_type(self, kind: type) -> None:
        if not issubclass(kind, self.xp.ndarray):
            raise wrong_type_error(kind, "cupy.ndarray")

    def signature(self, array: Array) -> Signature:
        return type(array), array.shape, array.dtype, array.strides, array.device.id

    kind_of = staticmethod(itemgetter(0, 2, 4))

    def device_of(self, signature: Signature) -> str:
        return f"cuda:{signature[4]}"

    def device(self, array: Array) -> str:
        return f"cuda:{array.device.id}"

    def device_model(self, device: str) -> str:
        name: bytes = self.xp.cuda.runtime.getDeviceProperties(self._device(device).id)["name"]
        return name.decode(errors="replace")

    def gpu(self, device: str) -> Gpu | None:
        runtime = self.xp.cuda.runtime
        if runtime.is_hip:
            return None
        try:
            found, capability = self._device(device).attributes, self._device(device).compute_capability
        except runtime.CUDARuntimeError:  # there is no GPU, or no driver
            return None
        return Gpu.of_properties(
            (int(capability[:-1]), int(capability[-1])),
            found["MultiProcessorCount"],
            found["ClockRate"],
            found["MemoryClockRate"],
            found["GlobalMemoryBusWidth"],
        )

    def dtype_name(self, dtype: Any) -> str:
        name = super().dtype_name(dtype)
        if name not in _DTYPES:
            raise dtype_error(self.name, name)
        return name

    def mode(self, array: Array) -> AbstractContextManager[Any]:
        device: AbstractContextManager[Any] = array.device
        return device

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        return self.from_numpy(value, "" if like is None else self.device(like))

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return array.diagonal(0, axis1, axis2)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.any(axes) if array.dtype.kind == "b" else array.sum(axes, array.dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self.xp.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        matmul = self.xp.matmul
        if max(lhs.ndim, rhs.ndim) < 3 or (lhs.flags.c_contiguous and rhs.flags.c_contiguous):
            return matmul(lhs, rhs)
        # A product of two axes reads matrices in either order, of which matmul would copy a batch.
        batch = broadcast(lhs.shape[:-2], rhs.shape[:-2])
        out = self.xp.empty((*batch, lhs.shape[-2], rhs.shape[-1]), lhs.dtype)
        for place in product(*map(range, batch)):
            matmul(_matrix(lhs, place), _matrix(rhs, place), out=out[place])
        return out

    def workspace(self, op: Op, operands: Sequence[Operand], device: str = "") -> int:
        if not isinstance(op, Matmul):
            return 0
        shapes = [operand.shape for operand in operands]
        size = itemsize(operands[0].dtype)
        if max(map(len, shapes)) < 3:
            # A product of two vectors is multiplied and then summed (tensordot_core with the accelerator cub).
            is_dot = prod(shapes[0][:-1]) == prod(shapes[1][1:]) == 1
            return prod(shapes[0]) * size if is_dot else 0
        batch = broadcast(shapes[0][:-2], shapes[1][:-2])
        broadcasts = any(shape[:-2] != batch for shape in shapes)
        return 2 * 3 * _POINTER * prod(batch) if broadcasts else 0  # _mat_ptrs() for both operands and the result

    def public_class(self) -> type[Adapter]:
        from einsumx.backends.numpy.source import ScaledArrays

        return type("PublicCupy", (ScaledArrays, CupyAdapter), {})

    def prepare(self, run: Run, program: Program) -> Run:
        return self.prepare_plain(run, is_loud=True)

    def prepare_plain(self, run: Run, is_loud: bool) -> Run:
        def run_on_device(*operands: Array) -> Array:
            with operands[0].device:
                return run(*operands)

        return run_on_device

    def element(self, array: Array) -> Array:
        return array  # CuPy has no scalars; reading an element would wait for the device

    def boxed(self, result: Any, dtype: str) -> Array:
        return result

    def _device(self, name: str) -> Any:
        """The device of that name; device 0 if the name is empty."""
        return self.xp.cuda.Device(int(name.partition(":")[2] or 0))

    def from_numpy(self, array: Any, device: str = "") -> Array:
        with self._device(device):
            return self.xp.asarray(array)

    def to_numpy(self, array: Array) -> Any:
        with array.device:
            return self.xp.asnumpy(array)

    def synchronize(self, array: Array) -> None:
        with array.device:
            self.xp.cuda.get_current_stream().synchronize()  # not the stream that copies to the device


_POINTER = 8
"""Bytes of the address of a matrix."""


def _matrix(array: Array, place: tuple[int, ...]) -> Array:
    """The matrix at a place of the batch axes, of which some may broadcast."""
    own = array.shape[:-2]
    return array[tuple([0 if size == 1 else number for size, number in zip(own, place[len(place) - len(own) :])])]


class _Uploads:
    """Copies to one device; see :class:`einsumx.adapters.staging.Uploads`."""

    def __init__(self, xp: Any, device: Any) -> None:
        self._xp, self._device = xp, device

    def register(self, address: int, nbytes: int) -> None:
        with self._device:
            self._xp.cuda.runtime.hostRegister(address, nbytes, 0)

    def unregister(self, address: int) -> None:
        with self._device:
            self._xp.cuda.runtime.hostUnregister(address)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        with self._device, self._stream:
            return self._xp.empty(shape, self._xp.dtype(dtype))

    def copy(self, target: Array, start: int, piece: Any) -> Event:
        with self._device:
            (target.data + start).copy_from_host_async(piece.ctypes.data, piece.nbytes, self._stream)
            event: Event = self._stream.record()
            return event

    @property
    def _stream(self) -> Any:
        return copy_stream(_new_stream, self._xp, self._device.id)


def _new_stream(xp: Any, number: int) -> Any:
    with xp.cuda.Device(number):
        return xp.cuda.Stream(non_blocking=True)


ADAPTER = CupyAdapter()
