"""The backend for PaddlePaddle."""

from einsumx.backends.paddle.adapter import ADAPTER, PaddleAdapter

__all__ = ["ADAPTER", "PaddleAdapter"]
