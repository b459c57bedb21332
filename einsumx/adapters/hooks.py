"""What backends call of the public functions, which lie above them: :mod:`einsumx.api` fills it in.

It is there whenever a backend computes or traces, as any module of einsumx is imported after the package itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["einsum"]

einsum: Callable[..., Any]
""":func:`einsumx.einsum`."""
