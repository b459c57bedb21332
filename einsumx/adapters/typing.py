"""Types of the arguments and results of adapters, and the keywords that one framework alone has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from einsumx.errors import BackendError

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

    @property
    def conjugated(self) -> tuple[int, ...]:
        """The places of the operands that are conjugated for the result."""

    def dtype(self, place: int) -> str:
        """The dtype of the array in a place, by name."""

    def value(self, place: int, arrays: Sequence[Any], beside: int = 0, conjugated: Collection[int] = ()) -> Array:
        """The gradient by the operand in ``place``, in the dtype of the result; in the last place, the result.

        Args:
            place: the place to compute.
            arrays: the arrays in all places; the one in ``place`` is ignored.
            beside: bytes of the gradients that are computed already.
            conjugated: the places whose arrays are conjugated.

        Raises:
            MemoryLimitError: the computation does not fit; the forward call checks this in advance.
        """


class FrameworkOptions(NamedTuple):
    """Values in the framework's own terms; None for the framework's default.

    They are part of cache keys, so each is hashable.

    Attributes:
        precision: of products.
        preferred_element_type: the name of the dtype in which products are summed and returned.
        out_sharding: how the result is distributed over devices.
    """

    precision: Any = None
    preferred_element_type: str | None = None
    out_sharding: Any = None

    def refuse(self, who: str) -> None:
        """Raise BackendError if an option is set; ``who`` does not have it."""
        for name, value in zip(self._fields, self):
            if value is not None:
                raise BackendError(f"{who} has no {name}=; leave it away")


NO_OPTIONS = FrameworkOptions()
