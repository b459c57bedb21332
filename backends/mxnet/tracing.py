"""What is known of a symbol while MXNet 1 traces a block: the shapes and dtypes of the block's first inputs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

from einsumx.errors import BackendError

__all__ = ["Known", "UnknownRankError", "known", "with_known_inputs"]


class Known(NamedTuple):
    """What is known of a symbol.

    Attributes:
        shape: None where not even the rank is known; a size that is not known is None.
        dtype: by name; empty where it is not known.
    """

    shape: tuple[int | None, ...] | None
    dtype: str


class UnknownRankError(BackendError):
    """An ellipsis in the subscript of a symbol of which not even the rank is known."""


class _Inputs(threading.local):
    """By name, the shape and the dtype of the inputs of the block that this thread traces."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, Any] = {}


_inputs = _Inputs()


def with_known_inputs(get_graph: Callable[..., Any]) -> Callable[..., Any]:
    """``HybridBlock._get_graph`` of MXNet 1, which makes its arguments known while it traces them."""
    flatten = import_module("mxnet.gluon.block")._flatten

    @wraps(get_graph)
    def knowing(block: Any, *arguments: Any) -> Any:
        arrays = [array for array in flatten(arguments, "input")[0] if array is not None]
        names = ["data"] if len(arrays) == 1 else [f"data{number}" for number in range(len(arrays))]
        before = _inputs.shapes, _inputs.dtypes
        _inputs.shapes = {name: array.shape for name, array in zip(names, arrays)}
        _inputs.dtypes = {name: array.dtype for name, array in zip(names, arrays)}
        try:
            return get_graph(block, *arguments)
        finally:
            _inputs.shapes, _inputs.dtypes = before

    return knowing


def known(symbol: Any) -> Known:
    """What follows for a symbol from the inputs of the block that is traced, and from what its variables declare."""
    names = set(symbol.list_inputs())
    shapes = {name: shape for name, shape in _inputs.shapes.items() if name in names}
    dtypes = {name: dtype for name, dtype in _inputs.dtypes.items() if name in names}
    mx = import_module("mxnet")
    try:
        _, (shape, *_), _ = symbol.infer_shape_partial(**shapes)
        _, (dtype, *_), _ = symbol.infer_type_partial(**dtypes)
    except mx.base.MXNetError:  # a graph that fits no shapes, which is for MXNet to say when it is run
        return Known(None, "")
    unknown = -1 if mx.util.is_np_shape() else 0
    sizes = None if shape is None else tuple(None if size == unknown else size for size in shape)
    return Known(sizes, "" if dtype is None else import_module("numpy").dtype(dtype).name)
