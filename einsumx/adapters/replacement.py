"""Names of a framework's own einsum, as adapters declare them for :func:`einsumx.patch` (:mod:`einsumx.patching`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from einsumx.errors import EinsumxError
from einsumx.imports import LazyModule

if TYPE_CHECKING:
    from einsumx import log
else:
    log = LazyModule("einsumx.log")

Function: TypeAlias = Callable[..., Any]

OWN = "_einsumx_own"
"""The attribute of a replacement that holds the framework's own function."""


class Name(NamedTuple):
    """A name of a framework's function, and its replacement: einsumx by default.

    Attributes:
        owner, name: the module or class, and the name of the attribute.
        ours: makes the replacement from the framework's function, if it is not einsumx.
        tell: called with each function before it becomes the attribute's value.
        around: makes the replacement from the framework's function and einsumx's default replacement.
        everywhere: whether to replace the function also in modules that imported it.
        is_einsum: whether the function that ``ours`` makes takes einsumx's keywords.
        restored: called when all names are the framework's own functions again.
    """

    owner: Any
    name: str
    ours: Callable[[Function], Function] | None = None
    tell: Callable[[Function], None] | None = None
    around: Callable[[Function, Function], Function] | None = None
    everywhere: bool = False
    is_einsum: bool = True
    restored: Callable[[], None] | None = None


@dataclass(frozen=True, eq=False)
class Client:
    """A library without an adapter, whose functions :func:`einsumx.patch` replaces.

    Attributes:
        name: its name.
        install: the command that installs it.
        names: the names of its functions; imports the library. Each has a replacement of its own.
    """

    name: str
    install: str
    names: Callable[[], Iterable[Name]]


class Replaceable(Protocol):
    """A library whose einsum can be replaced."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def install(self) -> str:
        """How to install it."""

    def names(self) -> Iterable[Name]:
        """The names of its einsum functions."""


def own(function: Function) -> Function:
    """The framework's own function, even if einsumx has replaced it."""
    original: Function = getattr(function, OWN, function)
    return original


def own_result(
    native: Function,
    operands: Sequence[Any],
    options: Mapping[str, Any],
    error: EinsumxError,
    called: str,
    owner: str = "the framework",
) -> Any:
    """What the owner's function makes of a call that einsumx refused, without any effect, with an error.

    Args:
        native, operands, options: the function and its arguments.
        error: einsumx's.
        called, owner: as for :func:`say_native`.

    Raises:
        EinsumxError: the owner's function refuses the call too; the error is also of the class that it raised.
    """
    try:
        result = native(*operands, **options)
    except EinsumxError:  # it has called the replacement, as torch's calls an operand's __torch_function__
        raise
    except Exception as refused:  # noqa: BLE001  whatever it is, einsumx's error says more
        kind, attributes = type(refused), refused.__dict__
    else:
        say_native(called, operands, str(error).partition("\n")[0], owner)
        return result
    both = as_error_of(error, kind)
    both.__dict__.update({**attributes, **error.__dict__})  # such as those of a property of the owner's class
    raise both from error.__cause__


def as_error_of(error: EinsumxError, kind: type) -> EinsumxError:
    """The same error, as an instance of a class that is also ``kind``, which a framework raises for the mistake."""
    if isinstance(error, kind):
        return error
    ours: type = type(error)
    try:
        both: EinsumxError = _both(ours, kind)(*error.args).with_traceback(error.__traceback__)
    except TypeError:  # no class can be both
        return error
    both.__dict__.update(error.__dict__)
    return both


def _both(ours: type, kind: type) -> Any:
    """The class of errors that are both, the same one as long as there are such errors. Its name is einsumx's."""
    subclasses: list[type] = ours.__subclasses__()
    for known in subclasses:
        if known.__bases__ == (ours, kind):
            return known

    def reduce(error: EinsumxError) -> tuple[Any, ...]:
        return _copied, (ours, kind, error.args, error.__dict__)

    names = {name: getattr(ours, name) for name in ("__module__", "__qualname__", "__doc__", "__str__")}
    return type(ours.__name__, (ours, kind), {**names, "__reduce__": reduce})


def _copied(ours: type, kind: type, args: Any, attributes: dict[str, Any]) -> EinsumxError:
    """The copy of an error, for pickle, which finds no class that is made at run time."""
    error: EinsumxError = _both(ours, kind)(*args)
    error.__dict__.update(attributes)
    return error


class Bindings:
    """The global names of loaded modules that refer to one of some functions, such as names that were imported.

    A module's names are all compared when it is new and when their number has changed. The names that the functions
    have had in any module are compared in every module, every time.
    """

    def __init__(self, native: Function, ours: Function, chosen: Function) -> None:
        self._functions = native, ours, chosen
        self._names = {native.__name__}  # that the functions have had in any module
        self._sizes: dict[int, int] = {}  # of the namespaces that were looked through, by identity
        self._replaced: dict[int, dict[str, Any]] = {}  # namespaces with a replacement, also those of deleted modules

    def assign(self, function: Function) -> None:
        """Make all these names refer to ``function``, one of the functions."""
        native, ours, chosen = self._functions
        namespaces = [*self._loaded(), *self._replaced.values()]
        self._replaced.clear()
        for name in self._names:
            for names in namespaces:
                value = names.get(name)
                if value is native or value is ours or value is chosen:
                    names[name] = function
                    if function is not native:
                        self._replaced[id(names)] = names

    def _loaded(self) -> list[dict[str, Any]]:
        """The namespaces of the loaded modules; new and changed ones are looked through.

        It makes no object for each module, so that thousands of modules do not start Python's garbage collector.
        """
        modules = tuple(sys.modules.values())
        if len(self._sizes) > 2 * len(modules):  # most of them are deleted modules'
            self._sizes.clear()
        namespaces = []
        for module in modules:
            if issubclass(type(module), ModuleType):  # isinstance() is also true of objects that only claim to be one
                names = object.__getattribute__(module, "__dict__")  # vars() would load a module that loads lazily
                if self._sizes.get(id(names)) != len(names):
                    self._sizes[id(names)] = len(names)
                    self._look_through(names)
                namespaces.append(names)
        return namespaces

    def _look_through(self, names: dict[str, Any]) -> None:
        native, ours, chosen = self._functions
        for name, value in tuple(names.items()):
            if value is native or value is ours or value is chosen:
                self._names.add(name)


_logged: set[str] = set()
"""The calls logged since a replacement last began, so that a loop logs a call once."""

_MAX_LOGGED = 1000


def say_native(called: str, operands: Sequence[Any], why: str, owner: str = "the framework") -> None:
    """Log that a call falls back to its owner's own function, once for each equation and reason."""
    _say(f"{called} of", operands[0] if operands else None, f"is left to {owner}: {why}")


def say_unlimited(written: Any, why: str) -> None:
    """Log that a call runs without the memory limit of its patch, once for each equation and reason."""
    _say("einsum of", written, f"runs without the memory_limit= of its patch: {why}")


def _say(called: str, written: Any, why: str) -> None:
    if log.tells_notes():
        equation = repr(written)[:200] if isinstance(written, str) else "labels in lists"
        text = f"{called} {equation} {why}"
        if text in _logged:
            return
        if len(_logged) >= _MAX_LOGGED:
            _logged.clear()
        _logged.add(text)
        log.log.info("%s", text)


def say_anew() -> None:
    """Log every fallback again, because a new replacement begins."""
    _logged.clear()
