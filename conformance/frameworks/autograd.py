"""Autograd, as the suite uses it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from einsumx.conformance.framework import VIEWS, Array, Framework, Function


class AutogradFramework(Framework):
    """Autograd: boxes, as a function has them that autograd differentiates."""

    name = module = "autograd"
    layouts = VIEWS
    immutable = "autograd's boxes cannot be written to"
    unlimited = "autograd keeps every intermediate for the gradients"
    semirings = True
    mixes_with = ("numpy",)
    dtypes = ("float16", "float32", "float64", "complex64", "complex128")  # those of which it makes boxes
    gradient_dtypes = dtypes
    second_order = True
    imports = ("from autograd.core import VJPNode", "from autograd.numpy.numpy_boxes import ArrayBox")
    code = "ArrayBox(np.array({values}, {dtype!r}), 0, VJPNode.new_root())"

    @cached_property
    def xp(self) -> Any:
        return import_module("autograd.numpy")

    @cached_property
    def _tracer(self) -> Any:
        tracer = import_module("autograd.tracer")
        tracer.trace_stack.top = max(tracer.trace_stack.top, 0)  # functions that autograd differentiates are inside
        return tracer

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        node = import_module("autograd.core").VJPNode.new_root()
        return self._tracer.new_box(np.array(values, dtype, order="C"), 0, node)

    def values(self, array: Array) -> Any:
        return np.array(self._tracer.getval(array))

    def is_array(self, array: Any) -> bool:
        return self._tracer.isbox(array) or isinstance(array, np.ndarray | np.generic)  # constants are NumPy's

    def promote(self, first: str, second: str) -> str | None:
        return str(np.result_type(first, second).name)

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        make_vjp = import_module("autograd").make_vjp
        return [make_vjp(function, place)(*arrays)[0](cotangent) for place in range(len(arrays))]
