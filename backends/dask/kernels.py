"""The functions that the tasks of a contraction run on chunks, in the process of the caller or of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from einsumx.adapters import hooks
from einsumx.adapters.registry import get_backend, serving

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.ir.algebra import Algebra


def contract(groups: Sequence[Sequence[Any]], equation: str, dtype: str, algebra: Algebra) -> Any:
    """The sum of the contractions of several groups of chunks.

    No chunk is changed, because other tasks, or the same one after a failure, may use it again.
    """
    first, *others = groups
    total = contract_one(*first, equation=equation, dtype=dtype, algebra=algebra)
    if others and len(first) == 1:  # a sum may be a view of its chunk; a product is new
        total = _copy(total)
    for chunks in others:
        part = contract_one(*chunks, equation=equation, dtype=dtype, algebra=algebra)
        total = _added(total, part, algebra)
    return total


def contract_one(*chunks: Any, equation: str, dtype: str, algebra: Algebra) -> Any:
    """The contraction of one chunk of each operand, where lists of one chunk stand for the chunk."""
    chunks = tuple([_bare(chunk) for chunk in chunks])
    if dtype == "object":  # without axes, a chunk of objects is a bare object
        chunks = tuple([get_backend("numpy").boxed(chunk, dtype) for chunk in chunks])
    function = getattr(hooks, algebra.function)
    result = function(*algebra.arguments, equation, *chunks, dtype=dtype, casting="unsafe")
    if dtype == "object":
        return get_backend("numpy").boxed(result, dtype)
    if not getattr(result.dtype, "isnative", True):  # a view of a chunk in another byte order
        return result.astype(result.dtype.newbyteorder("="))
    return result


def add(parts: Sequence[Any], algebra: Algebra) -> Any:
    """The sum of chunks, none of which is changed."""
    first, *others = parts
    total = _copy(first)
    for part in others:
        total = _added(total, part, algebra)
    return total


def _adapter_of(chunk: Any) -> Adapter:
    kind: type = type(chunk)
    return serving(kind).of((chunk,))


def _bare(chunk: Any) -> Any:
    """The chunk in nested lists of one."""
    while isinstance(chunk, list):
        (chunk,) = chunk
    return chunk


def _copy(chunk: Any) -> Any:
    adapter = _adapter_of(chunk)
    return adapter.copy(adapter.plain(chunk))


def _added(total: Any, part: Any, algebra: Algebra) -> Any:
    adapter = _adapter_of(total)
    return algebra.added(adapter, adapter.plain(total), adapter.plain(part))
