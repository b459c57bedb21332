"""For MXNet users: :func:`load` imports MXNet with any NumPy, :func:`replace_einsum` replaces its einsum."""

from einsumx.backends.mxnet.importing import load
from einsumx.mxnet.replacing import Replacement, replace_einsum

__all__ = ["Replacement", "load", "replace_einsum"]
