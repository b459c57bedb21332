"""Reads and writes blocks of MXNet's arrays, which it slices along five axes at most, and never in bool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from operator import mul
from typing import Any, TypeAlias

from einsumx.adapters.facets import BlockAccess
from einsumx.adapters.typing import Array
from einsumx.errors import BackendError
from einsumx.host.free_memory import free_host_bytes
from einsumx.ir.layout import contiguous

Ranges: TypeAlias = Sequence[tuple[int, int]]

_MAX_SLICED = 5
"""The most axes that MXNet slices."""


TRACED = (
    "memory_limit= works for arrays, not while MXNet traces a hybridized block; call einsum outside of the block, or "
    "omit memory_limit="
)
"""Why contractions in a traced block keep no limit."""


class MxnetBlocks(BlockAccess):
    """Blocks of MXNet's arrays."""

    def check_eager(self, array: Array) -> None:
        if self.adapter.is_tracing():
            raise BackendError(TRACED)

    def part(self, array: Array, box: tuple[slice, ...]) -> Array:
        if array.dtype == bool:
            return self.adapter.from_numpy(self._memory(array)[box], self.adapter.device(array))
        sizes, ranges = _merge_axes(array.shape, box)
        shape = tuple(stop - start for start, stop in map(_bounds, box, array.shape))
        with self.adapter.mx.util.np_shape(True):
            if 0 not in shape and len(sizes) <= _MAX_SLICED:
                view = self.adapter.calls.view(sizes)(array)
                return self.adapter.calls.view(shape)(view[tuple(slice(*bounds) for bounds in ranges)])
            block = self.empty(shape, self.adapter.dtype_name(array.dtype), self.adapter.device(array))
            if 0 not in shape:
                for source, target, bounds in self._slabs(array, block, sizes, ranges):
                    begin, end = zip(*bounds)
                    self.adapter.mx.nd.slice(source.as_nd_ndarray(), begin, end, out=target.as_nd_ndarray())
            return block

    def add(self, total: Array, part: Array) -> Array:
        if total.dtype == bool:  # MXNet 1 has no logical_or
            memory = self._memory(total)
            memory |= part.asnumpy()
            return total
        with self.adapter.mx.util.np_shape(True):
            total += part
        return total

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        with self.adapter.mx.util.np_shape(True):
            return self.xp.empty(shape, dtype=self.adapter.dtype(dtype), ctx=self.adapter.context(device))

    def put(self, out: Array, box: tuple[slice, ...], block: Array) -> Array:
        if out.dtype == bool:
            self._memory(out)[box] = block.asnumpy()
            return out
        with self.adapter.mx.util.np_shape(True):
            if block.size:
                block = block if block.dtype == out.dtype else block.astype(out.dtype)
                for target, source, bounds in self._slabs(out, block, *_merge_axes(out.shape, box)):
                    target[tuple(slice(*each) for each in bounds)] = source
        out.wait_to_read()
        return out

    def _slabs(
        self, whole: Array, block: Array, sizes: tuple[int, ...], ranges: Ranges
    ) -> Iterator[tuple[Array, Array, Ranges]]:
        """Views of ``whole`` and of a block in it with few enough axes to slice, and the block's range in each view.

        If there are too many axes, this yields a view for each index of the first ones.
        """
        view, outer = self.adapter.calls.view, max(len(sizes) - _MAX_SLICED, 0)
        counts = tuple(stop - start for start, stop in ranges)
        if not outer:
            yield view(sizes)(whole), view(counts)(block), ranges
            return
        wide = view((prod(sizes[:outer]), *sizes[outer:]))(whole)
        narrow = view((prod(counts[:outer]), *counts[outer:]))(block)
        steps = contiguous(sizes[:outer])
        for number, index in enumerate(product(*(range(*bounds) for bounds in ranges[:outer]))):
            yield wide[sum(map(mul, index, steps))], narrow[number], ranges[outer:]

    def _memory(self, array: Array) -> Any:
        """The memory of an array on the CPU, as a NumPy array."""
        array.wait_to_read()
        return self.adapter.calls.memory(array)

    def free_bytes(self, device: str) -> int | None:
        device_type, _, number = device.partition(":")
        if device_type != "gpu":
            return free_host_bytes()
        return int(self.adapter.mx.context.gpu_memory_info(int(number or 0))[0])


def _bounds(part: slice, size: int) -> tuple[int, int]:
    start, stop, _ = part.indices(size)
    return start, stop


def _merge_axes(shape: Sequence[int], box: Sequence[slice]) -> tuple[tuple[int, ...], Ranges]:
    """The shape of a C-contiguous array, and a box in it, with as few axes as possible.

    >>> _merge_axes((2, 3, 4, 5, 1), (slice(0, 2), slice(0, 3), slice(1, 2), slice(0, 5), slice(0, 1)))
    ((6, 20), [(0, 6), (5, 10)])
    """
    sizes: list[int] = []
    ranges: list[tuple[int, int]] = []
    for size, part in zip(shape, box):
        start, stop = _bounds(part, size)
        if sizes and stop - start == size:  # a whole axis merges with the one before it
            sizes[-1] *= size
            ranges[-1] = (ranges[-1][0] * size, ranges[-1][1] * size)
        elif sizes and sizes[-1] == 1:
            sizes[-1], ranges[-1] = size, (start, stop)
        else:
            sizes.append(size)
            ranges.append((start, stop))
    return tuple(sizes), ranges
