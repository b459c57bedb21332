"""MXNet, as the suite uses it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from einsumx.conformance.framework import FILLER, Array, Framework, Function
from einsumx.mxnet import load


class MxnetFramework(Framework):
    """MXNet's ``mx.np``, of 1.9.1 and 2.0."""

    name = module = "mxnet"
    semirings = True
    positions = False
    gradient_dtypes = ("float16", "float32", "float64")
    adds_gradients = True
    transforms = ("hybridize",)
    imports = ("import mxnet as mx",)
    code = "mx.np.array({values}, dtype={dtype!r})"

    @cached_property
    def mx(self) -> Any:
        """The top-level module."""
        # This engine raises errors in the call that causes them, not in a later, unrelated wait.
        os.environ.setdefault("MXNET_ENGINE_TYPE", "NaiveEngine")
        return load()

    @cached_property
    def xp(self) -> Any:
        return self.mx.np

    def _has(self, dtype: str) -> bool:
        # MXNet 2 has arrays of int16 and unsigned integers, but cannot transpose or sum them.
        if not super()._has(dtype):
            return False
        try:
            self.xp.sum(self.array(np.ones(1), dtype)).wait_to_read()
        except self.mx.base.MXNetError:
            return dtype == "bool"  # einsumx uses any in place of sum
        return True

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        kind, _, number = device.partition(":")
        with self.mx.util.np_shape(True):
            place = self.mx.Context(kind, int(number or 0)) if kind else None
            return self.xp.array(np.array(values, dtype, order="C"), dtype=dtype, ctx=place)

    def values(self, array: Array) -> Any:
        with self.mx.util.np_shape(True):
            return np.array(array.asnumpy())

    def dtype(self, array: Array) -> str:
        return str(np.dtype(array.dtype).name)

    def device(self, array: Array) -> str:
        return f"{array.ctx.device_type}:{array.ctx.device_id}"

    def fill(self, array: Array, values: Any) -> None:
        with self.mx.util.np_shape(True):
            self.array(values, self.dtype(array)).copyto(array)

    def promote(self, first: str, second: str) -> str | None:
        with suppress(self.mx.base.MXNetError, TypeError):
            return self.dtype(self.array(np.ones(1), first) * self.array(np.ones(1), second))
        return None

    def called(self, function: Function) -> Function:
        def in_np_shape(*arguments: Any, **options: Any) -> Array:
            with self.mx.util.np_shape(True):
                return function(*arguments, **options)

        return in_np_shape

    def synchronize(self, array: Array) -> None:
        array.wait_to_read()

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        # Elements that MXNet does not write keep this value, and fail the case.
        before = [self.array(np.full(array.shape, FILLER), self.dtype(array)) for array in arrays]
        return self._backward(function, arrays, cotangent, before, "write")

    def added_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, before: Sequence[Array]
    ) -> list[Array]:
        return self._backward(function, arrays, cotangent, before, "add")

    def _backward(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, before: Sequence[Array], request: str
    ) -> list[Array]:
        with self.mx.util.np_shape(True):
            for array, gradient in zip(arrays, before):
                array.attach_grad(request)
                array.grad[()] = gradient
            with self.mx.autograd.record():
                result = function(*arrays)
            result.backward(cotangent)
            return [array.grad for array in arrays]

    def transformed(self, transform: str, function: Function) -> Function:
        mx = self.mx

        class Block(mx.gluon.HybridBlock):  # type: ignore[misc, name-defined]
            if self.version.startswith("1."):

                def hybrid_forward(self, F: Any, *arrays: Any) -> Any:  # noqa: N803  MXNet's name
                    return function(*arrays)
            else:

                def forward(self, *arrays: Any) -> Any:
                    return function(*arrays)

        block = Block()
        block.hybridize()

        def called(*arrays: Array) -> Array:
            with mx.util.np_shape(True), mx.util.np_array(True):
                return block(*arrays)

        return called
