"""Cubed: lazy arrays in chunks, computed within a bound on memory."""

from __future__ import annotations

from einsumx.adapters.base import Array
from einsumx.backends.array_api import NamedLibrary
from einsumx.errors import BackendError

__all__ = ["ADAPTER", "CubedAdapter"]


class CubedAdapter(NamedLibrary):
    """Cubed's arrays, by the array API standard."""

    name = "cubed"
    module = "cubed.array_api"
    install = "pip install cubed"

    def check_eager(self, array: Array) -> None:
        raise BackendError(
            "arrays of cubed are lazy, and cubed bounds the memory of a task itself: leave memory_limit= away, and "
            "make the arrays with spec=cubed.Spec(allowed_mem=...)"
        )

    def synchronize(self, array: Array) -> None:
        array.compute()


ADAPTER = CubedAdapter()
