"""array-api-strict, as the suite uses it."""

from __future__ import annotations

from typing import Any

import numpy as np

from einsumx.conformance.framework import VIEWS, Array, Framework


class ArrayApiFramework(Framework):
    """array-api-strict, which implements only the array API standard, with simulated devices."""

    name = "array_api"
    module = "array_api_strict"
    semirings = True
    layouts = (*VIEWS, "negative")  # of the underlying NumPy arrays
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

    def fill(self, array: Array, values: Any) -> None:
        self._host(array)[...] = values

    def devices(self) -> tuple[str, ...]:
        return "CPU_DEVICE", "device1", "device2"

    def transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self.xp.permute_dims(array, axes)
