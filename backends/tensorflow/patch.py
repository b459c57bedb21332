"""Replaces ``tf.einsum`` for :func:`einsumx.patch`, with TensorFlow's calling conventions.

This module imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from importlib import import_module
from typing import Any

from einsumx.adapters.operand_types import top_package
from einsumx.adapters.registry import is_builtin
from einsumx.adapters.replacement import Function, Name, say_native

tf: Any = import_module("tensorflow")


def names() -> Iterator[Name]:
    """The names of TensorFlow's einsum; ``tf.experimental.numpy.einsum`` and Keras call one of them."""
    for owner in (tf, tf.linalg, tf.compat.v1, tf.compat.v1.linalg, tf.compat.v2, tf.compat.v2.linalg):
        yield Name(owner, "einsum", around=_around)
    yield Name(import_module(tf.einsum.__module__), "einsum", around=_around)


def _around(native: Function, eager: Function) -> Function:
    """The replacement: calls einsumx, or ``native`` for operands that only TensorFlow converts."""

    @wraps(native)
    def function(equation: Any, *operands: Any, **options: Any) -> Any:
        name = options.pop("name", None)
        if not all(map(_is_known, map(type, operands))):
            why = "an operand is neither a dense tensor nor a NumPy array"
        elif any(isinstance(each, tf.Tensor) and each.shape.rank is None for each in operands):
            why = "the number of axes of an operand is not known"
        elif options.get("optimize") in ("branch-2", "branch-all"):
            why = "einsumx has no such optimizer"
        else:
            tensors = [each for each in operands if isinstance(each, (tf.Tensor, tf.Variable))]
            dtype = tensors[0].dtype if tensors else None
            arrays = [each if _is_tensor(type(each)) else tf.convert_to_tensor(each, dtype) for each in operands]
            if name is None:
                return eager(equation, *arrays, **options)
            with tf.name_scope(name):
                return eager(equation, *arrays, **options)
        say_native("tf.einsum", (equation, *operands), why)
        return native(equation, *operands, **options, name=name)

    return function


def _is_tensor(kind: type) -> bool:
    return issubclass(kind, (tf.Tensor, tf.Variable))


def _is_known(kind: type) -> bool:
    """Whether einsumx takes a type: dense tensors, variables, NumPy's arrays, and what Python makes arrays of."""
    return _is_tensor(kind) or is_builtin(kind) or top_package(kind.__module__) == "numpy"
