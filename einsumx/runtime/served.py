"""Whether einsumx serves the operands of a call that has its framework's own function to fall back to."""

from __future__ import annotations

from typing import Any

from einsumx.adapters.base import Adapter
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import serving
from einsumx.errors import BackendError


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
