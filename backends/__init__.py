"""The backends of einsumx, a module or package each, imported as ``einsumx.backends.<name>``.

Each has a class derived from :class:`einsumx.adapters.base.Adapter` and an instance of it called ``ADAPTER``, and
imports its framework only when an array of it arrives.

The package is callable, because its import replaces the function of the same name in ``einsumx``:
``einsumx.backends()`` calls :func:`einsumx.adapters.registry.backends` either way.
"""

import sys
from types import ModuleType


class _Callable(ModuleType):
    def __call__(self) -> dict[str, bool]:
        from einsumx.adapters.registry import backends

        return backends()


sys.modules[__name__].__class__ = _Callable
