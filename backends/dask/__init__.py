"""Contracts Dask arrays: the result is a lazy Dask array, whose tasks are einsumx calls on chunks.

``arrays.py`` reads a call, ``choices.py`` decides on steps and chunks from sizes alone, ``graphs.py`` makes the graph,
and ``kernels.py`` is what its tasks run. Only ``arrays.py``, ``graphs.py`` and ``patch.py`` import Dask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters.replacement import Client
from einsumx.imports import LazyModule

if TYPE_CHECKING:
    from einsumx.adapters.replacement import Name
    from einsumx.backends.dask import arrays as _arrays
    from einsumx.backends.dask import graphs as _graphs
    from einsumx.backends.dask import patch as _patch
    from einsumx.backends.dask import program as _program
    from einsumx.backends.dask.program import ChunkedProgram
    from einsumx.runtime.request import Request
else:
    _graphs = LazyModule("einsumx.backends.dask.graphs")
    _arrays = LazyModule("einsumx.backends.dask.arrays")
    _patch = LazyModule("einsumx.backends.dask.patch")
    _program = LazyModule("einsumx.backends.dask.program")

__all__ = ["LIBRARY", "einsum", "is_same", "planned", "run"]


def einsum(request: Request) -> Any:
    """Contract Dask arrays; other operands are arrays of the chunks' framework, Python scalars and lists.

    Args:
        request: the call; its keywords are at most ``dtype``, ``accumulate``, ``casting`` and ``optimize``.

    Raises:
        BackendError: another keyword, or a stored operand.
        SizeError: sizes that do not fit, or are not known.
        EinsumxError: as :func:`einsumx.einsum` does.
    """
    call = _arrays.read(request)
    result = _graphs.build(call.program(), call.operands.arrays)
    return result if request.factors is None else _graphs.added(result, request)


def planned(request: Request) -> ChunkedProgram:
    """The steps and chunks by which :func:`einsum` contracts the same operands; it raises the same errors."""
    return _arrays.read(request).program()


def is_same(array: Any, other: Any) -> bool:
    """Whether two Dask arrays have the same tasks, as far as their names tell."""
    return bool(array.name == other.name)


def run(program: ChunkedProgram, operands: Sequence[Any]) -> Any:
    """Contract operands as a program says.

    Raises:
        SizeError, BackendError: their shapes, chunks or dtypes are not the program's.
    """
    read = _arrays.read_operands(operands)
    _program.check_operands(program, read.chunked)
    return _graphs.build(program, read.arrays)


def _names() -> Iterable[Name]:
    return _patch.names()


LIBRARY = Client("dask", "pip install 'dask[array]'", _names)
