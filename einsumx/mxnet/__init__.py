"""MXNet, beside any NumPy: :func:`load` imports it."""

from einsumx.mxnet.importing import load

__all__ = ["load"]
