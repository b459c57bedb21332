"""Backends that other packages declare by entry points of ``einsumx.backends``, or register when they are imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from einsumx.adapters.operand_types import top_package
from einsumx.errors import BackendError, shown
from einsumx.imports import LazyModule

if TYPE_CHECKING:
    from importlib import metadata
    from importlib.metadata import EntryPoint

    from einsumx.adapters import base
    from einsumx.adapters.base import Adapter
else:
    metadata = LazyModule("importlib.metadata")
    base = LazyModule("einsumx.adapters.base")


@lru_cache(maxsize=1)
def declared_backends() -> dict[str, EntryPoint]:
    """The installed entry points by name."""
    return {entry.name: entry for entry in metadata.entry_points(group="einsumx.backends")}


def load_backend(entry: EntryPoint) -> Adapter:
    """The adapter that an entry point names.

    Raises:
        BackendError: it cannot be imported, is not an adapter, or has another name than the entry point.
    """
    try:
        adapter = entry.load()
    except (ImportError, AttributeError) as error:
        raise BackendError(f"the backend {entry.name!r} cannot be loaded from {entry.value!r}: {error}") from error
    if not isinstance(adapter, base.Adapter):
        raise BackendError(
            f"the backend {entry.name!r} at {entry.value!r} must be an instance of einsumx.Adapter, not {adapter!r}"
        )
    package = top_package(adapter.module)
    if adapter.name != entry.name or package != entry.name:
        raise BackendError(
            f"the entry point {entry.name!r} must have the name of its backend, {adapter.name!r}, and of the "
            f"package that defines its arrays, {package!r}"
        )
    return adapter


_imported: dict[str, None] = {}


def imported_modules() -> list[str]:
    """The modules that :func:`import_modules` has imported, for code that does the same in another process."""
    return list(_imported)


def import_options() -> list[str]:
    """The options by which a command imports the same modules."""
    return [word for name in _imported for word in ("--import", name)]


def import_modules(names: Iterable[str]) -> None:
    """Import modules that register backends.

    From now on the current folder is searched too, but last, so that no file there hides an installed module.

    Raises:
        BackendError: a module cannot be imported; the message has the error.
    """
    from pathlib import Path  # takes a third of the time of importing einsumx

    for name in names:
        if (folder := str(Path.cwd())) not in sys.path:
            sys.path.append(folder)
        try:
            import_module(name)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if name.endswith(".py"):
                reason += "; write its name without .py"
            raise BackendError(f"the module {shown(name)} cannot be imported: {reason}") from error
        _imported[name] = None
