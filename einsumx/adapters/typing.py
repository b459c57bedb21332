"""Types of the arguments and results of adapters, independent of any adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

__all__ = ["Array", "Recorded", "Run", "Signature"]

Array: TypeAlias = Any
"""An array of some framework; einsumx inspects it only through the adapter."""

Signature: TypeAlias = tuple[Any, ...]
"""``(type, shape, dtype, ...)`` of an array and whatever else its plan depends on (strides, device): hashable, quick to
take, and in the framework's own terms."""

Run: TypeAlias = Callable[..., Array]
"""A compiled plan: takes the operands as arguments and returns the result."""


class Recorded(Protocol):
    """A contraction under a memory limit, as a framework's autograd records it; it holds no arrays.

    The operands, and last the cotangent, have numbered places.
    """

    @property
    def places(self) -> int:
        """The number of places: the operands and the cotangent."""

    def dtype(self, place: int) -> str:
        """The dtype of the array in a place, by name."""

    def value(self, place: int, arrays: Sequence[Any], beside: int = 0) -> Array:
        """The gradient by the operand in ``place``, in the dtype of the result; in the last place, the result.

        Args:
            place: the place to compute.
            arrays: the arrays in all places; the one in ``place`` is ignored.
            beside: bytes of the gradients that are computed already.

        Raises:
            MemoryLimitError: the computation does not fit; the forward call checks this in advance.
        """
