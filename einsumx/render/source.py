"""A plan as code: one short function that needs its framework and nothing else."""

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
from einsumx.ir.cost import returns_view, slot_dtypes
from einsumx.ir.ops import Cast, Copy, Diagonal, Expand, First, Op, Reshape, Transpose, sources
from einsumx.ir.program import Operand, Program
from einsumx.ir.verify import replay
from einsumx.runtime.checks import check_fits, check_plan

if TYPE_CHECKING:
    from einsumx.adapters.base import Adapter

__all__ = ["plan_source"]

_COLUMNS = 100
_INDENT = 4

_LARGE = 1 << 20
"""Bytes from which an intermediate is let go as soon as nothing reads it any more, in a statement of its own."""


def plan_source(plan: Program, adapter: Adapter, name: str = "contraction") -> str:
    """The code of a function that does what ``plan`` does.

    Args:
        plan: lowered for the adapter's framework.
        adapter: whose spelling it is written in.
        name: of the function.

    Raises:
        ValueError: ``name`` is no name of a function, or one that the function itself uses.
        BackendError: the adapter has a primitive of its own, and no spelling of it.
        EinsumxError: what should be numbers or names in the plan are not, or it does not compute its equation.
    """
    check_plan(plan)
    check_fits(plan, adapter.traits(plan.device))
    spelling = adapter.spelling()
    _check_name(name, spelling)
    for op in plan.ops:
        _check_spelled(op, adapter)
    parameters, names = _operand_names(len(plan.operands), spelling.name)
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    body = [*spelling.opening(names[0]), *_Function(plan, spelling, names, shapes).statements()]
    code = "\n".join([*spelling.decorators(list(shapes.values())), *body])
    imports = [line for line in spelling.imports if re.search(rf"\b{spelling.name}\.", code)]
    lines = [
        *spelling.decorators(list(shapes.values())),
        *_folded(f"def {name}({parameters}):", 0),
        *(f"{' ' * _INDENT}{line}".rstrip() for line in [*_docstring(plan, names), *body]),
    ]
    return "\n".join([*imports, *([""] * 2 if imports else []), *lines]) + "\n"


@dataclass(frozen=True, slots=True)
class _Draft:
    """A value that has no name yet, or is one.

    Attributes:
        text: its expression.
        is_name: whether it is one, and not what would be computed where it is written.
        works: whether there is a call in it that computes or copies, and not views and casts alone.
        copies: why there are copies in it.
        reads: the slots whose names are in it, as often as they are.
    """

    text: str
    is_name: bool = False
    works: bool = False
    copies: tuple[str, ...] = ()
    reads: tuple[int, ...] = ()


class _Function:
    """The statements of a function: one call that works in each, with the views around it."""

    def __init__(
        self, plan: Program, spelling: Spelling, names: Sequence[str], shapes: dict[int, tuple[int, ...]]
    ) -> None:
        self._plan, self._spelling, self._shapes = plan, spelling, shapes
        self._dtypes = slot_dtypes(plan)
        self._drafts = {slot: _Draft(name, True, reads=(slot,)) for slot, name in enumerate(names)}
        self._is_view = returns_view(plan)
        self._uses = Counter(slot for op in plan.ops for slot in sources(op))
        self._unread = dict(self._uses)
        self._lines: list[str] = []
        self._count = 0

    def statements(self) -> list[str]:
        """The lines, not indented."""
        for op in self._plan.ops:
            self._drafts[op.out] = self._drafted(op)
            if self._uses[op.out] > 1:
                self._put(op.out)
        result = self._plan.result
        (made_by,) = (op for op in self._plan.ops if op.out == result)
        is_element = not self._plan.shape
        text = self._spelling.element(self._value(result), made_by) if is_element else self._drafts[result].text
        return [*self._lines, *_comment(*_copies(self._drafts[result])), *_folded(f"return {text}")]

    def _drafted(self, op: Op) -> _Draft:
        """The call of an op; of its sources those get names first that it could not have in it and be read well."""
        read = sources(op)
        is_light = _is_light(op)
        for slot in read:
            if not is_light and self._drafts[slot].works:
                self._put(slot)
        while True:
            values = [self._value(slot) for slot in read]
            if isinstance(op, Diagonal) and self._is_view:
                text = self._spelling.diagonal_view(values[0], op.axis1, op.axis2)
            else:
                text = self._spelling.spell(op, values)
            drafts = [self._drafts[slot] for slot in read]
            unnamed = [slot for slot, draft in zip(read, drafts) if not draft.is_name]
            if len(text) + _INDENT + len("return ") <= _COLUMNS or not unnamed:
                break
            self._put(max(unnamed, key=lambda slot: len(self._drafts[slot].text)))
        reason = op.reason if isinstance(op, Transpose | Diagonal | Copy) else ""
        return _Draft(
            text,
            False,
            not is_light or any(draft.works for draft in drafts),
            tuple(dict.fromkeys((*(why for draft in drafts for why in draft.copies), *filter(None, [reason])))),
            tuple(slot for draft in drafts for slot in draft.reads),
        )

    def _value(self, slot: int) -> Value:
        return Value(self._drafts[slot].text, self._shapes[slot], self._dtypes[slot])

    def _put(self, slot: int) -> None:
        """Give a value a name, in a statement; what is not read any more, and large, is let go."""
        draft = self._drafts[slot]
        self._count += 1
        name = f"x{self._count}"
        lines = _folded(f"{name} = {draft.text}")
        about = _comment(f"{numbers(self._shapes[slot])} {self._dtypes[slot]}", *_copies(draft))
        if len(lines) == len(about) == 1 and len(f"{lines[0]}  {about[0]}") + _INDENT <= _COLUMNS:
            self._lines.append(f"{lines[0]}  {about[0]}")
        else:
            self._lines += [*about, *lines]
        self._drafts[slot] = _Draft(name, True, reads=(slot,))
        for read in draft.reads:
            self._unread[read] -= 1
        gone = [read for read in dict.fromkeys(draft.reads) if not self._unread[read] and self._is_large(read)]
        if gone:
            self._lines.append(f"del {', '.join(self._drafts[read].text for read in gone)}")

    def _is_large(self, slot: int) -> bool:
        """Whether a value is an intermediate that takes much memory."""
        is_operand = slot < len(self._plan.operands)
        return not is_operand and prod(self._shapes[slot]) * itemsize(self._dtypes[slot]) >= _LARGE


def _is_light(op: Op) -> bool:
    """Whether a call may stand within another one: a view or a cast."""
    if isinstance(op, Transpose | Diagonal):
        return not op.reason
    return isinstance(op, Reshape | Expand | First | Cast)


_LETTERS = ascii_lowercase.replace("l", "")  # which looks like 1 and I


def _operand_names(count: int, taken: str) -> tuple[str, list[str]]:
    """The parameters of a function, and what operands are called in it: letters as far as they go.

    >>> _operand_names(3, "b"), _operand_names(26, "np")[1][-1]
    (('a, c, d', ['a', 'c', 'd']), 'a[25]')
    """
    letters = [letter for letter in _LETTERS if letter != taken]
    if count <= len(letters):
        return ", ".join(letters[:count]), letters[:count]
    return f"*{letters[0]}", [f"{letters[0]}[{number}]" for number in range(count)]


# -- lines ------------------------------------------------------------------------------------------------------


def _docstring(plan: Program, names: Sequence[str]) -> list[str]:
    """The equation, and what the function takes and gives."""
    equation = plan.equation
    width = _COLUMNS - 2 * _INDENT
    if len(equation) > width:
        equation = equation.replace(",", ", ")
    first, *others = map(_quoted, wrap(visible(equation), width) or [""])
    alike: dict[str, list[str]] = {}
    for name, operand in zip(names, plan.operands):
        alike.setdefault(_described(operand), []).append(name)
    lines = [f"{', '.join(found)}: {about}" for about, found in alike.items()]
    lines.append(f"result: {numbers(plan.shape)} {plan.dtype}")
    return [f'"""{first}', *others, "", *(part for line in lines for part in wrap(line, _COLUMNS - _INDENT)), '"""']


def _described(operand: Operand) -> str:
    """Shape and dtype, and that an operand has to repeat itself where the plan counts on it."""
    steps = operand.strides or ()
    flat = [axis for axis, (size, step) in enumerate(zip(operand.shape, steps)) if step == 0 and size > 1]
    alike = f", the same all along axis {' and '.join(map(str, flat))}" if flat else ""
    return f"{numbers(operand.shape)} {operand.dtype}{alike}"


def _quoted(text: str) -> str:
    """Text that neither ends the string around it nor begins an escape."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _copies(draft: _Draft) -> list[str]:
    return [f"a copy: {visible(reason)}" for reason in draft.copies]


def _comment(*notes: str) -> list[str]:
    """Lines of a comment; none where there is nothing to say."""
    return wrap("; ".join(notes), _COLUMNS - _INDENT, initial_indent="# ", subsequent_indent="# ")


def _folded(line: str, indent: int = _INDENT) -> list[str]:
    """A statement in lines, as formatters lay it out: where it is too long, what is in its last brackets is below it.

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
    """Where the brackets begin that end a text."""
    depth = 0
    for place in reversed(range(len(text))):
        depth += (text[place] in ")]") - (text[place] in "([")
        if not depth:
            return place
    return 0


def _items(text: str) -> list[str]:
    """What commas separate, but for those within brackets.

    >>> _items("a.reshape(2, 3), b, axis=(0, 1)")
    ['a.reshape(2, 3)', 'b', 'axis=(0, 1)']
    """
    found: list[str] = []
    depth = 0
    for part in text.split(", "):
        if depth:
            found[-1] += f", {part}"
        else:
            found.append(part)
        depth += sum((letter in "([") - (letter in ")]") for letter in part)
    return found


# -- whether it can be written ------------------------------------------------------------------------------------


def _check_name(name: str, spelling: Spelling) -> None:
    taken = iskeyword(name) or hasattr(builtins, name) or name == spelling.name
    if not name.isascii() or not name.isidentifier() or taken:
        raise ValueError(f"name={name!r} is no name for a function here; give another one, of ASCII letters")


def _check_spelled(op: Op, adapter: Adapter) -> None:
    """Raise BackendError where an adapter has a primitive of its own that the spelling it inherits knows nothing of."""
    primitive = type(op).__name__.lower()
    for parent in type(adapter).__mro__:
        if "spelling" in vars(parent):
            return
        if primitive in vars(parent):
            raise BackendError(
                f"the backend {adapter.name} has its own {primitive}, and nothing says how that is written as code: "
                f"its adapter's spelling() must give a subclass of einsumx.Spelling with its own {primitive}"
            )
