"""The array libraries that the suite knows. They do not use einsumx's adapters, because the suite judges those."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np

from einsumx.adapters.registry import get_backend
from einsumx.conformance.case import ArraySpec, NotApplicable
from einsumx.conformance.framework import DTYPES, FILLER, AdapterFramework, Array, Framework, Function
from einsumx.dtypes import kind
from einsumx.errors import BackendError
from einsumx.mxnet import load

__all__ = ["KNOWN", "framework_of"]

_VIEWS = ("C", "F", "swapped", "sliced", "offset", "broadcast", "broadcast-last")


class NumpyFramework(Framework):
    """NumPy."""

    name = module = "numpy"
    layouts = (*_VIEWS, "negative", "unaligned", "byteswapped", "readonly")
    memory_order = True
    views = True
    # Other packages add bfloat16, so that testing for it would depend on which of them was imported.
    dtypes = tuple(dtype for dtype in DTYPES if dtype != "bfloat16")
    imports = ()
    code = "np.array({values}, {dtype!r})"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        return np.array(values, dtype, order="C")

    def values(self, array: Array) -> Any:
        return np.array(array)

    def dtype(self, array: Array) -> str:
        return str(array.dtype.name)

    def is_array(self, array: Any) -> bool:
        return isinstance(array, np.ndarray | np.generic)

    def fill(self, array: Array, values: Any) -> None:
        array[...] = values

    def promote(self, first: str, second: str) -> str | None:
        return str(np.result_type(first, second).name)

    def special(self, values: Any, spec: ArraySpec, device: str) -> Array:
        array = np.array(values, spec.dtype, order="C")
        match spec.layout:
            case "unaligned":
                memory = np.empty(array.nbytes + 1, "uint8")
                memory[1:] = array.reshape(-1).view("uint8")
                return memory[1:].view(spec.dtype).reshape(array.shape)
            case "byteswapped":
                return array.astype(array.dtype.newbyteorder())
            case _:
                array.flags.writeable = False
                return array


class CupyFramework(Framework):
    """CuPy, on a GPU."""

    name = module = "cupy"
    layouts = (*_VIEWS, "negative")
    memory_order = True
    views = True
    imports = ("import cupy",)
    code = "cupy.array({values}, {dtype!r})"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        with self.xp.cuda.Device(int(device.partition(":")[2] or 0)):
            return self.xp.array(values, dtype, order="C")

    def values(self, array: Array) -> Any:
        return self.xp.asnumpy(array)

    def device(self, array: Array) -> str:
        return f"cuda:{array.device.id}"

    def is_array(self, array: Any) -> bool:
        return isinstance(array, self.xp.ndarray)

    def fill(self, array: Array, values: Any) -> None:
        with array.device:
            array[...] = self.xp.asarray(values, array.dtype)

    def promote(self, first: str, second: str) -> str | None:
        return str(self.xp.result_type(first, second).name)

    def other_devices(self, device: str) -> tuple[str, ...]:
        here = int(device.partition(":")[2] or 0)
        return tuple(f"cuda:{k}" for k in range(self.xp.cuda.runtime.getDeviceCount()) if k != here)

    def synchronize(self, array: Array) -> None:
        array.device.synchronize()


class TorchFramework(Framework):
    """PyTorch."""

    name = module = "torch"
    layouts = (*_VIEWS, "conjugated", "negated")
    memory_order = True
    views = True
    transforms = ("compile", "vmap")
    gradient_dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    adds_gradients = True
    second_order = True
    conjugates_gradients = True
    imports = ("import torch",)
    code = "torch.tensor({values}, dtype=torch.{dtype})"

    def transpose_code(self, array: str, axes: tuple[int, ...]) -> str:
        return f"{array}.permute({axes})"

    def moved_code(self, name: str, device: str) -> str:
        return f"{name} = {name}.to({device!r})"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        tensor = self.xp.from_numpy(np.array(values, "float32" if dtype == "bfloat16" else dtype, order="C"))
        return tensor.to(device=device or None, dtype=getattr(self.xp, dtype))

    def values(self, array: Array) -> Any:
        array = array.detach().resolve_conj().resolve_neg().cpu()
        return np.array((array.float() if array.dtype == self.xp.bfloat16 else array).numpy())

    def device(self, array: Array) -> str:
        return str(array.device)

    def is_array(self, array: Any) -> bool:
        return isinstance(array, self.xp.Tensor)

    def has_values(self, array: Array) -> bool:
        return not array.is_meta

    def strides(self, array: Array) -> tuple[int, ...]:
        return tuple(array.stride())

    def fill(self, array: Array, values: Any) -> None:
        array.copy_(self.xp.as_tensor(values))

    def promote(self, first: str, second: str) -> str | None:
        with suppress(RuntimeError):
            return str(self.xp.promote_types(getattr(self.xp, first), getattr(self.xp, second))).rpartition(".")[2]
        return None

    def other_devices(self, device: str) -> tuple[str, ...]:
        here = self.device(self.array(0, "float32", device))
        names = ["cpu", "meta", *(f"cuda:{k}" for k in range(self.xp.cuda.device_count()))]
        return tuple(name for name in names if name != here)

    def transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.permute(axes)

    def broadcast(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.expand(shape)

    def special(self, values: Any, spec: ArraySpec, device: str) -> Array:
        family = kind(spec.dtype)
        if family in "bu" if spec.layout == "negated" else family != "c":
            raise NotApplicable(f"no operation is pending on a {spec.layout} {spec.dtype}")
        # The array has these values once the pending operation is done.
        if spec.layout == "conjugated":
            return self.array(np.conj(values), spec.dtype, device).conj()
        return self.xp._neg_view(self.array(-values, spec.dtype, device))

    def synchronize(self, array: Array) -> None:
        if array.device.type == "cuda":
            self.xp.cuda.synchronize(array.device)

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        arrays = [array.detach().requires_grad_() for array in arrays]
        return list(self.xp.autograd.grad(function(*arrays), arrays, cotangent))

    def added_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, before: Sequence[Array]
    ) -> list[Array]:
        arrays = [array.detach().requires_grad_() for array in arrays]
        for array, gradient in zip(arrays, before):
            array.grad = gradient
        function(*arrays).backward(cotangent)
        return [array.grad for array in arrays]

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        grad = self.xp.autograd.grad
        arrays = [array.detach().requires_grad_() for array in arrays]
        (first,) = grad(function(*arrays), arrays[by], cotangent, create_graph=True)
        # The gradient by an array on which the first gradient does not depend is zero.
        return list(grad(first, arrays, direction, allow_unused=True, materialize_grads=True))

    def transformed(self, transform: str, function: Function) -> Function:
        # With fullgraph, a graph break is an error. This compiler needs no other tools.
        self.xp._dynamo.reset()
        compiled: Function = self.xp.compile(function, fullgraph=True, backend="aot_eager")
        return compiled

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        return self.xp.vmap(function, in_dims=axes)  # type: ignore[no-any-return]


class JaxFramework(Framework):
    """JAX."""

    name = module = "jax"
    immutable = "jax arrays are immutable"
    transforms = ("jit", "vmap")
    second_order = True
    differentiates_eagerly = False
    imports = ("import jax.numpy as jnp",)
    code = "jnp.array({values}, {dtype!r})"

    @cached_property
    def xp(self) -> Any:
        return import_module("jax.numpy")

    @cached_property
    def _jax(self) -> Any:
        return import_module("jax")

    @property
    def gradient_dtypes(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dtype for dtype in self.dtypes if "float" in dtype or "complex" in dtype)

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        platform, _, number = device.partition(":")
        place = self._jax.devices(platform)[int(number or 0)] if device else None
        return self._jax.device_put(self.xp.array(values, dtype=dtype), place)

    def values(self, array: Array) -> Any:
        return np.array(array.astype("float32") if array.dtype == self.xp.bfloat16 else array)

    def device(self, array: Array) -> str:
        return ",".join(sorted(f"{device.platform}:{device.id}" for device in array.devices()))

    def is_array(self, array: Any) -> bool:
        return isinstance(array, self._jax.Array)

    def promote(self, first: str, second: str) -> str | None:
        return str(self.xp.promote_types(first, second).name)

    def other_devices(self, device: str) -> tuple[str, ...]:
        here = self.device(self.array(0, "float32", device))
        return tuple(name for d in self._jax.devices() if (name := f"{d.platform}:{d.id}") != here)

    def synchronize(self, array: Array) -> None:
        array.block_until_ready()

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        return list(self._jax.vjp(function, *arrays)[1](cotangent))

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        def first(*arrays: Array) -> Array:
            return self.gradients(function, arrays, cotangent)[by]

        return self.gradients(first, arrays, direction)

    def transformed(self, transform: str, function: Function) -> Function:
        compiled: Function = self._jax.jit(function)
        return compiled

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        mapped: Function = self._jax.vmap(function, in_axes=axes)
        return mapped


class ArrayApiFramework(Framework):
    """array-api-strict, which implements only the array API standard, with simulated devices."""

    name = "array_api"
    module = "array_api_strict"
    layouts = (*_VIEWS, "negative")  # of the underlying NumPy arrays
    imports = ("import array_api_strict as xp",)
    code = "xp.asarray(np.array({values}, {dtype!r}))"

    def transpose_code(self, array: str, axes: tuple[int, ...]) -> str:
        return f"xp.permute_dims({array}, {axes})"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        place = self.xp.Device(device) if device else None
        return self.xp.asarray(np.array(values, dtype, order="C"), copy=True, device=place)

    def values(self, array: Array) -> Any:
        return np.array(self._host(array))

    def _host(self, array: Array) -> Any:
        """The underlying NumPy array, which array-api-strict exports only from its CPU device."""
        return array._array

    def device(self, array: Array) -> str:
        return str(array.device).split("'")[1]  # of array_api_strict.Device('CPU_DEVICE')

    def is_array(self, array: Any) -> bool:
        return isinstance(array, type(self.xp.asarray(0)))

    def fill(self, array: Array, values: Any) -> None:
        self._host(array)[...] = values

    def promote(self, first: str, second: str) -> str | None:
        with suppress(TypeError):
            return str(self.xp.result_type(getattr(self.xp, first), getattr(self.xp, second))).rpartition(".")[2]
        return None

    def other_devices(self, device: str) -> tuple[str, ...]:
        return tuple(name for name in ("CPU_DEVICE", "device1", "device2") if name != (device or "CPU_DEVICE"))

    def transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self.xp.permute_dims(array, axes)


class MxnetFramework(Framework):
    """MXNet's ``mx.np``, of 1.9.1 and 2.0."""

    name = module = "mxnet"
    gradient_dtypes = ("float16", "float32", "float64")
    adds_gradients = True
    transforms = ("hybridize",)
    imports = ("import mxnet as mx",)
    code = "mx.np.array({values}, dtype={dtype!r})"

    @cached_property
    def mx(self) -> Any:
        """The top-level module."""
        # This engine raises errors in the call that causes them, not in a later, unrelated wait.
        os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
        return load()

    @cached_property
    def xp(self) -> Any:
        return self.mx.np

    def _has(self, dtype: str) -> bool:
        # MXNet 2 has arrays of int16 and unsigned integers, but cannot transpose or sum them.
        if not super()._has(dtype):
            return False
        try:
            self.xp.sum(self.array(np.ones(1), dtype)).wait_to_read()
        except self.mx.base.MXNetError:
            return dtype == "bool"  # einsumx uses any in place of sum
        return True

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        kind, _, number = device.partition(":")
        with self.mx.util.np_shape(True):
            place = self.mx.Context(kind, int(number or 0)) if kind else None
            return self.xp.array(np.array(values, dtype, order="C"), dtype=dtype, ctx=place)

    def values(self, array: Array) -> Any:
        with self.mx.util.np_shape(True):
            return np.array(array.asnumpy())

    def dtype(self, array: Array) -> str:
        return str(np.dtype(array.dtype).name)

    def device(self, array: Array) -> str:
        return f"{array.ctx.device_type}:{array.ctx.device_id}"

    def is_array(self, array: Any) -> bool:
        return isinstance(array, self.xp.ndarray)

    def fill(self, array: Array, values: Any) -> None:
        with self.mx.util.np_shape(True):
            self.array(values, self.dtype(array)).copyto(array)

    def promote(self, first: str, second: str) -> str | None:
        with suppress(self.mx.base.MXNetError, TypeError):
            return self.dtype(self.array(np.ones(1), first) * self.array(np.ones(1), second))
        return None

    def called(self, function: Function) -> Function:
        def in_np_shape(*arguments: Any, **options: Any) -> Array:
            with self.mx.util.np_shape(True):
                return function(*arguments, **options)

        return in_np_shape

    def synchronize(self, array: Array) -> None:
        array.wait_to_read()

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        # Elements that MXNet does not write keep this value, and fail the case.
        before = [self.array(np.full(array.shape, FILLER), self.dtype(array)) for array in arrays]
        return self._backward(function, arrays, cotangent, before, "write")

    def added_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, before: Sequence[Array]
    ) -> list[Array]:
        return self._backward(function, arrays, cotangent, before, "add")

    def _backward(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, before: Sequence[Array], request: str
    ) -> list[Array]:
        with self.mx.util.np_shape(True):
            for array, gradient in zip(arrays, before):
                array.attach_grad(request)
                array.grad[()] = gradient
            with self.mx.autograd.record():
                result = function(*arrays)
            result.backward(cotangent)
            return [array.grad for array in arrays]

    def transformed(self, transform: str, function: Function) -> Function:
        mx = self.mx

        class Block(mx.gluon.HybridBlock):  # type: ignore[misc, name-defined]
            if self.version.startswith("1."):

                def hybrid_forward(self, F: Any, *arrays: Any) -> Any:  # noqa: N803  MXNet's name
                    return function(*arrays)
            else:

                def forward(self, *arrays: Any) -> Any:
                    return function(*arrays)

        block = Block()
        block.hybridize()

        def called(*arrays: Array) -> Array:
            with mx.util.np_shape(True), mx.util.np_array(True):
                return block(*arrays)

        return called


KNOWN: dict[str, type[Framework]] = {
    kind.name: kind
    for kind in (NumpyFramework, TorchFramework, JaxFramework, MxnetFramework, CupyFramework, ArrayApiFramework)
}


def framework_of(name: str) -> Framework:
    """The framework of that name: known to the suite, declared by a package, or used through its backend.

    Raises:
        BackendError: there is no such framework or backend, or its declaration is invalid.
    """
    if name in KNOWN:
        return KNOWN[name]()
    for entry in entry_points(group="einsumx.conformance"):
        if entry.name == name:
            return _load(entry)
    return AdapterFramework(get_backend(name))


def _load(entry: EntryPoint) -> Framework:
    try:
        declared = entry.load()
    except (ImportError, AttributeError) as error:
        raise BackendError(f"the framework {entry.name!r} cannot be loaded from {entry.value}: {error}") from error
    if not (isinstance(declared, type) and issubclass(declared, Framework)):
        raise BackendError(f"the framework {entry.name!r} at {entry.value} is no subclass of Framework")
    return declared()
