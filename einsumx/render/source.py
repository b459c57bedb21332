"""A plan as source code: a short function that depends on its framework alone."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from math import prod
from string import ascii_lowercase
from textwrap import wrap

from einsumx.adapters.base import Adapter
from einsumx.dtypes import itemsize
from einsumx.errors import BackendError, EinsumxError, visible
from einsumx.ir import ops
from einsumx.ir.cost import slot_dtypes
from einsumx.ir.program import Operand, Program
from einsumx.ir.text import in_algebra
from einsumx.ir.verify import replay
from einsumx.render.recorder import Code, bare, import_statement, opening, recording, statements
from einsumx.render.semiring_product import product_call, product_lines
from einsumx.runtime.checks import check_fits, check_plan
from einsumx.runtime.request import adapter_in

__all__ = ["plan_source"]

_COLUMNS = 100
_INDENT = 4

_LARGE = 1 << 20
"""Intermediates of this many bytes or more get a ``del`` statement after their last use."""


def plan_source(program: Program, adapter: Adapter, name: str = "contraction") -> str:
    """The code of a function that runs the same calls as ``program``.

    Args:
        program: a program for the adapter's framework.
        adapter: the framework's own adapter, whose primitives are recorded.
        name: the name of the function.

    Raises:
        ValueError: ``name`` is no valid function name, or the code uses that name itself.
        BackendError: a primitive calls more than functions and methods of the framework.
        EinsumxError: a field of the program is invalid, or the ops do not compute the equation.
    """
    check_plan(program)
    check_fits(program, adapter_in(adapter, program.semiring).traits(program.device))
    recorded, module = recording(adapter)
    _check_name(name, module)
    parameters, names = _operand_names(len(program.operands), module)
    shapes = replay(program.ops, [operand.shape for operand in program.operands])
    statement = import_statement(adapter)
    imports, first = ([], statement) if "{" in statement else ([statement, "", ""], "")
    function = _Function(program, recorded, names, shapes)
    body = [*([first.format(operand=names[0])] if first else []), *function.statements()]
    helper = function.helper(first.format(operand="a"))
    if any(line.startswith(f"def {name}(") for line in helper):
        raise ValueError(f"name={name!r} cannot name the function; the code has another one of that name")
    decorator = recorded.decorator(list(shapes.values()))
    if not re.search(rf"\b{module}\.", "\n".join([*helper, decorator, *body])):
        imports = []
    lines = [
        *imports,
        *helper,
        *filter(None, [decorator]),
        *_folded(f"def {name}({parameters}):", 0),
        *(f"{' ' * _INDENT}{line}".rstrip() for line in [*_docstring(program, names), *body]),
    ]
    return "\n".join(lines) + "\n"


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
        self, program: Program, framework: Adapter, names: Sequence[str], shapes: dict[int, tuple[int, ...]]
    ) -> None:
        self._program, self._framework, self._shapes = program, framework, shapes
        self._adapter = adapter_in(framework, program.semiring)
        self._has_product = False
        self._dtypes = slot_dtypes(program)
        self._values = {slot: _Expression(name, True, reads=(slot,)) for slot, name in enumerate(names)}
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
        value = self._values[result]
        if not self._program.shape:
            value = replace(value, text=self._text(self._record(self._framework.element, [result])))
        return [*self._lines, *_comment(*_copies(value)), *_statement("return ", value.text)]

    def helper(self, opening: str) -> list[str]:
        """The lines of the function that multiplies matrices in a semiring, if the statements call it."""
        semiring = self._program.semiring
        if semiring is None or not self._has_product:
            return []
        return product_lines(self._framework, semiring, self._dtypes[self._program.result], opening)

    def _expression(self, op: ops.Op) -> _Expression:
        """The call of an op. Sources that would make it hard to read are assigned to variables first."""
        is_light = _is_light(op)
        for slot in op.sources:
            if not is_light and self._values[slot].works:
                self._assign(slot)
        kernel = self._kernel(op)
        while True:
            code = self._record(kernel, op.sources)
            unnamed = [slot for slot in op.sources if not self._values[slot].is_name]
            if len(code.text()) + _INDENT + len("return ") <= _COLUMNS or not unnamed:
                break
            self._assign(max(unnamed, key=lambda slot: len(self._values[slot].text)))
        sources = [self._values[slot] for slot in op.sources]
        reasons = [reason for source in sources for reason in source.copies]
        if isinstance(op, ops.Transpose | ops.Diagonal | ops.Copy) and op.reason:
            reasons.append(op.reason)
        return _Expression(
            self._text(code),
            is_name=False,
            works=not is_light or any(source.works for source in sources),
            copies=tuple(dict.fromkeys(reasons)),
            reads=tuple(slot for source in sources for slot in source.reads),
        )

    def _kernel(self, op: ops.Op) -> Callable[..., Code]:
        shapes = [self._shapes[slot] for slot in op.sources]
        if isinstance(op, ops.Matmul) and self._adapter is not self._framework:
            self._has_product = True
            return product_call(self._framework, *shapes)
        return Adapter.kernel(self._adapter, op, shapes, self._dtypes[op.sources[0]])

    def _record(self, kernel: Callable[..., Code], slots: Sequence[int]) -> Code:
        """What a kernel calls on values. Those that it uses more than once are assigned to variables first."""
        while True:
            arrays = [self._code(slot) for slot in slots]
            try:
                code = kernel(*arrays)
                _, shared = code.parts()
            except EinsumxError:
                raise
            except Exception as error:
                raise BackendError(
                    f"{self._framework.name}: a primitive of this plan calls more than functions of self.xp and "
                    f"methods of arrays, so it is no code ({type(error).__name__}: {error}); public_class() of the "
                    "adapter must return a class whose primitives do not"
                ) from error
            unnamed = [(slot, array) for slot, array in zip(slots, arrays) if not self._values[slot].is_name]
            used = [slot for slot, array in unnamed if array in shared]
            if not used:
                return code
            for slot in used:
                self._assign(slot)

    def _text(self, code: Code) -> str:
        """An expression, after statements for its parts that occur more than once."""
        parts, rest = statements(code, _COLUMNS - _INDENT - len("return "), self._count + 1)
        self._count += len(parts)
        self._lines += [line for name, text in parts for line in _statement(f"{name} = ", text)]
        return rest

    def _code(self, slot: int) -> Code:
        dtype = self._framework.dtype(self._dtypes[slot])
        return Code(self._values[slot].text, dtype=dtype, shape=self._shapes[slot])

    def _assign(self, slot: int) -> None:
        """Assign a value to a variable; delete large variables that are not read any more."""
        value = self._values[slot]
        self._count += 1
        name = f"x{self._count}"
        lines = _statement(f"{name} = ", value.text)
        about = _comment(f"{self._shapes[slot]} {self._dtypes[slot]}", *_copies(value))
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
    lines.append(f"result: {program.shape} {program.dtype}{_quoted(visible(in_algebra(program.semiring)))}")
    return [f'"""{first}', *others, "", *(part for line in lines for part in wrap(line, _COLUMNS - _INDENT)), '"""']


def _description(operand: Operand) -> str:
    """Shape and dtype, and the axes along which the plan requires constant values."""
    strides = operand.strides or ()
    expanded = [axis for axis, (size, stride) in enumerate(zip(operand.shape, strides)) if stride == 0 and size > 1]
    constant = f", constant along axis {' and '.join(map(str, expanded))}" if expanded else ""
    return f"{operand.shape} {operand.dtype}{constant}"


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
    start = opening(line[: end + 1])
    inside = [line[start + 1 : end]]
    if indent + _INDENT + len(inside[0]) > _COLUMNS:
        inside = [f"{item}," for item in _items(inside[0])]
    below = [f"{' ' * _INDENT}{part}" for item in inside for part in _folded(item, indent + _INDENT)]
    return [line[: start + 1], *below, line[end:]]


def _statement(start: str, text: str) -> list[str]:
    """The lines of a statement with an expression at its end, without brackets around all of that if they fit one."""
    return _folded(start + (bare(text) if len(start + text) + _INDENT <= _COLUMNS else text))


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


def _check_name(name: str, module: str) -> None:
    taken = iskeyword(name) or hasattr(builtins, name) or name == module
    if not name.isascii() or not name.isidentifier() or taken:
        raise ValueError(f"name={name!r} cannot name the function; use another name, of ASCII letters")
