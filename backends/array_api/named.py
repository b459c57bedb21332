"""Libraries that follow the array API standard and are known by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.operand_types import wrong_type_error
from einsumx.adapters.traits import Traits
from einsumx.backends.array_api.adapter import ArrayApiAdapter

__all__ = ["NamedLibrary"]


class NamedLibrary(ArrayApiAdapter):
    """A library that follows the standard, as a backend of its own name.

    A subclass declares ``name``, ``module`` and ``install``, and overrides that in which its library deviates from the
    standard.
    """

    @cached_property
    def xp(self) -> Any:
        return import_module(self.module)

    def of(self, arrays: Sequence[Array]) -> Adapter:
        return self

    def check_type(self, kind: type) -> None:
        if not hasattr(kind, "__array_namespace__"):
            raise wrong_type_error(kind, f"arrays of {self.name}")

    def is_plain(self, kind: type) -> bool:
        return True

    def traits(self, device: str) -> Traits:
        return self.cpu
