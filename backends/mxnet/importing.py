"""MXNet beside any NumPy: :func:`load` imports it under versions of NumPy that came after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from einsumx.errors import BackendError

__all__ = ["installed_version", "load"]

_importing = RLock()

_INSTALL = (
    "pip install mxnet==1.9.1 numpy==1.23.5; beside a newer NumPy: pip install --no-deps mxnet==1.9.1, and "
    "pip install requests graphviz"
)


def load() -> ModuleType:
    """Import MXNet 1.9.1 or 2.0.0b1 under any NumPy from 1.23 on, 2.x included, and leave NumPy as it was.

    While it is imported, MXNet reads names from NumPy that NumPy 1.24 and 2.0 took away. They are there for that long,
    and no longer: MXNet needs them for nothing else. pip does not know that it works, so it has to be told to install
    MXNet as it is: ``pip install --no-deps mxnet==1.9.1``. Where MXNet is imported already, that is what is returned;
    ``import mxnet`` after it gives the same module.

    MXNet 1.9.1 brings an OpenBLAS that runs on processors newer than itself as on very old ones. Where there is AVX2
    and ``OPENBLAS_CORETYPE`` is not set, it is set to ``Haswell`` during the import, which doubles the speed of
    matrix products there.

    Raises:
        BackendError: MXNet is not installed, or what else it needs is not.

    >>> import einsumx.mxnet
    >>> mx = einsumx.mxnet.load()  # doctest: +SKIP
    """
    with _importing:
        if "mxnet" in sys.modules:
            return sys.modules["mxnet"]
        before = set(sys.modules)
        try:
            with _old_names(import_module("numpy")), _known_processor():
                return import_module("mxnet")
        except ImportError as error:
            # What was imported of it would be taken for all of it by the next import.
            for name in set(sys.modules) - before:
                if name.partition(".")[0] == "mxnet":
                    del sys.modules[name]
            missing = f"{type(error).__name__}: {error}"
            raise BackendError(f"MXNet cannot be imported ({missing}): {_INSTALL}") from error


_CORETYPE = "OPENBLAS_CORETYPE"
"""The variable by which OpenBLAS is told for which processor to choose its kernels, read when it is loaded."""


@contextmanager
def _known_processor() -> Iterator[None]:
    """A processor that MXNet 1's OpenBLAS knows, for one that it may not; afterwards the environment is as it was.

    It came before processors of today, and computes on those that it does not know with kernels for SSE3, at half the
    speed of those for AVX2. For others it would choose kernels like these by itself.
    """
    if (
        _CORETYPE in os.environ
        or not installed_version().startswith("1.")
        or not {"avx2", "fma"} <= _processor_features()
    ):
        yield
        return
    os.environ[_CORETYPE] = "Haswell"
    try:
        yield
    finally:
        del os.environ[_CORETYPE]


def installed_version() -> str:
    """The version of MXNet that is installed, without importing it; empty where none is."""
    try:
        return version("mxnet")
    except PackageNotFoundError:
        return ""


def _processor_features() -> set[str]:
    """What the processor has, as Linux names it; nothing is known elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


@contextmanager
def _old_names(np: Any) -> Iterator[None]:
    """The names that NumPy had when MXNet was written, for those that it lacks; afterwards it lacks them again."""
    lacking = [name for name in (*_ALIASES, *_CONSTANTS, *_FUNCTIONS) if name not in vars(np)]
    for name in lacking:
        setattr(np, name, _stand_in(name, np))
    try:
        yield
    finally:
        for name in lacking:
            delattr(np, name)


def _stand_in(name: str, np: Any) -> Any:
    """What one of the names meant, made of what NumPy has today."""
    if name in _ALIASES:
        return getattr(np, _ALIASES[name])
    return _CONSTANTS[name] if name in _CONSTANTS else partial(_FUNCTIONS[name], np)


def _in1d(np: Any, first: Any, second: Any, **options: Any) -> Any:
    return np.isin(np.ravel(first), second, **options)


def _msort(np: Any, array: Any) -> Any:
    return np.sort(array, axis=0)


def _gone(*_: Any) -> Any:
    raise BackendError("NumPy has no functions of finance any more: they are in the package numpy-financial")


_ALIASES = {
    "bool": "bool_",
    "alltrue": "all",
    "sometrue": "any",
    "product": "prod",
    "cumproduct": "cumprod",
    "trapz": "trapezoid",
    "round_": "round",
}

_CONSTANTS = {
    "PZERO": 0.0,
    "NZERO": -0.0,
    "PINF": float("inf"),
    "NINF": -float("inf"),
    "Inf": float("inf"),
    "NAN": float("nan"),
    "NaN": float("nan"),
}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "in1d": _in1d,
    "msort": _msort,
    # MXNet reads these for their names alone.
    **dict.fromkeys(("mirr", "npv", "pmt", "ppmt", "pv", "rate"), _gone),
}
