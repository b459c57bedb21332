"""The backend for JAX."""

from einsumx.backends.jax.adapter import ADAPTER, TRAITS, JaxAdapter

__all__ = ["ADAPTER", "TRAITS", "JaxAdapter"]
