"""Conversion of NumPy scalars to Python values, without importing NumPy."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["as_python"]


def as_python(value: Any) -> Any:
    """A NumPy number, bool or string as the equal Python value; anything else unchanged.

    >>> import numpy as np
    >>> as_python(np.int64(3)), as_python(np.bool_(True)), as_python(np.str_("ij")), as_python("ij")
    (3, True, 'ij', 'ij')
    """
    numpy = sys.modules.get("numpy")  # if it is not imported, no value is one of its scalars
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    return value.item() if isinstance(value, numpy.number | numpy.bool_ | numpy.str_) else value
