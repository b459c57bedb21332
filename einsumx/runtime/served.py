"""Whether einsumx serves the operands of a call that has its framework's own function to fall back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import is_builtin, serving
from einsumx.errors import BackendError, EinsumxError
from einsumx.runtime.request import split

__all__ = ["is_served", "unserved", "unserved_out"]


def is_served(adapter: Adapter, kind: type) -> bool:
    """Whether the adapter serves arrays of this type."""
    try:
        return serving(kind).name == adapter.name
    except BackendError:
        return False


def unserved_out(adapter: Adapter | None, out: Any) -> str:
    """Why an adapter does not write to ``out``; empty if it does, or if there is none."""
    if out is None or (adapter is not None and is_served(adapter, type(out))):
        return ""
    return f"out= is of type {type_name(type(out))}"


def unserved(adapter: Adapter, operands: Sequence[Any]) -> str:
    """Why einsumx does not compute with one of the framework's arrays; empty if it does with all."""
    try:
        _, arrays = split(operands)
    except (EinsumxError, TypeError):
        return ""
    for operand in arrays:
        if not is_builtin(type(operand)):
            try:
                adapter.operand(adapter.signature(adapter.plain(operand)))
            except BackendError as error:
                return str(error)
            except (AttributeError, TypeError):  # not an array
                return ""
    return ""
