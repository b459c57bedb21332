"""Imports MXNet with any NumPy: :func:`load` works with versions of NumPy that are newer than MXNet."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from math import inf, nan
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from einsumx.errors import BackendError

_importing = RLock()

_INSTALL = (
    "pip install mxnet==1.9.1 numpy==1.23.5; with a newer NumPy: pip install --no-deps mxnet==1.9.1, and "
    "pip install requests graphviz, on Python 3.12 or newer also 'setuptools<80'"
)


def load() -> ModuleType:
    """Import MXNet 1.9.1 or 2.0.0b1 with any NumPy from 1.23 on, including 2.x, and leave NumPy unchanged.

    MXNet's import uses names that NumPy 1.24 and 2.0 removed, so this restores them temporarily. pip does not know that
    this works and needs ``--no-deps``: ``pip install --no-deps mxnet==1.9.1``. If MXNet is imported already, this
    returns that module; a later ``import mxnet`` returns the same module.

    MXNet 1.9.1 contains an OpenBLAS that treats processors newer than itself like very old ones. If the processor has
    AVX2 and ``OPENBLAS_CORETYPE`` is not set, this sets it to ``Haswell`` during the import, which doubles the speed of
    matrix products on such processors.

    Raises:
        BackendError: MXNet or one of its dependencies is not installed.

    >>> import einsumx.mxnet
    >>> mx = einsumx.mxnet.load()  # doctest: +SKIP
    """
    with _importing:
        if "mxnet" in sys.modules:
            return sys.modules["mxnet"]
        previous = set(sys.modules)
        try:
            with _old_names(import_module("numpy")), _known_processor():
                return import_module("mxnet")
        except ImportError as error:
            # The next import would mistake its partly imported modules for complete ones.
            for name in set(sys.modules) - previous:
                if name.partition(".")[0] == "mxnet":
                    del sys.modules[name]
            raise BackendError(f"MXNet cannot be imported ({type(error).__name__}: {error}): {_INSTALL}") from error


_CORETYPE = "OPENBLAS_CORETYPE"
"""The variable that selects OpenBLAS's kernels when the library is loaded."""


@contextmanager
def _known_processor() -> Iterator[None]:
    """Temporarily select kernels for AVX2, if the processor has it and MXNet 1 is installed.

    MXNet 1's OpenBLAS is older than today's processors and would use its kernels for SSE3, at half the speed.
    """
    is_mxnet_1 = installed_version().startswith("1.")
    if _CORETYPE in os.environ or not is_mxnet_1 or not {"avx2", "fma"} <= _processor_features():
        yield
        return
    os.environ[_CORETYPE] = "Haswell"
    try:
        yield
    finally:
        del os.environ[_CORETYPE]


def installed_version() -> str:
    """The installed version of MXNet, read without importing it; empty if it is not installed."""
    try:
        return version("mxnet")
    except PackageNotFoundError:
        return ""


def _processor_features() -> set[str]:
    """The processor's flags as Linux names them; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


@contextmanager
def _old_names(np: Any) -> Iterator[None]:
    """Temporarily restore the names that NumPy has removed since MXNet was written."""
    removed = [name for name in (*_ALIASES, *_CONSTANTS, *_FUNCTIONS) if name not in vars(np)]
    for name in removed:
        setattr(np, name, _stand_in(name, np))
    try:
        yield
    finally:
        for name in removed:
            delattr(np, name)


def _stand_in(name: str, np: Any) -> Any:
    """The former meaning of one of the names."""
    if name in _ALIASES:
        return getattr(np, _ALIASES[name])
    return _CONSTANTS[name] if name in _CONSTANTS else partial(_FUNCTIONS[name], np)


def _in1d(np: Any, first: Any, second: Any, **options: Any) -> Any:
    return np.isin(np.ravel(first), second, **options)


def _msort(np: Any, array: Any) -> Any:
    return np.sort(array, axis=0)


def _gone(*_: Any) -> Any:
    raise BackendError("NumPy has no financial functions any more; use the package numpy-financial")


_ALIASES = {
    "bool": "bool_",
    "alltrue": "all",
    "sometrue": "any",
    "product": "prod",
    "cumproduct": "cumprod",
    "trapz": "trapezoid",
    "round_": "round",
}

_CONSTANTS = {"PZERO": 0.0, "NZERO": -0.0, "PINF": inf, "NINF": -inf, "Inf": inf, "NAN": nan, "NaN": nan}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "in1d": _in1d,
    "msort": _msort,
    # MXNet only uses the names of these.
    **dict.fromkeys(("mirr", "npv", "pmt", "ppmt", "pv", "rate"), _gone),
}
