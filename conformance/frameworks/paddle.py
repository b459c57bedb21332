"""PaddlePaddle, as the suite uses it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from einsumx.conformance.framework import VIEWS, Array, Framework, Function


class PaddleFramework(Framework):
    """PaddlePaddle, in dynamic mode and through ``paddle.jit.to_static``."""

    name = module = "paddle"
    semirings = True
    layouts = (*VIEWS, "negative")
    gradient_dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    adds_gradients = True
    second_order = True
    conjugates_gradients = True
    transforms = ("jit", "dynamic")
    imports = ("import paddle",)
    code = "paddle.to_tensor({values}, dtype={dtype!r})"

    def _has(self, dtype: str) -> bool:
        # Paddle reads unsigned integers of 16 bits as bfloat16 in its sums, and has no wider ones.
        return dtype not in ("uint16", "uint32", "uint64") and super()._has(dtype)

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        values = np.array(values, "float32" if dtype == "bfloat16" else dtype, order="C")
        return self.xp.to_tensor(values, place=device or None).astype(dtype)

    def values(self, array: Array) -> Any:
        array = array.detach()
        return np.array((array.astype("float32") if self.dtype(array) == "bfloat16" else array).numpy())

    def device(self, array: Array) -> str:
        return str(array.place).removeprefix("Place(").removesuffix(")")

    def fill(self, array: Array, values: Any) -> None:
        array.copy_(self.array(values, self.dtype(array)), True)

    def promote(self, first: str, second: str) -> str | None:
        if first == second:
            return first
        with suppress(TypeError):
            return self.dtype(self.xp.add(self.array(np.ones(1), first), self.array(np.ones(1), second)))
        return None

    def broadcast(self, array: Array, shape: tuple[int, ...]) -> Array:
        strides = [0 if size == 1 else stride for size, stride in zip(array.shape, array.strides)]
        return self.xp.as_strided(array, shape, strides)  # expand would copy

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        if not all(map(self.is_array, arrays)):  # values of a static graph
            cotangent = self.xp.assign(cotangent.numpy())
        arrays = [self.leaf(array) for array in arrays]
        return list(self.xp.grad(function(*arrays), arrays, cotangent))

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        arrays = [self.leaf(array) for array in arrays]
        (first,) = self.xp.grad(function(*arrays), arrays[by], cotangent, create_graph=True)
        if first.stop_gradient:
            return [self.xp.zeros_like(array) for array in arrays]
        found = self.xp.grad(first, arrays, direction, allow_unused=True)
        # The gradient by an array on which the first gradient does not depend is zero.
        return [self.xp.zeros_like(array) if grad is None else grad for array, grad in zip(arrays, found)]

    def leaf(self, array: Array) -> Array:
        """The array as the start of a graph, in its layout."""
        array = array.detach() if self.is_array(array) else self.xp.assign(array)  # the value of a static graph
        array.stop_gradient = False
        return array

    def is_array(self, array: Any) -> bool:
        return isinstance(array, self.xp.Tensor)  # which no value of a static graph is, not even the first array made

    def transformed(self, transform: str, function: Function) -> Function:
        # Without the whole graph, what Paddle cannot trace would run in dynamic mode.
        traced = self._traced(function)
        return lambda *arrays: traced[len(arrays)](*arrays)

    def dynamic(self, function: Function, shapes: Sequence[Sequence[int | str]], dtypes: Sequence[str]) -> Function:
        specs = [
            self.xp.static.InputSpec([size if isinstance(size, int) else None for size in shape], dtype)
            for shape, dtype in zip(shapes, dtypes)
        ]
        return self._traced(function, specs)[len(shapes)]

    def _traced(self, function: Function, specs: Sequence[Any] | None = None) -> dict[int, Function]:
        """The function in static graphs, by the number of operands, which a traced function fixes."""
        jit = self.xp.jit
        function = jit.marker.unified(function)  # Paddle need not rewrite the suite's code

        def one(x: Array) -> Any:
            return function(x)

        def two(x: Array, y: Array) -> Any:
            return function(x, y)

        def three(x: Array, y: Array, z: Array) -> Any:
            return function(x, y, z)

        def four(x: Array, y: Array, z: Array, u: Array) -> Any:
            return function(x, y, z, u)

        def six(x: Array, y: Array, z: Array, u: Array, v: Array, w: Array) -> Any:
            return function(x, y, z, u, v, w)

        functions = {1: one, 2: two, 3: three, 4: four, 6: six}
        return {count: jit.to_static(each, input_spec=specs, full_graph=True) for count, each in functions.items()}
