"""``patch``: existing calls to a framework's own einsum run einsumx instead."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from functools import lru_cache, partial, wraps
from inspect import Parameter, currentframe, getattr_static, signature
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from einsumx.adapters.base import Adapter
from einsumx.adapters.operand_types import type_name
from einsumx.adapters.registry import is_builtin, replaceable
from einsumx.adapters.replacement import (
    OWN,
    Bindings,
    Function,
    Name,
    Replaceable,
    as_error_of,
    say_anew,
    say_native,
)
from einsumx.api import einsum
from einsumx.errors import BackendError, EinsumxError, MemoryLimitError
from einsumx.imports import imported
from einsumx.runtime import effort as efforts
from einsumx.runtime.caches import Uncacheable
from einsumx.runtime.caller import opens_block
from einsumx.runtime.calls import cached_first
from einsumx.runtime.effort import Effort, as_effort
from einsumx.runtime.request import array_places
from einsumx.runtime.served import is_served, unserved, unserved_out

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Name", "Names", "Replacement", "behind", "patch", "replacement"]

_EVERYWHERE = 0
"""Stands for all threads in place of a thread's identifier, which is never 0."""

_KEYWORDS = frozenset(
    name for name, parameter in signature(einsum).parameters.items() if parameter.kind is Parameter.KEYWORD_ONLY
)

_CLIENTS = ("opt_einsum",)
"""Libraries that call array frameworks, each a module of ``einsumx.interop`` with its :class:`Client`."""

_lock = RLock()


class _Place(NamedTuple):
    """An attribute to replace, and the functions that it can refer to.

    Attributes:
        owner, name: the module or class, and the attribute's name.
        held: what the owner itself holds under that name; None if a class inherits it.
        native: the framework's function.
        ours: its replacement for all threads.
        chosen: its replacement for some threads: calls ``ours`` in these, and ``native`` in the others.
        imported: the names of loaded modules that refer to one of these functions, if they are replaced too.
    """

    owner: Any
    name: str
    held: Any
    native: Function
    ours: Function
    chosen: Function
    imported: Bindings | None


class Names:
    """The names of one library's einsum functions, and the threads in which they are replaced.

    Args:
        library: provides the names, when the first replacement starts.
    """

    def __init__(self, library: Replaceable) -> None:
        self._library = library
        self._counts: dict[int, int] = {}  # of active replacements in each thread, or everywhere
        self._places: list[_Place] = []  # kept after the last replacement, because the functions have caches

    def hold(self, thread: int) -> None:
        """Start one more replacement in a thread, or everywhere."""
        say_anew()
        if not self._counts and not (self._places and all(map(_is_native, self._places))):
            self._places = self._current_places()
        self._counts[thread] = self._counts.get(thread, 0) + 1
        self._assign()

    def release(self, thread: int) -> None:
        """End one replacement."""
        if thread not in self._counts:  # another thread's, before a fork
            return
        self._counts[thread] -= 1
        if not self._counts[thread]:
            del self._counts[thread]
        self._assign()

    def keep_own(self) -> None:
        """End the replacements of all other threads, which do not exist after a fork."""
        others = self._counts.keys() - {_EVERYWHERE, get_ident()}
        for thread in others:
            del self._counts[thread]
        if others:
            self._assign()

    def _assign(self) -> None:
        """Make each name refer to the function that the active replacements call for."""
        for place in self._places:
            function = place.ours if _EVERYWHERE in self._counts else place.chosen if self._counts else place.native
            _set(place, function)
            if place.imported is not None:
                place.imported.assign(function)

    def _current_places(self) -> list[_Place]:
        """The names with their current functions; two names for one function get the same replacement."""
        by_functions: dict[tuple[Function, Function], _Place] = {}
        replacements: dict[tuple[Function, Any], Function] = {}
        places = []
        for name in self._library.names():
            native, held = getattr(name.owner, name.name), vars(name.owner).get(name.name)
            if name.ours is not None:
                ours = name.ours(native)
            elif (native, name.around) in replacements:
                ours = replacements[native, name.around]
            else:
                ours = behind(cast(Adapter, self._library), native)  # others say how each name is replaced
                if name.around is not None:
                    ours = name.around(native, ours)
                replacements[native, name.around] = ours
            if (native, ours) not in by_functions:
                chosen = _in_threads(self._counts, native, ours)
                imported = Bindings(native, ours, chosen) if name.everywhere else None
                by_functions[native, ours] = _Place(name.owner, name.name, held, native, ours, chosen, imported)
                for function in (ours, chosen):
                    setattr(function, OWN, native)
                    if name.tell is not None:
                        name.tell(function)
            places.append(by_functions[native, ours]._replace(owner=name.owner, name=name.name, held=held))
        return places


def _in_threads(threads: Container[int], native: Function, ours: Function) -> Function:
    """A function that calls ``ours`` in some threads, and ``native`` in the others."""

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        return ours(*operands, **options) if get_ident() in threads else native(*operands, **options)

    return function


class Replacement:
    """An active replacement, which :func:`patch` returns. :meth:`undo` or the end of a ``with`` block ends it.

    Args:
        names: the names to replace.
        begins: whether it starts now, in all threads; if not, it starts in the ``with`` block that enters it.
        effort: of new plans while it is active; None leaves that alone.
    """

    def __init__(self, names: Names, begins: bool, effort: Effort | None = None) -> None:
        self._names, self._effort = names, effort
        self._thread: int | None = None
        self._is_spent = False
        if begins:
            with _lock:
                self._hold(_EVERYWHERE)

    def undo(self) -> None:
        """End this replacement. The framework's own functions are back when all replacements have ended."""
        with _lock:
            self._is_spent = True
            self._release()

    def _hold(self, thread: int) -> None:
        self._names.hold(thread)
        self._thread = thread
        if self._effort is not None:
            efforts.hold(thread, self._effort)

    def _release(self) -> None:
        thread, self._thread = self._thread, None
        self._release_of(thread)

    def _release_of(self, thread: int | None) -> None:
        if thread is not None:
            self._names.release(thread)
            if self._effort is not None:
                efforts.release(thread, self._effort)

    def __enter__(self) -> Self:
        with _lock:
            if self._is_spent:
                raise RuntimeError("this replacement was entered or undone before; make another one")
            self._is_spent = True
            before, self._thread = self._thread, None
            self._hold(get_ident())
            self._release_of(before)
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def patch(framework: str, *, effort: Effort | None = None) -> Replacement:
    """Make a framework's own ``einsum`` run einsumx, for existing code that calls it.

    This replaces ``numpy.einsum``, ``torch.einsum``, ``jax.numpy.einsum``, ``cupy.einsum``, ``mx.np.einsum``,
    tinygrad's ``Tensor.einsum`` or ``dask.array.einsum``, or the einsum of any registered backend. It accepts the
    arguments of the original and of :func:`einsumx.einsum`.
    ``optimize=`` True, False and None all choose the best path. Errors are einsumx's, and also of the class that the
    original raises for the mistake: with PyTorch, a SizeError is a RuntimeError too.

    ``patch("opt_einsum")`` replaces ``opt_einsum.contract`` in all modules that imported it, and calls of the
    expressions that ``opt_einsum.contract_expression`` makes. All arguments keep opt_einsum's meaning.

    Unsupported calls fall back to the framework's own function and are logged: unknown keywords, operands that einsumx
    does not serve (masked arrays, sparse tensors; for ``numpy.einsum`` any array but NumPy's), and a limit of elements
    in NumPy's ``optimize=`` that no path keeps.

    A plain call applies to all threads until ``undo()`` of the returned object. ``with patch("numpy"):`` applies only
    inside the block, in the thread that entered it. A replacement that reaches ``with`` through a variable, a function
    of yours or an ``ExitStack`` is a plain call until it is entered. Replacements nest in any order; after the last one
    ends, the framework has its original functions.

    Names bound before (``from numpy import einsum``) keep the original, except with MXNet and opt_einsum. Functions
    that ``jax.jit`` has compiled keep what they recorded.

    Args:
        framework: a backend's name, such as ``"numpy"`` or ``"torch"``; or ``"dask"``, or ``"opt_einsum"``.
        effort: ``"estimate"`` or ``"measure"``, see :func:`einsumx.einsum`, for the calls that are replaced, and for
            einsumx's own calls in the same threads; by default, what :func:`einsumx.set_effort` says.

    Raises:
        BackendError: an unknown backend, or a framework that cannot be imported or has no einsum.
        ValueError: an unknown effort.

    >>> import numpy as np
    >>> with patch("numpy"):
    ...     np.einsum("ij,jk->ik", np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    return replacement(framework, opens_block(currentframe()), effort)


def replacement(framework: str, opens: bool, effort: Effort | None = None) -> Replacement:
    """As :func:`patch`; ``opens`` says whether the call opens a ``with`` block, which then starts the replacement."""
    chosen = None if effort is None else as_effort(effort)
    library = imported(f"einsumx.interop.{framework}").CLIENT if framework in _CLIENTS else replaceable(framework)
    return Replacement(names_of(library), begins=not opens, effort=chosen)


_known: WeakKeyDictionary[Replaceable, Names] = WeakKeyDictionary()


def names_of(library: Replaceable) -> Names:
    """The names of a backend's framework, or of a client library.

    Raises:
        BackendError: the library cannot be imported, or has no einsum.
    """
    with _lock:
        if library not in _known:
            try:
                has_names = any(True for _ in library.names())
            except ImportError as error:
                raise BackendError(f"{library.name} cannot be imported: {error}; {library.install}") from error
            if not has_names:
                raise BackendError(f"{library.name} has no einsum of its own to be replaced; call einsumx.einsum")
            _known[library] = Names(library)
        return _known[library]


def _after_fork() -> None:
    """The child of a fork has no other threads to release the lock or end their replacements."""
    global _lock  # noqa: PLW0603
    _lock = RLock()
    for names in _known.values():
        names.keep_own()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def behind(adapter: Adapter, native: Function) -> Function:
    """The replacement of ``native``, an einsum function of the adapter's framework, to which it falls back."""
    name = f"{native.__module__}.{native.__qualname__}"
    keywords = _Keywords(native)

    described = lru_cache(maxsize=1024)(partial(_described, adapter))

    def checked(*operands: Any, **options: Any) -> Any:
        reason, has_array = described(tuple(map(type, operands)))
        if not reason:
            try:
                if has_array and not options:
                    return einsum(*operands)
                accepted, reason = _accepted(adapter, options, keywords)
                if not reason:
                    return einsum(*operands, **{"backend": adapter.name, **accepted})
            except MemoryLimitError as error:
                if "memory_limit" in options or "optimize" not in keywords:
                    raise
                reason = str(error).partition("\n")[0]
            except BackendError:
                reason = unserved(adapter, operands)
                if not reason:
                    raise
        say_native(name, operands, reason)
        return native(*operands, **options)

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        try:
            return checked(*operands, **options)
        except EinsumxError as error:
            raise _as_own(adapter, error) from error.__cause__

    def translated(own: Adapter, options: dict[str, Any]) -> dict[str, Any]:
        if own.name != adapter.name:
            raise Uncacheable  # the operands are another framework's
        accepted, reason = _accepted(adapter, options, keywords)
        if reason:
            raise Uncacheable
        return accepted

    return cached_first(function, translated)


def _described(adapter: Adapter, kinds: tuple[type, ...]) -> tuple[str, bool]:
    """Why a call with arguments of these types falls back, or ""; and whether one of them is an array."""
    arrays = [kinds[place] for place in array_places(kinds) if not is_builtin(kinds[place])]
    for kind in arrays:
        if not is_served(adapter, kind):
            return f"it has an operand of type {type_name(kind)}", False
    return "", bool(arrays)


def _as_own(adapter: Adapter, error: EinsumxError) -> EinsumxError:
    """An error that is also the one which the framework's own einsum raises for the same mistake."""
    for ours, kind in adapter.own_errors.items():
        if isinstance(error, ours):
            return as_error_of(error, kind)
    return error


class _Keywords:
    """The keywords that a framework's function takes."""

    def __init__(self, native: Function) -> None:
        try:
            parameters: Sequence[Parameter] = tuple(signature(native).parameters.values())
        except (TypeError, ValueError):  # a function in C may have no signature
            self._defaults, self._any = dict[str, Any](), True
        else:
            self._defaults = {each.name: each.default for each in parameters if each.kind is Parameter.KEYWORD_ONLY}
            self._any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)

    def __contains__(self, name: str) -> bool:
        return self._any or name in self._defaults

    def is_default(self, name: str, value: Any) -> bool:
        """Whether a keyword has its default value."""
        return name in self._defaults and value is self._defaults[name]


def _accepted(adapter: Adapter, options: dict[str, Any], keywords: _Keywords) -> tuple[dict[str, Any], str]:
    """The keywords for einsumx that correspond to the framework's; or why the call falls back."""
    accepted = dict(options)
    for name, value in options.items():
        if name not in _KEYWORDS and name in keywords:
            if not keywords.is_default(name, value):
                return {}, f"einsumx has no keyword {name}="
            del accepted[name]
    if accepted.get("optimize") in (True, False, None):
        accepted.pop("optimize", None)
    out = accepted.get("out")
    if out is None or "out" not in keywords:
        return accepted, ""
    if reason := unserved_out(adapter, out):
        return {}, reason
    if accepted.get("order") not in (None, "K", "k"):
        return {}, "order= is for a new array, and out= brings one"
    return accepted, ""


def _set(place: _Place, function: Function) -> None:
    """Make a name refer to one of its functions; to the framework's own, by what its owner held before.

    A static method stays one, and a method of a class gets its instance.
    """
    owner, name = place.owner, place.name
    if function is not place.native:
        is_static = isinstance(getattr_static(owner, name, None), staticmethod)
        setattr(owner, name, staticmethod(function) if is_static else function)
    elif place.held is not None:
        setattr(owner, name, place.held)
    elif name in vars(owner):
        delattr(owner, name)


def _is_native(place: _Place) -> bool:
    """Whether the name refers to the framework's function again."""
    return bool(getattr(place.owner, place.name) == place.native)  # the same method of a class is a new object
