"""Types of the public functions' operands and results, for type checkers alone.

Results have the type of the arrays among the operands; NumPy's may be scalars, and so have the type Any. Equations,
labels, shapes, numbers and lists beside arrays have types of their own, which say nothing of the result's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

A = TypeVar("A")

NumpyResult: TypeAlias = Any
"""An array, or a scalar if the result has no axes, as in NumPy's own types of ``np.einsum`` and ``np.dot``.

A union would refuse a scalar for a variable of type float, and an array for one of type NDArray.
"""

Value: TypeAlias = "complex | str | Sequence[Any] | None"
"""What an operand may be beside arrays, an equation, labels and shapes included."""
