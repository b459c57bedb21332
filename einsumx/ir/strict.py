"""Strict reading of data from outside, such as stored plans: JSON, and the declared types of fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from einsumx.errors import shown
from einsumx.ir import ops
from einsumx.ir.sizes import Unknown

__all__ = ["MOST_AXES", "PLAN", "Fields", "made", "parse"]

LONGEST = 1 << 25
"""Characters of a JSON text; a plan of a thousand operands has a hundredth of that."""

MOST_AXES = 1000
"""Axes of an array in a plan; no framework allows so many."""

_MOST = 2**63 - 1
"""The largest size, slot or stride, as in every framework."""

_DIGITS = 20
"""Characters of such a number, with its sign."""

_NOTHING = object()

_SURROGATES = re.compile("[\ud800-\udfff]")

Seen: TypeAlias = dict[int, Any]
"""Values that are checked already, by id."""

Check: TypeAlias = Callable[[Any, Seen], None]

_T = TypeVar("_T")


# -- JSON -----------------------------------------------------------------------------------------------------------


def parse(text: str, longest: int = LONGEST) -> Any:
    """Parse JSON, without repeated keys, and with finite numbers of at most 19 digits.

    Raises:
        ValueError: the text is not such JSON, has more than ``longest`` characters, or is nested too deeply.

    >>> parse('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    if not isinstance(text, str):
        raise ValueError(f"JSON is text, not {type(text).__name__}")
    if len(text) > longest:
        raise ValueError(f"it has {len(text)} characters, and more than {longest} are not read")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("an object has a key twice")
    return data


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"it has a number with {len(text)} digits")
    return int(text)


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


def made(cls: type[_T], data: Any, items: Mapping[str, Callable[[Any], Any]] | None = None) -> _T:
    """A dataclass from a JSON object with its fields, lists as tuples; :class:`Fields` checks their values.

    Args:
        cls: a dataclass.
        data: from :func:`parse`.
        items: converters for the items of fields that are lists, by name.

    Raises:
        ValueError: ``data`` is not an object whose keys are the fields.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{shown(data)} is not a JSON object for {cls.__name__}")
    needed = _needed(cls)  # type: ignore[arg-type]  # a class has a hash
    for name in data:
        if name not in needed:
            raise ValueError(f"{cls.__name__} has no {shown(name)}")
    for name, is_needed in needed.items():
        if is_needed and name not in data:
            raise ValueError(f"it has no {name!r}")
    values = {name: _tuples(value) for name, value in data.items()}
    for name, make in (items or {}).items():
        if not isinstance(values[name], tuple):
            raise ValueError(f"{name}: {shown(values[name])} is not a list")
        values[name] = tuple(map(make, values[name]))
    return cls(**values)


@cache
def _needed(cls: Any) -> dict[str, bool]:
    """Whether a value is required, for each field of a dataclass."""
    return {field.name: field.default is MISSING for field in fields(cls)}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# -- types ----------------------------------------------------------------------------------------------------------


class _Wrong(Exception):  # noqa: N818  Fields.check raises the error, which says where
    """The fault of a value, and its place."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.where = ""


class Fields:
    """Checks the fields of dataclasses for their declared types.

    Integers are less than 2**63, and negative only in ``signed`` fields. A bool is not an integer, an instance of a
    subclass is not accepted, and text has no surrogates.

    Args:
        texts: a pattern that the text must match, for each field with one.
        signed: the fields with numbers that may be negative.
        axes: the fields with a number for each axis of an array.
        free: the fields with unbounded numbers.

    >>> Fields({}).check(ops.Multiply(2, 0, "1"))
    Traceback (most recent call last):
    ValueError: rhs: '1' is not an integer
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        signed: Collection[str] = (),
        axes: Collection[str] = (),
        free: Collection[str] = (),
    ) -> None:
        self._texts = {name: re.compile(pattern) for name, pattern in texts.items()}
        self._signed, self._axes, self._free = signed, axes, free
        self._known: dict[type, list[tuple[str, Check]]] = {}

    def check(self, value: Any) -> None:
        """Check a dataclass and all dataclasses in it, each once.

        Raises:
            ValueError: a field has another type, or a value out of bounds; the message names the field.
        """
        try:
            self._fields(value, {})
        except _Wrong as wrong:
            raise ValueError(f"{wrong.where.removeprefix('.')}: {wrong}") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    def _fields(self, value: Any, seen: Seen) -> None:
        if id(value) in seen:
            return
        seen[id(value)] = value
        checks = self._known.get(type(value))
        if checks is None:
            hints = get_type_hints(type(value), localns=vars(ops))
            checks = self._known[type(value)] = [(name, self._checking(name, hint)) for name, hint in hints.items()]
        for name, check in checks:
            try:
                check(getattr(value, name, _NOTHING), seen)
            except _Wrong as wrong:
                wrong.where = f".{name}{wrong.where}"
                raise

    def _checking(self, name: str, hint: Any) -> Check:
        """The check for values of a type in a field of that name."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint is int:
            return _exactly(int) if name in self._free else _signed if name in self._signed else _natural
        if hint is str:
            return _text(self._texts.get(name))
        if origin is tuple and arguments[1:] == (...,):
            return _row(self._checking(name, arguments[0]), MOST_AXES if name in self._axes else None)
        if origin in (Union, UnionType):
            return self._one_of(name, arguments)
        if origin is Literal:
            return _one_of_values(arguments)
        if origin in (frozenset, dict):
            return _collection(origin, [self._checking(name, argument) for argument in arguments])
        if hint is float:
            return _finite
        if hint in (bool, NoneType):
            return _exactly(hint)
        if is_dataclass(hint) or hasattr(hint, "_fields"):  # a NamedTuple has these

            def instance(value: Any, seen: Seen) -> None:
                if type(value) is not hint:
                    raise _Wrong(f"{shown(value)} is not {hint.__name__}")
                self._fields(value, seen)

            return instance
        raise NotImplementedError(f"a field {name} of type {hint}")

    def _one_of(self, name: str, hints: Sequence[Any]) -> Check:
        """The check for a union, which depends on the type of the value."""
        checks = {get_origin(hint) or hint: self._checking(name, hint) for hint in hints}
        kinds = " or ".join("None" if kind is NoneType else kind.__name__ for kind in checks)

        def check(value: Any, seen: Seen) -> None:
            if type(value) not in checks:
                raise _Wrong(f"{shown(value)} is not {kinds}")
            checks[type(value)](value, seen)

        return check


def _natural(value: Any, _: Seen) -> None:
    if isinstance(value, Unknown):
        return
    if type(value) is not int or not 0 <= value <= _MOST:
        raise _Wrong(f"{shown(value)} is not an integer" + " from 0 to 2**63 - 1" * (type(value) is int))


def _signed(value: Any, _: Seen) -> None:
    if isinstance(value, Unknown):
        return
    if type(value) is not int or not -_MOST <= value <= _MOST:
        raise _Wrong(f"{shown(value)} is not an integer" + " of 64 bits" * (type(value) is int))


def _finite(value: Any, _: Seen) -> None:
    if type(value) not in (int, float) or not isfinite(value):
        raise _Wrong(f"{shown(value)} is not a finite number")


def _exactly(kind: type) -> Check:
    def check(value: Any, _: Seen) -> None:
        if type(value) is not kind:
            raise _Wrong(f"{shown(value)} is not {kind.__name__}")

    return check


def _text(pattern: re.Pattern[str] | None) -> Check:
    def check(value: Any, _: Seen) -> None:
        if type(value) is not str:
            raise _Wrong(f"{shown(value)} is not text")
        if not pattern.fullmatch(value) if pattern else _SURROGATES.search(value):
            raise _Wrong(f"{shown(value)} is not a text that this field can have")

    return check


def _one_of_values(values: Sequence[Any]) -> Check:
    def check(value: Any, _: Seen) -> None:
        if type(value) is not str or value not in values:
            raise _Wrong(f"{shown(value)} is none of {', '.join(map(repr, values))}")

    return check


def _row(check_item: Check, most: int | None) -> Check:
    def check(value: Any, seen: Seen) -> None:
        if type(value) is not tuple:
            raise _Wrong(f"{shown(value)} is not a tuple")
        if most is not None and len(value) > most:
            raise _Wrong(f"{len(value)} axes are more than an array can have")
        place = 0
        try:
            for item in value:
                check_item(item, seen)
                place += 1
        except _Wrong as wrong:
            wrong.where = f"[{place}]{wrong.where}"
            raise

    return check


def _collection(kind: type, checks: Sequence[Check]) -> Check:
    """The check for a frozenset, or for a dict with checks for keys and values."""
    check_kind = _exactly(kind)

    def check(value: Any, seen: Seen) -> None:
        check_kind(value, seen)
        for row in value.items() if kind is dict else zip(value):
            for item, check_item in zip(row, checks):
                check_item(item, seen)

    return check


# -- plans ----------------------------------------------------------------------------------------------------------

_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{0,300}"
_EQUATION = r"(?s:.*)"  # any character may be a label, surrogates too
_DTYPE = r"(bool|object|(u?int|b?float|complex)\d{1,3}(_[a-z0-9]{1,20})?)"

PLAN = Fields(
    {
        "equation": _EQUATION,
        "named": _EQUATION,
        "backend": _LINE,
        "device": _LINE,
        "reason": _LINE,
        "dtype": _DTYPE,
        "compute_dtype": _DTYPE,
        "sums": f"({_DTYPE})?",
    },
    signed=("strides",),
    axes=("shape", "strides", "axes"),
    free=("limit",),
)
"""The fields of plans and blocked plans, and of their parts."""
