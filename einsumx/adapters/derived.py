"""Adapters derived from a framework's own, which run the same ops with another meaning of arrays or of sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter
    from einsumx.adapters.traits import Traits

__all__ = ["derived"]


def derived(adapter: Adapter, kind: type, traits: Callable[[Traits], Traits], **attributes: Any) -> Adapter:
    """An adapter of the class ``kind`` that is in all else a copy of ``adapter``.

    Args:
        adapter: the framework's own; the result has it as its attribute ``framework``.
        kind: a class of methods that come before those of the adapter's own class.
        traits: makes the traits of the result of the adapter's.
        **attributes: further attributes of the result.
    """
    own = type(adapter)
    cls: Any = type(f"{own.__name__}{kind.__name__.removeprefix('_')}", (kind, own), {})
    made: Any = cls.__new__(cls)
    made.__dict__.update(adapter.__dict__, framework=adapter, cpu=traits(adapter.cpu), **attributes)
    return made  # type: ignore[no-any-return]
