"""MLX, as the suite uses it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from einsumx.conformance.framework import VIEWS, Array, Framework, Function, literal


class MlxFramework(Framework):
    """MLX."""

    name = "mlx"
    module = "mlx.core"
    semirings = True
    layouts = (*VIEWS, "negative")
    shares_parts = False
    transforms = ("jit", "vmap")
    gradient_dtypes = ("float16", "bfloat16", "float32", "float64", "complex64")
    second_order = True
    conjugates_gradients = True
    imports = ("import mlx.core as mx",)

    def array_code(self, values: Any, dtype: str) -> str:
        host, own = {"bfloat16": ("float32", dtype), "bool": (dtype, "bool_")}.get(dtype, (dtype, dtype))
        return f"mx.array(np.array({literal(values)}, {host!r}), mx.{own})"

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dtype for dtype in super().dtypes if dtype != "complex128")  # of which MLX makes complex64

    def _own(self, dtype: str) -> Any:
        return getattr(self.xp, "bool_" if dtype == "bool" else dtype)

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        host = np.array(values, "float32" if dtype == "bfloat16" else dtype, order="C")
        return self.xp.array(host, dtype=self._own(dtype))

    def values(self, array: Array) -> Any:
        return np.array(array.astype(self.xp.float32) if array.dtype == self.xp.bfloat16 else array)

    def promote(self, first: str, second: str) -> str | None:
        return str(self.xp.result_type(self._own(first), self._own(second))).rpartition(".")[2]

    def synchronize(self, array: Array) -> None:
        self.xp.eval(array)

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        return list(self.xp.vjp(function, list(arrays), [cotangent])[1])

    def transformed(self, transform: str, function: Function) -> Function:
        compiled: Function = self.xp.compile(function)
        return compiled

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        mapped: Function = self.xp.vmap(function, in_axes=axes)
        return mapped
