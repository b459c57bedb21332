"""The backend for MLX."""

from einsumx.backends.mlx.adapter import ADAPTER, TRAITS, MlxAdapter

__all__ = ["ADAPTER", "TRAITS", "MlxAdapter"]
