"""MXNet: beside any NumPy by :func:`load`, and with einsumx in the place of its einsum by :func:`replace_einsum`."""

from einsumx.backends.mxnet.importing import load
from einsumx.mxnet.replacing import Replacement, replace_einsum

__all__ = ["Replacement", "load", "replace_einsum"]
