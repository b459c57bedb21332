"""``patch``: code that calls a framework's own einsum gets einsumx, under the name that it calls it by."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from inspect import Parameter, currentframe, signature
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from einsumx.adapters.base import Adapter
from einsumx.adapters.registry import get_backend, is_builtin, serving
from einsumx.adapters.replacement import OWN, Function, Name, say_anew, say_native
from einsumx.api import einsum
from einsumx.errors import BackendError, EinsumxError, MemoryLimitError
from einsumx.runtime.caller import opens_block
from einsumx.runtime.request import split

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Name", "Names", "Replacement", "behind", "patch", "replacement"]

_EVERYWHERE = 0
"""In the place of a thread's number, which is never 0: all threads."""

_KEYWORDS = frozenset(
    name for name, parameter in signature(einsum).parameters.items() if parameter.kind is Parameter.KEYWORD_ONLY
)

_lock = RLock()


class _Place(NamedTuple):
    """A name, and what can stand under it.

    Attributes:
        owner, name: the module or class, and the attribute of it.
        native: what was there.
        ours: what replaces it.
        chosen: calls ``ours`` in the threads that asked for it, and ``native`` in the others.
    """

    owner: Any
    name: str
    native: Function
    ours: Function
    chosen: Function


class Names:
    """The names of one framework's einsum functions, and where replacements of them hold.

    Args:
        adapter: gives the names; asked when a replacement begins to hold and there is none.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._held: dict[int, int] = {}  # how many replacements hold in each thread, by its number, and everywhere
        self._places: list[_Place] = []  # kept when the last has ended, as what stands there has caches

    def hold(self, where: int) -> None:
        """One replacement more holds in a thread, or everywhere."""
        say_anew()
        if not self._held and not (self._places and all(map(_is_native, self._places))):
            self._places = self._found()
        self._held[where] = self._held.get(where, 0) + 1
        self._put()

    def release(self, where: int) -> None:
        """One holds less."""
        if where not in self._held:  # it was another thread's before a fork
            return
        self._held[where] -= 1
        if not self._held[where]:
            del self._held[where]
        self._put()

    def keep_own(self) -> None:
        """Nothing holds any more in other threads than this one, which a process has alone after a fork."""
        others = self._held.keys() - {_EVERYWHERE, get_ident()}
        for where in others:
            del self._held[where]
        if others:
            self._put()

    def _put(self) -> None:
        """Put under each name what belongs there now."""
        for place in self._places:
            function = place.ours if _EVERYWHERE in self._held else place.chosen if self._held else place.native
            setattr(place.owner, place.name, function)

    def _found(self) -> list[_Place]:
        """The names with what is there now; what is one function under two names stays one."""
        places: dict[tuple[Function, Function], _Place] = {}
        made: dict[tuple[Function, Any], Function] = {}
        found = []
        for name in self._adapter.names():
            native = getattr(name.owner, name.name)
            if name.ours is not None:
                ours = name.ours(native)
            else:
                ours = made.get((native, name.around)) or self._behind(native, name.around)
                made[native, name.around] = ours
            place = places.get((native, ours)) or _Place(
                name.owner, name.name, native, ours, self._chosen(native, ours)
            )
            if (native, ours) not in places:
                places[native, ours] = place
                for function in (ours, place.chosen):
                    setattr(function, OWN, native)
                    if name.tell is not None:
                        name.tell(function)
            found.append(place._replace(owner=name.owner, name=name.name))
        return found

    def _behind(self, native: Function, around: Callable[[Function, Function], Function] | None) -> Function:
        function = behind(self._adapter, native)
        return function if around is None else around(native, function)

    def _chosen(self, native: Function, ours: Function) -> Function:
        held = self._held

        @wraps(native)
        def function(*operands: Any, **options: Any) -> Any:
            return ours(*operands, **options) if get_ident() in held else native(*operands, **options)

        return function


class Replacement:
    """What :func:`patch` returns: undoes it, at the end of a ``with`` block or when told to.

    Args:
        names: the names that it replaces.
        begins: whether it holds from now on, everywhere; if not, only in the block that enters it.
    """

    def __init__(self, names: Names, begins: bool) -> None:
        self._names = names
        self._where: int | None = None
        self._is_spent = False
        if begins:
            with _lock:
                names.hold(_EVERYWHERE)
                self._where = _EVERYWHERE

    def undo(self) -> None:
        """End this replacement; the framework has its own functions back when every other has ended too."""
        with _lock:
            self._is_spent = True
            self._leave()

    def _leave(self) -> None:
        where, self._where = self._where, None
        if where is not None:
            self._names.release(where)

    def __enter__(self) -> Self:
        with _lock:
            if self._is_spent:
                raise RuntimeError("this replacement was entered or undone before; make another one")
            self._is_spent = True
            here = get_ident()
            self._names.hold(here)
            self._leave()
            self._where = here
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def patch(framework: str) -> Replacement:
    """From now on the framework's own ``einsum`` is einsumx, in code that stays as it is.

    ``numpy.einsum``, ``torch.einsum``, ``jax.numpy.einsum``, ``cupy.einsum``, ``mx.np.einsum``, and that of any
    registered backend whose framework has one. It takes what the framework's own takes, and what
    :func:`einsumx.einsum` takes beyond that. ``optimize=`` True, False and None ask for no path: the best is taken.
    Errors are einsumx's.

    What einsumx cannot honour goes on to the framework's own function, and is logged: keywords that einsumx does not
    have (JAX's ``precision=``), operands that it does not serve (masked arrays, sparse tensors, and for
    ``numpy.einsum`` whatever is not NumPy's), a limit of elements in NumPy's ``optimize=`` that no path keeps.

    The plain call holds in all threads until ``undo()`` of what it returns. ``with patch("numpy"):`` holds in that
    block, for the thread that entered it; other threads never see it. A replacement that reaches a ``with`` block by
    way of a variable, a function of yours or an ``ExitStack`` is a plain call until it is entered. Replacements nest,
    in any order; when the last has ended, the framework has the very functions back that it had. Names bound before
    (``from numpy import einsum``) stay what they are, but for MXNet's. What ``jax.jit`` compiled keeps what it
    recorded.

    Args:
        framework: a backend's name: ``"numpy"``, ``"torch"``, ``"jax"``, ``"cupy"``, ``"mxnet"``.

    Raises:
        BackendError: there is no such backend, its framework cannot be imported, or has no einsum.

    >>> import numpy as np
    >>> with patch("numpy"):
    ...     np.einsum("ij,jk->ik", np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    return replacement(framework, opens_block(currentframe()))


def replacement(framework: str, opens: bool) -> Replacement:
    """As :func:`patch`; where the call opens a ``with`` block, nothing holds before the block does."""
    return Replacement(names_of(get_backend(framework)), begins=not opens)


_known: WeakKeyDictionary[Adapter, Names] = WeakKeyDictionary()


def names_of(adapter: Adapter) -> Names:
    """The names of a backend's framework.

    Raises:
        BackendError: the framework cannot be imported, or has no einsum.
    """
    with _lock:
        if adapter not in _known:
            try:
                there = any(True for _ in adapter.names())
            except ImportError as error:
                raise BackendError(f"{adapter.name} cannot be imported: {error}; {adapter.install}") from error
            if not there:
                raise BackendError(f"{adapter.name} has no einsum of its own to be replaced; call einsumx.einsum")
            _known[adapter] = Names(adapter)
        return _known[adapter]


def _after_fork() -> None:
    """In the child of a fork, nobody releases a lock that another thread held, or ends its replacements."""
    global _lock  # noqa: PLW0603
    _lock = RLock()
    for names in _known.values():
        names.keep_own()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def behind(adapter: Adapter, native: Function) -> Function:
    """What replaces ``native``, the einsum function of the adapter's framework: einsumx, wherever it can."""
    called = f"{native.__module__}.{native.__qualname__}"
    keywords = _Keywords(native)

    @lru_cache(maxsize=1024)
    def described(kinds: tuple[type, ...]) -> tuple[str, bool]:
        """Why a call with these types is the framework's own affair; and whether one is of an array of it."""
        found = False
        is_text = bool(kinds) and issubclass(kinds[0], str)
        for kind in kinds[1:] if is_text else kinds[: len(kinds) // 2 * 2 : 2]:
            if is_builtin(kind):
                continue
            if not _serves(adapter, kind):
                return f"it has an operand of type {kind.__module__}.{kind.__qualname__}", False
            found = True
        return "", found

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        why, has_array = described(tuple(map(type, operands)))
        if not why:
            try:
                if has_array and not options:
                    return einsum(*operands)
                asked, why = _asked(adapter, options, keywords)
                if not why:
                    return einsum(*operands, **{"backend": adapter.name, **asked})
            except MemoryLimitError as error:
                if "memory_limit" in options or "optimize" not in keywords:
                    raise
                why = str(error).partition("\n")[0]
            except BackendError:
                why = _unserved(adapter, operands)
                if not why:
                    raise
        say_native(called, operands, why)
        return native(*operands, **options)

    return function


def _serves(adapter: Adapter, kind: type) -> bool:
    """Whether arrays of this type are the adapter's."""
    try:
        return serving(kind) is adapter
    except BackendError:
        return False


class _Keywords:
    """The keywords that a framework's function takes."""

    def __init__(self, native: Function) -> None:
        try:
            parameters: Sequence[Parameter] = tuple(signature(native).parameters.values())
        except (TypeError, ValueError):  # a function of C may have no signature
            self._defaults, self._any = dict[str, Any](), True
        else:
            self._defaults = {found.name: found.default for found in parameters if found.kind is Parameter.KEYWORD_ONLY}
            self._any = any(found.kind is Parameter.VAR_KEYWORD for found in parameters)

    def __contains__(self, name: str) -> bool:
        return self._any or name in self._defaults

    def ask_nothing(self, name: str, value: Any) -> bool:
        """Whether a keyword has its default."""
        return name in self._defaults and value is self._defaults[name]


def _asked(adapter: Adapter, options: dict[str, Any], keywords: _Keywords) -> tuple[dict[str, Any], str]:
    """What a framework's keywords ask of einsumx; or why they are the framework's own affair."""
    asked = dict(options)
    for name, value in options.items():
        if name not in _KEYWORDS and name in keywords:
            if not keywords.ask_nothing(name, value):
                return {}, f"einsumx has no keyword {name}="
            del asked[name]
    if asked.get("optimize") in (True, False, None):
        asked.pop("optimize", None)
    out = asked.get("out")
    if out is None or "out" not in keywords:
        return asked, ""
    if not _serves(adapter, type(out)):
        return {}, f"out= is of type {type(out).__module__}.{type(out).__qualname__}"
    if asked.get("order") not in (None, "K", "k"):
        return {}, "order= is for a new array, and out= brings one"
    return asked, ""


def _unserved(adapter: Adapter, operands: Sequence[Any]) -> str:
    """Why an array among operands of the framework's types is none that einsumx computes with; empty if all are."""
    try:
        _, given = split(operands)
    except (EinsumxError, TypeError):
        return ""
    for operand in given:
        if not is_builtin(type(operand)):
            try:
                adapter.operand(adapter.signature(adapter.plain(operand)))
            except BackendError as error:
                return str(error)
            except (AttributeError, TypeError):  # no array
                return ""
    return ""


def _is_native(place: _Place) -> bool:
    """Whether what stands under the name is what was there when it was found."""
    return getattr(place.owner, place.name) is place.native
