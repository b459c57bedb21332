"""The frameworks that einsumx runs on, a file or a folder each, imported as ``einsumx.backends.<name>``.

Each has a class derived from :class:`einsumx.adapters.base.Adapter`, an instance of it called ``ADAPTER``,
and imports its framework only when an array of it arrives.

The package is callable: ``einsumx.backends()`` is :func:`einsumx.adapters.registry.backends`, whichever of the two
meanings of the name was imported first.
"""

import sys
from types import ModuleType


class _Callable(ModuleType):
    def __call__(self) -> dict[str, bool]:
        from einsumx.adapters.registry import backends

        return backends()


sys.modules[__name__].__class__ = _Callable
