"""NumPy, as the suite uses it."""

from __future__ import annotations

from typing import Any

import numpy as np

from einsumx.conformance.case import ArraySpec
from einsumx.conformance.framework import DTYPES, VIEWS, Array, Framework

__all__ = ["NumpyFramework"]


class NumpyFramework(Framework):
    """NumPy."""

    name = module = "numpy"
    semirings = True
    layouts = (*VIEWS, "negative", "unaligned", "byteswapped", "readonly")
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

    def is_array(self, array: Any) -> bool:
        return isinstance(array, np.ndarray | np.generic)

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
