"""tinygrad, as the suite uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from einsumx.conformance.framework import DTYPES, VIEWS, Array, Framework, Function


class TinygradFramework(Framework):
    """tinygrad."""

    name = module = "tinygrad"
    semirings = True
    layouts = (*VIEWS, "negative")
    views = True
    gradient_dtypes = ("float16", "bfloat16", "float32", "float64")
    adds_gradients = True
    second_order = True
    differentiates_eagerly = False
    imports = ("from tinygrad import Tensor",)
    code = "Tensor({values}, dtype={dtype!r})"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        host = np.array(values, "float32" if dtype == "bfloat16" else dtype, order="C")
        place = device or None
        if not host.size:
            return self.xp.Tensor.zeros(host.shape, dtype=dtype, device=place)
        array = self.xp.Tensor(host.reshape(host.shape or 1), dtype=dtype, device=place)
        return array.reshape(host.shape).realize()

    def values(self, array: Array) -> Any:
        return np.array(array.numpy())

    def dtype(self, array: Array) -> str:
        return next((name for name in DTYPES if getattr(self.xp.dtypes, name, None) == array.dtype), str(array.dtype))

    def device(self, array: Array) -> str:
        device = array.device or self.xp.Device.DEFAULT
        return (device if isinstance(device, str) else ",".join(device)).lower()

    def fill(self, array: Array, values: Any) -> None:
        array.assign(self.array(values, self.dtype(array), array.device)).realize()

    def promote(self, first: str, second: str) -> str | None:
        one, other = (self.xp.Tensor.empty(1, dtype=dtype) for dtype in (first, second))
        # Of 64-bit integers with and without a sign it is weak: stored, it becomes the default dtype.
        return self.dtype(one * other if (one * other).dtype not in self.xp.dtypes.weaks else self.xp.Tensor([0.5]))

    def devices(self) -> tuple[str, ...]:
        return "cpu", "cpu:1"

    def transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.permute(axes)

    def broadcast(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.expand(shape)

    def transpose_code(self, array: str, axes: tuple[int, ...]) -> str:
        return f"{array}.permute({axes})"

    def synchronize(self, array: Array) -> None:
        array.realize()

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        return function(*arrays).gradient(*arrays, gradient=cotangent)  # type: ignore[no-any-return]

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        (first,) = function(*arrays).gradient(arrays[by], gradient=cotangent)
        return first.gradient(*arrays, gradient=direction)  # type: ignore[no-any-return]
