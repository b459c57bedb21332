"""Semirings on tensors: torch's functions, and NumPy's kernels in host memory where they are faster."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

from einsumx.adapters.facets import Semirings
from einsumx.adapters.typing import Array
from einsumx.algebra.products import composed, composed_workspace
from einsumx.backends.numpy import loops, semirings
from einsumx.backends.torch.choices import IN_NUMPY
from einsumx.imports import LazyModule, imported

torch: Any = LazyModule("torch")

Shape: TypeAlias = tuple[int, ...]
Product: TypeAlias = Callable[[Array, Array], Array]


class PublicSemirings(Semirings):
    """torch's functions."""

    names = MappingProxyType({"max": "amax", "min": "amin", "concat": "cat"})  # gradients are shared by equal maxima


class TorchSemirings(PublicSemirings):
    """The same, NumPy's kernels, and derivatives that keep no terms."""

    def elementwise(self, name: str, lhs: Array, rhs: Array) -> Array:
        return self.named(name)(lhs, rhs)

    def reduced(self, name: str, array: Array, axes: tuple[int, ...]) -> Array:
        if name != "logaddexp" or imported("einsumx.backends.torch.kernels").is_observed((array,)):
            return super().reduced(name, array, axes)  # whose derivatives are 0 for a sum of minus infinities
        return torch.logsumexp(array, axes)

    def detached(self, array: Array) -> Array:
        return array.detach()

    def has_values(self, array: Array) -> bool:
        is_eager = imported("einsumx.backends.torch.kernels").is_eager  # a mode may have given it no values
        return super().has_values(array) and bool(is_eager((array.detach(),)))

    def copied_order(self, array: Array) -> Array:
        return array.contiguous()

    def checkpointed(self, function: Callable[..., Array]) -> Callable[..., Array]:
        recorded = imported("torch.utils.checkpoint").checkpoint

        def run(*arrays: Array) -> Array:
            if any(map(self.adapter.gradients.needed, arrays)) and all(map(self.adapter.has_values, arrays)):
                return recorded(function, *arrays, use_reentrant=False, preserve_rng_state=False)
            return function(*arrays)

        return run

    def product(self, add: str, multiply: str, lhs: Shape, rhs: Shape, dtype: str) -> Product | None:
        if dtype not in IN_NUMPY:
            return None
        by_torch = composed(self, add, multiply, lhs, rhs, dtype)
        kernels = imported("einsumx.backends.torch.kernels")
        numpy = imported("einsumx.backends.numpy.kernels")
        kernel = semirings.product(add, multiply, lhs, rhs, numpy.matmul((lhs, rhs), dtype, ""), lambda: by_torch)
        terms = max(lhs[0], rhs[0]) * lhs[1] * prod(rhs[1:])
        is_faster = add == "logaddexp" or semirings.has_small_matrices(lhs, rhs)

        def product(left: Array, right: Array) -> Array:
            if kernels.is_observed((left, right)):
                return by_torch(left, right)
            if not (is_faster or loops.product_loops(add, multiply, dtype, terms)):
                return by_torch(left, right)
            return torch.from_numpy(kernel(_as_numpy(left), _as_numpy(right)))

        return product

    def workspace(self, add: str, multiply: str, lhs: Shape, rhs: Shape, dtype: str) -> int | None:
        if dtype not in IN_NUMPY:
            return None
        return max(semirings.workspace(add, lhs, rhs, dtype), composed_workspace(self, add, lhs, rhs, dtype))

    def best(self, array: Array, is_least: bool) -> Array:
        name = "argmin" if is_least else "argmax"
        is_observed = imported("einsumx.backends.torch.kernels").is_observed
        if self.adapter.dtype_name(array.dtype) in (*IN_NUMPY, "uint8") and not is_observed((array,)):
            return torch.from_numpy(getattr(array.numpy(), name)(-1))  # many times faster in host memory
        return getattr(array, name)(-1)

    def places(self, start: int, stop: int, like: Array) -> Array:
        return torch.arange(start, stop, device=like.device)

    def rows(self, matrix: Array, places: Array) -> Array:
        return matrix.index_select(0, places)


def _as_numpy(tensor: Any) -> Any:
    return tensor.detach().resolve_neg().numpy()
