"""``patch``, ``unpatch`` and ``patched``: existing calls to a framework's own einsum run einsumx instead."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from inspect import Parameter, getattr_static, signature
from threading import RLock, Thread
from typing import Any, NamedTuple, TypeAlias, cast
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
    own_result,
    say_anew,
    say_native,
)
from einsumx.api import einsum
from einsumx.caches import Uncacheable
from einsumx.errors import BackendError, EinsumxError, MemoryLimitError
from einsumx.runtime.calls import cached_first
from einsumx.runtime.limits import Cap, MemoryAmount
from einsumx.runtime.request import Keywords, array_places, fields_of
from einsumx.runtime.served import is_served, unserved_out
from einsumx.scalars import as_python

_KEYWORDS = frozenset(Keywords.__annotations__)

_OURS = _KEYWORDS - {"out", "dtype", "order", "casting", "optimize"}
"""Those of which no framework has another of the same name that its signature does not show."""

_lock = RLock()

Amount: TypeAlias = MemoryAmount | None
"""A memory limit; None for no limit."""


class _Scope:
    """A block of :func:`patched`.

    Args:
        names: the names that it replaces.
        limit: the limit of their calls.
        outer: the block around it, in the same thread or in the one that started it.
    """

    def __init__(self, names: Sequence[Names], limit: Amount, outer: _Scope | None) -> None:
        self.names, self.limits, self.outer = names, (limit,), outer


_block: ContextVar[_Scope | None] = ContextVar("einsumx_patched", default=None)
"""The innermost block around what runs. Threads and tasks that start in a block still have it when it has ended."""


class _Replacements(dict[Amount, Function]):
    """The replacements of a function by the limit of their calls; those of the last limits are kept, with their plans.

    Args:
        make: makes one for a limit.
    """

    def __init__(self, make: Callable[[Amount], Function]) -> None:
        self._make = make

    def __missing__(self, limit: Amount) -> Function:
        function = self[limit] = self._make(limit)
        for oldest in tuple(self)[1:-_MOST_LIMITS]:  # the first one is that without a limit
            self.pop(oldest, None)
        return function


_MOST_LIMITS = 8


class _Place(NamedTuple):
    """An attribute to replace, and the functions that it can refer to.

    Attributes:
        owner, name: the module or class, and the attribute's name.
        held: the value of that name that the owner itself has; None if a class inherits it.
        native: the framework's function.
        ours: its replacements for the process.
        chosen: its replacement for blocks and for limits: calls the replacement that holds in the block around the
            call, and ``native`` where none does.
        imported: the names of loaded modules that refer to one of these functions, if they are replaced too.
        restored: called when all names are the framework's own functions again.
    """

    owner: Any
    name: str
    held: Any
    native: Function
    ours: _Replacements
    chosen: Function
    imported: Bindings | None
    restored: Callable[[], None] | None


class Names:
    """The names of one library's einsum functions, and where they are replaced.

    Args:
        library: provides the names, when the first replacement starts.

    Attributes:
        patches: the limits of the calls of :func:`patch` that hold in the process, of which the last one counts.
        blocks: the open blocks.
    """

    def __init__(self, library: Replaceable) -> None:
        self._library = library
        self.patches: tuple[Amount, ...] = ()
        self.blocks: set[_Scope] = set()
        self._places: list[_Place] = []  # kept after the last replacement, because the functions have caches
        self._is_replaced = False

    def assign(self) -> None:
        """Make each name refer to the function that the patches and the blocks call for."""
        is_replaced = bool(self.patches or self.blocks)
        if is_replaced and not self._is_replaced and not (self._places and all(map(_is_native, self._places))):
            self._places = self._current_places()
        self._is_replaced = is_replaced
        limits = {*self.patches[-1:], *(limit for block in self.blocks for limit in block.limits)}
        for place in self._places:
            function = place.chosen if is_replaced else place.native
            if self.patches and len(limits) == 1 and (place.imported is None or limits == {None}):
                function = place.ours[self.patches[-1]]
            _set(place, function)
            if place.imported is not None:
                place.imported.assign(function)
        if not is_replaced:
            for restored in {place.restored for place in self._places if place.restored is not None}:
                restored()

    def limits_here(self) -> tuple[Amount, ...]:
        """The limits of the patches that hold where this runs, of which the last one counts; empty without a patch."""
        block = _block.get()
        while block is not None:
            if block in self.blocks:
                return block.limits
            block = block.outer
        return self.patches

    def _current_places(self) -> list[_Place]:
        """The names with their current functions; two names for one function get the same replacement."""
        by_functions: dict[tuple[Any, ...], _Place] = {}
        places = []
        for name in self._library.names():
            native, held = getattr(name.owner, name.name), vars(name.owner).get(name.name)
            key = native, name.ours, name.around
            if key not in by_functions:
                ours = _Replacements(partial(self._replacement, name, native))
                chosen = _told(name, native, _chosen(self.limits_here, native, ours))
                imported = Bindings(native, ours[None], chosen) if name.everywhere else None
                by_functions[key] = _Place(name.owner, name.name, held, native, ours, chosen, imported, name.restored)
            places.append(by_functions[key]._replace(owner=name.owner, name=name.name, held=held))
        return places

    def _replacement(self, name: Name, native: Function, limit: Amount) -> Function:
        """The function to call instead of ``native`` under a limit."""
        cap = None if limit is None else Cap(limit)
        if name.ours is not None:
            ours = name.ours(native)
            return _told(name, native, ours if cap is None or not name.is_einsum else _limited(native, ours, cap))
        ours = behind(cast(Adapter, self._library), native, cap)  # others say how each name is replaced
        return _told(name, native, ours if name.around is None else name.around(native, ours))

    def check_limit(self) -> None:
        """Raise BackendError if calls of these names cannot keep a memory limit."""
        if getattr(self._library, "blocks", None) is None:
            raise BackendError(
                f"a patch of {self._library.name!r} takes no memory_limit=, because einsumx does not compute its calls "
                "in blocks; omit memory_limit="
            )


def _told(name: Name, native: Function, function: Function) -> Function:
    """A function that the name can refer to, with the marks of a replacement."""
    setattr(function, OWN, native)
    if name.tell is not None:
        name.tell(function)
    return function


def _limited(native: Function, ours: Function, cap: Cap) -> Function:
    """A replacement whose calls keep a limit, unless they have their own."""

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        return ours(*operands, **_capped(options, cap))

    return function


def _capped(options: dict[str, Any], cap: Cap | None) -> dict[str, Any]:
    """The keywords of a call with the limit of its patch, unless they have one."""
    return options if cap is None or options.get("memory_limit") is not None else {**options, "memory_limit": cap}


def _chosen(limits_here: Callable[[], tuple[Amount, ...]], native: Function, ours: _Replacements) -> Function:
    """A function that calls the replacement for the limit that holds, or ``native`` where there is no patch."""

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        limits = limits_here()
        return ours[limits[-1]](*operands, **options) if limits else native(*operands, **options)

    return function


def patch(*frameworks: str, memory_limit: MemoryAmount | None = None) -> None:
    """Make the ``einsum`` of frameworks run einsumx in the whole process, for existing code that calls it.

    This replaces ``numpy.einsum``, ``torch.einsum``, ``jax.numpy.einsum``, ``cupy.einsum``, ``mx.np.einsum``,
    tinygrad's ``Tensor.einsum`` or ``dask.array.einsum``, or the einsum of any registered backend. It accepts the
    arguments of the original and of :func:`einsumx.einsum`.
    ``optimize=`` True, False and None all search for a path.

    ``patch("opt_einsum")`` replaces ``opt_einsum.contract`` in all modules that imported it, and calls of the
    expressions that ``opt_einsum.contract_expression`` makes. All arguments keep opt_einsum's meaning.

    Calls that einsumx refuses fall back to the framework's own function and are logged, such as those with keywords
    that it does not have, or with operands that it does not serve (masked arrays, sparse tensors; for ``numpy.einsum``
    any array but NumPy's). If the framework's function raises an error too, the call raises einsumx's, which is then
    also of the framework's class: with PyTorch, a SizeError is a RuntimeError. A call with keywords that einsumx alone
    has, such as ``memory_limit=``, does not fall back.

    Names bound before (``from numpy import einsum``) keep the original, except with MXNet and opt_einsum. Functions
    that ``jax.jit`` has compiled keep what they recorded.

    Under a ``memory_limit=``, calls whose plan would allocate more memory are computed in blocks, as by
    ``einsumx.einsum(..., memory_limit=)``; all others run as without it. A call that fits in no way raises a
    MemoryLimitError. Calls that cannot be computed in blocks run without the limit and are logged: those that
    MXNet or MLX traces, or that are spread over devices. A call with its own ``memory_limit=`` keeps that.

    Args:
        *frameworks: backends' names, such as ``"numpy"`` or ``"torch"``; or ``"dask"``, or ``"opt_einsum"``.
        memory_limit: the most memory that a call may allocate: bytes, or text such as ``"4GB"``; no fraction.

    Raises:
        BackendError: no name, an unknown backend, or a framework that cannot be imported or has no einsum, or that
            computes nothing in blocks, and there is a limit.
        ValueError, TypeError: the limit is no amount of memory.

    >>> import einsumx, numpy as np
    >>> einsumx.patch("numpy")
    >>> np.einsum("ij,jk->ik", np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    >>> einsumx.unpatch("numpy")
    """
    limit = _as_amount(memory_limit)
    for names in _names_of(frameworks, limit):
        with _lock:
            say_anew()
            names.patches = (*names.patches, limit)
            names.assign()


def unpatch(*frameworks: str) -> None:
    """Undo the last :func:`patch` of these names. Without any, the frameworks have their own functions again.

    Raises:
        BackendError: as :func:`patch` does.
    """
    for names in _names_of(frameworks):
        with _lock:
            names.patches = names.patches[:-1]
            names.assign()


def _as_amount(limit: MemoryAmount | None) -> Amount:
    """The value of ``memory_limit=``; raises ValueError or TypeError."""
    if limit is None:
        return None
    cap = Cap(limit)
    if not cap.limit.is_lasting:
        raise ValueError(
            f"memory_limit={limit!r} of a patch is a fraction, and einsumx would have to look up the free memory in "
            "each call; pass bytes, such as '4GB'"
        )
    return cap.amount


@contextmanager
def patched(*frameworks: str, memory_limit: MemoryAmount | None = None) -> Iterator[None]:
    """A ``with`` block, or a decorator of a function, in which the ``einsum`` of frameworks runs einsumx.

    It holds in the current thread or asyncio task, and in the threads and tasks that start in the block, as long as the
    block is open. Blocks nest, in each other and in :func:`patch`; the innermost one's ``memory_limit`` counts.

    Args:
        *frameworks: as for :func:`patch`.
        memory_limit: as there.

    Raises:
        BackendError, ValueError, TypeError: as :func:`patch` does.

    >>> import einsumx, numpy as np
    >>> with einsumx.patched("numpy"):
    ...     np.einsum("ij,jk->ik", np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    limit = _as_amount(memory_limit)
    block = _Scope(_names_of(frameworks, limit), limit, _block.get())
    token = _block.set(block)
    try:
        _open(block)
        yield
    finally:
        _close(block)
        _block.reset(token)


def _open(block: _Scope) -> None:
    global _start  # noqa: PLW0603  # an attribute of a class is replaced, for all threads
    with _lock:
        say_anew()
        for names in block.names:
            names.blocks.add(block)
            names.assign()
        if Thread.start is not _start:
            _start = Thread.start = _passing_on(Thread.start)  # type: ignore[assignment, method-assign]


def _close(block: _Scope) -> None:
    with _lock:
        for names in block.names:
            names.blocks.discard(block)
            names.assign()
        if _start is not None and Thread.start is _start and not any(names.blocks for names in _known.values()):
            Thread.start = vars(_start)["__wrapped__"]  # type: ignore[method-assign]


_start: Callable[[Thread], None] | None = None
"""The replacement of ``Thread.start`` that the last block made."""


def _passing_on(own: Callable[[Thread], None]) -> Callable[[Thread], None]:
    """``own``, which is ``Thread.start``, but threads that start in a block take it over.

    It refers to nothing that changes when a block ends, as other threads may have begun to call it.
    """

    @wraps(own)
    def start(self: Thread) -> None:
        block = _block.get()
        if block is not None:
            self.run = partial(_run_in, block, self, self.run)  # type: ignore[method-assign]
        own(self)

    return start


def _run_in(block: _Scope, thread: Thread, run: Callable[[], None]) -> None:
    vars(thread).pop("run", None)  # a thread that refers to itself would stay until a garbage collection
    _block.set(block)
    run()


_known: WeakKeyDictionary[Replaceable, Names] = WeakKeyDictionary()


def _names_of(frameworks: Sequence[str], limit: Amount = None) -> list[Names]:
    """The names of backends' frameworks, or of client libraries, whose calls are to keep a limit.

    Raises:
        BackendError: no name, an unknown one, or a library that cannot be imported, has no einsum or keeps no limit.
    """
    if not frameworks:
        raise BackendError("no library is named; name those whose einsum to replace, such as 'numpy'")
    found = [names_of(replaceable(name)) for name in frameworks]
    if limit is not None:
        for names in found:
            names.check_limit()
    return found


def names_of(library: Replaceable) -> Names:
    """The names of a backend's framework, or of a client library; raises BackendError."""
    with _lock:
        if library not in _known:
            try:
                has_names = any(True for _ in library.names())
            except ImportError as error:
                raise BackendError(f"{library.name} cannot be imported: {error}; {library.install}") from error
            if not has_names:
                raise BackendError(f"{library.name} has no einsum to replace; call einsumx.einsum")
            _known[library] = Names(library)
        return _known[library]


def _after_fork() -> None:
    """The child of a fork has no other threads to release the lock or to close their blocks."""
    global _lock  # noqa: PLW0603
    _lock = RLock()
    own, block = set(), _block.get()
    while block is not None:
        own.add(block)
        block = block.outer
    for names in _known.values():
        names.blocks &= own
        names.assign()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def behind(adapter: Adapter, native: Function, cap: Cap | None = None) -> Function:
    """The replacement of ``native``, an einsum function of the adapter's framework, to which it falls back.

    ``cap`` is the limit of its patch.
    """
    name = f"{native.__module__}.{native.__qualname__}"
    keywords = _Keywords(native)

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        reason, has_array = _described(adapter, list(map(type, operands)))
        if not reason:
            # Both functions may read the labels of a sublist.
            operands = tuple([list(each) if hasattr(each, "__next__") else each for each in operands])
            try:
                if has_array and not options and cap is None:
                    return einsum(*operands)
                accepted, reason = _accepted(adapter, options, keywords)
                if not reason:
                    return einsum(*operands, **{"backend": adapter.name, **_capped(accepted, cap)})
            except EinsumxError as error:
                is_limited = cap is not None and isinstance(error, MemoryLimitError)
                if is_limited or not keywords.are_all_own(options):
                    raise
                return own_result(native, operands, options, error, name)
        say_native(name, operands, reason)
        return native(*operands, **options)

    def translated(own: Adapter, options: dict[str, Any]) -> dict[str, Any]:
        if own.name != adapter.name:
            raise Uncacheable  # the operands are another framework's
        accepted, reason = _accepted(adapter, options, keywords)
        if reason:
            raise Uncacheable
        return fields_of("einsum", _capped(accepted, cap), Keywords)

    return cached_first(function, translated)


def _described(adapter: Adapter, kinds: Sequence[type]) -> tuple[str, bool]:
    """Why a call with arguments of these types falls back, or ""; and whether one of them is an array."""
    arrays = [kinds[place] for place in array_places(kinds) if not is_builtin(kinds[place])]
    for kind in arrays:
        if not is_served(adapter, kind):
            return f"it has an operand of type {type_name(kind)}", False
    return "", bool(arrays)


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
        return name in self._defaults or (self._any and name not in _OURS)

    def are_all_own(self, options: dict[str, Any]) -> bool:
        """Whether a call has no keyword of einsumx's that the function does not have."""
        return all(name in self or name not in _KEYWORDS for name in options)

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
    if isinstance(as_python(accepted.get("optimize")), bool | None):
        accepted.pop("optimize", None)
    for name in ("order", "casting"):
        if name in keywords and not isinstance(accepted.get(name), str | None):
            return {}, f"{name}= is not a text"
    out = accepted.get("out")
    if out is None or "out" not in keywords:
        return accepted, ""
    if reason := unserved_out(adapter, out):
        return {}, reason
    if accepted.get("order") not in (None, "K", "k"):
        return {}, "order= is for a new array, and out= is one already"
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
