"""The array libraries that the suite knows, one module each.

They do not use einsumx's adapters, because the suite judges those.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from einsumx.adapters.registry import get_backend
from einsumx.conformance.framework import AdapterFramework, Framework
from einsumx.conformance.frameworks.array_api import ArrayApiFramework
from einsumx.conformance.frameworks.autograd import AutogradFramework
from einsumx.conformance.frameworks.cubed import CubedFramework
from einsumx.conformance.frameworks.cupy import CupyFramework
from einsumx.conformance.frameworks.dpnp import DpnpFramework
from einsumx.conformance.frameworks.jax import JaxFramework
from einsumx.conformance.frameworks.mlx import MlxFramework
from einsumx.conformance.frameworks.mxnet import MxnetFramework
from einsumx.conformance.frameworks.ndonnx import NdonnxFramework
from einsumx.conformance.frameworks.numpy import NumpyFramework
from einsumx.conformance.frameworks.paddle import PaddleFramework
from einsumx.conformance.frameworks.sparse import SparseFramework
from einsumx.conformance.frameworks.tensorflow import TensorflowFramework
from einsumx.conformance.frameworks.tinygrad import TinygradFramework
from einsumx.conformance.frameworks.torch import TorchFramework
from einsumx.errors import BackendError, shown

__all__ = ["KNOWN", "framework_of", "register_framework"]

KNOWN: dict[str, type[Framework]] = {
    kind.name: kind
    for kind in (
        NumpyFramework,
        TorchFramework,
        CupyFramework,
        MxnetFramework,
        JaxFramework,
        TensorflowFramework,
        MlxFramework,
        PaddleFramework,
        TinygradFramework,
        AutogradFramework,
        SparseFramework,
        CubedFramework,
        NdonnxFramework,
        DpnpFramework,
        ArrayApiFramework,
    )
}


_registered: dict[str, type[Framework]] = {}


def register_framework(kind: object) -> None:
    """Make a library known to the suite for the rest of the process, as its entry point does for every process.

    It replaces any other of the same name.

    Raises:
        BackendError: ``kind`` is no subclass of :class:`~einsumx.conformance.framework.Framework`.
    """
    if not (isinstance(kind, type) and issubclass(kind, Framework)):
        raise BackendError(f"a framework is a subclass of Framework, not {shown(kind)}")
    _registered[kind.name] = kind


def framework_of(name: str) -> Framework:
    """The framework of that name: registered, known to the suite, declared by a package, or used through its backend.

    Raises:
        BackendError: there is no such framework or backend, or its declaration is invalid.
    """
    if name in _registered:
        return _registered[name]()
    if name in KNOWN:
        return KNOWN[name]()
    for entry in entry_points(group="einsumx.conformance"):
        if entry.name == name:
            return _load(entry)
    return AdapterFramework(get_backend(name))


def _load(entry: EntryPoint) -> Framework:
    try:
        declared = entry.load()
    except (ImportError, AttributeError) as error:
        raise BackendError(f"the framework {entry.name!r} cannot be loaded from {entry.value}: {error}") from error
    if not (isinstance(declared, type) and issubclass(declared, Framework)):
        raise BackendError(f"the framework {entry.name!r} at {entry.value} must be a subclass of Framework")
    return declared()
