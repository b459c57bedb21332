"""A plan as source code: a short function that depends on its framework alone."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from keyword import iskeyword
from math import prod
from string import ascii_lowercase
from textwrap import wrap
from typing import TYPE_CHECKING

from einsumx.adapters.dialect import Spelling, Value, numbers
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, visible
from einsumx.ir import ops
from einsumx.ir.cost import returns_view, slot_dtypes
from einsumx.ir.program import Operand, Program
from einsumx.ir.text import in_algebra
from einsumx.ir.verify import replay

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter

__all__ = ["plan_source"]

_COLUMNS = 100
_INDENT = 4

_LARGE = 1 << 20
"""Intermediates of this many bytes or more get a ``del`` statement after their last use."""


def plan_source(program: Program, adapter: Adapter, name: str = "contraction") -> str:
    """The code of a function that runs the same calls as ``program``.

    Args:
        program: a program for the adapter's framework.
        adapter: the adapter; its spelling determines how calls are written.
        name: the name of the function.

    Raises:
        ValueError: ``name`` is no valid function name, or the code uses that name itself.
        BackendError: the adapter overrides a primitive without spelling it.
        EinsumxError: the ops do not fit together.
    """
    spelling = adapter.spelling()
    _check_name(name, spelling)
    for op in program.ops:
        _check_spelled(op, adapter)
    parameters, names = _operand_names(len(program.operands), spelling.name)
    shapes = replay(program.ops, [operand.shape for operand in program.operands])
    body = [*spelling.opening(names[0]), *_Function(program, spelling, names, shapes).statements()]
    decorators = spelling.decorators(list(shapes.values()))
    code = "\n".join([*decorators, *body])
    helpers = spelling.helpers(code)
    if any(line.startswith(f"def {name}(") for line in helpers):
        raise ValueError(f"name={name!r} cannot name the function; the code has another one of that name")
    called = "\n".join([*helpers, code])
    imports = [line for line in spelling.imports if re.search(rf"\b{spelling.name}\.", called)]
    lines = [
        *helpers,
        *decorators,
        *_folded(f"def {name}({parameters}):", 0),
        *(f"{' ' * _INDENT}{line}".rstrip() for line in [*_docstring(program, names), *body]),
    ]
    return "\n".join([*imports, *([""] * 2 if imports else []), *lines]) + "\n"


@dataclass(frozen=True, slots=True)
class _Expression:
    """A value in the code: a variable, or an expression that no variable holds yet.

    Attributes:
        text: the code.
        is_name: whether it is a variable.
        works: whether it contains a call that computes or copies, besides views and casts.
        copies: the reasons of the copies in it.
        reads: the slots whose variables are in it, with repetitions.
    """

    text: str
    is_name: bool = False
    works: bool = False
    copies: tuple[str, ...] = ()
    reads: tuple[int, ...] = ()


class _Function:
    """The statements of a function; each contains one call that computes, with the views around it."""

    def __init__(
        self, program: Program, spelling: Spelling, names: Sequence[str], shapes: dict[int, tuple[int, ...]]
    ) -> None:
        self._program, self._spelling, self._shapes = program, spelling, shapes
        self._dtypes = slot_dtypes(program)
        self._values = {slot: _Expression(name, True, reads=(slot,)) for slot, name in enumerate(names)}
        self._is_view = returns_view(program)
        self._uses = Counter(slot for op in program.ops for slot in op.sources)
        self._unread = dict(self._uses)
        self._lines: list[str] = []
        self._count = 0

    def statements(self) -> list[str]:
        """The lines, without indentation."""
        for op in self._program.ops:
            self._values[op.out] = self._expression(op)
            if self._uses[op.out] > 1:
                self._assign(op.out)
        result = self._program.result
        text = self._values[result].text
        if not self._program.shape:
            (producer,) = (op for op in self._program.ops if op.out == result)
            text = self._spelling.element(self._value(result), producer)
        return [*self._lines, *_comment(*_copies(self._values[result])), *_folded(f"return {text}")]

    def _expression(self, op: ops.Op) -> _Expression:
        """The call of an op. Sources that would make it hard to read are assigned to variables first."""
        is_light = _is_light(op)
        for slot in op.sources:
            if not is_light and self._values[slot].works:
                self._assign(slot)
        while True:
            values = [self._value(slot) for slot in op.sources]
            if isinstance(op, ops.Diagonal) and self._is_view:
                text = self._spelling.diagonal_view(values[0], op.axis1, op.axis2)
            else:
                text = self._spelling.spell(op, values)
            sources = [self._values[slot] for slot in op.sources]
            unnamed = [slot for slot in op.sources if not self._values[slot].is_name]
            if len(text) + _INDENT + len("return ") <= _COLUMNS or not unnamed:
                break
            self._assign(max(unnamed, key=lambda slot: len(self._values[slot].text)))
        reasons = [reason for source in sources for reason in source.copies]
        if isinstance(op, ops.Transpose | ops.Diagonal | ops.Copy) and op.reason:
            reasons.append(op.reason)
        return _Expression(
            text,
            is_name=False,
            works=not is_light or any(source.works for source in sources),
            copies=tuple(dict.fromkeys(reasons)),
            reads=tuple(slot for source in sources for slot in source.reads),
        )

    def _value(self, slot: int) -> Value:
        return Value(self._values[slot].text, self._shapes[slot], self._dtypes[slot])

    def _assign(self, slot: int) -> None:
        """Assign a value to a variable; delete large variables that are not read any more."""
        value = self._values[slot]
        self._count += 1
        name = f"x{self._count}"
        lines = _folded(f"{name} = {value.text}")
        about = _comment(f"{numbers(self._shapes[slot])} {self._dtypes[slot]}", *_copies(value))
        if len(lines) == len(about) == 1 and len(f"{lines[0]}  {about[0]}") + _INDENT <= _COLUMNS:
            self._lines.append(f"{lines[0]}  {about[0]}")
        else:
            self._lines += [*about, *lines]
        self._values[slot] = _Expression(name, True, reads=(slot,))
        for read in value.reads:
            self._unread[read] -= 1
        unused = [read for read in dict.fromkeys(value.reads) if not self._unread[read] and self._is_large(read)]
        if unused:
            self._lines.append(f"del {', '.join(self._values[read].text for read in unused)}")

    def _is_large(self, slot: int) -> bool:
        """Whether a value is a large intermediate."""
        is_operand = slot < len(self._program.operands)
        return not is_operand and prod(self._shapes[slot]) * itemsize(self._dtypes[slot]) >= _LARGE


def _is_light(op: ops.Op) -> bool:
    """Whether a call may be nested in another one: a view or a cast."""
    return op.kind == "view" or isinstance(op, ops.Cast)


_LETTERS = ascii_lowercase.replace("l", "")  # l looks like 1 and I


def _operand_names(count: int, taken: str) -> tuple[str, list[str]]:
    """The parameters of a function, and the names of its operands: letters, or items of ``*a`` if letters run out.

    >>> _operand_names(3, "b"), _operand_names(26, "np")[1][-1]
    (('a, c, d', ['a', 'c', 'd']), 'a[25]')
    """
    letters = [letter for letter in _LETTERS if letter != taken]
    if count <= len(letters):
        return ", ".join(letters[:count]), letters[:count]
    return f"*{letters[0]}", [f"{letters[0]}[{number}]" for number in range(count)]


# -- lines ------------------------------------------------------------------------------------------------------


def _docstring(program: Program, names: Sequence[str]) -> list[str]:
    """The equation, the operands and the result."""
    equation = program.equation
    width = _COLUMNS - 2 * _INDENT
    if len(equation) > width:
        equation = equation.replace(",", ", ")
    first, *others = map(_quoted, wrap(visible(equation), width) or [""])
    by_description: dict[str, list[str]] = {}
    for name, operand in zip(names, program.operands):
        by_description.setdefault(_description(operand), []).append(name)
    lines = [f"{', '.join(group)}: {description}" for description, group in by_description.items()]
    lines.append(f"result: {numbers(program.shape)} {program.dtype}{_quoted(visible(in_algebra(program.semiring)))}")
    return [f'"""{first}', *others, "", *(part for line in lines for part in wrap(line, _COLUMNS - _INDENT)), '"""']


def _description(operand: Operand) -> str:
    """Shape and dtype, and the axes along which the plan requires constant values."""
    strides = operand.strides or ()
    expanded = [axis for axis, (size, stride) in enumerate(zip(operand.shape, strides)) if stride == 0 and size > 1]
    constant = f", constant along axis {' and '.join(map(str, expanded))}" if expanded else ""
    return f"{numbers(operand.shape)} {operand.dtype}{constant}"


def _quoted(text: str) -> str:
    """Text that is safe inside a triple-quoted string."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _copies(value: _Expression) -> list[str]:
    return [f"a copy: {visible(reason)}" for reason in value.copies]


def _comment(*notes: str) -> list[str]:
    """The lines of a comment; none without notes."""
    return wrap("; ".join(notes), _COLUMNS - _INDENT, initial_indent="# ", subsequent_indent="# ")


def _folded(line: str, indent: int = _INDENT) -> list[str]:
    """The lines of a statement in the style of formatters: if it is too long, its last brackets are split.

    >>> for line in _folded(f"x1 = np.reshape({'a' * 40}, {'b' * 40})", 8):
    ...     print(line)
    x1 = np.reshape(
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
    )
    """
    end = line.rfind(")")
    while end > 0 and line[end - 1] == "(":
        end = line.rfind(")", 0, end)
    if indent + len(line) <= _COLUMNS or end < 0:
        return [line]
    start = _opening(line[: end + 1])
    inside = [line[start + 1 : end]]
    if indent + _INDENT + len(inside[0]) > _COLUMNS:
        inside = [f"{item}," for item in _items(inside[0])]
    below = [f"{' ' * _INDENT}{part}" for item in inside for part in _folded(item, indent + _INDENT)]
    return [line[: start + 1], *below, line[end:]]


def _opening(text: str) -> int:
    """The index of the bracket that matches the last character."""
    depth = 0
    for place in reversed(range(len(text))):
        depth += (text[place] in ")]") - (text[place] in "([")
        if not depth:
            return place
    return 0


def _items(text: str) -> list[str]:
    """The items between commas outside brackets.

    >>> _items("a.reshape(2, 3), b, axis=(0, 1)")
    ['a.reshape(2, 3)', 'b', 'axis=(0, 1)']
    """
    items: list[str] = []
    depth = 0
    for part in text.split(", "):
        if depth:
            items[-1] += f", {part}"
        else:
            items.append(part)
        depth += sum((letter in "([") - (letter in ")]") for letter in part)
    return items


# -- checks -----------------------------------------------------------------------------------------------------


def _check_name(name: str, spelling: Spelling) -> None:
    taken = iskeyword(name) or hasattr(builtins, name) or name == spelling.name
    if not name.isascii() or not name.isidentifier() or taken:
        raise ValueError(f"name={name!r} cannot name the function; use another name, of ASCII letters")


def _check_spelled(op: ops.Op, adapter: Adapter) -> None:
    """Raise BackendError if an adapter overrides a primitive, but inherits the spelling."""
    primitive = type(op).__name__.lower()
    for parent in type(adapter).__mro__:
        if "spelling" in vars(parent):
            return
        if primitive in vars(parent):
            raise BackendError(
                f"the backend {adapter.name} overrides {primitive} without saying how to write it as code: "
                f"its adapter's spelling() must return a subclass of einsumx.Spelling that overrides {primitive} too"
            )
