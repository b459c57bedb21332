"""NumPy's scalars as Python's own, without importing NumPy."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["as_python"]


def as_python(value: Any) -> Any:
    """A number, bool or text of NumPy's as the Python value that it stands for; anything else as it is.

    >>> import numpy as np
    >>> as_python(np.int64(3)), as_python(np.bool_(True)), as_python(np.str_("ij")), as_python("ij")
    (3, True, 'ij', 'ij')
    """
    numpy = sys.modules.get("numpy")  # where it is not imported, nothing is of it
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    return value.item() if isinstance(value, numpy.number | numpy.bool_ | numpy.str_) else value
