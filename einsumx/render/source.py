"""A plan as source code: a short function that depends on its framework alone."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from keyword import iskeyword
from math import prod
from string import ascii_lowercase
from textwrap import wrap
from types import MappingProxyType

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import semirings_of
from einsumx.algebra.semiring import SemiringAlgebra
from einsumx.errors import REFUSALS, BackendError, EinsumxError, visible
from einsumx.ir import ops
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.render.recorder import Code, import_statement, recording

_COLUMNS, _INDENT = 100, 4
"""The width of the code, and of an indent."""

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
        EinsumxError: the ops do not fit together.
    """
    framework, module = recording(adapter)
    _check_name(name, module)
    parameters, names = _operand_names(len(program.operands), module)
    statement = import_statement(adapter)
    imports, first = ("", statement) if "{" in statement else (statement, "")
    body = [*filter(None, [first.format(operand=names[0])]), *_body(program, framework, names)]
    helper: list[str] = []
    if isinstance(program.algebra, SemiringAlgebra) and any("product(" in line for line in body):
        if name == "product":
            raise ValueError(f"name={name!r} cannot name the function; the code has another one of that name")
        helper = _product_lines(framework, program.algebra, program.dtype, first.format(operand="a"))
    helper += filter(None, [framework.decorator([each.shape for each in program.values])])
    is_used = imports and re.search(rf"\b{module}\.", "\n".join([*helper, *body]))
    lines = [
        *([imports, "", ""] if is_used else []),
        *helper,
        *_folded(f"def {name}({parameters}):", 0),
        *_indented([*_docstring(program, names), *body]),
    ]
    return "\n".join(lines) + "\n"


def _body(program: Program, framework: Adapter, names: Sequence[str]) -> list[str]:
    """The statements of the function; each contains one call that computes, with the views around it."""
    algebra, described = program.algebra, program.values

    def kernel(op: ops.Op) -> Callable[..., Code]:
        read = [described[slot].shape for slot in op.sources]
        if isinstance(op, ops.Matmul) and not algebra.is_plain:
            return _product_call(framework, *read)
        return algebra.kernel(framework, op, read, described[op.sources[0]].dtype)

    def known(code: Code, slot: int) -> Code:
        value = described[slot]
        return Code(*code.parts, dtype=framework.dtype(value.dtype), shape=value.shape, works=code.works)

    values = {slot: known(Code(name), slot) for slot, name in enumerate(names)}
    sources: dict[int, list[Code]] = {}
    reasons: dict[int, str] = {}
    for op in program.ops:
        arrays = [values[slot] for slot in op.sources]
        value = values[op.out] = known(_recorded(framework, kernel(op), arrays), op.out)
        if op.effect != "view" and not isinstance(op, ops.Cast):
            sources[id(value)] = arrays
        if isinstance(op, ops.Transpose | ops.Diagonal | ops.Copy) and op.reason:
            reasons[id(value)] = f"a copy: {visible(op.reason)}"
    made = [op.out for op in program.ops]
    abouts = {id(values[slot]): visible(f"{described[slot].shape} {described[slot].dtype}") for slot in made}
    large = {id(values[slot]) for slot in made if described[slot].nbytes >= _LARGE}
    codes = [*(values[slot] for slot in made), values[program.result]]
    if not program.shape:
        codes.append(_recorded(framework, framework.element, codes[-1:]))
    return _statements(codes, sources, abouts, reasons, large)


def _recorded(framework: Adapter, kernel: Callable[..., Code], arrays: Sequence[Code]) -> Code:
    """The calls of a kernel on arrays."""
    try:
        return kernel(*arrays)
    except EinsumxError:
        raise
    except REFUSALS as error:
        raise BackendError(
            f"{framework.name}: a primitive of this plan calls more than functions of self.xp and methods of arrays, "
            f"so it cannot be written as code ({type(error).__name__}: {error}); public_class() of the adapter must "
            "return a class whose primitives do not"
        ) from error


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


def _docstring(program: Program, names: Sequence[str]) -> list[str]:
    equation = program.equation
    width = _COLUMNS - 2 * _INDENT
    if len(equation) > width:
        equation = equation.replace(",", ", ")
    first, *others = map(_quoted, wrap(visible(equation), width) or [""])
    by_description: dict[str, list[str]] = {}
    for name, operand in zip(names, program.operands):
        by_description.setdefault(_description(operand), []).append(name)
    lines = [f"{', '.join(group)}: {description}" for description, group in by_description.items()]
    result = f"{program.shape} {program.dtype}{program.algebra.text}"
    lines.append(f"result: {_quoted(visible(result))}")
    return [f'"""{first}', *others, "", *(part for line in lines for part in wrap(line, _COLUMNS - _INDENT)), '"""']


def _description(operand: Operand) -> str:
    """Shape and dtype, and the axes along which the plan requires constant values."""
    strides = operand.strides or ()
    expanded = [axis for axis, (size, stride) in enumerate(zip(operand.shape, strides)) if stride == 0 and size > 1]
    constant = f", constant along axis {' and '.join(map(str, expanded))}" if expanded else ""
    return _quoted(visible(f"{operand.shape} {operand.dtype}{constant}"))


def _quoted(text: str) -> str:
    """Text that is safe inside a triple-quoted string."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _check_name(name: str, module: str) -> None:
    taken = iskeyword(name) or hasattr(builtins, name) or name == module
    if not name.isascii() or not name.isidentifier() or taken:
        raise ValueError(f"name={name!r} cannot name the function; use another name, of ASCII letters")


# -- products in a semiring, by a function beside the plan's ------------------------------------------------------

_TERMS = 1 << 20
"""The most terms of the sums of a product at a time."""


def _product_call(framework: Adapter, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> Callable[[Code, Code], Code]:
    """The call of the function on operands of these shapes, of which vectors become matrices."""
    batch = prod(max(lhs[:-2], rhs[:-2], key=prod))
    columns = rhs[-1] if len(rhs) > 1 else 1
    rows = [] if semirings_of(framework).fuses_terms else [max(1, _TERMS // max(1, batch * lhs[-1] * columns))]

    def call(left: Code, right: Code) -> Code:
        product = Code("product")(
            left[None] if len(lhs) == 1 else left, right[..., None] if len(rhs) == 1 else right, *rows
        )
        if min(len(lhs), len(rhs)) > 1:
            return product
        first, last = (0 if len(shape) == 1 else slice(None) for shape in (lhs, rhs))
        return product[..., first, last]

    return call


def _product_lines(framework: Adapter, semiring: SemiringAlgebra, dtype: str, opening: str) -> list[str]:
    """The lines of the function, which reduces the broadcast terms of some rows at a time.

    Args:
        framework: records the calls.
        semiring: of the product.
        dtype: of the operands.
        opening: the first statement, if any.
    """
    functions = semirings_of(framework)
    a, b, every, fuses = Code("a"), Code("b"), slice(None), functions.fuses_terms
    rows = every if fuses else Code("i : i + rows")
    terms = functions.elementwise(semiring.multiply, a[..., rows, every, None], b[..., None, every, every])
    sums = functions.reduced(semiring.add, Code("terms", dtype=framework.dtype(dtype)), (-2,))
    *lines, result = _statements([sums], room=70)
    lines.insert(0, f"terms = {terms.text()}")
    about = f"The product of matrices by {semiring.add} and {semiring.multiply}"
    if fuses:
        lines.append(result)
    else:
        about += ", in blocks of rows"
        loop = "for i in range(0, a.shape[-2] or 1, rows):"
        joined = functions.named("concat")(Code("parts"), axis=-2).text()
        appended = f"parts.append({result.removeprefix('return ')})"
        lines = ["parts = []", loop, *_indented([*lines, appended]), f"return {joined}"]
    mode = functions.mode(a)
    if isinstance(mode, Code):
        lines = [f"with {mode.text()}:", *_indented(lines)]
    head = f"def product(a, b{'' if fuses else ', rows'}):"
    return [head, *_indented([f'"""{about}."""', *filter(None, [opening]), *lines]), "", ""]


def _indented(lines: list[str]) -> list[str]:
    return [f"{' ' * _INDENT}{line}".rstrip() for line in lines]


# -- statements, laid out as formatters do it ---------------------------------------------------------------------


def _statements(
    codes: Sequence[Code],
    sources: Mapping[int, Sequence[Code]] = MappingProxyType({}),
    abouts: Mapping[int, str] = MappingProxyType({}),
    reasons: Mapping[int, str] = MappingProxyType({}),
    large: Container[int] = (),
    room: int = _COLUMNS - _INDENT - len("return "),
) -> list[str]:
    """The lines that compute expressions in their order and return the last one.

    A part of an expression has a statement of its own if it occurs more than once, if it is the source of a call that
    computes and contains another one, or so that the rest of the expression fits a line.

    Args:
        codes: the expressions.
        sources: of the calls that compute, by the ``id`` of their expression.
        abouts: comments on the statements of expressions, by ``id``.
        reasons: comments on the statements that contain expressions, by ``id``.
        large: the ``id`` of expressions to delete after their last use.
        room: the columns that an expression may take.

    >>> a = Code("a")
    >>> largest = Code("np").max(a, axis=0)
    >>> _statements([largest + Code("np").exp(a - largest)])
    ['x1 = np.max(a, axis=0)', 'return x1 + np.exp(a - x1)']
    """
    every: dict[int, Code] = {}
    for code in codes:
        every.update((id(part), part) for part in (*code.inner(every), code))
    uses = Counter(id(part) for code in every.values() for part in code.parts)
    names = {key: "x99" for key, part in every.items() if part.works and uses[key] > 1}
    whole = set(map(id, codes))
    for key, code in every.items():
        for source in sources.get(key, ()):
            if id(source) not in names and any(id(part) in sources for part in (source, *source.inner(names))):
                names[id(source)] = "x99"
        while (key in whole or key in names) and len(code.text(names)) > room:
            sizes = {id(part): len(part.text(names)) for part in code.inner(names) if part.works}
            if not sizes:
                break
            names[max(sizes, key=lambda part: (sizes[part] <= room, sizes[part]))] = "x99"
    made: list[list[str]] = []

    def add(start: str, code: Code, notes: list[str]) -> None:
        copies = dict.fromkeys(reasons[id(part)] for part in (*code.inner(names), code) if id(part) in reasons)
        text = code.text(names)
        is_bare = code.parts[0] == "(" and len(start + text) + _INDENT <= _COLUMNS
        made.append(_commented(_folded(start + (text[1:-1] if is_bare else text)), [*notes, *copies]))

    for key, code in every.items():
        if key in names:
            names[key] = f"x{len(made) + 1}"
            add(f"{names[key]} = ", code, [abouts[key]] if key in abouts else [])
    last = codes[-1]
    add("return ", Code(last) if id(last) in names else last, [])
    return _with_deletions(made, [name for key, name in names.items() if key in large])


def _commented(lines: list[str], notes: Iterable[str]) -> list[str]:
    """A statement with its comments, behind it if there is room."""
    about = wrap("; ".join(notes), _COLUMNS - _INDENT, initial_indent="# ", subsequent_indent="# ")
    if len(lines) == len(about) == 1 and not lines[0].startswith("return "):
        both = f"{lines[0]}  {about[0]}"
        if len(both) + _INDENT <= _COLUMNS:
            return [both]
    return [*about, *lines]


def _with_deletions(made: Sequence[list[str]], names: Iterable[str]) -> list[str]:
    """The lines of statements, with deletions of variables after those that use them last; the last one is a return."""
    unused: dict[int, list[str]] = {}
    last = {name: place for place, lines in enumerate(made) for name in re.findall(r"\bx\d+\b", "\n".join(lines))}
    for name in names:
        unused.setdefault(last[name], []).append(name)
    lines = []
    for place, statement in enumerate(made):
        lines += statement
        if place in unused and place < len(made) - 1:
            lines.append(f"del {', '.join(unused[place])}")
    return lines


def _folded(line: str, indent: int = _INDENT) -> list[str]:
    """The lines of a statement: if it is too long, its last brackets are split.

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
    start, depth = end, 1
    while depth:
        start -= 1
        depth += (line[start] in ")]") - (line[start] in "([")
    inside = [line[start + 1 : end]]
    if indent + _INDENT + len(inside[0]) > _COLUMNS:
        inside = [f"{item}," for item in _items(inside[0])]
    below = [part for item in inside for part in _folded(item, indent + _INDENT)]
    return [line[: start + 1], *_indented(below), line[end:]]


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
