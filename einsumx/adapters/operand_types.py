"""Operand types that no framework defines, and the errors that say what to pass instead."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from types import BuiltinFunctionType, FunctionType

from einsumx.errors import BackendError, shown

_LAZY = {
    "Array": ("dask", "einsumx.backends.dask"),
    "LazyArray": ("autoray", "einsumx.backends.autoray"),
    "Proxy": ("torch", "einsumx.backends.torch.adapter"),
}
"""By the class of lazy arrays, its package, and the module whose ``einsum`` contracts them."""

_CONVERSIONS = {
    "filled": "x.filled(0)",
    "magnitude": "x.magnitude",
    "to_numpy": "x.to_numpy()",
    "value": "x.value",
    "__array__": "numpy.asarray(x)",
}
"""How to get a plain array from one with extensions, by an attribute that its type has."""

_INTEROP = {"xarray": "call einsumx.interop.xarray.dot, which keeps it, or pass the plain array: x.data"}
"""What to do with arrays with extensions, by the package that defines them, where a module of einsumx knows it."""


def type_name(kind: type) -> str:
    """A type's module and name.

    >>> import collections
    >>> type_name(collections.deque)
    'collections.deque'
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def top_package(module: str) -> str:
    """The top-level package of a module."""
    return module.partition(".")[0]


def lazy_module(kind: type) -> str | None:
    """The module whose ``einsum`` contracts lazy arrays of this type; None for other types."""
    for base in kind.__mro__:
        if base.__name__ in _LAZY:
            package, module = _LAZY[base.__name__]
            if top_package(base.__module__) == package:
                return module
    return None


def is_sparse(kind: type) -> bool:
    """Whether a type is a sparse matrix like SciPy's; slicing one does not make it dense."""
    return hasattr(kind, "toarray") and hasattr(kind, "nnz")


def is_symbol(kind: type) -> bool:
    """Whether values of a type stand for Python numbers that change between the calls of a graph of PyTorch."""
    return kind.__module__ == "torch" and kind.__name__ in ("SymBool", "SymInt", "SymFloat")


def extends_arrays(kind: type) -> bool:
    """Whether a type overrides NumPy's functions, as quantities with units do."""
    return hasattr(kind, "__array_ufunc__") or hasattr(kind, "__array_function__")


def extension_error(kind: type) -> BackendError:
    """The error for an array type with masks, units or labels, which einsum would lose."""
    conversion = next(
        (call for attribute, call in _CONVERSIONS.items() if hasattr(kind, attribute)), "make one of its values"
    )
    packages = [top_package(base.__module__) for base in kind.__mro__]
    advice = next((_INTEROP[package] for package in packages if package in _INTEROP), None)
    return BackendError(
        f"einsum would drop what {type_name(kind)} adds to an array (masks, units, labels); "
        f"{advice or f'pass the plain array: {conversion}'}"
    )


def wrong_type_error(kind: type, expected: str) -> BackendError:
    """The error for a type that a framework defines but that is not its array type."""
    if lazy_module(kind) is not None:
        return _lazy_error(kind)
    return BackendError(f"einsum takes {expected}, not {type_name(kind)}")


def dtype_error(library: str, dtype: object) -> BackendError:
    """The error for a dtype that a framework does not have, or in which its einsum does not compute."""
    return BackendError(
        f"{library}: einsum does not support dtype {shown(dtype)}; cast the operand, or pass another dtype="
    )


def unknown_type_error(kind: type) -> BackendError:
    """The error for a type that belongs to no framework."""
    if lazy_module(kind) is not None:
        return _lazy_error(kind)
    if extends_arrays(kind):
        return extension_error(kind)
    return BackendError(f"einsumx knows no framework for operands of type {type_name(kind)}; {_advice(kind)}")


def _lazy_error(kind: type) -> BackendError:
    return BackendError(
        f"arrays of type {type_name(kind)} are lazy, and only einsumx.einsum takes them; for plans and expressions, "
        "pass shapes"
    )


def _advice(kind: type) -> str:
    if kind is type(None):
        return "None is not an array: check the call that returned it"
    if issubclass(kind, str | bytes):
        return "a string is not an array: pass one equation first, with all subscripts, einsum('ij,jk->ik', a, b)"
    if issubclass(kind, type | FunctionType | BuiltinFunctionType):
        return "a function or a class is not an array: call it, and pass the result"
    if is_sparse(kind):
        stays = ""
        if "scipy" in [top_package(base.__module__) for base in kind.__mro__]:
            stays = "; sparse.COO.from_scipy_sparse(x) makes an array that stays sparse, and that einsum takes"
        return f"it is sparse: x.toarray() makes a dense array, with memory for all its zeros{stays}"
    if issubclass(kind, AbstractSet | Iterator):
        return "make a list or an array of it, which has an order and a length"
    return "convert them to arrays first (numpy.asarray), or register a backend for them"
