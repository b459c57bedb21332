"""Finds the backend that serves an array from the array's type, without importing a framework."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from einsumx.adapters.entry_points import declared_backends, load_backend
from einsumx.adapters.operand_types import (
    extends_arrays,
    is_sparse,
    is_symbol,
    lazy_module,
    top_package,
    type_name,
    unknown_type_error,
)
from einsumx.caches import Table, cache_clear
from einsumx.errors import BackendError, shown
from einsumx.imports import LazyModule, imported

if TYPE_CHECKING:
    from einsumx.adapters import base
    from einsumx.adapters.base import Adapter, Signature
    from einsumx.adapters.replacement import Replaceable
else:
    base = LazyModule("einsumx.adapters.base")

_util: Any = LazyModule("importlib.util")

BUILTIN = (
    "numpy",
    "torch",
    "cupy",
    "mxnet",
    "jax",
    "tensorflow",
    "mlx",
    "paddle",
    "tinygrad",
    "autograd",
    "sparse",
    "cubed",
    "ndonnx",
    "dpnp",
    "array_api",
)
"""The names of einsumx's own backends, which are modules of ``einsumx.backends``."""

_OTHER_LIBRARIES = {"dask": "einsumx.backends.dask", "opt_einsum": "einsumx.interop.opt_einsum"}
"""Libraries that are no backends and have an einsum of their own: one of lazy arrays, and one that calls frameworks."""

_registered: dict[str, Adapter] = {}


# -- backends by name ---------------------------------------------------------------------------------------------


def register(adapter: Adapter) -> None:
    """Register a backend for the rest of the process. It replaces any other of the same name or module.

    It serves arrays whose type is defined in the same top-level package as ``adapter.module``.

    A package that ships a backend declares an entry point in the group ``einsumx.backends`` instead, whose object is
    the :class:`~einsumx.adapters.base.Adapter`. The entry point has the name of the backend, which is also the name of
    the top-level package that defines the arrays, so einsumx loads it only when such an array arrives. einsumx's own
    backends take precedence over entry points.

    Raises:
        BackendError: ``adapter`` is not an instance of :class:`~einsumx.adapters.base.Adapter`.
    """
    if not isinstance(adapter, base.Adapter):
        raise BackendError(f"a backend is an instance of einsumx.Adapter, not {shown(adapter)}")
    _registered.pop(adapter.name, None)
    _registered[adapter.name] = adapter
    forget()


def forget() -> None:
    """Clear the caches of which types belong to which backend, and of the installed entry points.

    Plans are forgotten too, because repeated calls are known by the types of their arrays.
    """
    for cache in (serving, access, _backend, _is_plain, declared_backends):
        cache.cache_clear()
    cache_clear()


def backends() -> dict[str, bool]:
    """The names of all backends, and whether each one's framework can be imported.

    This imports no framework and loads no other package's backend. The generic ``array_api`` backend needs no
    framework.

    >>> import einsumx
    >>> einsumx.backends()["numpy"]
    True
    """
    modules = {name: get_backend(name).module for name in (*BUILTIN, *_registered)}
    for name in sorted(declared_backends()):
        modules.setdefault(name, name)
    return {name: _is_installed(top_package(module)) for name, module in modules.items()}


def _is_installed(package: str) -> bool:
    return not package or sys.modules.get(package) is not None or _util.find_spec(package) is not None


def get_backend(name: str) -> Adapter:
    """The backend of that name.

    Raises:
        BackendError: no backend has that name, or the package that declares it is broken.
    """
    if not isinstance(name, str):
        raise BackendError(f"a backend must be named by a string, such as 'numpy', not by {shown(name)}")
    return _backend(name)


@lru_cache(maxsize=256)
def _backend(name: str) -> Adapter:
    if name in _registered:
        return _registered[name]
    if name in BUILTIN:
        adapter: Adapter = imported(f"einsumx.backends.{name}").ADAPTER
        return adapter
    if name in declared_backends():
        return load_backend(declared_backends()[name])
    raise _unknown(name)


def _names() -> dict[str, None]:
    """The names of all backends."""
    return dict.fromkeys((*BUILTIN, *_registered, *sorted(declared_backends())))


def _unknown(name: str, *others: str) -> BackendError:
    """The error that no backend has this name, with the names that there are."""
    return BackendError(
        f"no backend is called {shown(name)}; there are {', '.join((*_names(), *others))}; an installed package may "
        "add others"
    )


# -- backends by array type ---------------------------------------------------------------------------------------


def backend_of(types: tuple[type, ...]) -> tuple[Adapter | None, bool]:
    """The one backend that serves operands of all ``types``, and whether all of them are its plain arrays.

    Python scalars, lists and tuples belong to no backend; the backend is None if there are no other operands.

    Raises:
        BackendError: no backend serves a type, or two backends serve different ones; the message names the operand.
    """
    first_operands: dict[Adapter, int] = {}
    all_plain = True
    for number, kind in enumerate(types):
        if is_builtin(kind):
            all_plain = False
            continue
        try:
            adapter = serving(kind)
        except BackendError as error:
            raise BackendError(f"operand {number}: {error}") from error
        first_operands.setdefault(adapter, number)
        all_plain = all_plain and adapter.is_plain(kind)
    if len(first_operands) > 1:
        first_operands = {
            adapter: number
            for adapter, number in first_operands.items()
            if not any(other.takes_arrays_of(adapter) for other in first_operands)
        }
    if len(first_operands) > 1:
        one, other, *_ = [
            f"operand {number} ({type_name(types[number])}) to {adapter.name}"
            for adapter, number in first_operands.items()
        ]
        raise BackendError(f"the operands belong to two frameworks: {one} and {other}; convert one of them first")
    return next(iter(first_operands), None), all_plain


@lru_cache(maxsize=1024)
def serving(kind: type) -> Adapter:
    """The backend for arrays of one type: that of the first base class which a framework defines.

    Raises:
        BackendError: no backend serves the type.
    """
    if is_builtin(kind):  # at once, as each call with a number as its first operand comes here
        raise BackendError(f"operands of type {kind.__name__} belong to no framework; pass an array")
    adapter = _adapter_of(kind)
    if adapter is None:
        raise unknown_type_error(kind)
    adapter.check_type(kind)
    return adapter.serving(kind)


Access: TypeAlias = "tuple[Adapter, Callable[[Any], Signature], Callable[[], bool] | None]"
"""A backend, its method ``signature`` and its ``is_mode_set``."""

access: Table[Access] = Table(maxsize=1024)
"""What each call needs of the backend of its first array, by type; see :func:`access_to`."""


def access_to(kind: type) -> Access:
    """What a call needs of the backend for arrays of one type.

    Raises:
        BackendError: no backend serves the type.
    """
    found = access.known.get(kind)
    if found is None:
        adapter = serving(kind)
        found = access.keep(kind, (adapter, adapter.signature, adapter.is_mode_set))
    return found


def are_plain(adapter: Adapter, signatures: Sequence[Signature]) -> bool:
    """Whether arrays of these signatures are plain ones of the framework."""
    return all(map(_is_plain, repeat(adapter), map(itemgetter(0), signatures)))


@lru_cache(maxsize=1024)
def _is_plain(adapter: Adapter, kind: type) -> bool:
    return serving(kind) is adapter and adapter.is_plain(kind)


def owner(array: object) -> Adapter | None:
    """The backend that serves an array; None if no framework defines its type.

    Raises:
        BackendError: the framework's backend refuses the type.
    """
    kind: type = type(array)
    return serving(kind).of((array,)) if _is_known(kind) else None


def _is_known(kind: type) -> bool:
    """Whether a framework defines this type or a base class of it, even if its backend refuses the type."""
    try:
        serving(kind)
    except BackendError:
        return _adapter_of(kind) is not None
    return True


def _adapter_of(kind: type) -> Adapter | None:
    """The backend of the framework that defines a type or one of its base classes.

    A base class counts only if the backend accepts it: frameworks also define mixins that are not arrays.
    """
    for base in kind.__mro__:
        adapter = _package_backend(top_package(base.__module__))
        if adapter is not None and (base is kind or _accepts(adapter, base)):
            return adapter
    if hasattr(kind, "__array_namespace__") and lazy_module(kind) is None:
        return get_backend("array_api")
    return None


def _accepts(adapter: Adapter, kind: type) -> bool:
    try:
        adapter.check_type(kind)
    except BackendError:
        return False
    return True


def _package_backend(package: str) -> Adapter | None:
    """The backend for the types that a top-level package defines."""
    for adapter in reversed(tuple(_registered.values())):
        if top_package(adapter.module) == package:
            return adapter
    name = "jax" if package == "jaxlib" else package
    return get_backend(name) if name in BUILTIN or name in declared_backends() else None


# -- operands that are not arrays of a backend --------------------------------------------------------------------


def is_builtin(kind: type) -> bool:
    """Whether values of this type are Python scalars, lists or tuples; or numbers that PyTorch traces."""
    return kind in (bool, int, float, complex, list, tuple) or is_symbol(kind)


def lazy(operands: Sequence[Any]) -> Any:
    """The module that contracts lazy arrays, if one of the operands is lazy; otherwise None."""
    for kind in map(type, operands):
        module = lazy_module(kind)
        if module is not None:
            return imported(module)
    return None


def lazy_planner(operands: Sequence[Any]) -> Any:
    """The module that plans and contracts lazy arrays, if one of the operands is such an array; otherwise None.

    Lazy arrays without chunks have nothing to plan.
    """
    module = lazy(operands)
    return module if hasattr(module, "planned") else None


def replaceable(name: Any) -> Replaceable:
    """The library of that name whose einsum :func:`einsumx.patch` replaces: a backend, Dask or opt_einsum.

    Raises:
        BackendError: there is none of that name.
    """
    if not isinstance(name, str) or name in _names():
        return get_backend(name)
    if name not in _OTHER_LIBRARIES:
        raise _unknown(name, *_OTHER_LIBRARIES)
    library: Replaceable = imported(_OTHER_LIBRARIES[name]).LIBRARY
    return library


@runtime_checkable
class _Sliceable(Protocol):
    shape: tuple[int, ...]
    dtype: Any

    def __getitem__(self, box: Any, /) -> Any: ...


def is_stored(array: Any) -> bool:
    """Whether an operand is read by slices, such as an HDF5 dataset or a Zarr array: neither an array nor sparse."""
    kind: type = type(array)
    if is_builtin(kind) or _is_known(kind) or extends_arrays(kind) or lazy_module(kind) or is_sparse(kind):
        return False
    return isinstance(array, _Sliceable) and not isinstance(array, type)
