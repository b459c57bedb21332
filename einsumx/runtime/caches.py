"""The caches of plans and of what leads to them: each registers itself here; all of them are counted and cleared here.

Caches that plans do not come from, such as that of calibrations, are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Cache", "CacheInfo", "cache_clear", "cache_info", "register_cache"]


class Cache(Protocol):
    """What ``functools.lru_cache`` makes."""

    def cache_info(self) -> Any:
        """Its hits, misses, bound and size."""

    def cache_clear(self) -> None:
        """Forget everything in it."""


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """How one cache fares: calls answered from it, calls that were not, its bound and its size."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


_caches: dict[str, Cache] = {}


def register_cache(name: str, cache: Cache) -> None:
    """Make a cache known by a name to :func:`cache_info`, and have :func:`cache_clear` clear it."""
    _caches[name] = cache


def cache_info() -> dict[str, CacheInfo]:
    """How einsumx's caches fare, from the one that a repeated call hits to the one that new shapes hit.

    ``calls`` has the calls of an equation as text and arrays alone, ``options`` those with keywords, sublists or lists.

    >>> import einsumx
    >>> sorted(einsumx.cache_info())
    ['blocks', 'calls', 'equations', 'limits', 'options', 'plans', 'sizes', 'stored']
    """
    found = {}
    for name, cache in _caches.items():
        info = cache.cache_info()
        found[name] = CacheInfo(info.hits, info.misses, info.maxsize or 0, info.currsize)
    return found


def cache_clear() -> None:
    """Forget every plan and equation; the next call of each kind plans anew."""
    for cache in _caches.values():
        cache.cache_clear()
