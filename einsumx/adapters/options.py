"""The keywords that one framework alone has."""

from __future__ import annotations

from typing import Any, NamedTuple

from einsumx.errors import BackendError


class FrameworkOptions(NamedTuple):
    """Values in the framework's own terms; None for the framework's default.

    They are part of cache keys, so each is hashable.

    Attributes:
        precision: of products.
        preferred_element_type: the name of the dtype in which products are summed and returned.
        out_sharding: how the result is distributed over devices.
    """

    precision: Any = None
    preferred_element_type: str | None = None
    out_sharding: Any = None

    def refuse(self, who: str) -> None:
        """Raise BackendError if an option is set; ``who`` does not have it."""
        for name, value in zip(self._fields, self):
            if value is not None:
                raise BackendError(f"{who} has no {name}=; omit it")


NO_OPTIONS = FrameworkOptions()
