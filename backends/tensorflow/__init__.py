"""The backend for TensorFlow."""

from einsumx.backends.tensorflow.adapter import ADAPTER, TensorflowAdapter

__all__ = ["ADAPTER", "TensorflowAdapter"]
