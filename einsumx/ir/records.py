"""``record``: immutable dataclasses that share their methods.

The standard decorator compiles methods for each class, which takes half a millisecond. The first call of a process
makes some thirty classes. Constructors of the numbers of fields that operands and ops have are templates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from importlib import import_module
from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:  # noqa: D103
        return lambda function: function


_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: _Class) -> _Class:
    """The class as ``dataclass(frozen=True, slots=True)`` makes it, whose ``repr`` leaves out defaults.

    Methods of its own stay.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(x=1, y=0), hash(Point(1)) == hash(Point(1))
    (Point(x=1), True, True)
    """
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name in _METHODS.difference(cls.__dict__):
        setattr(made, name, getattr(_Methods, name))
    if issubclass(made, HashedOnce):
        made.__hash__ = HashedOnce.__hash__
    made._setters = tuple([getattr(made, name).__set__ for name in made.__match_args__])
    made._compared = attrgetter(*[each.name for each in fields(made) if each.compare])
    defaults = [each.default for each in fields(made) if each.default is not each.default_factory]
    made.__signature__ = _Signature()
    made._is_checked = hasattr(made, "__post_init__")
    made._defaults = () if MISSING in defaults else tuple(defaults)  # a factory makes a value for each record
    template = _TEMPLATES.get(len(made.__match_args__))
    if template is not None and not made._is_checked and "__init__" not in cls.__dict__:
        code = template.__code__.replace(co_varnames=("self", *made.__match_args__))
        puts = {f"_put{place}": put for place, put in enumerate(made._setters)}
        puts["__builtins__"] = __builtins__  # where torch.compile looks for it
        made.__init__ = FunctionType(code, puts, "__init__", made._defaults)
        made.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return made  # type: ignore[no-any-return]


class _Methods:
    """The methods of all records."""

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        kind: Any = type(self)
        missing = len(kind._setters) - len(values)
        if missing and not named and 0 < missing <= len(kind._defaults):
            values += kind._defaults[-missing:]
        elif missing or named:
            values = _completed(kind, values, named)
        for put, value in zip(kind._setters, values):
            put(self, value)
        if kind._is_checked:
            self.__post_init__()

    def __repr__(self: Any) -> str:
        values = [(each, getattr(self, each.name)) for each in fields(self) if each.repr]
        shown = [f"{each.name}={value!r}" for each, value in values if value != each.default]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self: Any, other: object) -> bool:
        values: Any = type(self)._compared
        if type(other) is not type(self):
            return NotImplemented
        return bool(self is other or values(self) == values(other))

    def __hash__(self: Any) -> int:
        kind: Any = type(self)
        return hash(kind._compared(self))

    def __setattr__(self, name: str, _: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        self.__setattr__(name, None)

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, each.name) for each in fields(self)])


class HashedOnce:
    """Records whose hash is computed once, because they are large and often keys of caches."""

    __slots__ = ("_hash",)

    def __hash__(self: Any) -> int:
        try:
            return self._hash  # type: ignore[no-any-return]
        except AttributeError:
            kind: Any = type(self)
            value = hash(kind._compared(self))
            object.__setattr__(self, "_hash", value)
            return value


_put0 = _put1 = _put2 = _put3 = _put4 = _put5 = _put6 = _put7 = cast(Any, None)
"""In the constructors below, the functions that fill the slots of a class."""


def _three(self: Any, a: Any, b: Any, c: Any) -> None:
    _put0(self, a)
    _put1(self, b)
    _put2(self, c)


def _four(self: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    _put0(self, a)
    _put1(self, b)
    _put2(self, c)
    _put3(self, d)


def _five(self: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> None:
    _put0(self, a)
    _put1(self, b)
    _put2(self, c)
    _put3(self, d)
    _put4(self, e)


def _seven(self: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> None:
    _put0(self, a)
    _put1(self, b)
    _put2(self, c)
    _put3(self, d)
    _put4(self, e)
    _put5(self, f)
    _put6(self, g)


def _eight(self: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> None:
    _put0(self, a)
    _put1(self, b)
    _put2(self, c)
    _put3(self, d)
    _put4(self, e)
    _put5(self, f)
    _put6(self, g)
    _put7(self, h)


_TEMPLATES: Mapping[int, Any] = {3: _three, 4: _four, 5: _five, 7: _seven, 8: _eight}
"""Constructors by the number of fields; names, defaults and functions are those of each class."""


class _Signature:
    """What ``inspect.signature`` says of a record's class. A record that can be called has another one."""

    def __get__(self, made: Any, kind: Any) -> Any:
        if made is not None:
            raise AttributeError
        inspect = import_module("inspect")
        parameters = []
        for each in fields(kind):
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            if each.default_factory is not MISSING:
                default = each.default_factory()
            parameters.append(inspect.Parameter(each.name, 1, default=default, annotation=each.type))
        return inspect.Signature(parameters)


_METHODS = frozenset(("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__reduce__"))


def _completed(kind: Any, values: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of all fields, from those by position, those by name, and the defaults."""
    names = kind.__match_args__
    if len(values) > len(names):
        raise TypeError(f"{kind.__name__} takes {len(names)} values, not {len(values)}")
    given = dict(zip(names, values))
    for name in named:
        if name in given:
            raise TypeError(f"{kind.__name__} has {name}= twice")
        if name not in names:
            raise TypeError(f"{kind.__name__} has no {name}=")
    given.update(named)
    for each in fields(kind):
        if each.name in given:
            continue
        if each.default is MISSING and each.default_factory is MISSING:
            raise TypeError(f"{kind.__name__} needs {each.name}=")
        given[each.name] = each.default if each.default_factory is MISSING else each.default_factory()
    return tuple([given[name] for name in names])
