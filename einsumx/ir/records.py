"""``record``: immutable dataclasses that share their methods.

The standard decorator compiles methods for each class, which takes half a millisecond. The first call of a process
makes some thirty classes. Constructors of the numbers of fields that operands and ops have are templates. The
descriptions of fields, for functions such as ``dataclasses.replace``, are made when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, replace
from functools import cached_property
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
    made = _slotted(cls, _Fields(cls))
    made._setters = tuple([getattr(made, name).__set__ for name in made.__match_args__])
    template = _TEMPLATES.get(len(made.__match_args__))
    if template is not None and not made._is_checked and "__init__" not in cls.__dict__:
        code = template.__code__.replace(co_varnames=("self", *made.__match_args__))
        puts = {f"_put{place}": put for place, put in enumerate(made._setters)}
        puts["__builtins__"] = __builtins__  # where torch.compile looks for it
        made.__init__ = FunctionType(code, puts, "__init__", made._defaults)
        made.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return made  # type: ignore[no-any-return]


class _Fields:
    """The fields of a record, as ``__dataclass_fields__``, which are made when they are first asked for.

    Attributes:
        types: by name, first of the fields that base classes have.
        values: the defaults by name: a value, what ``field()`` returned, or ``MISSING``.
    """

    def __init__(self, cls: type) -> None:
        self.types: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        for base in cls.__mro__[:0:-1]:
            inherited = base.__dict__.get("__dataclass_fields__")
            if isinstance(inherited, _Fields):
                self.types.update(inherited.types)
                self.values.update(inherited.values)
        for name, annotation in cls.__annotations__.items():
            if not str(annotation).startswith("ClassVar"):
                self.types[name], self.values[name] = annotation, cls.__dict__.get(name, MISSING)

    @cached_property
    def made(self) -> dict[str, Field[Any]]:
        """The descriptions that ``dataclasses`` has."""
        values = {name: value for name, value in self.values.items() if value is not MISSING}
        described: dict[str, Field[Any]] = _plain(__annotations__=self.types, **values).__dataclass_fields__
        return described

    def __get__(self, made: Any, kind: Any) -> dict[str, Field[Any]]:
        return self.made


def _plain(**inside: Any) -> Any:
    """A dataclass without methods."""
    inside["__doc__"] = "Fields alone."  # otherwise it would be the signature, which takes milliseconds
    return dataclass(init=False, repr=False, eq=False)(type("Plain", (), inside))


_PARAMETERS = _plain().__dataclass_params__


def _slotted(cls: type, described: _Fields) -> Any:
    """A class like ``cls`` with the methods of records, and with slots for the fields that it does not inherit."""
    own, values = cls.__dict__, described.values
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    defaults = [
        value.default if isinstance(value, Field) else value for value in values.values() if value is not MISSING
    ]
    inside = {name: value for name, value in own.items() if name not in values and name not in _OF_DICTIONARIES}
    inside.update({name: _Methods.__dict__[name] for name in _METHODS if name not in own})
    if issubclass(cls, HashedOnce):
        inside["__hash__"] = HashedOnce.__hash__
    inside.update(
        __slots__=tuple([name for name in values if name not in inherited]),
        __match_args__=tuple(values),
        __dataclass_fields__=described,
        __dataclass_params__=_PARAMETERS,
        __signature__=_Signature(),
        _field_values=values,
        _compared=attrgetter(
            *[name for name, value in values.items() if not isinstance(value, Field) or value.compare]
        ),
        _is_checked=hasattr(cls, "__post_init__"),
        _defaults=() if MISSING in defaults else tuple(defaults),  # a factory makes a value for each record
    )
    made = type(cls)(cls.__name__, cls.__bases__, inside)
    made.__qualname__ = cls.__qualname__
    return made


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

    def __replace__(self: Any, /, **changes: Any) -> Any:
        return replace(self, **changes)

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])


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


_OF_DICTIONARIES = frozenset(("__dict__", "__weakref__"))
"""What classes without slots have."""

_METHODS = frozenset(
    ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__", "__reduce__")
)


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
    for name in names:
        if name not in given:
            given[name] = _default(kind, name, kind._field_values[name])
    return tuple([given[name] for name in names])


def _default(kind: Any, name: str, value: Any) -> Any:
    """The default of a field whose value in the class is this one."""
    if isinstance(value, Field):
        value = value.default if value.default_factory is MISSING else value.default_factory()
    if value is MISSING:
        raise TypeError(f"{kind.__name__} needs {name}=")
    return value
