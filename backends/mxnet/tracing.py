"""Shapes and dtypes of symbols while MXNet 1 traces a block, inferred from the inputs of the block's first call."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

from einsumx.errors import BackendError

__all__ = ["Known", "UnknownRankError", "known", "with_known_inputs"]


class Known(NamedTuple):
    """The known facts about a symbol.

    Attributes:
        shape: None if not even the rank is known; an unknown size is None.
        dtype: its name; empty if unknown.
    """

    shape: tuple[int | None, ...] | None
    dtype: str


class UnknownRankError(BackendError):
    """The subscript of a symbol of unknown rank has an ellipsis."""


_inputs: ContextVar[tuple[dict[str, Any], dict[str, Any]]] = ContextVar("inputs", default=({}, {}))
"""The shapes and dtypes, by name, of the inputs of the block that is being traced."""


def with_known_inputs(get_graph: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap MXNet 1's ``HybridBlock._get_graph`` so that :func:`known` sees the block's inputs."""
    flatten = import_module("mxnet.gluon.block")._flatten

    @wraps(get_graph)
    def wrapper(block: Any, *arguments: Any) -> Any:
        arrays = [array for array in flatten(arguments, "input")[0] if array is not None]
        names = ["data"] if len(arrays) == 1 else [f"data{number}" for number in range(len(arrays))]
        shapes = {name: array.shape for name, array in zip(names, arrays)}
        token = _inputs.set((shapes, {name: array.dtype for name, array in zip(names, arrays)}))
        try:
            return get_graph(block, *arguments)
        finally:
            _inputs.reset(token)

    return wrapper


def known(symbol: Any) -> Known:
    """The shape and dtype of a symbol, inferred from the traced block's inputs and from declared variables."""
    names = set(symbol.list_inputs())
    shapes, dtypes = ({name: facts[name] for name in names & facts.keys()} for facts in _inputs.get())
    mx = import_module("mxnet")
    try:
        _, (shape, *_), _ = symbol.infer_shape_partial(**shapes)
        _, (dtype, *_), _ = symbol.infer_type_partial(**dtypes)
    except mx.base.MXNetError:  # the shapes contradict each other; MXNet reports that when the graph runs
        return Known(None, "")
    unknown = -1 if mx.util.is_np_shape() else 0
    sizes = None if shape is None else tuple(None if size == unknown else size for size in shape)
    return Known(sizes, "" if dtype is None else import_module("numpy").dtype(dtype).name)
