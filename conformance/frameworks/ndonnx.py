"""ndonnx, as the suite uses it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from einsumx.conformance.framework import Array, Framework

__all__ = ["NdonnxFramework"]


class NdonnxFramework(Framework):
    """ndonnx: arrays that record an ONNX graph, and compute where all values are known."""

    name = module = "ndonnx"
    unlimited = "ndonnx keeps every block in its graph"
    imports = ("import ndonnx as ndx",)
    code = "ndx.asarray(np.array({values}, {dtype!r}))"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        return self.xp.asarray(np.array(values, dtype, order="C"))

    def values(self, array: Array) -> Any:
        return np.array(array.unwrap_numpy())

    def dtype(self, array: Array) -> str:
        return str(array.dtype.unwrap_numpy().name)

    def is_array(self, array: Any) -> bool:
        return isinstance(array, self.xp.Array)

    def fill(self, array: Array, values: Any) -> None:
        array[...] = self.array(values, self.dtype(array))

    def promote(self, first: str, second: str) -> str | None:
        with suppress(TypeError):
            return str(self.xp.result_type(getattr(self.xp, first), getattr(self.xp, second)).unwrap_numpy().name)
        return None
