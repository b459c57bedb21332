"""cubed, as the suite uses it."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from einsumx.conformance.framework import DTYPES, Array, Framework


class CubedFramework(Framework):
    """cubed: lazy arrays of chunks in Zarr stores. A result is computed when it is judged."""

    name = "cubed"
    module = "cubed.array_api"
    semirings = True
    positions = False
    immutable = "cubed's arrays are immutable"
    unlimited = "cubed's arrays are lazy, and cubed bounds the memory of a task itself"
    no_exponents = "cubed's arrays are lazy, and so are their largest elements"
    imports = ("import cubed",)
    code = "cubed.from_array(np.array({values}, {dtype!r}), chunks=-1)"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        return import_module("cubed").from_array(np.array(values, dtype, order="C"), chunks=-1)

    def values(self, array: Array) -> Any:
        return np.array(array.compute())

    @cached_property
    def dtypes(self) -> tuple[str, ...]:  # cubed makes arrays of float16 too, which its functions then refuse
        return tuple(dtype for dtype in DTYPES if hasattr(self.xp, dtype))
