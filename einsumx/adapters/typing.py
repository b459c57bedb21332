"""Types of the arguments and results of adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Array: TypeAlias = Any
"""An array of some framework; einsumx inspects it only through the adapter."""

Signature: TypeAlias = tuple[Any, ...]
"""``(type, shape, dtype, ...)`` of an array and whatever else its plan depends on (strides, device): hashable, quick to
take, and in the framework's own terms."""

Run: TypeAlias = Callable[..., Array]
"""A compiled plan: takes the operands as arguments and returns the result."""
