"""How einsumx describes MXNet's arrays: versions, dtypes, devices, and conversions from and to Python and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property
from importlib import import_module
from typing import Any

from einsumx.adapters.arrays import Arrays
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.typing import Array, Signature
from einsumx.backends.mxnet.choices import AROUND_BATCH, swaps
from einsumx.backends.mxnet.importing import installed_version, load
from einsumx.backends.mxnet.kernels import Calls
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError, shown
from einsumx.ir.rates import Rates
from einsumx.ir.traits import Traits

_DTYPES = frozenset({"bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"})

TRAITS = Traits(
    arrays="packed",
    views=False,
    max_batch_axes=1,
    transpose_flags=True,
    dtypes=_DTYPES,
    outer_by_matmul=True,
    matmul_dtypes=frozenset({"float32", "float64"}),
    matmul_through=(("bool", "float32"),),
    widen=(("float16", "float32"),),
    native_dtypes=_DTYPES,
    native_max_labels=10,
    native_max_operands=15,
    rates=Rates(
        call=25e-6, view=4e-6, matrix=0.15e-6, gemm=30e9, stream=10e9, copy=10e9, permute=2.5e9, run=10e-9, native=100e6
    ),
)


class Mxnet1Traits(Traits):
    """Traits of MXNet 1 on the CPU, which multiplies matrices whose rows are not adjacent."""

    __slots__ = ()

    def einsum_factor(self, equation: str) -> float | None:
        return 1.3 if equation in AROUND_BATCH else None


MXNET_1 = Mxnet1Traits(**{each.name: getattr(TRAITS, each.name) for each in fields(TRAITS)})


class MxnetArrays(Arrays):
    """Arrays of MXNet 1.9 and 2.0."""

    name = "mxnet"
    module = "mxnet"
    import_statement = "import mxnet as mx"
    install = "pip install mxnet==1.9.1 numpy==1.23.5"
    cpu = TRAITS
    device_kinds = ("cpu", "gpu")

    # -- MXNet ------------------------------------------------------------------------------------------

    @cached_property
    def mx(self) -> Any:
        """The top-level module."""
        return load()

    @cached_property
    def xp(self) -> Any:
        return self.mx.np

    @cached_property
    def npx(self) -> Any:
        """The functions of ``mx`` that NumPy lacks."""
        return self.mx.npx

    @cached_property
    def calls(self) -> Calls:
        """Prepares calls of MXNet's operators."""
        return Calls(self.mx)

    def is_tracing(self) -> bool:
        """Whether MXNet 2 traces a block."""
        return not self.calls.mxnet_1 and bool(self.mx._deferred_compute.is_deferred_compute())

    @cached_property
    def _has_mxnet_1(self) -> bool:
        """Whether MXNet 1 is installed. For plans of shapes, which import nothing."""
        return installed_version().startswith("1.")

    def traits(self, device: str) -> Traits:
        return MXNET_1 if device in ("", "cpu") and self._has_mxnet_1 else self.cpu

    def swaps(self, axes: Sequence[int]) -> list[tuple[int, int]]:
        """The swaps of two axes to use instead of a transpose, if they are faster."""
        return swaps(axes, mxnet_1=self.calls.mxnet_1)

    # -- types and devices ------------------------------------------------------------------------------

    def check_type(self, kind: type) -> None:
        if issubclass(kind, (self.xp.ndarray, self.mx.sym.np._Symbol)):
            return
        advice = "einsum takes mx.np arrays and mx.sym.np symbols; convert it with .as_np_ndarray()"
        if kind is self.mx.nd.NDArray:
            advice = "einsum takes mx.np arrays; convert it with .as_np_ndarray(), which copies nothing"
        elif issubclass(kind, self.mx.nd.NDArray):
            advice = "einsum takes mx.np arrays; convert it with .tostype('default').as_np_ndarray()"
        raise BackendError(f"an operand is a {type_name(kind)}: {advice}")

    def signature(self, array: Array) -> Signature:
        shape, dtype = self._describe(array)
        return type(array), shape, dtype, self.device(array)

    @cached_property
    def _describe(self) -> Callable[[Array], tuple[tuple[int, ...], Any]]:
        return self.calls.describe

    @cached_property
    def _has_gpus(self) -> bool:
        return bool(self.mx.context.num_gpus())

    def device(self, array: Array) -> str:
        if not self._has_gpus:  # reading an array's context takes microseconds
            return "cpu"
        context = array.ctx if self.calls.mxnet_1 else array.device
        device_type = context.device_type
        return "cpu" if device_type.startswith("cpu") else f"{device_type}:{context.device_id}"

    def context(self, device: str) -> Any:
        """MXNet's object for a device; None, for the default device, if the name is empty."""
        device_type, _, number = device.partition(":")
        return self.mx.Context(device_type, int(number or 0)) if device_type else None

    # -- dtypes -----------------------------------------------------------------------------------------

    def dtype_name(self, dtype: Any) -> str:
        try:
            name = str(import_module("numpy").dtype(dtype).name)
        except TypeError:  # NumPy has no such dtype
            name = str(dtype)
        return self.dtype(name)

    def dtype(self, name: str) -> str:
        if name not in _DTYPES:
            raise BackendError(f"mxnet: einsum does not support dtype {shown(name)}, only {', '.join(sorted(_DTYPES))}")
        return name

    def promote(self, dtypes: Sequence[str]) -> str:
        """The dtype of a product, as ``mx.np.multiply`` promotes.

        bool gives way to every other dtype, any float to a wider float, an integer to any float (int64 with float16 is
        float16) and to a wider integer.
        """
        names = {self.dtype(name) for name in dtypes} - {"bool"} or {"bool"}
        floats = {name for name in names if kind(name) == "f"}
        if names == {"int8", "uint8"}:
            raise BackendError("mxnet does not promote int8 and uint8; cast one of them, or pass dtype='int32'")
        return max(floats or names, key=itemsize)

    # -- from Python and NumPy, and back ------------------------------------------------------------------

    def scalar(self, value: complex | Sequence[Any], like: Array, dtype: str) -> Array:
        host = import_module("numpy").asarray(value)
        promoted = dtype or "float32"
        target = {
            "b": "bool",
            "i": "int64" if like is None or promoted == "bool" else promoted,
            "f": promoted if kind(promoted) == "f" else "float32",
        }.get(host.dtype.kind)
        if target is None:
            raise BackendError(
                f"mxnet does not support {host.dtype}, the dtype of {shown(value)}; pass numbers of another dtype"
            )
        array = host.astype(target)
        if kind(target) in "iu" and (array != host).any():
            raise BackendError(f"{shown(value)} does not fit dtype {target} of the other operands; pass an array")
        return self.from_numpy(array, "cpu" if like is None else self.device(like))

    def from_numpy(self, array: Any, device: str = "") -> Array:
        with self.mx.util.np_shape(True):
            return self.xp.array(array, dtype=self.dtype_name(array.dtype), ctx=self.context(device))

    def to_numpy(self, array: Array) -> Any:
        return array.asnumpy()
