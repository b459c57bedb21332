"""ndonnx: arrays that record an ONNX graph, and compute at once where all values are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

from einsumx.adapters.base import Adapter, Array, Signature
from einsumx.backends.array_api import NamedLibrary
from einsumx.backends.array_api.adapter import TRAITS, ArrayApiAdapter, ArrayApiSemirings
from einsumx.errors import BackendError
from einsumx.ir.bind import planned_sizes
from einsumx.ir.traits import INTEGERS


class NdonnxSemirings(ArrayApiSemirings):
    """The standard's functions; nothing is known of values."""

    fuses_terms = True


class NdonnxAdapter(NamedLibrary):
    """ndonnx's arrays, by the array API standard, with operators of ONNX where ndonnx records many for one call.

    A size that is not known is a vector of one element, as ONNX's shapes are vectors.
    """

    name = "ndonnx"
    module = "ndonnx"
    install = "pip install ndonnx onnxruntime"
    blocks = None
    missing = MappingProxyType(
        {
            "blocks": (
                "its graph keeps every block, so memory_limit= would not bound memory; omit it, or contract NumPy "
                "arrays: x.unwrap_numpy()"
            )
        }
    )
    cpu = replace(
        TRAITS,
        matmul_dtypes=frozenset({"float16", "float32", "float64", "int32", "int64"}),  # as in onnxruntime
        # The low bits of a product do not depend on the high ones, so these wrap as they should.
        matmul_through=(
            ("bool", "float32"),
            *((dtype, "int32") for dtype in ("int8", "int16", "uint8", "uint16")),
            *((dtype, "int64") for dtype in ("uint32", "uint64")),
        ),
    )

    semirings = cached_property(NdonnxSemirings)

    @cached_property
    def _onnx(self) -> Any:
        return import_module("spox.opset.ai.onnx.v21")

    # -- arrays -----------------------------------------------------------------------------------------

    def signature(self, array: Array) -> Signature:
        return type(array), planned_sizes(array.shape), self.dtype_name(array.dtype), "cpu"

    def device(self, array: Array) -> str:
        return "cpu"

    def to_numpy(self, array: Array) -> Any:
        try:
            return array.unwrap_numpy()
        except ValueError as error:
            raise BackendError(
                f"ndonnx has no values while it records a graph; build the graph and run it ({error})"
            ) from error

    def has_values(self, array: Array) -> bool:
        try:
            self.to_numpy(array)
        except BackendError:
            return False
        return True

    def public_class(self) -> type[Adapter]:
        return _PublicNdonnx

    # -- sizes that are not known -----------------------------------------------------------------------

    def size(self, array: Array, axis: int) -> Any:
        known = array.shape[axis]
        if isinstance(known, int):
            return known
        return self.xp.asarray(self._onnx.shape(array.unwrap_spox(), start=axis, end=axis + 1))

    def with_size(self, array: Array, axis: int, size: Any, message: str) -> Array:
        sizes = [self.size(array, place) for place in range(array.ndim)]
        if isinstance(sizes[axis], int) and isinstance(size, int):
            return super().with_size(array, axis, size, message)
        sizes[axis] = size
        return self._in_shape(array, sizes)  # ONNX has no assertions, but refuses to reshape to another size

    def _in_shape(self, array: Array, shape: Sequence[Any]) -> Array:
        return self.xp.asarray(self._onnx.reshape(array.unwrap_spox(), self._vector(shape), allowzero=1))

    def _vector(self, shape: Sequence[Any]) -> Any:
        parts = [self.xp.asarray([size]) if isinstance(size, int) else size for size in shape]
        return self._onnx.concat([part.unwrap_spox() for part in parts], axis=0)

    # -- primitives -------------------------------------------------------------------------------------

    def reshape(self, array: Array, shape: tuple[Any, ...]) -> Array:
        unknown = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
        if len(unknown) > 1 or (unknown and 0 in [size for size in shape if isinstance(size, int)]):
            return self._in_shape(array, shape)
        return self.xp.reshape(array, tuple([-1 if axis in unknown else size for axis, size in enumerate(shape)]))

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        kept = [axis for axis in range(array.ndim) if axis not in (axis1, axis2)]
        moved = self.xp.permute_dims(array, (axis1, axis2, *kept))
        size = self.size(array, axis1)
        places = self.xp.arange(size) if isinstance(size, int) else self._counted(size)
        index = self._onnx.unsqueeze(places.unwrap_spox(), self._onnx.const([1]))
        taken = self.xp.asarray(self._onnx.gather_nd(moved.unwrap_spox(), self._onnx.concat([index, index], axis=1)))
        return self.xp.permute_dims(taken, (*range(1, 1 + len(kept)), 0))

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        dtype = self.dtype_name(array.dtype)
        if dtype not in INTEGERS:
            return super().sum(array, axes)
        # onnxruntime sums integers in floating point, and does not wrap; its products are exact.
        array = self.cast(array, dict(self.cpu.matmul_through).get(dtype, dtype))
        for axis in sorted(axes, reverse=True):
            array = self.xp.permute_dims(array, (*(other for other in range(array.ndim) if other != axis), axis))
            terms = array.unwrap_spox()
            ones = self._onnx.expand(
                self.xp.asarray(1, dtype=array.dtype).unwrap_spox(), self._onnx.shape(terms, start=-1)
            )
            array = self.xp.asarray(self._onnx.matmul(terms, ones))
        return self.cast(array, dtype)

    def _counted(self, size: Array) -> Array:
        zero, one = self._onnx.const(0), self._onnx.const(1)
        return self.xp.asarray(self._onnx.range(zero, self._onnx.squeeze(size.unwrap_spox()), one))

    def zeros(self, arrays: Sequence[Array], shape: tuple[Any, ...], dtype: str) -> Array:
        if all(isinstance(size, int) for size in shape):
            return self.xp.zeros(shape, dtype=self.dtype(dtype))
        zeros = self.xp.asarray(self._onnx.constant_of_shape(self._vector(shape)))
        return self.xp.astype(zeros, self.dtype(dtype))

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        # ndonnx's own matmul records a hundred nodes, which keep an older onnxruntime from a fault at sizes of 0.
        if transpose_lhs:
            lhs = self.xp.matrix_transpose(lhs)
        if transpose_rhs:
            rhs = self.xp.matrix_transpose(rhs)
        return self.xp.asarray(self._onnx.matmul(lhs.unwrap_spox(), rhs.unwrap_spox()))


class _PublicNdonnx(NdonnxAdapter):
    """The functions of the standard, of known sizes."""

    diagonal = ArrayApiAdapter.diagonal
    matmul = ArrayApiAdapter.matmul

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        if array.dtype.name in INTEGERS:
            raise BackendError(
                "ndonnx's own sum of integers does not wrap, so code of its functions would not compute this plan; "
                "run the plan itself"
            )
        return ArrayApiAdapter.sum(self, array, axes)


ADAPTER = NdonnxAdapter()
