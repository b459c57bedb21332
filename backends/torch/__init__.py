"""The backend for PyTorch."""

from einsumx.backends.torch.adapter import ADAPTER, TorchAdapter

__all__ = ["ADAPTER", "TorchAdapter"]
