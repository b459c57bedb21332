"""The caches of plans and of the steps towards them, which are counted and cleared together.

Other caches, such as that of calibrations, are not among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Value = TypeVar("Value")

_BOUNDS = {
    "calls": 4096,
    "signatures": 4096,
    "plans": 1024,
    "runs": 256,
    "blocks": 256,
}
"""The most entries of each cache. One whose module is not imported yet is empty."""

_caches: dict[str, _lru_cache_wrapper[Any] | Table[Any]] = {}
_others: list[Callable[[], None]] = []
"""Functions that `cache_clear` calls."""


class Uncacheable(Exception):  # noqa: N818  control flow, no error of the user
    """A call whose arguments have to be checked every time. It never reaches the user."""


class CacheInfo(NamedTuple):
    """Statistics of one cache, as ``functools.lru_cache`` counts them."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class Table(Generic[Value]):
    """A cache that its user searches, as ``table.known.get(key)`` takes less time than a call of an ``lru_cache``.

    A search changes nothing, so it is not known which values were used last. A table that is full forgets all.

    Args:
        maxsize: the most values.

    Attributes:
        known: the values by key.
        searches: its user counts searches by ``next(table.searches)``, which threads may do at the same time.
        misses: those that found nothing, which its user counts too.

    >>> table = Table(maxsize=2)
    >>> table.keep("one", 1), table.keep("two", 2), table.keep("three", 3)
    (1, 2, 3)
    >>> table.known
    {'three': 3}
    """

    def __init__(self, maxsize: int) -> None:
        self.known: dict[Any, Value] = {}
        self.searches = count()
        self.misses = 0
        self._maxsize, self._not_counted = maxsize, 0

    def keep(self, key: Any, value: Value) -> Value:
        """Keep the value of a key that was not known."""
        if len(self.known) >= self._maxsize:
            self.known.clear()
        self.known[key] = value
        return value

    def cache_info(self) -> CacheInfo:
        searches = next(self.searches) - self._not_counted
        self._not_counted += 1
        return CacheInfo(searches - self.misses, self.misses, self._maxsize, len(self.known))

    def cache_clear(self) -> None:
        self.known.clear()
        self.misses, self._not_counted = 0, next(self.searches) + 1


def table(name: str) -> Table[Any]:
    """A new table that is the cache of that name."""
    _caches[name] = made = Table[Any](_BOUNDS[name])
    return made


def cached(name: str) -> Callable[[Callable[..., Value]], _lru_cache_wrapper[Value]]:
    """A decorator that keeps a function's results in the cache of that name, in which 1 and True are equal."""

    def decorate(function: Callable[..., Value]) -> _lru_cache_wrapper[Value]:
        wrapper = lru_cache(_BOUNDS[name])(function)
        _caches[name] = wrapper
        return wrapper

    return decorate


def when_cleared(function: Callable[[], None]) -> Callable[[], None]:
    """A decorator of functions that `cache_clear` calls, for memory that is kept in other ways."""
    _others.append(function)
    return function


def cache_info() -> dict[str, CacheInfo]:
    """Hits, misses, bound and size of each cache.

    A call is looked up in ``calls``, and one that has to be checked each time, such as one with nested lists or of
    :func:`einsumx.plan`, in ``signatures``. On a miss, ``plans`` is searched by what the call computes.
    ``runs`` is for plans that are called, ``blocks`` for calls under a memory limit.

    >>> import einsumx
    >>> sorted(einsumx.cache_info())
    ['blocks', 'calls', 'plans', 'runs', 'signatures']
    """
    statistics = {name: CacheInfo(0, 0, bound, 0) for name, bound in _BOUNDS.items()}
    for name in _BOUNDS.keys() & _caches:
        hits, misses, _, size = _caches[name].cache_info()
        statistics[name] = CacheInfo(hits, misses, _BOUNDS[name], size)
    return statistics


def cache_clear() -> None:
    """Forget every plan, and return the idle memory of the memory pool to the system."""
    for cache in _caches.values():
        cache.cache_clear()
    for clear in _others:
        clear()
