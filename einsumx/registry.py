"""Which backend an array belongs to, found by its type, importing nothing until it must."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from einsumx.adapter import Adapter
from einsumx.errors import BackendError

__all__ = ["backend_of", "backends", "get_backend", "register"]

BUILTIN = ("numpy", "torch", "cupy", "mxnet", "jax", "array_api")
"""Names of our own backends, which are also the modules under ``einsumx.backends``."""

_MODULES = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "mxnet": "mxnet", "jax": "jax", "jaxlib": "jax"}
"""The first part of an array type's module name, and the backend that serves it."""

_registered: dict[str, Adapter] = {}


def register(adapter: Adapter) -> None:
    """Make a backend known for the rest of the process; one of the same name is replaced.

    Packages declare an entry point instead, in the group ``einsumx.backends``, whose name is the backend's
    name and whose object is an :class:`~einsumx.adapter.Adapter`. Either way the backend serves arrays whose
    type is defined in a module below ``adapter.module``.

    Raises:
        BackendError: ``adapter`` is not an :class:`~einsumx.adapter.Adapter`.
    """
    if not isinstance(adapter, Adapter):
        raise BackendError(f"a backend is an instance of einsumx.Adapter, not {adapter!r}")
    _registered[adapter.name] = adapter
    forget()


def forget() -> None:
    """Forget which types belong to which backend, as after a registration."""
    backend_of.cache_clear()
    _serves.cache_clear()
    get_backend.cache_clear()


def backends() -> dict[str, bool]:
    """The names of all backends, ours and registered ones, and whether each can be imported here.

    Nothing is imported to find out. The generic ``array_api`` backend needs nothing itself.

    >>> import einsumx
    >>> einsumx.backends()["numpy"]
    True
    """
    names = [*BUILTIN, *sorted({*_registered, *_entry_points()} - set(BUILTIN))]
    return {name: _is_installed(get_backend(name).module) for name in names}


@lru_cache(maxsize=256)
def get_backend(name: str) -> Adapter:
    """The backend of that name.

    Raises:
        BackendError: there is none.
    """
    if name in _registered:
        return _registered[name]
    if name in BUILTIN:
        return _checked(name, import_module(f"einsumx.backends.{name}").ADAPTER)
    if name in _entry_points():
        return _checked(name, _entry_points()[name].load())
    known = ", ".join((*BUILTIN, *_registered, *_entry_points()))
    raise BackendError(f"no backend is called {name!r}; there are {known}")


@lru_cache(maxsize=1024)
def backend_of(types: tuple[type, ...]) -> tuple[Adapter | None, bool]:
    """The one backend that serves arrays of all ``types``, and whether all are its plain arrays.

    Python scalars, lists and tuples belong to no backend; where there is nothing else the backend is None.

    Raises:
        BackendError: a type that no backend serves, or types of two.
    """
    found: dict[Adapter, type] = {}
    plain = True
    for kind in types:
        if is_builtin(kind):
            plain = False
            continue
        adapter = _serves(kind)
        found.setdefault(adapter, kind)
        plain = plain and adapter.is_plain(kind)
    if len(found) > 1:
        (first, one), (second, other), *_ = found.items()
        raise BackendError(
            f"the operands belong to two frameworks: {_named(one)} to {first.name} and {_named(other)} to "
            f"{second.name}; convert one of them first"
        )
    return next(iter(found), None), plain


def is_builtin(kind: type) -> bool:
    """Whether values of this type are Python's own scalars or sequences."""
    return kind in (bool, int, float, complex, list, tuple)


@lru_cache(maxsize=1024)
def _serves(kind: type) -> Adapter:
    """The backend for arrays of one type."""
    for base in kind.__mro__:
        for adapter in _registered.values():
            if _root(base) == adapter.module.partition(".")[0]:
                return adapter
        if _root(base) in _MODULES:
            adapter = get_backend(_MODULES[_root(base)])
            adapter.check_type(kind)
            return adapter
        for name, entry in _entry_points().items():
            if _root(base) == name:
                return _checked(name, entry.load())
    if hasattr(kind, "__array_namespace__"):
        return get_backend("array_api")
    raise BackendError(
        f"einsumx knows no framework for operands of type {_named(kind)}; convert them to arrays first "
        "(numpy.asarray), or register a backend for them"
    )


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="einsumx.backends")}


def _checked(name: str, adapter: Any) -> Adapter:
    if not isinstance(adapter, Adapter):
        raise BackendError(f"the backend {name!r} is not an instance of einsumx.Adapter but {adapter!r}")
    return adapter


def _is_installed(module: str) -> bool:
    return not module or find_spec(module) is not None


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
