"""Gradients of contractions under a memory limit, as TensorFlow's tapes record them.

This module imports TensorFlow, and is imported when a tape records the first such contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.conjugation import conjugated_for, with_conjugates
from einsumx.adapters.typing import Array, Recorded

__all__ = ["within"]

tf: Any = import_module("tensorflow")
record: Any = import_module("tensorflow.python.eager.record")


def within(call: Recorded, run: Callable[[], Array], operands: Sequence[Any]) -> Array:
    """The result of ``run``, with derivatives of every order computed by ``call``."""
    return _array(call, run, call.places - 1, (False,) * call.places, 0, [*operands, None])


def _array(
    call: Recorded,
    run: Callable[[], Array] | None,
    place: int,
    conjugated: Sequence[bool],
    beside: int,
    arrays: Sequence[Any],
) -> Array:
    """The array in one place of a contraction: the result, or a gradient, which can be differentiated again.

    Args:
        call: computes the array in each place.
        run: computes the array in this place; None for ``call``.
        place: the place to compute.
        conjugated: for each place, whether to use the complex conjugate of its array.
        beside: bytes of the gradients that are computed already.
        arrays: the arrays in all places; None in ``place``.
    """
    places = [other for other, array in enumerate(arrays) if isinstance(array, tf.Tensor)]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def recorded(*tensors: Array) -> tuple[Array, Callable[..., list[Array | None]]]:
        full = _with(arrays, places, tensors)
        with record.stop_recording():
            value = run() if run is not None else _value(call, place, conjugated, beside, full)

        def backward(cotangent: Array) -> list[Array | None]:
            """The gradients by the tensors: with the cotangent in ``place``, the arrays in the other places."""
            others = _with(full, [place], [cotangent])
            gradients: list[Array | None] = []
            taken = 0
            for other in places:
                flags = conjugated_for(conjugated, place, other)
                gradient = _array(call, None, other, flags, taken, _with(others, [other], [None]))
                gradients.append(gradient)
                if run is not None:  # each gradient of a gradient has the whole limit
                    taken += int(tf.size(gradient)) * gradient.dtype.size
            return gradients

        return value, backward

    result: Array = recorded(*[arrays[other] for other in places])
    return result


def _with(arrays: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """The arrays with other values in some places."""
    changed = list(arrays)
    for place, value in zip(places, values):
        changed[place] = value
    return changed


def _value(call: Recorded, place: int, conjugated: Sequence[bool], beside: int, arrays: Sequence[Any]) -> Array:
    """The array in a place, in its dtype, computed from the others or their complex conjugates."""
    operands, conjugates_result = with_conjugates(arrays, place, conjugated, _is_complex, tf.math.conj)
    value, dtype = call.value(place, operands, beside), call.dtype(place)
    if conjugates_result:
        value = tf.math.conj(value)
    if value.dtype.is_complex and not dtype.is_complex:
        value = tf.math.real(value)
    return tf.cast(value, dtype)


def _is_complex(array: Any) -> bool | None:
    return bool(array.dtype.is_complex) if isinstance(array, tf.Tensor) else None
