"""Contracts Dask arrays: the result is a lazy Dask array, whose chunks are einsumx calls on the operands' chunks.

Axes that share a label are rechunked to the same chunks. A contracted label is summed within each chunk, and Dask adds
the sums of the chunks as a tree, so no contracted axis is ever gathered in one chunk. Result chunks that would exceed
Dask's ``array.chunk-size`` are split.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import ceil, isnan, prod
from typing import Any

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend, is_builtin, is_stored, serving
from einsumx.dtypes import itemsize, kind
from einsumx.errors import BackendError, SizeError
from einsumx.ir.bind import SizedEquation
from einsumx.ir.parse import symbol
from einsumx.planner.path import find_path, step_outputs
from einsumx.runtime.factors import Factors, check_kinds
from einsumx.runtime.prepare import arrays_of, result_dtype, sized_equation
from einsumx.runtime.request import Request, Written

__all__ = ["einsum"]

da: Any = import_module("dask.array")
dask: Any = import_module("dask")

_HONOURED = frozenset({"dtype", "casting", "optimize", "alpha"})
"""The keywords that contractions of Dask arrays accept."""

_ASSUMED = 1000
"""The size of chunks of unknown size, for the planner."""


def einsum(request: Request) -> Any:
    """Contract Dask arrays; other operands are arrays of the chunks' framework, Python scalars and lists.

    Args:
        request: the call; its keywords are at most ``dtype``, ``casting``, ``optimize`` and ``alpha``.

    Raises:
        BackendError: another keyword, or a stored operand.
        SizeError: sizes that do not fit, or are not known.
        EinsumxError: as :func:`einsumx.einsum` does.
    """
    for name in request.keywords():
        if name not in _HONOURED:
            raise BackendError(f"{name}= is not for Dask arrays, whose results are lazy; leave it away")
    operands = request.operands
    for number, operand in enumerate(operands):
        if not isinstance(operand, da.Array) and is_stored(operand):
            raise BackendError(f"operand {number} is stored; dask.array.from_array makes a Dask array of it")
    metas = [operand._meta if isinstance(operand, da.Array) else operand for operand in operands]
    adapter, metas = arrays_of(metas, None)
    arrays = [
        operand if isinstance(operand, da.Array)
        else da.from_array(meta if is_builtin(type(operand)) else operand, chunks=-1, asarray=False)
        for operand, meta in zip(operands, metas)
    ]  # fmt: skip
    sized = _sized(request.written, arrays)
    options, factors = request.options(adapter), request.scale
    result = result_dtype(adapter, [adapter.operand(adapter.signature(meta)) for meta in metas], options)
    if factors is not None:
        check_kinds(factors.kinds, result)
    compute = dict(adapter.cpu.widen).get(result, result)
    if 0 in sized.sizes and not any(isnan(size) for array in arrays for size in array.shape):
        # Dask cannot choose chunks for objects; their arrays contain pointers.
        chunk_dtype = "uint64" if result == "object" else adapter.dtype(result)
        chunks = da.core.normalize_chunks("auto", sized.shape, dtype=chunk_dtype)
        return da.zeros_like(arrays[0], dtype=adapter.dtype(result), shape=sized.shape, chunks=chunks)

    terms = [_without_broadcast(array, term, sized.sizes) for array, term in zip(arrays, sized.inputs)]
    terms = [(_with_equal_chunks(array, term), term) for array, term in terms]
    path = find_path(sized, options.optimize)
    labels = [frozenset(term) for _, term in terms]
    for step, keep in step_outputs(path, labels, frozenset(sized.output)):
        step_terms = [terms.pop(position) for position in sorted(step, reverse=True)][::-1]
        output = tuple(label for label in sized.output if label in keep)
        output += tuple(sorted(keep.difference(sized.output)))
        terms.append((_contract(step_terms, output, compute), output))
    ((array, term),) = terms
    if term != sized.output or not path:
        array = _contract([(array, term)], sized.output, compute)
    array = array.astype(adapter.dtype(result))
    return array if factors is None else array.map_blocks(_scaled, factors, result, dtype=array.dtype)


def _sized(written: Written, arrays: Sequence[Any]) -> SizedEquation:
    """The equation bound to the arrays' shapes, with assumptions for unknown sizes of labels that only one axis has.

    Raises:
        SizeError: sizes that do not fit, or an unknown size that might not.
    """
    shapes = [tuple(array.shape) for array in arrays]
    if not any(isnan(size) for shape in shapes for size in shape):
        return sized_equation(written, shapes)
    try:
        labels = sized_equation(written, [(1,) * len(shape) for shape in shapes])
    except SizeError:  # a wrong rank
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
    """The axes that have a label and do not broadcast, as pairs of the array's name and the axis."""
    return {
        (array.name, axis)
        for array, term in zip(arrays, sized.inputs)
        for axis, (axis_label, size) in enumerate(zip(term, array.shape))
        if axis_label == label and size != 1
    }


def _with_equal_chunks(array: Any, term: tuple[int, ...]) -> Any:
    """The array with the same chunks along axes of the same label."""
    chunks = {
        label: da.core.common_blockdim([parts for parts, axis_label in zip(array.chunks, term) if axis_label == label])
        for label in term
        if term.count(label) > 1
    }
    if not chunks:
        return array
    return array.rechunk({axis: chunks[label] for axis, label in enumerate(term) if label in chunks})


def _without_broadcast(array: Any, term: tuple[int, ...], sizes: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """The array without the axes of size 1 that broadcast."""
    broadcasts = [size == 1 != sizes[label] for size, label in zip(array.shape, term)]
    if not any(broadcasts):
        return array, term
    array = array[tuple(0 if dropped else slice(None) for dropped in broadcasts)]
    return array, tuple(label for label, dropped in zip(term, broadcasts) if not dropped)


def _contract(terms: Sequence[tuple[Any, tuple[int, ...]]], output: tuple[int, ...], dtype: str) -> Any:
    """One step of a path, chunk by chunk, in the dtype that accumulates sums."""
    pairs = [item for array, term in terms for item in (array, term)]
    chunks, arrays = da.core.unify_chunks(*pairs)
    smaller = _split({label: chunks[label] for label in output}, arrays, itemsize(dtype))
    if smaller:
        arrays = [
            array.rechunk({axis: smaller[label] for axis, label in enumerate(term) if label in smaller})
            for array, (_, term) in zip(arrays, terms)
        ]
    labels = dict.fromkeys(label for _, term in terms for label in term)
    contracted = [label for label in labels if label not in output]
    in_chunks = [label for label in contracted if len(chunks[label]) > 1]
    equation = ",".join("".join(map(symbol, term)) for _, term in terms) + "->" + "".join(map(symbol, output))
    aligned = [item for array, (_, term) in zip(arrays, terms) for item in (array, term)]
    indices = (*output, *contracted)
    result = da.blockwise(
        _chunk,
        indices,
        *aligned,
        adjust_chunks=dict.fromkeys(contracted, 1),
        align_arrays=False,
        meta=da.utils.meta_from_array(arrays[0]._meta, len(indices), get_backend("numpy").dtype(dtype)),
        equation=equation,
        compute=dtype,
        padding=len(contracted),
    )
    if not contracted:
        return result
    if not in_chunks:
        return result[(slice(None),) * len(output) + (0,) * len(contracted)]
    axes = tuple(range(len(output), len(indices)))
    return result.any(axis=axes) if kind(dtype) == "b" else result.sum(axis=axes, dtype=result.dtype)


def _split(chunks: dict[int, tuple[int, ...]], arrays: Sequence[Any], itemsize: int) -> dict[int, tuple[int, ...]]:
    """Smaller chunks of some labels, so that result chunks exceed neither Dask's limit nor the largest operand chunk.

    Chunks of unknown size are not split.
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
    """The largest chunk of an axis; 1 if it is unknown or empty."""
    return 1 if isnan(sum(parts)) else max(*parts, 1)


def _pieces(part: int, most: int) -> list[int]:
    """A chunk in pieces of nearly equal sizes, at most ``most``."""
    count = max(ceil(part / most), 1)
    return [part * (piece + 1) // count - part * piece // count for piece in range(count)]


def _chunk(*blocks: Any, equation: str, compute: str, padding: int) -> Any:
    """One chunk, with an axis of size 1 for each contracted label."""
    if compute == "object":  # without axes, a chunk of objects is a bare object
        blocks = tuple([get_backend("numpy").boxed(block, compute) for block in blocks])
    chunk = hooks.einsum(equation, *blocks, dtype=compute, casting="unsafe")
    if compute == "object":
        chunk = get_backend("numpy").boxed(chunk, compute)
    return chunk.reshape(chunk.shape + (1,) * padding)


def _scaled(block: Any, factors: Factors, dtype: str) -> Any:
    """A multiple of a chunk of the result."""
    if not block.size:
        return block
    adapter = serving(type(block))  # type: ignore[arg-type]
    return adapter.scaled(block, factors.within(dtype).alpha, dtype)
