"""Modules that are imported when first used, to keep ``import einsumx`` fast.

Python runs signal handlers in the main thread, between any two instructions. If that thread were importing a module, a
handler that calls einsum would find it with half of its names. Therefore, in a program with handlers of its own,
another thread imports for the main thread, which waits, and a call of a handler waits in the same way.
"""

from __future__ import annotations

import gc
import os
import sys
from _signal import default_int_handler, getsignal, valid_signals  # type: ignore[import-not-found]
from _thread import RLock, allocate_lock, get_ident, start_new_thread
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

_LONGEST = 2.0
"""How many seconds the main thread waits. It waits in vain if a handler came while it was importing a module itself,
which the other thread needs too."""


class LazyModule:
    """A module that is imported when one of its attributes is first used.

    Unlike an import statement in a function, it keeps the module, and so works while the interpreter exits, after
    ``sys.modules`` was cleared; and a signal handler may call einsum while it is imported.

    >>> decimal = LazyModule("decimal")
    >>> decimal.Decimal("0.5")
    Decimal('0.5')
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module = _finished(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # doctest looks for __wrapped__ in everything
            raise AttributeError(name)
        if self._module is None:
            self._module = imported(self._name)
        value = getattr(self._module, name)
        if callable(value):
            self.__dict__[name] = value  # found without this method from now on
        return value


def imported(name: str) -> ModuleType:
    """The module of that name, which is imported unless it was before.

    >>> imported("decimal").Decimal("0.5")
    Decimal('0.5')
    """
    module = _finished(name)
    if module is None and _has_handlers() and _is_main_thread() and not sys.is_finalizing():
        _import_elsewhere(name)
        module = _finished(name)
    return _import(name) if module is None else module  # an error of the other thread is raised here again


def _has_handlers() -> bool:
    """Whether a signal may call a function of the program. Python's own for Ctrl-C only raises an exception."""
    return any(callable(handler) and handler is not default_int_handler for handler in map(getsignal, valid_signals()))


def _is_main_thread() -> bool:
    threading = _finished("threading")
    return threading is None or get_ident() == threading.main_thread().ident


def _import_elsewhere(name: str) -> None:
    """Import a module in another thread, and wait for it."""
    import_module("threading")  # the thread that imports it counts as the main one
    ended = allocate_lock()
    ended.acquire()

    def work() -> None:
        try:
            _import(name)
        except BaseException:  # noqa: BLE001  # the caller imports it again, and so raises it
            pass
        finally:
            ended.release()

    try:
        start_new_thread(work, ())
    except RuntimeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # it comes from a handler; else, no thread can be started
    else:
        ended.acquire(timeout=_LONGEST)


_lock = RLock()
_importing: list[int] = []
"""The threads that import a module; garbage collections are switched off while there is one."""
_collects = False
"""Whether they were switched on before the first of these threads began."""


def _import(name: str) -> ModuleType:
    """Import a module without garbage collections, as finalizers may call einsum too."""
    try:
        _pause()
        return loaded(name)
    finally:
        _resume(get_ident())


def loaded(name: str) -> ModuleType:
    """The module of that name, which is imported here; an ImportError says so if it is a subinterpreter that cannot."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise
    except ImportError as error:
        if _is_in_main_interpreter():
            raise
        raise ImportError(
            f"{name} cannot be imported in a subinterpreter ({error}); call einsumx in the main interpreter, or in "
            "another process"
        ) from error


def _is_in_main_interpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13, and before
        with suppress(ImportError):
            interpreters: Any = import_module(name)
            return bool(interpreters.get_current() == interpreters.get_main())
    return True


def _pause() -> None:
    global _collects  # noqa: PLW0603  # the collector is one for all threads
    with _lock:
        if not _importing:
            _collects = gc.isenabled()
        _importing.append(get_ident())
        if len(_importing) == 1:  # otherwise a finalizer imported meanwhile, or another thread does
            gc.disable()


def _resume(thread: int) -> None:
    with _lock:
        if thread in _importing:
            if _collects and len(_importing) == 1:
                gc.enable()
            _importing.remove(thread)


def _after_fork() -> None:
    """The child of a fork has no other threads to release the lock or to end their imports."""
    global _lock  # noqa: PLW0603
    _lock = RLock()
    for thread in [thread for thread in _importing if thread != get_ident()]:
        _resume(thread)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _finished(name: str) -> ModuleType | None:
    """The module of that name; None if it is not imported, or is being imported."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module
