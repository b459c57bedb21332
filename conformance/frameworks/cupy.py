"""CuPy, as the suite uses it."""

from __future__ import annotations

from typing import Any

from einsumx.conformance.framework import VIEWS, Array, Framework


class CupyFramework(Framework):
    """CuPy, on a GPU."""

    name = module = "cupy"
    semirings = True
    layouts = (*VIEWS, "negative")
    memory_order = True
    views = True
    imports = ("import cupy",)
    code = "cupy.array({values}, {dtype!r})"

    def _has(self, dtype: str) -> bool:
        # Where ml_dtypes is installed, CuPy stores bfloat16, but only some of its functions compute in it.
        return dtype != "bfloat16" and super()._has(dtype)

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        with self.xp.cuda.Device(int(device.partition(":")[2] or 0)):
            return self.xp.array(values, dtype, order="C")

    def values(self, array: Array) -> Any:
        return self.xp.asnumpy(array)

    def device(self, array: Array) -> str:
        return f"cuda:{array.device.id}"

    def fill(self, array: Array, values: Any) -> None:
        with array.device:
            array[...] = self.xp.asarray(values, array.dtype)

    def devices(self) -> tuple[str, ...]:
        return tuple(f"cuda:{k}" for k in range(self.xp.cuda.runtime.getDeviceCount()))

    def synchronize(self, array: Array) -> None:
        array.device.synchronize()
