"""Statements that compute recorded expressions, laid out as formatters do it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType

from einsumx.render.recorder import Code

__all__ = ["COLUMNS", "INDENT", "folded", "statements"]

COLUMNS = 100
INDENT = 4


def statements(
    codes: Sequence[Code],
    sources: Mapping[int, Sequence[Code]] = MappingProxyType({}),
    abouts: Mapping[int, str] = MappingProxyType({}),
    reasons: Mapping[int, str] = MappingProxyType({}),
    large: Container[int] = (),
    room: int = COLUMNS - INDENT - len("return "),
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
    >>> statements([largest + Code("np").exp(a - largest)])
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
        is_bare = code.parts[0] == "(" and len(start + text) + INDENT <= COLUMNS
        made.append(_commented(folded(start + (text[1:-1] if is_bare else text)), [*notes, *copies]))

    for key, code in every.items():
        if key in names:
            names[key] = f"x{len(made) + 1}"
            add(f"{names[key]} = ", code, [abouts[key]] if key in abouts else [])
    last = codes[-1]
    add("return ", Code(last) if id(last) in names else last, [])
    return _with_deletions(made, [name for key, name in names.items() if key in large])


def _commented(lines: list[str], notes: Iterable[str]) -> list[str]:
    """A statement with its comments, behind it if there is room."""
    about = wrap("; ".join(notes), COLUMNS - INDENT, initial_indent="# ", subsequent_indent="# ")
    if len(lines) == len(about) == 1 and not lines[0].startswith("return "):
        both = f"{lines[0]}  {about[0]}"
        if len(both) + INDENT <= COLUMNS:
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


def folded(line: str, indent: int = INDENT) -> list[str]:
    """The lines of a statement: if it is too long, its last brackets are split.

    >>> for line in folded(f"x1 = np.reshape({'a' * 40}, {'b' * 40})", 8):
    ...     print(line)
    x1 = np.reshape(
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
    )
    """
    end = line.rfind(")")
    while end > 0 and line[end - 1] == "(":
        end = line.rfind(")", 0, end)
    if indent + len(line) <= COLUMNS or end < 0:
        return [line]
    start, depth = end, 1
    while depth:
        start -= 1
        depth += (line[start] in ")]") - (line[start] in "([")
    inside = [line[start + 1 : end]]
    if indent + INDENT + len(inside[0]) > COLUMNS:
        inside = [f"{item}," for item in _items(inside[0])]
    below = [f"{' ' * INDENT}{part}" for item in inside for part in folded(item, indent + INDENT)]
    return [line[: start + 1], *below, line[end:]]


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
