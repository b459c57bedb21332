"""PyTorch's distributed tensors (DTensor): each process runs the same plan, and torch adds the collectives.

This module imports torch, and is imported when the first distributed tensor arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.adapters.options import FrameworkOptions
from einsumx.adapters.replacement import as_error_of, own, say_native
from einsumx.backends.torch.adapter import TorchAdapter
from einsumx.errors import BackendError
from einsumx.ir.ops import Matmul, Op
from einsumx.ir.program import Program
from einsumx.ir.traits import BLAS

if TYPE_CHECKING:
    from typing_extensions import Self

torch: Any = import_module("torch")
dtensor: Any = import_module("torch.distributed.tensor")

_SAME_RULES = BLAS
"""The dtypes in which torch's own einsum follows einsumx's rules."""


class ShardedAdapter(TorchAdapter):
    """Distributed tensors, and plain ones beside them where torch takes these as replicated."""

    measured_plans = False  # processes with different plans would wait for each other's collectives
    semirings = None
    blocks = exponents = None
    missing = MappingProxyType(
        {
            "blocks": "memory_limit= works for tensors in one process, not for DTensors, whose blocks are on several; "
            "call einsum on to_local(), or omit memory_limit=",
            "exponents": (
                "a DTensor is split over several processes, each with its own largest element; call einsum_frexp on "
                "full_tensor(), or einsumx.einsum"
            ),
        }
    )

    def takes_arrays_of(self, other: Adapter) -> bool:
        return type(other) is TorchAdapter

    def configured(self, options: FrameworkOptions) -> Self:
        options.refuse("torch, for distributed tensors,")
        return self

    def kernel(self, op: Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Callable[..., Array]:
        if isinstance(op, Matmul) and [len(shape) for shape in shapes] == [1, 1]:
            return _inner
        return super().kernel(op, shapes, dtype)

    def prepare(self, run: Run, program: Program) -> Run:
        """``run``; torch's own einsum where the plan merges an axis that torch cannot merge, and torch's does not."""
        run = super().prepare(run, program)

        @wraps(run)
        def function(*arrays: Array) -> Array:
            if torch.is_inference_mode_enabled():  # in which torch makes no view of a DTensor from outside of it
                with torch.inference_mode(False), torch.no_grad():
                    return function(*arrays)
            try:
                return run(*arrays)
            except RuntimeError as error:
                failure = error
            if self._follows_torch(program, arrays) and any(map(_uneven, arrays)):
                try:
                    result = own(torch.einsum)(program.equation, *arrays)
                except RuntimeError:
                    pass
                else:
                    say_native("einsumx.einsum", [program.equation], "an axis is sharded unevenly")
                    return result
            message = _advice(arrays)
            if message is None:
                raise failure
            raise as_error_of(BackendError(message), RuntimeError) from failure

        return function

    def _follows_torch(self, program: Program, arrays: Sequence[Array]) -> bool:
        """Whether torch's own einsum accepts these operands, and computes and returns the same dtype."""
        is_own = program.dtype in _SAME_RULES and program.accumulate is None
        return is_own and all(
            isinstance(each, dtensor.DTensor) and self.dtype_name(each.dtype) == program.dtype for each in arrays
        )


def _inner(lhs: Array, rhs: Array) -> Array:
    """The inner product of two vectors.

    torch gathers the operands of a dot product, but not of a matrix product, if they are sums that are still to be made
    or merged axes of which an inner one is sharded.
    """
    plain = dtensor.Shard, dtensor.Replicate
    if all(type(each) in plain for side in (lhs, rhs) for each in getattr(side, "placements", ())):
        return torch.dot(lhs, rhs)
    return torch.mm(lhs.unsqueeze(0), rhs.unsqueeze(1)).reshape(())


def _uneven(array: Array) -> tuple[int, int] | None:
    """An axis that is sharded unevenly, and its number of shards, along all axes of the mesh; None without one."""
    counts: dict[int, int] = {}
    for place, each in enumerate(array.placements):
        if each.is_shard():
            counts[each.dim] = counts.get(each.dim, 1) * array.device_mesh.size(place)
    return next(((axis, count) for axis, count in counts.items() if array.shape[axis] % count), None)


def _advice(arrays: Sequence[Array]) -> str | None:
    """What helps after torch failed with these operands; None if they are not the reason."""
    for number, array in enumerate(arrays):
        if not isinstance(array, dtensor.DTensor):
            return (
                f"operand {number} is a plain tensor next to DTensors; pass distribute_tensor(x, mesh, [Replicate()])"
            )
    for number, array in enumerate(arrays):
        if (uneven := _uneven(array)) is not None:
            axis, count = uneven
            size = array.shape[axis]
            return (
                f"operand {number} is sharded unevenly: axis {axis} has size {size}, and the mesh shards it over "
                f"{count} devices, so PyTorch cannot merge the axis with others; pad it to a size of "
                f"{-(-size // count) * count}, shard another axis, or redistribute the operand to Replicate()"
            )
    return None


ADAPTER = ShardedAdapter()
