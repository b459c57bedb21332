"""The backend for any namespace of the array API standard."""

from einsumx.backends.array_api.adapter import ADAPTER, ArrayApiAdapter, NamedLibrary

__all__ = ["ADAPTER", "ArrayApiAdapter", "NamedLibrary"]
