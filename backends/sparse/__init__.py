"""The backend for PyData's sparse."""

from einsumx.backends.sparse.adapter import ADAPTER, SparseAdapter

__all__ = ["ADAPTER", "SparseAdapter"]
