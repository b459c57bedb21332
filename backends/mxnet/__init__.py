"""The backend for MXNet."""

from einsumx.backends.mxnet.adapter import ADAPTER, MxnetAdapter

__all__ = ["ADAPTER", "MxnetAdapter"]
