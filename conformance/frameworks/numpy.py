"""NumPy, as the suite uses it."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from einsumx.conformance.framework import VIEWS, Array, Framework
from einsumx.conformance.kit.arrays import ArraySpec


class NumpyFramework(Framework):
    """NumPy."""

    name = module = "numpy"
    semirings = True
    layouts = (*VIEWS, "negative", "unaligned", "byteswapped", "readonly")
    memory_order = True
    views = True
    imports = ()
    code = "np.array({values}, {dtype!r})"

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        if find_spec("ml_dtypes"):
            import_module("ml_dtypes")  # adds bfloat16
        return super().dtypes

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        return np.array(values, dtype, order="C")

    def values(self, array: Array) -> Any:
        return np.array(array, "float32" if self.dtype(array) == "bfloat16" else None)

    def array_code(self, values: Any, dtype: str) -> str:
        code = super().array_code(values, dtype)
        return code.replace("'bfloat16'", "__import__('ml_dtypes').bfloat16")

    def is_array(self, array: Any) -> bool:
        return isinstance(array, np.ndarray | np.generic)

    def promote(self, first: str, second: str) -> str | None:
        with suppress(TypeError):  # by names, as old NumPys warn of np.bool
            return str(np.result_type(first, second).name)
        return None

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
