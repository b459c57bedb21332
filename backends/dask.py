"""Dask arrays: a contraction of theirs is a lazy Dask array, whose chunks are einsumx calls on the operands' chunks.

Axes that share a label are chunked alike, as far as they are not already. A contracted label is summed within each
chunk, and the sums of the chunks are added up as a tree: no contracted axis is ever gathered in one place. Chunks that
would grow beyond Dask's ``array.chunk-size`` are split.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import ceil, isnan, prod
from typing import Any

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend, is_builtin, is_stored
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError, SizeError
from einsumx.ir.bind import SizedEquation
from einsumx.ir.parse import symbol
from einsumx.planner.path import find_path, step_outputs
from einsumx.runtime.prepare import arrays_of, result_dtype, sized_equation
from einsumx.runtime.request import Request, Written

__all__ = ["einsum"]

da: Any = import_module("dask.array")
dask: Any = import_module("dask")

_HONOURED = frozenset({"dtype", "casting", "optimize"})
"""The keywords that contractions of Dask arrays take."""

_ASSUMED = 1000
"""The size that a chunk of unknown size is planned with."""


def einsum(request: Request) -> Any:
    """The contraction of Dask arrays, with arrays of their chunks' framework and Python's scalars and lists among them.

    Args:
        request: with no keywords but ``dtype``, ``casting`` and ``optimize``, as Dask arrays have no use for others.

    Raises:
        SizeError: sizes that do not fit, or are not known.
        EinsumxError: as :func:`einsumx.einsum` does.
    """
    for name in request.keywords():
        if name not in _HONOURED:
            raise BackendError(f"{name}= is not for Dask arrays, whose results are lazy; leave it away")
    given = request.operands
    for number, operand in enumerate(given):
        if not isinstance(operand, da.Array) and is_stored(operand):
            raise BackendError(f"operand {number} is stored; dask.array.from_array makes a Dask array of it")
    metas = [operand._meta if isinstance(operand, da.Array) else operand for operand in given]
    adapter, metas = arrays_of(metas, None)
    arrays = [
        operand if isinstance(operand, da.Array)
        else da.from_array(meta if is_builtin(type(operand)) else operand, chunks=-1, asarray=False)
        for operand, meta in zip(given, metas)
    ]  # fmt: skip
    sized = _sized(request.written, arrays)
    described = [adapter.operand(adapter.signature(meta)) for meta in metas]
    options = request.options(adapter)
    result = result_dtype(adapter, described, options)
    compute = dict(adapter.cpu.widen).get(result, result)
    if 0 in sized.sizes and not any(isnan(size) for array in arrays for size in array.shape):
        # Dask knows no size of objects; an array has pointers to them.
        sizes = "uint64" if result == "object" else adapter.dtype(result)
        chunks = da.core.normalize_chunks("auto", sized.shape, dtype=sizes)
        return da.zeros_like(arrays[0], dtype=adapter.dtype(result), shape=sized.shape, chunks=chunks)

    terms = [_without_broadcast(array, term, sized.sizes) for array, term in zip(arrays, sized.inputs)]
    terms = [(_alike(array, term), term) for array, term in terms]
    path = find_path(sized, options.optimize)
    labels = [frozenset(term) for _, term in terms]
    for step, keep in step_outputs(path, labels, frozenset(sized.output)):
        taken = [terms.pop(position) for position in sorted(step, reverse=True)][::-1]
        output = tuple(label for label in sized.output if label in keep)
        output += tuple(sorted(keep.difference(sized.output)))
        terms.append((_contract(taken, output, compute), output))
    ((array, term),) = terms
    if term != sized.output or not path:
        array = _contract([(array, term)], sized.output, compute)
    return array.astype(adapter.dtype(result))


def _sized(written: Written, arrays: Sequence[Any]) -> SizedEquation:
    """The equation bound to the arrays' shapes; sizes that are not known are assumed, where no other axis has to fit.

    Raises:
        SizeError: sizes that do not fit, or one that is not known and might not.
    """
    shapes = [tuple(array.shape) for array in arrays]
    if not any(isnan(size) for shape in shapes for size in shape):
        return sized_equation(written, shapes)
    try:
        labels = sized_equation(written, [(1,) * len(shape) for shape in shapes])
    except SizeError:  # of ranks
        return sized_equation(written, shapes)
    for number, (shape, term) in enumerate(zip(shapes, labels.inputs)):
        for axis, (size, label) in enumerate(zip(shape, term)):
            if isnan(size) and len(_axes_of(label, arrays, labels)) > 1:
                raise SizeError(
                    f"operand {number} has shape {shape}, where the size of axis {axis} is not known, and other axes "
                    "share its label; call compute_chunk_sizes() of each array of which sizes are not known"
                )
    assumed = [
        tuple([_ASSUMED * len(parts) if isnan(size) else size for size, parts in zip(shape, array.chunks)])
        for shape, array in zip(shapes, arrays)
    ]
    return sized_equation(written, assumed)


def _axes_of(label: int, arrays: Sequence[Any], sized: SizedEquation) -> set[tuple[str, int]]:
    """The axes that have a label and do not broadcast, by the name of their array; one array twice has them once."""
    return {
        (array.name, axis)
        for array, term in zip(arrays, sized.inputs)
        for axis, (found, size) in enumerate(zip(term, array.shape))
        if found == label and size != 1
    }


def _alike(array: Any, term: tuple[int, ...]) -> Any:
    """The array, in which axes of one label are chunked alike."""
    chunks = {
        label: da.core.common_blockdim([parts for parts, found in zip(array.chunks, term) if found == label])
        for label in term
        if term.count(label) > 1
    }
    if not chunks:
        return array
    return array.rechunk({axis: chunks[label] for axis, label in enumerate(term) if label in chunks})


def _without_broadcast(array: Any, term: tuple[int, ...], sizes: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """The array without the axes of size 1 that broadcast."""
    spread = [size == 1 != sizes[label] for size, label in zip(array.shape, term)]
    if not any(spread):
        return array, term
    array = array[tuple(0 if gone else slice(None) for gone in spread)]
    return array, tuple(label for label, gone in zip(term, spread) if not gone)


def _contract(taken: Sequence[tuple[Any, tuple[int, ...]]], output: tuple[int, ...], dtype: str) -> Any:
    """One step of a path, chunk by chunk, in the dtype that sums are accumulated in."""
    pairs = [item for array, term in taken for item in (array, term)]
    chunks, arrays = da.core.unify_chunks(*pairs)
    smaller = _split({label: chunks[label] for label in output}, arrays, itemsize(dtype))
    if smaller:
        arrays = [
            array.rechunk({axis: smaller[label] for axis, label in enumerate(term) if label in smaller})
            for array, (_, term) in zip(arrays, taken)
        ]
    every = dict.fromkeys(label for _, term in taken for label in term)
    summed = tuple(label for label in every if label not in output and len(chunks[label]) > 1)
    equation = ",".join("".join(map(symbol, term)) for _, term in taken) + "->" + "".join(map(symbol, output))
    whole = tuple(label for label in every if label not in output and label not in summed)
    aligned = [item for array, (_, term) in zip(arrays, taken) for item in (array, term)]
    indices = (*output, *summed, *whole)
    found = da.blockwise(
        _chunk,
        indices,
        *aligned,
        adjust_chunks=dict.fromkeys((*summed, *whole), 1),
        align_arrays=False,
        meta=da.utils.meta_from_array(arrays[0]._meta, len(indices), get_backend("numpy").dtype(dtype)),
        equation=equation,
        compute=dtype,
        padding=len(summed) + len(whole),
    )
    axes = tuple(range(len(output), len(indices)))
    if not axes:
        return found
    if not summed:
        return found[(slice(None),) * len(output) + (0,) * len(axes)]
    return found.any(axis=axes) if kind(dtype) == "b" else found.sum(axis=axes, dtype=found.dtype)


def _split(chunks: dict[int, tuple[int, ...]], arrays: Sequence[Any], itemsize: int) -> dict[int, tuple[int, ...]]:
    """Smaller chunks for some labels of a result whose chunks would grow out of those of the arrays, to Dask's limit.

    Chunks of unknown size stay as they are.
    """
    limit = dask.utils.parse_bytes(dask.config.get("array.chunk-size")) // itemsize
    limit = max([limit - 1, *(prod(map(_largest, array.chunks)) for array in arrays)])
    largest = {label: _largest(parts) for label, parts in chunks.items()}
    most = dict(largest)
    while prod(most.values()) > limit and max(most.values()) > 1:
        label = max(most, key=lambda label: most[label])
        most[label] = ceil(most[label] / 2)
    return {
        label: tuple([piece for part in chunks[label] for piece in _pieces(part, most[label])])
        for label in chunks
        if most[label] < largest[label]
    }


def _largest(parts: tuple[int, ...]) -> int:
    """The largest chunk of an axis; 1 where that is not known, or there is nothing."""
    return 1 if isnan(sum(parts)) else max(*parts, 1)


def _pieces(part: int, most: int) -> list[int]:
    """A chunk in pieces of about one size, of at most so much."""
    count = max(ceil(part / most), 1)
    return [part * (piece + 1) // count - part * piece // count for piece in range(count)]


def _chunk(*blocks: Any, equation: str, compute: str, padding: int) -> Any:
    """One chunk, with an axis of size 1 for each label that is summed in it."""
    if compute == "object":  # of which a chunk without axes is the object itself
        blocks = tuple([get_backend("numpy").boxed(block, compute) for block in blocks])
    found = hooks.einsum(equation, *blocks, dtype=compute, casting="unsafe")
    if compute == "object":
        found = get_backend("numpy").boxed(found, compute)
    return found.reshape(found.shape + (1,) * padding)
