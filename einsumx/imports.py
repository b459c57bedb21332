"""Modules that are imported when first used, to keep ``import einsumx`` fast."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["LazyModule", "imported"]


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
        module = sys.modules.get(name)
        self._module = None if module is None or _is_unfinished(module) else module

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = imported(self._name)
        value = getattr(self._module, name)
        if callable(value) and not isinstance(value, type):
            self.__dict__[name] = value  # found without this method from now on
        return value


def imported(name: str) -> ModuleType:
    """The module of that name, which is imported unless it was before.

    A signal handler or a finalizer may run while its thread is importing a module, and call einsum too. The import
    goes on only after that, so the call imports the unfinished modules of einsumx anew. Python then drops the
    unfinished ones.
    """
    module = import_module(name)
    if _is_unfinished(module):
        for other, each in list(sys.modules.items()):
            if other.startswith("einsumx.") and _is_unfinished(each):
                sys.modules.pop(other, None)
        module = import_module(name)
    return module


def _is_unfinished(module: ModuleType) -> bool:
    """Whether a module is being imported. Python waits for other threads, so this one does it."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
