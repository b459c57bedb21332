"""Conversion of NumPy scalars and texts to Python's own values, without importing NumPy."""

from __future__ import annotations

import sys
from typing import Any


def as_python(value: Any) -> Any:
    """A NumPy number or bool, or a text of a class of its own, as the equal Python value; anything else unchanged.

    A member of an Enum is such a text. It would be written as ``"Color.RED"`` where its value is meant.

    >>> import numpy as np
    >>> as_python(np.int64(3)), as_python(np.bool_(True)), as_python(np.str_("ij")), as_python("ij")
    (3, True, 'ij', 'ij')
    """
    if isinstance(value, str):
        return str.__str__(value)
    numpy = sys.modules.get("numpy")  # if it is not imported, no value is one of its scalars
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    return value.item() if isinstance(value, numpy.number | numpy.bool_) else value
