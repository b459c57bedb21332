"""Gradients of contractions under a memory limit, as TensorFlow's tapes record them.

This module imports TensorFlow, and is imported when a tape records the first such contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.recorded import RecordedArray, RecordedGradients
from einsumx.adapters.typing import Array
from einsumx.dtypes import kind

tf: Any = import_module("tensorflow")
record: Any = import_module("tensorflow.python.eager.record")
"""No public name tells whether a tape watches a tensor."""


class _RecordedTensorflow(RecordedArray):
    """A tensor that a tape records."""

    def recorded(self, arrays: Sequence[Any]) -> Array:
        places = [place for place, array in enumerate(arrays) if isinstance(array, tf.Tensor)]

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def within(*tensors: Array) -> tuple[Array, Callable[..., list[Array]]]:
            full = list(arrays)
            for place, tensor in zip(places, tensors):
                full[place] = tensor
            with record.stop_recording():
                value = self.value(full)
            return value, lambda cotangent: list(self.gradients(full, cotangent, places).values())

        result: Array = within(*[arrays[place] for place in places])
        return result

    def finished(self, value: Array, dtype: str) -> Array:
        if value.dtype.is_complex and kind(dtype) != "c":
            value = tf.math.real(value)
        return tf.cast(value, dtype)


class TensorflowGradients(RecordedGradients):
    """Gradients of tensors."""

    array = _RecordedTensorflow

    def needed(self, array: Array) -> bool:
        return bool(record.should_record_backprop([array]))

    def embed_diagonal(self, array: Array) -> Array:
        return tf.linalg.diag(array)
