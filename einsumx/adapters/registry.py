"""Which backend an array belongs to, found by its type, importing nothing until it must."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from einsumx.errors import BackendError, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from einsumx.adapters.base import Adapter

__all__ = ["Stored", "backend_of", "backends", "get_backend", "is_known", "is_stored", "owner", "register", "serving"]

BUILTIN = ("numpy", "torch", "cupy", "mxnet", "jax", "array_api")
"""Names of our own backends, which are also the modules under ``einsumx.backends``."""

_PACKAGES = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "mxnet": "mxnet", "jax": "jax", "jaxlib": "jax"}
"""The top-level package that defines an array type, and the backend that serves it."""

_LAZY = {("dask", "Array"): "einsumx.backends.dask", ("autoray", "LazyArray"): "einsumx.backends.autoray"}
"""The package and name of each type of lazy arrays, which other frameworks compute, and the module with its ``einsum``.
"""

_registered: dict[str, Adapter] = {}


def register(adapter: Adapter) -> None:
    """Make a backend known for the rest of the process, before any other of its name or module, ours included.

    It serves arrays whose type is defined in the same top-level package as ``adapter.module``.

    A package that ships a backend declares an entry point in the group ``einsumx.backends`` instead. The entry
    point's name is that top-level package, and also the backend's name, so that nothing has to be loaded to find
    out whose an array is; its object is the :class:`~einsumx.adapters.base.Adapter`. Our own backends come first there.

    Raises:
        BackendError: ``adapter`` is not an instance of :class:`~einsumx.adapters.base.Adapter`.
    """
    from einsumx.adapters.base import Adapter

    if not isinstance(adapter, Adapter):
        raise BackendError(f"a backend is an instance of einsumx.Adapter, not {shown(adapter)}")
    _registered.pop(adapter.name, None)
    _registered[adapter.name] = adapter
    forget()


def forget() -> None:
    """Forget which types belong to which backend, and which packages are installed."""
    for cache in (backend_of, serving, is_known, _backend, _entry_points):
        cache.cache_clear()


def backends() -> dict[str, bool]:
    """The names of all backends, ours and others', and whether each one's framework can be imported here.

    No framework is imported to find out, and no other package's backend is loaded. The generic ``array_api``
    backend needs nothing itself.

    >>> import einsumx
    >>> einsumx.backends()["numpy"]
    True
    """
    modules = {name: get_backend(name).module for name in (*BUILTIN, *_registered)}
    for name in sorted(_entry_points()):
        modules.setdefault(name, name)
    return {name: _is_installed(module) for name, module in modules.items()}


def get_backend(name: str) -> Adapter:
    """The backend of that name.

    Raises:
        BackendError: there is none, or the package that declares it is broken.
    """
    if not isinstance(name, str):
        raise BackendError(f"backends are named by texts, such as 'numpy', not by {shown(name)}")
    return _backend(name)


@lru_cache(maxsize=256)
def _backend(name: str) -> Adapter:
    if name in _registered:
        return _registered[name]
    if name in BUILTIN:
        adapter: Adapter = import_module(f"einsumx.backends.{name}").ADAPTER
        return adapter
    if name in _entry_points():
        return _load(_entry_points()[name])
    known = ", ".join(dict.fromkeys((*BUILTIN, *_registered, *sorted(_entry_points()))))
    raise BackendError(f"no backend is called {shown(name)}; there are {known}")


@lru_cache(maxsize=1024)
def backend_of(types: tuple[type, ...]) -> tuple[Adapter | None, bool]:
    """The one backend that serves operands of all ``types``, and whether all are its plain arrays.

    Python scalars, lists and tuples belong to no backend; where there is nothing else the backend is None.

    Raises:
        BackendError: a type that no backend serves, or types of two; the error says which operand.
    """
    found: dict[Adapter, int] = {}
    plain = True
    for number, kind in enumerate(types):
        if is_builtin(kind):
            plain = False
            continue
        try:
            adapter = serving(kind)
        except BackendError as error:
            raise BackendError(f"operand {number}: {error}") from error
        found.setdefault(adapter, number)
        plain = plain and adapter.is_plain(kind)
    if len(found) > 1:
        one, other, *_ = [
            f"operand {number} ({_named(types[number])}) to {each.name}" for each, number in found.items()
        ]
        raise BackendError(f"the operands belong to two frameworks: {one} and {other}; convert one of them first")
    return next(iter(found), None), plain


def lazy(operands: Sequence[Any]) -> Any:
    """The module for operands of which one is a lazy array; None where none is."""
    for kind in map(type, operands):
        module = _lazy(kind)
        if module is not None:
            return import_module(module)
    return None


@lru_cache(maxsize=1024)
def _lazy(kind: type) -> str | None:
    """The module for the lazy arrays of a type; None where they are not lazy."""
    found = (_LAZY.get((_top(base.__module__), base.__name__)) for base in kind.__mro__)
    return next(filter(None, found), None)


def is_builtin(kind: type) -> bool:
    """Whether values of this type are Python's own scalars or sequences."""
    return kind in (bool, int, float, complex, list, tuple)


@lru_cache(maxsize=1024)
def is_known(kind: type) -> bool:
    """Whether a framework defines this type or a base class of it, whatever its backend says of it."""
    return _adapter_of(kind) is not None


@runtime_checkable
class Stored(Protocol):
    """What is read by slices: a dataset of HDF5, an array of Zarr, or anything of the kind."""

    shape: tuple[int, ...]
    dtype: Any

    def __getitem__(self, box: Any, /) -> Any: ...


def is_stored(array: Any) -> bool:
    """Whether it is no framework's array and not sparse, but is read by slices."""
    kind: type = type(array)
    if is_builtin(kind) or is_known(kind) or adds_to_arrays(kind) or _lazy(kind) is not None or _is_sparse(kind):
        return False
    return isinstance(array, Stored) and not isinstance(array, type)


def _is_sparse(kind: type) -> bool:
    """Whether a type is of sparse matrices, as SciPy has them, which slices do not make dense."""
    return hasattr(kind, "toarray") and hasattr(kind, "nnz")


@lru_cache(maxsize=1024)
def serving(kind: type) -> Adapter:
    """The backend for arrays of one type: that of the first of its base classes which a framework defines.

    Raises:
        BackendError: there is none, or it refuses the type.
    """
    adapter = _adapter_of(kind)
    if adapter is not None:
        adapter.check_type(kind)
        return adapter.serving(kind)
    if _lazy(kind) is not None:
        raise BackendError(
            f"arrays of type {_named(kind)} are lazy, and einsumx.einsum alone takes them; for plans and expressions, "
            "pass shapes"
        )
    if adds_to_arrays(kind):
        raise dropped(kind)
    raise BackendError(f"einsumx knows no framework for operands of type {_named(kind)}; {_instead(kind)}")


def _instead(kind: type) -> str:
    """What to do about an operand of a type that is no array's."""
    if kind is type(None):
        return "None is no array: look at what returned it"
    if issubclass(kind, str | bytes):
        return "a text is no array: one equation stands first, with all subscripts, einsum('ij,jk->ik', a, b)"
    if issubclass(kind, type | FunctionType | BuiltinFunctionType):
        return "a function or a class is no array: call it, and pass what it returns"
    if _is_sparse(kind):
        return "it is sparse, and einsum takes dense arrays: x.toarray() makes one, with memory for all its zeros"
    if issubclass(kind, AbstractSet | Iterator):
        return "make a list of it, or an array, which has an order and a length"
    return "convert them to arrays first (numpy.asarray), or register a backend for them"


def adds_to_arrays(kind: type) -> bool:
    """Whether arrays of a type tell NumPy's functions what to do with them, as quantities with units do."""
    return hasattr(kind, "__array_ufunc__") or hasattr(kind, "__array_function__")


_PLAIN = {
    "filled": "x.filled(0)",
    "magnitude": "x.magnitude",
    "to_numpy": "x.to_numpy()",
    "value": "x.value",
    "__array__": "numpy.asarray(x)",
}
"""What makes a plain array of one that adds something, by the attribute that tells of it."""


def dropped(kind: type) -> BackendError:
    """The error for arrays of a type that adds something to them, which einsum would drop."""
    plain = next((call for name, call in _PLAIN.items() if hasattr(kind, name)), "make one of its values")
    return BackendError(
        f"einsum would drop what {_named(kind)} adds to an array (masks, units, labels); pass the plain array: {plain}"
    )


def owner(array: object) -> Adapter | None:
    """The backend that serves an array; None where no framework defines its type.

    Raises:
        BackendError: its framework's backend refuses it.
    """
    kind: type = type(array)
    return serving(kind) if is_known(kind) else None


def _adapter_of(kind: type) -> Adapter | None:
    """The backend of the framework that defines a type or a base class of it, whatever it says of the type.

    A base class counts if it is a type of arrays: frameworks also have mixins, which make arrays of nothing.
    """
    for base in kind.__mro__:
        adapter = _of_package(_top(base.__module__))
        if adapter is not None and (base is kind or _takes(adapter, base)):
            return adapter
    if hasattr(kind, "__array_namespace__") and _lazy(kind) is None:
        return get_backend("array_api")
    return None


def _takes(adapter: Adapter, kind: type) -> bool:
    try:
        adapter.check_type(kind)
    except BackendError:
        return False
    return True


def _of_package(package: str) -> Adapter | None:
    """The backend for the types that a top-level package defines."""
    for adapter in reversed(tuple(_registered.values())):
        if _top(adapter.module) == package:
            return adapter
    if package in _PACKAGES:
        return get_backend(_PACKAGES[package])
    return get_backend(package) if package in _entry_points() else None


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="einsumx.backends")}


def _load(entry: EntryPoint) -> Adapter:
    """What an entry point names, checked to be what the entry point promises."""
    from einsumx.adapters.base import Adapter

    try:
        adapter = entry.load()
    except (ImportError, AttributeError) as error:
        raise BackendError(f"the backend {entry.name!r} cannot be loaded from {entry.value!r}: {error}") from error
    if not isinstance(adapter, Adapter):
        raise BackendError(
            f"the backend {entry.name!r} at {entry.value!r} is not an instance of einsumx.Adapter but {adapter!r}"
        )
    if adapter.name != entry.name or _top(adapter.module) != entry.name:
        raise BackendError(
            f"the entry point {entry.name!r} must have the name of its backend, {adapter.name!r}, and of the "
            f"package that defines its arrays, {_top(adapter.module)!r}"
        )
    return adapter


def _is_installed(module: str) -> bool:
    package = _top(module)
    return not package or sys.modules.get(package) is not None or find_spec(package) is not None


def _top(module: str) -> str:
    """The top-level package of a module."""
    return module.partition(".")[0]


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
