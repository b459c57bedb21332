"""Replaces ``dask.array.einsum`` for :func:`einsumx.patch`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import wraps
from importlib import import_module
from typing import Any

from einsumx.adapters import hooks
from einsumx.adapters.operand_types import lazy_module
from einsumx.adapters.replacement import Function, Name, own_result, say_native
from einsumx.backends.dask.arrays import KEYWORDS
from einsumx.errors import EinsumxError


def names() -> Iterator[Name]:
    """The names of Dask's einsum."""
    for module in ("dask.array", "dask.array.einsumfuncs"):
        yield Name(import_module(module), "einsum", ours=_replacing)


def _replacing(native: Function) -> Function:
    """The replacement: einsumx, or ``native`` for calls that it has no keyword for, or that have no Dask array."""

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        given = {name: value for name, value in options.items() if value is not None}
        reason = _reason(operands, given)
        if reason:
            say_native("dask.array.einsum", operands, reason)
            return native(*operands, **options)
        if given.get("optimize") in (True, False):
            del given["optimize"]
        try:
            return hooks.einsum(*operands, **given)
        except EinsumxError as error:
            return own_result(native, operands, options, error, "dask.array.einsum")

    return function


def _reason(operands: Sequence[Any], options: dict[str, Any]) -> str:
    """Why a call is left to Dask; empty if einsumx takes it."""
    others = [name for name in options if name not in KEYWORDS]
    if others:
        return f"einsumx has no keyword {others[0]}= for Dask arrays"
    kinds: list[type] = list(map(type, operands))
    if not any(lazy_module(kind) == "einsumx.backends.dask" for kind in kinds):
        return "it has no Dask array"
    return ""
