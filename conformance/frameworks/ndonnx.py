"""ndonnx, as the suite uses it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from einsumx.conformance.framework import Array, Framework, Function


class NdonnxFramework(Framework):
    """ndonnx: arrays that record an ONNX graph, and compute where all values are known."""

    name = module = "ndonnx"
    semirings = True
    unlimited = "ndonnx keeps every block in its graph"
    transforms = ("dynamic",)
    imports = ("import ndonnx as ndx",)
    code = "ndx.asarray(np.array({values}, {dtype!r}))"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        return self.xp.asarray(np.array(values, dtype, order="C"))

    def values(self, array: Array) -> Any:
        return np.array(array.unwrap_numpy())

    def dtype_name(self, dtype: Any) -> str:
        return str(dtype.unwrap_numpy().name)

    def dynamic(self, function: Function, shapes: Sequence[Sequence[int | str]], dtypes: Sequence[str]) -> Function:
        arguments = {
            f"x{place}": self.xp.argument(shape=tuple(shape), dtype=getattr(self.xp, dtype))
            for place, (shape, dtype) in enumerate(zip(shapes, dtypes))
        }
        model = self.xp.build(arguments, {"result": function(*arguments.values())})
        session = import_module("onnxruntime").InferenceSession(model.SerializeToString())

        def run(*arrays: Array) -> Array:
            (result,) = session.run(None, dict(zip(arguments, map(self.values, arrays))))
            return self.xp.asarray(result)

        return run
