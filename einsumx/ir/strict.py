"""Strict reading of data from outside, such as stored plans: JSON, and values of declared types in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from einsumx.errors import MalformedError, shown

LONGEST = 1 << 22
"""Characters of a JSON text; a plan of a thousand operands has some hundred thousand."""

LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{0,300}"
"""The pattern of a short line of text, for a field of type ``Annotated[str, LINE]``."""

_DIGITS = 20
"""Characters of a number of 64 bits, with its sign."""

_Reader: TypeAlias = Callable[[Any], Any]

_T = TypeVar("_T")


# -- JSON -----------------------------------------------------------------------------------------------------------


def parse(text: str, longest: int = LONGEST) -> Any:
    """Parse JSON, without repeated keys, and with finite numbers of at most 19 digits.

    Raises:
        MalformedError: the text is not such JSON, has more than ``longest`` characters, or is nested too deeply.

    >>> parse('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    if not isinstance(text, str):
        raise MalformedError(f"JSON is text, not {type(text).__name__}")
    if len(text) > longest:
        raise MalformedError(f"it has {len(text)} characters, and more than {longest} are not read")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise MalformedError(str(error)) from None
    except RecursionError:
        raise MalformedError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise MalformedError("an object has a key twice")
    return data


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise MalformedError(f"it has a number with {len(text)} digits")
    return int(text)


def _constant(text: str) -> NoReturn:
    raise MalformedError(f"{text} is not a number in JSON")


# -- types ----------------------------------------------------------------------------------------------------------


class _Wrong(Exception):  # noqa: N818  read raises the error
    """What is wrong with a value; ``where`` is its place in the data."""

    where = ""


def read(kind: type[_T], data: Any) -> _T:
    """A value of a type from parsed JSON: dataclasses from objects, tuples from lists.

    Each value must have its declared type: a bool is no integer. Text has no surrogates, or matches the pattern in
    ``Annotated[str, pattern]``.

    Args:
        kind: a dataclass whose fields, and those of dataclasses in it, have such types; ``object`` is any value.
        data: from :func:`parse`.

    Raises:
        MalformedError: a field is missing or unknown, or has a value of another type; the message names it.

    >>> from einsumx.ir.operand import Operand
    >>> read(Operand, {"shape": [2, 3], "dtype": "float32"})
    Operand(shape=(2, 3), dtype='float32')
    >>> read(Operand, {"shape": [2, "3"], "dtype": "float32"})
    Traceback (most recent call last):
    einsumx.errors.MalformedError: shape[1]: '3' is not an integer
    """
    try:
        value: _T = _reader(kind)(data)  # type: ignore[arg-type]  # a class has a hash
    except _Wrong as wrong:
        where = wrong.where.removeprefix(".")
        raise MalformedError(f"{where}: {wrong}" if where else str(wrong)) from None
    return value


@cache
def _reader(hint: Any) -> _Reader:
    """The reader of values of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        return _matching(re.compile(arguments[1]))
    if origin is Literal:
        return _one_of(arguments)
    if origin is tuple:
        return _tuple_of(_reader(arguments[0]))
    if origin is dict:
        return _dict_of(_reader(arguments[1]))
    if origin in (Union, UnionType):
        (other,) = [each for each in arguments if each is not NoneType]
        return _or_none(_reader(other))
    if is_dataclass(hint):
        return _dataclass(hint)
    raise NotImplementedError(f"a field of type {hint}")


def _dataclass(cls: Any) -> _Reader:
    hints = get_type_hints(cls, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in fields(cls)}
    needed = [field.name for field in fields(cls) if field.default is MISSING]

    def read_object(data: Any) -> Any:
        if type(data) is not dict:
            raise _Wrong(f"{shown(data)} is not a JSON object for {cls.__name__.strip('_')}")
        for name in data:
            if name not in readers:
                raise _Wrong(f"there is no {shown(name)} in {cls.__name__.strip('_')}")
        for name in needed:
            if name not in data:
                raise _Wrong(f"it has no {name!r}")
        return cls(**{name: _at(f".{name}", readers[name], value) for name, value in data.items()})

    return read_object


def _at(where: str, reader: _Reader, value: Any) -> Any:
    """A value that is read in a place of the data, which an error names."""
    try:
        return reader(value)
    except _Wrong as wrong:
        wrong.where = where + wrong.where
        raise


def _tuple_of(reader: _Reader) -> _Reader:
    def read_list(data: Any) -> Any:
        if type(data) is not list:
            raise _Wrong(f"{shown(data)} is not a list")
        return tuple([_at(f"[{place}]", reader, item) for place, item in enumerate(data)])

    return read_list


def _dict_of(reader: _Reader) -> _Reader:
    def read_dict(data: Any) -> Any:
        if type(data) is not dict:
            raise _Wrong(f"{shown(data)} is not a JSON object")
        return {name: _at(f".{shown(name)}", reader, value) for name, value in data.items()}

    return read_dict


def _or_none(reader: _Reader) -> _Reader:
    return lambda data: None if data is None else reader(data)


def _one_of(values: Sequence[Any]) -> _Reader:
    def read_one(data: Any) -> Any:
        if type(data) is not str or data not in values:
            raise _Wrong(f"{shown(data)} is none of {', '.join(map(repr, values))}")
        return data

    return read_one


def _matching(pattern: re.Pattern[str]) -> _Reader:
    def read_text(data: Any) -> Any:
        if type(data) is not str:
            raise _Wrong(f"{shown(data)} is not text")
        if not pattern.fullmatch(data):
            raise _Wrong(f"{shown(data)} is not a text that this field can have")
        return data

    return read_text


def _read_integer(data: Any) -> Any:
    if type(data) is not int or abs(data) >= 1 << 63:
        raise _Wrong(f"{shown(data)} is not an integer" + " of 64 bits" * (type(data) is int))
    return data


def _read_float(data: Any) -> Any:
    if type(data) not in (int, float) or not isfinite(data):
        raise _Wrong(f"{shown(data)} is not a finite number")
    return data


def _read_bool(data: Any) -> Any:
    if type(data) is not bool:
        raise _Wrong(f"{shown(data)} is not true or false")
    return data


_PLAIN: dict[Any, _Reader] = {
    int: _read_integer,
    float: _read_float,
    bool: _read_bool,
    str: _matching(re.compile(r"[^\ud800-\udfff]*")),
    object: lambda data: data,
}
