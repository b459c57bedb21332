"""What keywords of a contraction ask for, in a framework's own terms or by name, as the caches' keys have it."""

from __future__ import annotations

from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.dtypes import check_casting, kind
from einsumx.errors import BackendError, shown
from einsumx.planner.path import as_optimize
from einsumx.runtime.prepare import Options

__all__ = ["dtype_name", "options_of"]


def options_of(adapter: Adapter, dtype: Any, casting: Any, optimize: Any) -> Options:
    """What the keywords of these names ask of a contraction on the adapter's framework; None asks for the default.

    Raises:
        BackendError: the framework has no such dtype.
        PathError: a path with steps that are none.
        ValueError: there is no such rule for casts.
    """
    return Options(dtype_name(adapter, dtype), check_casting(casting), as_optimize(optimize))


_BUILTIN = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def dtype_name(adapter: Adapter, dtype: Any) -> str | None:
    """A dtype as the user gave it (a name, a Python type, the framework's own), by name.

    Raises:
        BackendError: the framework has no such dtype.
    """
    if dtype is None:
        return None
    if isinstance(dtype, str):
        return adapter.dtype_name(adapter.dtype(dtype))
    try:
        name = _BUILTIN.get(dtype) or adapter.dtype_name(dtype)
    except (BackendError, TypeError) as error:
        raise BackendError(_not_a_dtype(adapter, dtype)) from error
    return adapter.dtype_name(adapter.dtype(name))


def _not_a_dtype(adapter: Adapter, dtype: Any) -> str:
    """What is said of something that is given for ``dtype=``, and is no dtype of the framework."""
    meant = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).rpartition(".")[2]
    if kind(meant) != "O":
        return f"dtype={shown(dtype)} is another framework's; for {adapter.name}, name it: dtype={meant!r}"
    return f"dtype={shown(dtype)} is no dtype that {adapter.name} computes in; name one, such as dtype='float32'"
