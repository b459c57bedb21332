"""Dask arrays: a contraction of theirs is a lazy Dask array, whose chunks are einsumx calls on the operands' chunks.

Labels that operands share are chunked alike, as far as they are not already. A contracted label is summed within each
chunk, and the sums of the chunks are added up as a tree: no contracted axis is ever gathered in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import isnan
from typing import Any

import einsumx
from einsumx.dtypes import Casting, check_casting, kind
from einsumx.errors import BackendError, SizeError
from einsumx.parse import symbol
from einsumx.path import Optimize, find_path, step_outputs
from einsumx.prepare import Options, Written, arrays_of, as_optimize, result_dtype, sized_equation
from einsumx.registry import get_backend, is_builtin

__all__ = ["einsum"]

da: Any = import_module("dask.array")


def einsum(
    written: Written, given: Sequence[Any], *, dtype: Any, casting: Casting, optimize: Optimize, **others: Any
) -> Any:
    """The contraction of Dask arrays, with arrays of their chunks' framework and Python's scalars and lists among them.

    Args:
        written, given: the equation and the operands.
        dtype, casting, optimize: as for :func:`einsumx.einsum`.
        others: keywords that Dask arrays have no use for, with what was given for them.

    Raises:
        SizeError: sizes that do not fit, or are not known.
        EinsumxError: as :func:`einsumx.einsum` does.
    """
    from einsumx.api import dtype_name

    for name, value in others.items():
        if not (value is None or (isinstance(value, str | bool) and value in ("", "K", False))):
            raise BackendError(f"{name}= is not for Dask arrays, whose results are lazy; leave it away")
    check_casting(casting)
    metas = [operand._meta if isinstance(operand, da.Array) else operand for operand in given]
    adapter, metas = arrays_of(metas, None)
    arrays = [
        operand if isinstance(operand, da.Array)
        else da.from_array(meta if is_builtin(type(operand)) else operand, chunks=-1, asarray=False)
        for operand, meta in zip(given, metas)
    ]  # fmt: skip
    for number, array in enumerate(arrays):
        if any(isnan(size) for size in array.shape):
            raise SizeError(
                f"operand {number} has shape {array.shape}, where sizes are not known; call its compute_chunk_sizes()"
            )
    sized = sized_equation(written, [tuple(array.shape) for array in arrays])
    described = [adapter.operand(adapter.signature(meta)) for meta in metas]
    options = Options(dtype_name(adapter, dtype), casting, as_optimize(optimize))
    result = result_dtype(adapter, described, options)
    compute = dict(adapter.cpu.widen).get(result, result)

    terms = [_without_broadcast(array, term, sized.sizes) for array, term in zip(arrays, sized.inputs)]
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


def _chunk(*blocks: Any, equation: str, compute: str, padding: int) -> Any:
    """One chunk, with an axis of size 1 for each label that is summed in it."""
    found = einsumx.einsum(equation, *blocks, dtype=compute, casting="unsafe")
    return found.reshape(found.shape + (1,) * padding)
