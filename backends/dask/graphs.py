"""Makes the graph of a planned contraction: a lazy Dask array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise, product
from math import isnan
from typing import TYPE_CHECKING, Any, TypeAlias

from einsumx.adapters.registry import get_backend
from einsumx.backends.dask.kernels import add, contract, contract_one
from einsumx.backends.dask.program import ChunkedProgram, ChunkedStep, Labels
from einsumx.ir.operand import Operand
from einsumx.ir.parse import symbol
from einsumx.ir.sizes import UNKNOWN
from einsumx.runtime.factors import Factors
from einsumx.runtime.results import sum_dtype

if TYPE_CHECKING:
    from einsumx.ir.algebra import Algebra
    from einsumx.runtime.request import Request

da: Any = import_module("dask.array")
tokenize: Any = import_module("dask.base").tokenize
HighLevelGraph: Any = import_module("dask.highlevelgraph").HighLevelGraph

Place: TypeAlias = tuple[int, ...]
Graph: TypeAlias = dict[tuple[Any, ...], tuple[Any, ...]]


def build(program: ChunkedProgram, arrays: Sequence[Any]) -> Any:
    """The contraction of Dask arrays by a program that was planned for them."""
    numpy = get_backend("numpy")
    dtype, compute_dtype = map(numpy.dtype, (program.dtype, program.compute_dtype))
    if not program.steps:
        shaped = {"dtype": dtype, "shape": program.shape, "chunks": program.chunks}
        return da.full_like(arrays[0], program.algebra.zero, **shaped)
    equation = program.equation
    values = [_carried(array, term, equation.sizes) for array, term in zip(arrays, equation.inputs)]
    for step in program.steps:
        sources = [_rechunked(values[source], term, step) for source, term in zip(step.sources, step.inputs)]
        values.append(_contracted(step, sources, program, compute_dtype))
    return values[-1].astype(dtype)


def added(result: Any, request: Request) -> Any:
    """The sum of a contraction's result and of the array that it is added to, by Dask's own functions.

    Raises:
        SizeError, BackendError: as :func:`~einsumx.runtime.results.sum_dtype` does.
    """
    numpy, array = get_backend("numpy"), da.asarray(request.added)
    of_result, of_array = [
        Operand(tuple([UNKNOWN if isnan(size) else size for size in each.shape]), numpy.dtype_name(each.dtype))
        for each in (result, array)
    ]
    asked = None if request.dtype is None else of_result.dtype
    factors = request.factors or Factors(1, 1)
    dtype = sum_dtype(numpy, of_result, of_array, factors.kinds, asked, request.casting)
    alpha, beta = factors.within(dtype)
    total = alpha * result.astype(dtype)
    return total if beta == 0 else total + beta * array.astype(dtype)


def _carried(array: Any, term: Labels, sizes: Sequence[int]) -> Any:
    """The array without the axes of size 1 that broadcast."""
    broadcasts = [size == 1 != sizes[label] for size, label in zip(array.shape, term)]
    return array[tuple(0 if dropped else slice(None) for dropped in broadcasts)] if any(broadcasts) else array


def _rechunked(array: Any, term: Labels, step: ChunkedStep) -> Any:
    """The array in the chunks of a step; chunks of unknown size stay."""
    chunks = dict(step.chunks)
    changed = {
        axis: chunks[label]
        for axis, (label, parts) in enumerate(zip(term, array.chunks))
        if parts != chunks[label] and not isnan(sum(parts))
    }
    return array.rechunk(changed) if changed else array


def _contracted(step: ChunkedStep, arrays: Sequence[Any], program: ChunkedProgram, meta_dtype: Any) -> Any:
    """The result of a step of a program, as an array of the dtype in which it is computed."""
    dtype, algebra = program.compute_dtype, program.algebra
    chunks = {label: parts for array, term in zip(arrays, step.inputs) for label, parts in zip(term, array.chunks)}
    name = f"einsumx-{tokenize(step, [array.name for array in arrays], dtype, algebra.text)}"
    inputs = ",".join("".join(map(symbol, term)) for term in step.inputs)
    equation = f"{inputs}->{''.join(map(symbol, step.output))}"
    meta = partial(da.utils.meta_from_array, arrays[0]._meta, dtype=meta_dtype)
    ends = {label: len(parts) for label, parts in chunks.items()}
    if step.is_fusible:
        summed = [label for label in step.contracted if ends[label] > 1]
        parts = da.blockwise(
            partial(contract_one, equation=equation, dtype=dtype, algebra=algebra),
            (*step.output, *summed),
            *[item for pair in zip(arrays, step.inputs) for item in pair],
            name=f"einsumx-chunks-{name.rpartition('-')[2]}" if summed else name,
            adjust_chunks=dict.fromkeys(summed, 1),
            align_arrays=False,
            meta=meta(ndim=len(step.output) + len(summed)),
        )
        if not summed:
            return parts
        places = list(product(*[range(ends[label]) for label in summed]))
        graph = _tree(name, step, ends, lambda place: [(parts.name, *place, *inner) for inner in places], algebra)
        dependencies = [parts]
    else:
        graph = _products(name, step, ends, arrays, partial(contract, equation=equation, dtype=dtype, algebra=algebra))
        dependencies = list(arrays)
    layers = HighLevelGraph.from_collections(name, graph, dependencies=dependencies)
    shape = tuple([chunks[label] for label in step.output])
    return da.Array(layers, name, chunks=shape, meta=meta(ndim=len(shape)))


def _places(step: ChunkedStep, ends: dict[int, int]) -> Iterator[Place]:
    """The chunks of the result, each by its number along each axis."""
    return product(*[range(ends[label]) for label in step.output])


def _products(name: str, step: ChunkedStep, ends: dict[int, int], arrays: Sequence[Any], task: partial[Any]) -> Graph:
    """Tasks that contract several chunks of the operands, and those that add their results."""
    graph: Graph = {}
    inner = list(product(*[range(ends[label]) for label in step.contracted]))
    count = step.partial_sums
    bounds = [len(inner) * part // count for part in range(count + 1)]
    for place in _places(step, ends):
        groups = []
        for numbers in inner:
            at = dict(zip((*step.output, *step.contracted), (*place, *numbers)))
            groups.append([(array.name, *(at[label] for label in term)) for array, term in zip(arrays, step.inputs)])
        for part, (start, stop) in enumerate(pairwise(bounds)):
            key = (name, *place) if count == 1 else (f"{name}-part", *place, part)
            graph[key] = (task, groups[start:stop])
    if count > 1:
        parts = range(count)
        algebra = task.keywords["algebra"]
        graph |= _tree(name, step, ends, lambda place: [(f"{name}-part", *place, part) for part in parts], algebra)
    return graph


def _tree(
    name: str,
    step: ChunkedStep,
    ends: dict[int, int],
    parts_of: Callable[[Place], list[Any]],
    algebra: Algebra,
) -> Graph:
    """Tasks that add the partial sums of each chunk of the result, a few at a time."""
    graph: Graph = {}
    for place in _places(step, ends):
        parts, level = parts_of(place), 0
        while len(parts) > 1:
            starts = range(0, len(parts), step.fan_in)
            keys = [(name, *place) if len(starts) == 1 else (f"{name}-sum", level, *place, start) for start in starts]
            graph |= {key: (add, parts[start : start + step.fan_in], algebra) for key, start in zip(keys, starts)}
            parts, level = keys, level + 1
    return graph
