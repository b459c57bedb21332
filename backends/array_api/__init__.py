"""The backend for any namespace of the array API standard."""

from einsumx.backends.array_api.adapter import ADAPTER, ArrayApiAdapter
from einsumx.backends.array_api.named import NamedLibrary

__all__ = ["ADAPTER", "ArrayApiAdapter", "NamedLibrary"]
