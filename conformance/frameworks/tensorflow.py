"""TensorFlow, as the suite uses it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from einsumx.conformance.framework import Array, Framework, Function


class TensorflowFramework(Framework):
    """TensorFlow."""

    name = module = "tensorflow"
    semirings = traced_limits = True
    immutable = "TensorFlow's tensors are immutable"
    gradient_dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    second_order = True
    conjugates_gradients = True
    transforms = ("jit", "compile", "vmap", "dynamic")
    imports = ("import tensorflow as tf",)
    code = "tf.constant({values}, {dtype!r})"

    @cached_property
    def xp(self) -> Any:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # it reports the processor's instructions on import
        return import_module("tensorflow")

    def transpose_code(self, array: str, axes: tuple[int, ...]) -> str:
        return f"tf.transpose({array}, {axes})"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        with self.xp.device(device or None):
            host = np.array(values, "float32" if dtype == "bfloat16" else dtype, order="C")
            return self.xp.identity(self.xp.cast(host, dtype))

    def values(self, array: Array) -> Any:
        return np.array(self.xp.cast(array, "float32") if array.dtype == "bfloat16" else array)

    def device(self, array: Array) -> str:
        return str(array.device.rpartition("device:")[2].lower())

    def promote(self, first: str, second: str) -> str | None:
        with suppress(TypeError, self.xp.errors.InvalidArgumentError):
            return self.dtype(self.xp.multiply(self.array(1, first), self.array(1, second)))
        return None

    def devices(self) -> tuple[str, ...]:
        return tuple(each.name.rpartition("device:")[2].lower() for each in self.xp.config.list_logical_devices())

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        with self.xp.GradientTape() as tape:
            tape.watch(arrays)
            result = function(*arrays)
        return list(tape.gradient(result, arrays, cotangent))

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        with self.xp.GradientTape() as tape:
            tape.watch(arrays)
            first = self.gradients(function, arrays, cotangent)[by]
        # The gradient by an array on which the first gradient does not depend is zero.
        zero = self.xp.UnconnectedGradients.ZERO
        return list(tape.gradient(first, arrays, direction, unconnected_gradients=zero))

    def transformed(self, transform: str, function: Function) -> Function:
        # AutoGraph would make new errors, without their attributes.
        compiled: Function = self.xp.function(function, jit_compile=transform == "jit", autograph=False)
        return compiled

    def dynamic(self, function: Function, shapes: Sequence[Sequence[int | str]], dtypes: Sequence[str]) -> Function:
        sizes = [[None if isinstance(size, str) else size for size in shape] for shape in shapes]
        signature = [self.xp.TensorSpec(shape, dtype) for shape, dtype in zip(sizes, dtypes)]
        traced: Function = self.xp.function(function, input_signature=signature)
        return traced

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        def mapped(*arrays: Array) -> Array:
            moved = [_moved(array, axis) for array, axis in zip(arrays, axes) if axis is not None]

            def one(each: Sequence[Array]) -> Array:
                slices = iter(each)
                return function(*[array if axis is None else next(slices) for array, axis in zip(arrays, axes)])

            return self.xp.vectorized_map(one, moved, fallback_to_while_loop=False)

        def _moved(array: Array, axis: int) -> Array:
            rank = len(array.shape)
            return self.xp.transpose(array, (axis % rank, *(k for k in range(rank) if k != axis % rank)))

        return mapped
