"""Names for what adapters take and give, which know no adapter themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

__all__ = ["Array", "Recorded", "Run", "Signature"]

Array: TypeAlias = Any
"""An array of some framework. What einsumx knows of it, it knows through the adapter."""

Signature: TypeAlias = tuple[Any, ...]
"""``(type, shape, dtype, ...)`` of an array and whatever else its plan depends on (strides, device), in the framework's
own terms: cheap to take, and hashable."""

Run: TypeAlias = Callable[..., Array]
"""A plan made ready to run: takes the operands, an argument each, and gives the result."""


class Recorded(Protocol):
    """A contraction under a memory limit, as a framework records it to differentiate it; it holds no arrays."""

    @property
    def places(self) -> int:
        """How many arrays there are in all: the operands, and last the cotangent."""

    def dtype(self, place: int) -> Any:
        """The framework's dtype of what belongs in a place."""

    def value(self, place: int, arrays: Sequence[Any], beside: int = 0) -> Array:
        """What belongs in one place: the gradient by an operand, in the dtype of the result.

        Args:
            place: the number of the operand; or the last place, for the result of such operands.
            arrays: in all places; what is in that one is not looked at.
            beside: bytes of the gradients that are there already.

        Raises:
            MemoryLimitError: it does not fit, which was seen to before the contraction ran.
        """
