"""PyTorch, as the suite uses it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Any

import numpy as np

from einsumx.adapters.replacement import own
from einsumx.conformance.framework import VIEWS, Array, Framework, Function
from einsumx.conformance.kit.arrays import ArraySpec
from einsumx.conformance.kit.cases import NotApplicable
from einsumx.dtypes import kind


class TorchFramework(Framework):
    """PyTorch."""

    name = module = "torch"
    semirings = True
    layouts = (*VIEWS, "conjugated", "negated")
    memory_order = True
    views = True
    transforms = ("compile", "vmap", "dynamic")
    traced_limits = True
    counts_traces = False  # torch.compile captures one graph, which a counter would break
    gradient_dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    adds_gradients = True
    second_order = True
    autocast_dtypes = ("bfloat16", "float16")
    conjugates_gradients = True
    imports = ("import torch",)
    code = "torch.tensor({values}, dtype=torch.{dtype})"

    def transpose_code(self, array: str, axes: tuple[int, ...]) -> str:
        return f"{array}.permute({axes})"

    def moved_code(self, name: str, device: str) -> str:
        return f"{name} = {name}.to({device!r})"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        tensor = self.xp.from_numpy(np.array(values, "float32" if dtype == "bfloat16" else dtype, order="C"))
        return tensor.to(device=device or None, dtype=getattr(self.xp, dtype))

    def values(self, array: Array) -> Any:
        array = array.detach().resolve_conj().resolve_neg().cpu()
        return np.array((array.float() if array.dtype == self.xp.bfloat16 else array).numpy())

    def device(self, array: Array) -> str:
        return str(array.device)

    def has_values(self, array: Array) -> bool:
        return not array.is_meta

    def strides(self, array: Array) -> tuple[int, ...]:
        return tuple(array.stride())

    def fill(self, array: Array, values: Any) -> None:
        array.copy_(self.xp.as_tensor(values))

    def promote(self, first: str, second: str) -> str | None:
        with suppress(RuntimeError):
            return str(self.xp.promote_types(getattr(self.xp, first), getattr(self.xp, second))).rpartition(".")[2]
        return None

    def devices(self) -> tuple[str, ...]:
        return "cpu", "meta", *(f"cuda:{k}" for k in range(self.xp.cuda.device_count()))

    def transposed(self, array: Array, axes: tuple[int, ...]) -> Array:
        return array.permute(axes)

    def special(self, values: Any, spec: ArraySpec, device: str) -> Array:
        family = kind(spec.dtype)
        if family in "bu" if spec.layout == "negated" else family != "c":
            raise NotApplicable(f"no operation is pending on a {spec.layout} {spec.dtype}")
        # The array has these values once the pending operation is done.
        if spec.layout == "conjugated":
            return self.array(np.conj(values), spec.dtype, device).conj()
        return self.xp._neg_view(self.array(-values, spec.dtype, device))

    def synchronize(self, array: Array) -> None:
        if array.device.type == "cuda":
            self.xp.cuda.synchronize(array.device)

    def leaf(self, array: Array) -> Array:
        return array.detach().requires_grad_()

    def gradients(self, function: Function, arrays: Sequence[Array], cotangent: Array) -> list[Array]:
        arrays = list(map(self.leaf, arrays))
        return list(self.xp.autograd.grad(function(*arrays), arrays, cotangent))

    def second_gradients(
        self, function: Function, arrays: Sequence[Array], cotangent: Array, by: int, direction: Array
    ) -> list[Array]:
        grad = self.xp.autograd.grad
        arrays = list(map(self.leaf, arrays))
        (first,) = grad(function(*arrays), arrays[by], cotangent, create_graph=True)
        # The gradient by an array on which the first gradient does not depend is zero.
        return list(grad(first, arrays, direction, allow_unused=True, materialize_grads=True))

    def autocast(self, dtype: str, device: str = "") -> AbstractContextManager[Any]:
        kind = device.partition(":")[0] or "cpu"
        return self.xp.autocast(kind, dtype=getattr(self.xp, dtype))  # type: ignore[no-any-return]

    def autocast_result(self, equation: str, arrays: Sequence[Array], dtype: str, device: str = "") -> str:
        with self.autocast(dtype, device):
            return self.dtype(own(self.xp.einsum)(equation, *arrays))

    def transformed(self, transform: str, function: Function) -> Function:
        # With fullgraph, a graph break is an error. This compiler needs no other tools.
        self.xp._dynamo.reset()
        compiled: Function = self.xp.compile(function, fullgraph=True, backend="aot_eager")
        return compiled

    def dynamic(self, function: Function, shapes: Sequence[Sequence[int | str]], dtypes: Sequence[str]) -> Function:
        dynamo = import_module("torch._dynamo")
        dynamo.reset()

        def forward(*arrays: Array) -> Array:
            return function(*arrays)

        def recorded(*arrays: Array) -> Array:  # a graph of its own, as torch.compile makes one for gradients
            return function(*arrays)

        plain, graph = [self.xp.compile(each, fullgraph=True, backend="aot_eager") for each in (forward, recorded)]

        def run(*arrays: Array) -> Array:
            for array, shape in zip(arrays, shapes):
                for axis, size in enumerate(shape):
                    if isinstance(size, str):
                        dynamo.mark_dynamic(array, axis)
            with dynamo.config.patch(error_on_recompile=True):
                return (graph if any(array.requires_grad for array in arrays) else plain)(*arrays)

        return run

    def mapped(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        return self.xp.vmap(function, in_dims=axes)  # type: ignore[no-any-return]
