"""Replaces ``paddle.einsum`` for :func:`einsumx.patch`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from einsumx.adapters.replacement import Name

__all__ = ["names"]


def names() -> Iterator[Name]:
    """The names of Paddle's einsum; one of its modules has the same name as the function."""
    paddle: Any = import_module("paddle")
    for owner in (paddle, paddle.tensor, paddle.functional, sys.modules["paddle.tensor.einsum"]):
        yield Name(owner, "einsum")
