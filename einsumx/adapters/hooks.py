"""Lets backends call the public API, which is above them: :mod:`einsumx.api` assigns the function on import.

It is always set when a backend needs it, because importing any module of einsumx imports the package first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["einsum"]

einsum: Callable[..., Any]
""":func:`einsumx.einsum`."""
