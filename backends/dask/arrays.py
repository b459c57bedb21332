"""Reads a call with Dask arrays: its operands as arrays and as data, its sizes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from einsumx.adapters.registry import is_builtin, is_stored
from einsumx.backends.dask.choices import chunked_program
from einsumx.backends.dask.program import ChunkedOperand, ChunkedProgram
from einsumx.errors import BackendError, SizeError
from einsumx.ir.bind import SizedEquation
from einsumx.planner.path import Optimize
from einsumx.runtime.conversion import arrays_of
from einsumx.runtime.equations import sized_equation
from einsumx.runtime.front import contraction
from einsumx.runtime.request import Request, Written

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.ir.algebra import Algebra
    from einsumx.ir.operand import Operand

da: Any = import_module("dask.array")
dask: Any = import_module("dask")

KEYWORDS = frozenset({"dtype", "casting", "optimize", "accumulate"})
"""The keywords that contractions of Dask arrays accept."""

_ASSUMED = 1000
"""The size of chunks of unknown size, for the planner."""


class Operands(NamedTuple):
    """The operands of a contraction.

    Attributes:
        arrays: as Dask arrays.
        chunked: their chunks and dtypes.
        adapter: of the chunks.
        described: a chunk of each, as the adapter describes it.
    """

    arrays: tuple[Any, ...]
    chunked: tuple[ChunkedOperand, ...]
    adapter: Adapter
    described: tuple[Operand, ...]


class Call(NamedTuple):
    """A contraction of Dask arrays.

    Attributes:
        operands: the operands.
        equation: with assumed sizes where they are unknown.
        dtypes: of the result, and of the chunks that are computed.
        optimize: how to find the path.
        algebra: what sums and products mean.
    """

    operands: Operands
    equation: SizedEquation
    dtypes: tuple[str, str]
    optimize: Optimize
    algebra: Algebra

    def program(self) -> ChunkedProgram:
        """The steps and chunks of the contraction."""
        if 0 in self.equation.sizes:
            return _without_terms(self)
        limit = dask.utils.parse_bytes(dask.config.get("array.chunk-size"))
        program = chunked_program(self.equation, self.operands.chunked, self.dtypes, self.optimize, limit)
        return replace(program, algebra=self.algebra)


def read(request: Request) -> Call:
    """Check a call, and make Dask arrays of its operands.

    Raises:
        BackendError: a keyword that lazy arrays have no use for, or as :func:`read_operands` raises.
        SizeError: sizes that do not fit, or are not known.
    """
    for name in request.keywords():
        if name not in KEYWORDS:
            raise BackendError(f"{name}= is not for Dask arrays, whose results are lazy; omit it")
    if request.algebra.has_exponents:
        raise BackendError(
            "einsum_frexp is not for Dask arrays, whose results are lazy; call compute() on the operands"
        )
    operands = read_operands(request.operands)
    adapter, algebra = operands.adapter, request.algebra
    equation = _sized(request.written, operands.arrays)
    described = tuple([
        replace(each, shape=shape, strides=None) for each, shape in zip(operands.described, equation.shapes)
    ])  # fmt: skip
    asked = contraction(request.named(adapter), adapter, described, "", equation)
    optimize = "auto" if request.is_path_free else asked.path
    return Call(operands, equation, (asked.dtype, asked.compute_dtype), optimize, algebra)


def read_operands(operands: Sequence[Any]) -> Operands:
    """Make Dask arrays of all operands of a contraction.

    Raises:
        BackendError: a stored operand, chunks of two frameworks, or a dtype that is none of numbers.
    """
    for number, operand in enumerate(operands):
        if not isinstance(operand, da.Array) and is_stored(operand):
            raise BackendError(f"operand {number} is a stored array next to Dask arrays; pass dask.array.from_array(x)")
    metas = [operand._meta if isinstance(operand, da.Array) else operand for operand in operands]
    adapter, metas = arrays_of(metas, None)
    arrays = tuple([
        operand if isinstance(operand, da.Array)
        else da.from_array(meta if is_builtin(type(operand)) else operand, chunks=-1, asarray=False)
        for operand, meta in zip(operands, metas)
    ])  # fmt: skip
    described = tuple([adapter.operand(adapter.signature(meta)) for meta in metas])
    return Operands(arrays, _chunked(arrays, [each.dtype for each in described]), adapter, described)


def _chunked(arrays: Sequence[Any], dtypes: Sequence[str]) -> tuple[ChunkedOperand, ...]:
    names = [array.name for array in arrays]
    return tuple([
        ChunkedOperand(
            chunks=tuple([tuple([_ASSUMED if isnan(size) else size for size in parts]) for parts in array.chunks]),
            dtype=dtype,
            unknown=frozenset(axis for axis, size in enumerate(array.shape) if isnan(size)),
            same_as=names.index(array.name) if names.index(array.name) < number else None,
        )
        for number, (array, dtype) in enumerate(zip(arrays, dtypes))
    ])  # fmt: skip


def _without_terms(call: Call) -> ChunkedProgram:
    """The program of sums over nothing: zeros, without a step."""
    dtype, compute = call.dtypes
    shape = call.equation.shape
    # Dask cannot choose chunks of no elements, or for objects; their arrays contain pointers.
    chunk_dtype = "uint64" if dtype == "object" else dtype
    chunks = da.core.normalize_chunks(-1 if 0 in shape else "auto", shape, dtype=chunk_dtype)
    return ChunkedProgram(call.equation, call.operands.chunked, dtype, compute, (), (), chunks, call.algebra)


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
                    "share its label; call compute_chunk_sizes() on each such array"
                )
    assumed = [
        tuple([_ASSUMED * len(parts) if isnan(size) else size for size, parts in zip(shape, array.chunks)])
        for shape, array in zip(shapes, arrays)
    ]
    sized = sized_equation(written, assumed)
    if 0 in sized.sizes:  # the result is made from its shape alone
        for number, (shape, term) in enumerate(zip(shapes, sized.inputs)):
            if any(isnan(size) and label in sized.output for size, label in zip(shape, term)):
                raise SizeError(
                    f"operand {number} has shape {shape}; a summed label has size 0, and the zeros of the result need "
                    "all sizes; call compute_chunk_sizes() on the operand"
                )
    return sized


def _axes_of(label: int, arrays: Sequence[Any], sized: SizedEquation) -> set[tuple[str, int]]:
    """The axes that have a label and do not broadcast, as pairs of the array's name and the axis."""
    return {
        (array.name, axis)
        for array, term in zip(arrays, sized.inputs)
        for axis, (axis_label, size) in enumerate(zip(term, array.shape))
        if axis_label == label and size != 1
    }
