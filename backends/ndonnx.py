"""ndonnx: arrays that record an ONNX graph, and compute at once where all values are known."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import Any

from einsumx.adapters.base import Array
from einsumx.backends.array_api import NamedLibrary
from einsumx.backends.array_api.adapter import TRAITS
from einsumx.errors import BackendError

__all__ = ["ADAPTER", "NdonnxAdapter"]

_PRODUCTS = frozenset({"float16", "float32", "float64", "int32", "int64"})


class NdonnxAdapter(NamedLibrary):
    """ndonnx's arrays, by the array API standard, with products by ONNX's own operator."""

    name = "ndonnx"
    module = "ndonnx"
    install = "pip install ndonnx onnxruntime"
    cpu = replace(
        TRAITS,
        matmul_dtypes=_PRODUCTS,
        # The low bits of a product do not depend on the high ones, so these wrap as they should.
        matmul_through=(
            ("bool", "float32"),
            *((dtype, "int32") for dtype in ("int8", "int16", "uint8", "uint16")),
            *((dtype, "int64") for dtype in ("uint32", "uint64")),
        ),
    )

    @cached_property
    def _onnx(self) -> Any:
        return import_module("spox.opset.ai.onnx.v21")

    def to_numpy(self, array: Array) -> Any:
        try:
            return array.unwrap_numpy()
        except ValueError as error:
            raise BackendError(f"an array of ndonnx has no values while a graph is recorded: {error}") from error

    def check_eager(self, array: Array) -> None:
        raise BackendError(
            "ndonnx records every block of a contraction in its graph, so that no memory_limit= can be kept; leave it "
            "away, or contract NumPy arrays (x.unwrap_numpy())"
        )

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        # ndonnx's own matmul records a hundred nodes, to keep onnxruntime from a fault that it no longer has.
        if transpose_lhs:
            lhs = self.xp.matrix_transpose(lhs)
        if transpose_rhs:
            rhs = self.xp.matrix_transpose(rhs)
        return self.xp.asarray(self._onnx.matmul(lhs.unwrap_spox(), rhs.unwrap_spox()))


ADAPTER = NdonnxAdapter()
