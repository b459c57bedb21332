"""PyData's sparse, as the suite uses it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from einsumx.conformance.framework import Array, Framework


class SparseFramework(Framework):
    """COO arrays that store all elements that are not 0.

    GCXS arrays come from the same library; ``tests/test_sparse.py`` judges them with the same cases.
    """

    name = module = "sparse"
    immutable = "sparse arrays have no item assignment"
    unlimited = "nobody knows before how much memory a sparse result takes, so that memory_limit= is an error"
    mixes_with = ("numpy",)
    imports = ("import sparse",)
    code = "sparse.COO.from_numpy(np.array({values}, {dtype!r}))"

    def array(self, values: Any, dtype: str, device: str = "") -> Array:
        return self.xp.COO.from_numpy(np.array(values, dtype))

    def values(self, array: Array) -> Any:
        return array.todense()

    def promote(self, first: str, second: str) -> str | None:
        with suppress(TypeError):
            return str(np.result_type(first, second))
        return None
