"""For MXNet users: :func:`load` imports MXNet with any NumPy; ``einsumx.patch("mxnet")`` replaces its einsum."""

from einsumx.backends.mxnet.importing import load

__all__ = ["load"]
