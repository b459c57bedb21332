"""MXNet's public functions, for :meth:`einsumx.Plan.source`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from einsumx.adapters.base import Array
from einsumx.backends.mxnet.adapter import MxnetAdapter
from einsumx.backends.mxnet.choices import AROUND_BATCH, MOST_TRANSPOSED, sums, swaps, transposes
from einsumx.backends.mxnet.kernels import through_int8
from einsumx.backends.mxnet.semirings import MxnetSemirings
from einsumx.errors import BackendError


class NoSemirings(MxnetSemirings):
    """What says that there is no code."""

    def elementwise(self, name: str, lhs: Array, rhs: Array) -> Array:
        raise BackendError('mxnet has no code for a plan in a semiring; call source("numpy")')

    def reduced(self, name: str, array: Array, axes: tuple[int, ...]) -> Array:
        return self.elementwise(name, array, array)


class PublicMxnet(MxnetAdapter):
    """Functions of ``mx``, which is ``self.xp`` here, in the place of prepared calls."""

    def decorator(self, shapes: Sequence[tuple[int, ...]]) -> str:
        # Shapes without axes and sizes of 0 need "np shape" semantics, which are off by default in most threads.
        return "" if all(shape and 0 not in shape for shape in shapes) else "@mx.util.use_np_shape"

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._rearranged(lambda plain: self._transposed(plain, axes, array.shape), array)

    def _transposed(self, array: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        if len(axes) > MOST_TRANSPOSED:
            for before, moved in transposes(axes, shape):
                array = self._transposed(self.reshape(array, before), moved, before)
            return self.reshape(array, tuple([shape[axis] for axis in axes]))
        pairs = swaps(axes, mxnet_1=self._has_mxnet_1)
        for pair in pairs:
            array = array.swapaxes(*pair)
        return array if pairs else array.transpose(axes)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape_view(shape) if shape else array.reshape(())

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        return self._rearranged(lambda array: self.xp.np.diagonal(array, axis1=axis1, axis2=axis2), array)

    def _rearranged(self, rearrange: Callable[[Array], Array], array: Array) -> Array:
        return through_int8(rearrange)(array) if array.dtype.kind == "b" else rearrange(array)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def cast(self, array: Array, dtype: str) -> Array:
        return array.astype(dtype)

    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        is_bool = array.dtype.kind == "b"
        for some in sums(axes, array.ndim):
            array = self.xp.np.any(array, axis=some) if is_bool else array.sum(axis=some)
        return array

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.np.zeros(shape, dtype=dtype, ctx=arrays[0].ctx)

    def multiply(self, lhs: Array, rhs: Array) -> Array:
        return self.xp.np.multiply(lhs, rhs)

    def matmul(self, lhs: Array, rhs: Array, transpose_lhs: bool, transpose_rhs: bool) -> Array:
        flags = {"transpose_a": transpose_lhs, "transpose_b": transpose_rhs}
        if lhs.ndim == 2:
            batches = [self.reshape(each, (1, *each.shape)) for each in (lhs, rhs)]
            result = lhs.shape[transpose_lhs], rhs.shape[not transpose_rhs]
            return self.reshape(self.xp.npx.batch_dot(*batches, **flags), result)
        return self.xp.npx.batch_dot(lhs, rhs, **flags)

    semirings = cached_property(NoSemirings)

    def native(self, equation: str, arrays: Sequence[Array]) -> Array:
        is_product = self._has_mxnet_1 and equation in AROUND_BATCH
        if not (is_product and self.dtype_name(arrays[0].dtype) in ("float32", "float64")):
            return self.xp.np.einsum(equation, *arrays)
        transpose_a, transpose_b = AROUND_BATCH[equation]
        lhs, rhs = [array.as_nd_ndarray() for array in arrays]
        product = self.xp.nd.linalg.gemm2(lhs, rhs, transpose_a=transpose_a, transpose_b=transpose_b, axis=1)
        return product.as_np_ndarray()
