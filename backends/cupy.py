"""CuPy: NumPy's adapter for arrays on CUDA devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from einsumx.adapters.base import Adapter, Array, Run, Signature
from einsumx.adapters.dialect import Spelling
from einsumx.adapters.operand_types import wrong_type_error
from einsumx.adapters.rates import Rates
from einsumx.adapters.staging import Event, Ring
from einsumx.adapters.traits import INTEGERS
from einsumx.backends.numpy.adapter import TRAITS as NUMPY
from einsumx.backends.numpy.adapter import NumpyAdapter
from einsumx.errors import BackendError
from einsumx.ir.ops import Op
from einsumx.ir.program import Program

__all__ = ["ADAPTER", "CupyAdapter"]

TRAITS = replace(
    NUMPY,
    native_dtypes=frozenset(),
    wide_products=(),
    matrix_layout="contiguous",
    batch_layout="C",
    packed_dtypes=INTEGERS,
    matmul_dtypes=NUMPY.matmul_dtypes - {"float128", "complex256", "object"},
    rates=Rates(call=1e-5, matrix=1e-8, gemm=1e13, stream=1e12, copy=1e12, permute=5e11, run=1e-12),
)


class CupyAdapter(NumpyAdapter):
    """CuPy arrays. Written from CuPy's documentation; tested on a stand-in only, not on a GPU."""

    name = "cupy"
    module = "cupy"
    install = "pip install cupy-cuda12x"
    out_of_memory = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    cpu = TRAITS
    device_kinds = ("cuda",)
    verified = False
    semiring_names = MappingProxyType({"concat": "concatenate"})
    elementwise = Adapter.elementwise  # the kernels of the NumPy adapter run on the CPU
    reduced = Adapter.reduced
    semiring_product = Adapter.semiring_product
    semiring_workspace = Adapter.semiring_workspace

    def check_type(self, kind: type) -> None:
        if not issubclass(kind, self.xp.ndarray):
            raise wrong_type_error(kind, "cupy.ndarray")

    def signature(self, array: Array) -> Signature:
        return type(array), array.shape, array.dtype, array.strides, array.device.id

    def device_of(self, signature: Signature) -> str:
        return f"cuda:{signature[4]}"

    def device(self, array: Array) -> str:
        return f"cuda:{array.device.id}"

    def device_model(self, device: str) -> str:
        runtime = self.xp.cuda.runtime
        name: bytes = runtime.getDeviceProperties(runtime.getDevice())["name"]
        return name.decode(errors="replace")

    def _mode(self, array: Array) -> Any:
        return array.device

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        if like is None:
            return self.xp.asarray(value)
        with like.device:
            return self.xp.asarray(value)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return array.diagonal(0, axis1, axis2)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.any(axes) if array.dtype.kind == "b" else array.sum(axes, array.dtype)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self.xp.multiply(lhs, rhs)

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        return Adapter.kernel(self, op, shapes, dtype)  # the kernels of the NumPy adapter run on the CPU

    def spelling(self) -> Spelling:
        from einsumx.backends.numpy.source import CupySpelling

        return CupySpelling(self.module, "cp")

    def prepare(self, run: Run, program: Program) -> Run:
        def run_on_device(*operands: Array) -> Array:
            with operands[0].device:
                return run(*operands)

        return run_on_device

    def element(self, array: Array) -> Array:
        return array  # CuPy has no scalars; reading an element would wait for the device

    def arrange(self, array: Array, order: str) -> Array:
        with array.device:
            return super().arrange(array, order)

    def check_out(self, out: Array, operands: Sequence[Array]) -> None:
        if any(size > 1 and stride == 0 for size, stride in zip(out.shape, out.strides)):
            raise BackendError("out= is a broadcast array: several of its elements share one place in memory")

    def copied_order(self, array: Array) -> Array:
        return self.xp.ascontiguousarray(array)

    def boxed(self, result: Any, dtype: str) -> Array:
        return result

    def write(self, out: Array, result: Array) -> None:
        with out.device:
            self.xp.copyto(out, result, casting="unsafe")

    def scaled(self, array: Array, factor: Any, dtype: str) -> Array:
        with array.device:
            return super().scaled(array, factor, dtype)

    def scaled_new(self, array: Array, factor: Any, dtype: str) -> Array:
        return self.scaled(array, factor, dtype)

    def update(self, alpha: Any, result: Array, beta: Any, out: Array, dtype: str) -> None:
        with out.device:
            self.write_new(out, self.combined(alpha, result, beta, out, dtype))

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        with self._device(device):
            return self.xp.empty(shape, self.dtype(dtype))

    def free_bytes(self, device: str) -> int | None:
        with self._device(device):
            # CuPy's pool can reuse the memory that it caches.
            return int(self.xp.cuda.runtime.memGetInfo()[0] + self.xp.get_default_memory_pool().free_bytes())

    def _device(self, name: str) -> Any:
        """The device of that name; device 0 if the name is empty."""
        return self.xp.cuda.Device(int(name.partition(":")[2] or 0))

    def from_numpy(self, array: Any, device: str = "") -> Array:
        with self._device(device):
            return self.xp.asarray(array)

    def to_numpy(self, array: Array) -> Any:
        return self.xp.asnumpy(array)

    def move(self, array: Array, device: str) -> Array:
        return array if device in ("", self.device(array)) else self.from_numpy(array, device)

    def ring(self, device: str) -> Ring | None:
        return Ring(_Uploads(self.xp, self._device(device)))

    def synchronize(self, array: Array) -> None:
        with array.device:
            self.xp.cuda.get_current_stream().synchronize()  # not the stream that copies to the device


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
        return _stream(self._xp, self._device.id)


@lru_cache(maxsize=64)
def _stream(xp: Any, number: int) -> Any:
    """The stream for copies to a device: always the same one, because freed memory stays with its stream."""
    with xp.cuda.Device(number):
        return xp.cuda.Stream(non_blocking=True)


ADAPTER = CupyAdapter()
