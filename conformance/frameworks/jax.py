"""JAX, as the suite uses it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from einsumx.conformance.framework import Array, Framework, Function


class JaxFramework(Framework):
    """JAX."""

    name = module = "jax"
    semirings = True
    immutable = "jax arrays are immutable"
    transforms = ("jit", "vmap", "dynamic")
    second_order = True
    differentiates_eagerly = False
    traced_limits = True
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

    def devices(self) -> tuple[str, ...]:
        return tuple(f"{device.platform}:{device.id}" for device in self._jax.devices())

    def synchronize(self, array: Array) -> None:
        array.block_until_ready()

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        return list(self._jax.vjp(function, *arrays)[1](cotangent))

    def transformed(self, transform: str, function: Function) -> Function:
        compiled: Function = self._jax.jit(function)
        return compiled

    def dynamic(self, function: Function, shapes: Sequence[Sequence[int | str]], dtypes: Sequence[str]) -> Function:
        export = import_module("jax.export")
        scope = export.SymbolicScope()
        arguments = [
            self._jax.ShapeDtypeStruct(export.symbolic_shape(",".join(map(str, shape)), scope=scope), dtype)
            for shape, dtype in zip(shapes, dtypes)
        ]
        exported: Function = export.export(self._jax.jit(function))(*arguments).call
        return exported

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        mapped: Function = self._jax.vmap(function, in_axes=axes)
        return mapped
