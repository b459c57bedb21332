"""Types of the public functions' arguments and results, for type checkers alone.

Results have the type of the arrays among the operands; NumPy's may be scalars, and so have the type Any. Equations,
labels, shapes, numbers and lists beside arrays have types of their own, which say nothing of the result's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypedDict, TypeVar

from einsumx.dtypes import Casting
from einsumx.planner.path import Optimize
from einsumx.runtime.limits import MemoryAmount, MemoryLimit
from einsumx.runtime.request import Order

A = TypeVar("A")

NumpyResult: TypeAlias = Any
"""An array, or a scalar if the result has no axes, as in NumPy's own types of ``np.einsum`` and ``np.dot``.

A union would refuse a scalar for a variable of type float, and an array for one of type NDArray.
"""

Value: TypeAlias = "complex | str | Sequence[Any] | None"
"""What an operand may be beside arrays, an equation, labels and shapes included."""


class FrameworkKeywords(TypedDict, total=False):
    """The keywords that only some frameworks have; each framework's adapter declares which.

    Attributes:
        precision: of products of float32: on JAX as for ``jax.numpy.einsum``; on PyTorch ``"highest"``, ``"high"`` or
            ``"medium"``, as for ``torch.set_float32_matmul_precision``, during the call.
        preferred_element_type: the dtype in which products are summed, and that the result has; the operands keep
            theirs. As for ``jax.numpy.einsum``. JAX only.
        out_sharding: how the result is distributed over devices, a ``PartitionSpec`` or a ``NamedSharding``. JAX only.
    """

    precision: Any
    preferred_element_type: Any
    out_sharding: Any


class SemiringKeywords(TypedDict, total=False):
    """The keywords of :meth:`einsumx.Semiring.einsum`."""

    out: Any
    dtype: Any
    order: Order
    casting: Casting
    optimize: Optimize
    backend: str | None
    memory_limit: MemoryAmount | MemoryLimit | None


class Keywords(FrameworkKeywords, SemiringKeywords, total=False):
    """The keywords of :func:`einsumx.einsum`."""

    accumulate: Any


class PlanKeywords(TypedDict, total=False):
    """The keywords of :func:`einsumx.plan` but ``memory_limit``."""

    backend: str | None
    device: str
    dtypes: str | Sequence[str]
    dtype: Any
    accumulate: Any
    casting: Casting
    optimize: Optimize
    out: Any
    stored: bool
