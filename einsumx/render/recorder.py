"""Arrays that record the calls on them, and adapters that call them, for :mod:`einsumx.render.source`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property, partialmethod
from json import dumps
from math import isfinite
from operator import index
from types import EllipsisType, MappingProxyType
from typing import Any, TypeAlias

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import Arithmetic
from einsumx.adapters.typing import Array, Run
from einsumx.dtypes import NAMED, kind
from einsumx.ir import ops


class Code:
    """An expression: an array, or a module, a function or anything else on the way to one.

    Calls, operators, indices and attributes are expressions again. Questions about memory, devices and gradients have
    the answers of an array about which nothing is special; dtypes with the same text are equal.

    Args:
        *parts: texts and other expressions, which make up the code.
        dtype: of an array, if it is known.
        shape: of an array, if it is known.
        works: whether it is a call, an operator or an index.
    """

    __iter__ = None  # it has indices of every kind, but no length

    def __init__(
        self, *parts: Part, dtype: Dtype | None = None, shape: tuple[int, ...] | None = None, works: bool = False
    ) -> None:
        self.parts, self.works, self._dtype = parts, works, dtype
        if dtype is not None:
            self.dtype = dtype
        if shape is not None:
            self.shape, self.ndim = shape, len(shape)

    def __getattr__(self, name: str) -> Code:
        if not name.isidentifier() or (name.startswith("_") and name != "__array_namespace__"):
            raise AttributeError(name)
        if self.works and name in ("dtype", "shape", "ndim"):
            raise AttributeError(f"the {name} of {self.text()} is not known")
        return Code(self, f".{name}")

    def __call__(self, *arguments: Any, **keywords: Any) -> Code:
        # Without None and False, which are the defaults of every framework's keywords.
        given = {name: value for name, value in keywords.items() if value is not None and value is not False}
        parts = [*_joined([_spelled(value) for value in arguments])]
        for name, value in given.items():
            parts += [", "] * bool(parts) + [f"{name}=", *_spelled(value)]
        # A function returns the dtype among its arguments, or else that of its first array.
        cast = next(filter(None, map(_as_dtype, (*arguments, *given.values()))), None)
        return Code(self, "(", *parts, ")", dtype=cast or _dtype_of(self, *arguments), works=True)

    def __getitem__(self, place: Any) -> Code:
        places = place if isinstance(place, tuple) else (place,)
        texts = _joined([_spelled(each) for each in places]) if places else ["()"]
        return Code(self, "[", *texts, "]", dtype=self._dtype, works=True)

    def _operation(self, sign: str, other: Any) -> Code:
        return Code("(", self, f" {sign} ", *_spelled(other), ")", dtype=_dtype_of(self, other), works=True)

    __add__ = partialmethod(_operation, "+")
    __sub__ = partialmethod(_operation, "-")
    __mul__ = partialmethod(_operation, "*")
    __matmul__ = partialmethod(_operation, "@")
    __and__ = partialmethod(_operation, "&")
    __or__ = partialmethod(_operation, "|")

    def __ne__(self, other: object) -> Any:
        return self.text() != other.text() if isinstance(other, Code) else self._operation("!=", other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.text() == other.text()

    def __hash__(self) -> int:
        return hash(self.text())

    def __gt__(self, other: Any) -> bool:
        return False

    def __contains__(self, item: Any) -> bool:
        return False

    def __instancecheck__(self, instance: Any) -> bool:
        return True

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def text(self, names: Mapping[int, str] = MappingProxyType({})) -> str:
        """The code, with names for some of the expressions in it, by their ``id``."""
        text = ""
        for place, part in enumerate(self.parts):
            if isinstance(part, str):
                text += part
            elif id(part) in names:
                text += names[id(part)]
            else:
                own = part.text(names)
                is_argument = text.endswith(("(", ", ", "=")) and self.parts[place + 1] in (", ", ")")
                text += own[1:-1] if is_argument and part.parts[0] == "(" else own
        return text

    def inner(self, names: Container[int] = ()) -> list[Code]:
        """The expressions in it that have no name and are in none that has, those within others first."""
        found: dict[int, Code] = {}

        def visit(code: Code) -> None:
            for part in code.parts:
                if isinstance(part, Code) and id(part) not in names and id(part) not in found:
                    visit(part)
                    found[id(part)] = part

        visit(self)
        return list(found.values())


Part: TypeAlias = "str | Code"


class Dtype(Code):
    """A dtype: its code, and what primitives ask of it.

    Args:
        name: NumPy's name of it.
        code: how it is written.
    """

    def __init__(self, name: str, code: Code) -> None:
        super().__init__(code.text())
        self.name, self.kind = name, kind(name)
        self.is_complex, self.is_floating_point = self.kind == "c", self.kind == "f"

    def __eq__(self, other: object) -> bool:
        return self.kind == "b" if other is bool else super().__eq__(other)

    __hash__ = Code.__hash__


def _as_dtype(value: Any) -> Dtype | None:
    if isinstance(value, str) and value in NAMED:
        return Dtype(value, Code(dumps(value)))
    return value if isinstance(value, Dtype) else None


def _dtype_of(*values: Any) -> Dtype | None:
    """The dtype of the first array among values; the function of a method call counts as its array."""
    for value in values:
        first = value.parts[0] if isinstance(value, Code) and value._dtype is None else value
        if isinstance(first, Code) and first._dtype is not None:
            return first._dtype
    return None


def _joined(texts: Sequence[list[Part]]) -> list[Part]:
    """The parts of several values, with commas between them."""
    return [part for number, text in enumerate(texts) for part in ([", ", *text] if number else text)]


def _spelled(value: Any) -> list[Part]:
    """The parts of a value's code: that of an expression, or a literal.

    >>> "".join(_spelled([1, (2.5,), slice(None, None, 3), "ij->", float("-inf")]))
    '[1, (2.5,), ::3, "ij->", float("-inf")]'
    """
    match value:
        case Code():
            return [value]
        case str():
            return [dumps(value)]
        case list():
            return ["[", *_joined([_spelled(each) for each in value]), "]"]
        case tuple() | range():
            return ["(", *_joined([_spelled(each) for each in value]), ",)" if len(value) == 1 else ")"]
        case slice():
            return [":".join(_bounds(value))]
        case EllipsisType():
            return ["..."]
        case float() if not isfinite(value):
            return [f'float("{value}")']
        case bool() | float() | None:
            return [repr(value)]
        case _:
            return [str(index(value))]


def _bounds(part: slice) -> list[str]:
    ends = [part.start, part.stop] if part.step is None else [part.start, part.stop, part.step]
    return ["" if end is None else str(index(end)) for end in ends]


class _Literals(Arithmetic):
    """Numbers as code."""

    def number(self, value: Any, dtype: str, like: Array) -> Any:
        typed = getattr(self.adapter, "typed", None)  # only NumPy's functions need it
        return value if typed is None else typed(value, dtype)


class _Recording(Adapter):
    """What a framework's adapter is not asked while its primitives are recorded, as it would ask the framework."""

    def dtype(self, name: str) -> Dtype:
        code = super().dtype(name)  # an attribute of the framework; otherwise, its functions take the name
        return Dtype(name, code if isinstance(code, Code) and not code.works else Code(dumps(name)))

    def dtype_name(self, dtype: Any) -> str:
        name: str = dtype.name
        return name

    def kernel(self, op: ops.Op, shapes: Sequence[tuple[int, ...]], dtype: str) -> Run:
        return Adapter.kernel(self, op, shapes, dtype)  # calls the primitive

    def from_numpy(self, array: Any, device: str = "") -> Array:
        return self.xp.zeros(array.shape, dtype=self.dtype(array.dtype.name))  # primitives convert no other array

    arithmetic = cached_property(_Literals)


def recording(adapter: Adapter) -> tuple[Adapter, str]:
    """An adapter of which primitives take and return :class:`Code`, and the name of the module in the code."""
    own, statement = adapter.public_class(), import_statement(adapter)
    name = statement.split()[-1 if statement.startswith("import") else 0]
    made: Any = type(own.__name__, (_Recording, own), {"xp": Code(name)})
    recorded = made.__new__(made)
    for key, value in vars(adapter).items():
        if not isinstance(getattr(own, key, None), cached_property):
            vars(recorded)[key] = value
    return recorded, name


def import_statement(adapter: Adapter) -> str:
    """The statement by which code imports an adapter's framework."""
    return adapter.import_statement or f"import {adapter.module} as xp"
