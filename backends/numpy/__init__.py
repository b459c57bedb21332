"""The backend for NumPy."""

from einsumx.backends.numpy.adapter import ADAPTER, NumpyAdapter

__all__ = ["ADAPTER", "NumpyAdapter"]
