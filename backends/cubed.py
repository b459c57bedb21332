"""Cubed: lazy arrays in chunks, computed within a bound on memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

from einsumx.adapters.base import Array
from einsumx.backends.array_api import NamedLibrary
from einsumx.backends.array_api.adapter import ArrayApiSemirings


class CubedSemirings(ArrayApiSemirings):
    """The standard's functions; nothing is known of values."""

    fuses_terms = True
    has_positions = False  # they are computed later, and cannot choose rows before


class CubedAdapter(NamedLibrary):
    """Cubed's arrays, by the array API standard."""

    name = "cubed"
    module = "cubed.array_api"
    install = "pip install cubed"
    blocks = exponents = None
    missing = MappingProxyType(
        {
            "blocks": (
                "its arrays are lazy, and cubed limits the memory of each task itself; omit memory_limit=, and make "
                "the arrays with spec=cubed.Spec(allowed_mem=...)"
            ),
            "exponents": "its arrays are lazy, and einsum_frexp would compute each intermediate to find its largest "
            "element; call compute() on the operands",
        }
    )

    semirings = cached_property(CubedSemirings)

    def from_numpy(self, array: Any, device: str = "") -> Array:
        return import_module("cubed").from_array(array, chunks=-1)  # its asarray takes no more than a megabyte

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        if array.npartitions > 1:
            # Merged axes would get chunks of unlike sizes, which cubed refuses, unless the inner ones are whole.
            array = array.rechunk(_whole_inner(array.shape, shape, array.chunksize))
        return self.xp.reshape(array, shape)

    def diagonal(self, array: Array, axis1: int, axis2: int) -> Array:
        if array.npartitions > 1:  # every n-th element of chunks would be chunks of unlike sizes, which cubed refuses
            both = {axis1: array.shape[axis1], axis2: array.shape[axis2]}
            array = array.rechunk(tuple([both.get(axis, chunk) for axis, chunk in enumerate(array.chunksize)]))
        return super().diagonal(array, axis1, axis2)

    def zeros(self, arrays: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
        chunks = -1 if 0 in shape else "auto"  # by which cubed divides by the elements of a chunk
        return self.xp.zeros(shape, dtype=self.dtype(dtype), chunks=chunks, **self.beside(arrays[0]))

    def beside(self, like: Array) -> dict[str, Any]:
        return {"spec": like.spec}  # arrays of two specs are refused in one computation

    def synchronize(self, array: Array) -> None:
        array.compute()


def _whole_inner(shape: Sequence[int], target: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...]:
    """Sizes of chunks that are whole along all axes that a reshape merges, apart from the first of each group.

    >>> _whole_inner((6, 4, 5), (24, 5), (2, 2, 3))
    (2, 4, 3)
    """
    sizes, merged, rest = [], 1, list(target)
    for size, chunk in zip(shape, chunks):
        if merged == 1:  # the first axis of a group
            while rest and rest[0] == 1:
                rest.pop(0)
            sizes.append(chunk)
        else:
            sizes.append(size)
        merged *= size
        if rest and merged == rest[0]:
            rest.pop(0)
            merged = 1
    return tuple(sizes)


ADAPTER = CubedAdapter()
