"""Modules that are imported when first used, to keep ``import einsumx`` fast."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["LazyModule"]


class LazyModule:
    """A module that is imported when one of its attributes is first used.

    Unlike an import statement in a function, it keeps the module, and so works while the interpreter exits, after
    ``sys.modules`` was cleared.

    >>> decimal = LazyModule("decimal")
    >>> decimal.Decimal("0.5")
    Decimal('0.5')
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, name)
