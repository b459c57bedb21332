"""Contractions under a memory limit in TensorFlow's functions: loops by ``tf.while_loop``, with gradients of their own.

This module imports TensorFlow, and is imported when a function traces the first such contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from einsumx.adapters.facets import TracedCall, TracedLoops
from einsumx.adapters.typing import Array
from einsumx.backends.tensorflow.choices import MOST_SLICED
from einsumx.errors import BackendError

tf: Any = import_module("tensorflow")
xla: Any = import_module("tensorflow.compiler.tf2xla.python.xla")
contexts: Any = import_module("tensorflow.python.ops.control_flow_util")
"""No public name tells whether XLA will compile a graph, nor has its update of a slice."""


class TensorflowLoops(TracedLoops):
    """Loops of ``tf.while_loop``, which write blocks in the memory of the result."""

    scalars, counts_results = 4096, True

    def is_traced(self, arrays: Sequence[Array]) -> bool:
        return not tf.executing_eagerly() or any(type(array) is not self.adapter._eager for array in arrays)

    def known(self, array: Array) -> Array:
        return self.adapter.plain(array)

    def recorded(self, call: TracedCall, operands: Sequence[Array]) -> Array:
        if "loop_body" in tf.get_current_name_scope().split("/"):
            raise BackendError(
                "memory_limit= is not kept where tf.vectorized_map or a tape's jacobian computes many results at once; "
                "use tf.map_fn, or jacobian(..., experimental_use_pfor=False)"
            )

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def within(*operands: Array) -> tuple[Array, Callable[[Array], list[Array]]]:
            def gradients(cotangent: Array) -> list[Array]:
                conjugate = tf.math.conj(cotangent)
                return [tf.math.conj(call.cotangent(number, operands, conjugate)) for number in range(len(operands))]

            return call.written(operands), gradients

        result: Array = within(*map(tf.identity, operands))  # those of the graph that is traced now
        return result

    def loop(self, count: int, body: Callable[[Any, Array], Array], carry: Array, after: Array | None) -> Array:
        if count == 1:
            return body(0, carry)

        def step(number: Array, carry: Array) -> tuple[Array, Array]:
            return number + 1, body(_since(carry, number), carry)

        return tf.while_loop(
            lambda number, _: number < count, step, (_since(after, 0), carry), parallel_iterations=1,
            maximum_iterations=count,
        )[1]  # fmt: skip

    def part(self, array: Array, box: Sequence[tuple[Any, int]], after: Array | None) -> Array:
        sizes = [size for _, size in box]
        if sizes == array.shape:
            return array
        shape, sliced, starts = _merged(array.shape, sizes, [start for start, _ in box])
        return tf.reshape(tf.slice(tf.reshape(array, shape), _since(after, starts), sliced), sizes)

    def put(self, out: Array, starts: Sequence[Any], block: Array) -> Array:
        shape, sizes, starts = _merged(out.shape, block.shape, starts)
        block = tf.reshape(tf.cast(block, out.dtype), sizes)
        whole = tf.reshape(out, shape)
        if contexts.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
            written = xla.dynamic_update_slice(whole, block, tf.stack(starts))
        else:
            ends = [start + size for start, size in zip(starts, sizes)]
            written = tf.raw_ops.TensorStridedSliceUpdate(
                input=whole, begin=starts, end=ends, strides=[1] * len(starts), value=block
            )
        return tf.ensure_shape(tf.reshape(written, out.shape), out.shape)

    def filled(self, like: Sequence[Array], shape: tuple[int, ...], value: float, dtype: str, after: Any) -> Array:
        return tf.fill(shape, _since(after, tf.cast(value, self.adapter.dtype(dtype))))

    def as_dtype(self, array: Array, dtype: str) -> Array:
        return self.adapter.cast(array, dtype)

    def on_diagonal(self, array: Array, term: Sequence[int]) -> Array:
        first = [term.index(label) for label in term]
        added = [axis for axis, place in enumerate(first) if place != axis]
        for axis in added:
            array = tf.expand_dims(array, axis)
        for axis in added:
            places = tf.range(array.shape[first[axis]])
            rows, columns = [
                tf.reshape(places, [-1 if each == own else 1 for each in range(len(array.shape))])
                for own in (first[axis], axis)
            ]
            array = tf.where(rows == columns, array, tf.zeros((), array.dtype))
        return array


def _since(after: Array | None, value: Any) -> Array:
    """A value that is not there before another array is computed, though a loop may start before it has all arrays."""
    with tf.control_dependencies([] if after is None else [after]):
        return tf.identity(value)


def _merged(
    shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]
) -> tuple[list[int], list[int], list[Any]]:
    """A shape, the sizes of a part of it and where the part starts, with neighbouring axes that are whole as one.

    A part that would end outside starts earlier.

    Raises:
        BackendError: too many axes are cut.
    """
    whole: list[int] = []
    part: list[int] = []
    begins: list[Any] = []
    for length, size, start in zip(shape, sizes, starts):
        if length == size and whole and whole[-1] == part[-1]:
            whole[-1], part[-1] = whole[-1] * length, part[-1] * size
            continue
        last = length - size
        whole.append(length)
        part.append(size)
        begins.append(0 if not last else min(start, last) if isinstance(start, int) else tf.minimum(start, last))
    if len(whole) > MOST_SLICED:
        raise BackendError(
            f"this memory_limit= must be larger: TensorFlow has no blocks along more than {MOST_SLICED} axes"
        )
    return whole, part, begins
