"""Plans as pictures: SVG written as text, with the contraction tree, what each op takes, and memory over time.

Rows are in the order in which they happen. On the left, lines lead from each value to what takes it; on the right,
bars show the memory that is alive meanwhile. What is written has no scripts and needs nothing from elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from html import escape
from itertools import groupby
from math import ceil, prod
from pathlib import Path
from typing import TypeAlias
from unicodedata import east_asian_width

from einsumx.dtypes import itemsize
from einsumx.errors import EinsumxError, shown, visible
from einsumx.ir.text import quantity
from einsumx.render.timeline import Kind, Names, Row, Timeline
from einsumx.runtime.files import write_text

__all__ = ["Box", "Drawing", "Layout", "Mark", "Placed", "layout"]

SIZE, TITLE = 12.0, 14.0
"""Sizes of letters."""

_LETTER = 0.602
"""The width of a letter in times of its size, as most monospaced fonts have it; others are stretched to it."""

_LINE, _MARGIN, _GAP = 16.0, 16.0, 22.0
_BARS, _NARROW = 232.0, 880.0
_MIDDLE, _BASE = SIZE * 0.625, SIZE * 0.95
"""Where a line of text has its middle, and where its letters stand."""

_WIDE, _CLOSE = (16.0, 2.0, 14.0), (15.0, 0.0, 10.0)
"""Of rows, and of many of them: the height of a line, the room above and below, and the width of a lane of the tree."""

_SHRUNK = 0.8
_CALL, _AXES = 50, 46
"""Letters after which a column goes on in the next line."""

_MANY = 48
"""Rows from which they are set closer, and a view stands in the row of what it looks at."""

_FAR = 3
"""How many times the peak a limit may be, to be drawn."""

_COLOURS = {
    "ground": ("#ffffff", "#14171a"),
    "band": ("#f3f5f8", "#1d2227"),
    "text": ("#1c2024", "#e4e7ea"),
    "quiet": ("#5c636a", "#9da5ad"),
    "line": ("#7a8591", "#7b8691"),
    "work": ("#0b5cad", "#7db8f0"),
    "copy": ("#9a4700", "#f2b35c"),
    "native": ("#7a3fb0", "#cba6f2"),
    "base": ("#c3ccd6", "#414c57"),
    "made": ("#3b82c4", "#4a8fd4"),
    "limit": ("#b01818", "#ff9a9a"),
}
"""Of each kind of thing, in light and in dark."""

_LIGHT = ":is(body[data-jp-theme-light=true],body.vscode-light,html[theme=light],[data-md-color-scheme=default])"
_DARK = ":is(body[data-jp-theme-light=false],body.vscode-dark,html[theme=dark],[data-md-color-scheme=slate])"
"""How Jupyter, VS Code, Colab and mkdocs tell that a page is light or dark, whatever the reader's system is."""

_MEANINGS: dict[Kind, str] = {
    "operand": "operand",
    "work": "arithmetic",
    "view": "view, which is free",
    "copy": "copy, with its reason",
    "native": "the framework's own einsum",
    "result": "result",
}

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 110rem; font: 0.9375rem/1.45 system-ui, sans-serif;
  background: #ffffff; color: #1c2024; }}
h1 {{ font-size: 1.375rem; margin: 0 0 1rem; }}
h2 {{ font-size: 1.125rem; margin: 2rem 0 0.5rem; }}
.wide {{ overflow-x: auto; border: 1px solid #d5dae0; border-radius: 4px; }}
.wide:focus-visible {{ outline: 2px solid #0b5cad; }}
pre {{ font: 0.8125rem/1.5 ui-monospace, monospace; margin: 0; padding: 0.75rem 1rem; }}
table {{ border-collapse: collapse; font: 0.8125rem/1.4 ui-monospace, monospace; width: 100%; }}
th, td {{ text-align: left; padding: 0.25rem 0.75rem; vertical-align: top; border-bottom: 1px solid #d5dae0; }}
th {{ font-weight: 600; }}
tbody th {{ font-weight: normal; }}
.number {{ text-align: right; white-space: nowrap; }}
.copy {{ color: #9a4700; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #14171a; color: #e4e7ea; }}
  .wide, th, td {{ border-color: #343b42; }}
  .copy {{ color: #f2b35c; }}
}}
</style>
</head>
<body>
<h1>A contraction as einsumx runs it</h1>
<main>
<div class="wide" tabindex="0" role="region" aria-label="picture of the plan">
{picture}</div>
<h2>The plan</h2>
<div class="wide" tabindex="0" role="region" aria-label="text of the plan"><pre>{text}</pre></div>
<h2>What runs</h2>
<div class="wide" tabindex="0" role="region" aria-label="table of what runs"><table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}</tbody>
</table></div>
</main>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plan as a picture: notebooks show it, and :meth:`save` writes it.

    Attributes:
        timeline: what is drawn.

    >>> import einsumx
    >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).draw().svg[:48]
    '<svg xmlns="http://www.w3.org/2000/svg" class="e'
    """

    timeline: Timeline

    @property
    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        return _svg(self.timeline, layout(self.timeline))

    @property
    def html(self) -> str:
        """A page that needs nothing else: the picture, the text of the plan, and a table of what runs."""
        found = self.timeline
        has_times = _has_times(found)
        heads = ["what runs", "axes", "sums over", "dtype", "multiply-adds", "makes", "alive", "remark"]
        heads[1:1] = ["times"] if has_times else []
        return _PAGE.format(
            title=_safe(found.equation),
            picture=self.svg,
            text=_safe(found.text),
            heads="".join(f'<th scope="col"{_NUMBER * (head in _NUMBERS)}>{head}</th>' for head in heads),
            rows="".join(_table_row(found, row, has_times) for row in found.rows),
        )

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        themes = _rules(0, _LIGHT) + _rules(1, _DARK)
        return f'<div style="overflow:auto;max-height:50rem"><style>{themes}</style>{self.svg}</div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a ``.svg`` file, or the page to a ``.html`` file, in one step.

        Raises:
            EinsumxError: the file's name ends in something else.
            OSError: it cannot be written.
        """
        target = Path(path)
        match target.suffix.lower():
            case ".svg":
                write_text(target, self.svg)
            case ".html":
                write_text(target, self.html)
            case _:
                raise EinsumxError(f"pictures are saved as .svg or .html, and {shown(str(target))} ends in neither")


_NUMBER, _NUMBERS = ' class="number"', ("times", "multiply-adds", "makes", "alive")


def _table_row(found: Timeline, row: Row, has_times: bool) -> str:
    work = quantity(row.multiply_adds) if row.multiply_adds else ""
    made = quantity(row.made, "B") if row.made else ""
    alive = quantity(found.base + row.held, "B")
    cells = [(_axes_text(row.axes) or "scalar", ""), (_axes_text(row.summed), ""), (row.dtype, "")]
    cells += [(work, _NUMBER), (made, _NUMBER), (alive, _NUMBER)]
    cells.append((row.remark, ' class="copy"' if row.kind == "copy" else ""))
    cells[0:0] = [(f"{row.times}", _NUMBER)] if has_times else []
    written = "".join(f"<td{style}>{_safe(text)}</td>" for text, style in cells)
    return f'<tr><th scope="row">{_safe(row.call)}</th>{written}</tr>\n'


# -- where everything is ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    """A line of text, and the room that it takes.

    Attributes:
        x, y: its upper left corner.
        text: what it says.
        style: how: a name of :data:`_COLOURS`, and ``strong``.
        size: of its letters.
    """

    x: float
    y: float
    text: str
    style: str = "text"
    size: float = SIZE

    @property
    def width(self) -> float:
        return _width(self.text) * self.size * _LETTER

    @property
    def height(self) -> float:
        return self.size * 1.25


@dataclass(frozen=True, slots=True)
class Placed:
    """A row in its place, and the views that stand in it.

    Attributes:
        rows: what it says.
        x, y: of its node.
        top, bottom: where it begins and ends.
        boxes: its texts.
    """

    rows: tuple[Row, ...]
    x: float
    y: float
    top: float
    bottom: float
    boxes: tuple[Box, ...]

    @property
    def row(self) -> Row:
        """What the others are views of."""
        return self.rows[0]


@dataclass(frozen=True, slots=True)
class Mark:
    """A symbol of the legend: that of a kind of row, or a colour of the bars."""

    kind: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture, all places known.

    Attributes:
        width, height: of the whole.
        boxes: texts that belong to no row.
        marks: the legend's.
        rows: those of the plan.
        top: where they begin.
        work: where the column of multiply-adds begins, and how wide it is.
        bars: where the bars of memory begin.
        scale: how wide a byte is in these.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    marks: tuple[Mark, ...]
    rows: tuple[Placed, ...]
    top: float
    work: tuple[float, float]
    bars: float
    scale: float

    @property
    def texts(self) -> tuple[Box, ...]:
        """Every text of the picture."""
        return (*self.boxes, *(box for placed in self.rows for box in placed.boxes))


Cell: TypeAlias = list[tuple[str, str]]
"""Lines of text, each with its style."""

_WORK, _ALIVE = 3, 5
"""Columns of multiply-adds and of memory."""


def layout(found: Timeline) -> Layout:
    """Find a place for everything, so that no two texts meet and none is cut off."""
    lanes = _lanes(found.rows)
    dense = len(found.rows) > _MANY
    groups = _groups(found, lanes) if dense else [(place,) for place in range(len(found.rows))]
    line, pad, lane = _CLOSE if dense else _WIDE
    heads, cells = _heads(found), list(_cells(found, [[found.rows[place] for place in group] for group in groups]))
    starts: list[float] = []
    widths: list[float] = []
    x = _MARGIN + lane * (max(lanes) + 1) + 6
    for column in zip(heads, *cells):
        bars = float(round(x))
        x += _BARS + 10 if len(starts) == _ALIVE else 0
        starts.append(x)
        # What is over the bars is written over them alone.
        texts = [text for cell in (column[1:] if len(starts) > _ALIVE else column) for text, _ in cell]
        widths.append(max(map(_width, texts)) * SIZE * _LETTER)
        x += widths[-1] + (_GAP if widths[-1] else 0)
    width = float(ceil(max(x - _GAP + _MARGIN, _NARROW)))
    boxes, marks, y = _header(found, width)
    boxes += [box for cell, start in zip(heads, [*starts[:_ALIVE], bars]) for box in _lines(cell, start, y + pad)]
    top = y = y + _LINE * max(map(len, heads)) + 2 * pad
    rows: list[Placed] = []
    for group, columns in zip(groups, cells):
        inside = tuple(found.rows[place] for place in group)
        above = y
        if found.captions and (not rows or rows[-1].row.band != inside[0].band):
            for caption in _wrapped(found.captions[inside[0].band], _fitting(width - starts[0] - _MARGIN)):
                boxes.append(Box(starts[0], y + pad, caption, "quiet strong"))
                y += _LINE
            y += 2 * pad
        texts = [box for cell, start in zip(columns, starts) for box in _lines(cell, start, y + pad, line)]
        bottom = y + line * max(map(len, columns)) + 2 * pad
        rows.append(
            Placed(inside, _MARGIN + lane * (lanes[group[0]] + 0.5), y + pad + _MIDDLE, above, bottom, tuple(texts))
        )
        y = bottom
    shown = found.limit if _limit_is_near(found) else found.peak_bytes
    scale = _BARS / shown if shown else 0.0
    work = (starts[_WORK], widths[_WORK])
    return Layout(width, y + _MARGIN, tuple(boxes), tuple(marks), tuple(rows), top, work, bars, scale)


def _groups(found: Timeline, lanes: Sequence[int]) -> list[tuple[int, ...]]:
    """The places of rows, where views that follow what they look at, and take its lane over, are in one with it."""
    groups: list[tuple[int, ...]] = []
    for place, row in enumerate(found.rows):
        before = found.rows[place - 1]
        follows = row.kind == "view" and before.number in row.sources and lanes[place] == lanes[place - 1]
        if follows and not (found.captions and before.band != row.band):
            groups[-1] += (place,)
        else:
            groups.append((place,))
    return groups


def _limit_is_near(found: Timeline) -> bool:
    """Whether there is a limit that bars can be drawn against."""
    return 0 < found.limit <= _FAR * found.peak_bytes


def _lanes(rows: Sequence[Row]) -> list[int]:
    """The place of each row's node from left to right: a value keeps its lane until the last that takes it."""
    last = {source: place for place, row in enumerate(rows) for source in row.sources}
    taken: dict[int, int] = {}
    free: list[int] = []  # a heap; with those that are taken, these are all lanes so far
    found = []
    for place, row in enumerate(rows):
        done = [taken.pop(source) for source in dict.fromkeys(row.sources) if last[source] == place]
        lane = min(done) if done else heappop(free) if free else len(taken)
        left = [other for other in done if other != lane]
        if last.get(row.number, -1) > place:
            left += [taken[row.number]] if row.number in taken else []
            taken[row.number] = lane
        else:
            left.append(lane)
        for other in left:
            heappush(free, other)
        found.append(lane)
    return found


def _heads(found: Timeline) -> list[Cell]:
    times = "times" if _has_times(found) else ""
    limit = f", limit {quantity(found.limit, 'B')}" if found.limit else ""
    words = (times, "what runs", "axes", "multiply-adds", "array")
    memory: Cell = [("memory alive", "quiet"), (f"peak {quantity(found.peak_bytes, 'B')}{limit}", "quiet")]
    return [*([(word, "quiet")] for word in words), memory]


def _has_times(found: Timeline) -> bool:
    return any(row.times > 1 for row in found.rows)


def _cells(found: Timeline, groups: Iterable[Sequence[Row]]) -> Iterator[list[Cell]]:
    """What each row says, column by column, with the views that stand in it; memory where it is not that above."""
    above, peak, has_times = -1, found.peak_bytes, _has_times(found)
    for row, *views in groups:
        style = {"work": "text strong", "native": "native strong"}.get(row.kind, "text")
        call: Cell = [(line, style) for line in _calls([row, *views])]
        if row.kind == "copy":
            call += [(line, "copy") for line in _wrapped(row.remark, _CALL)]
        axes = _axes_text(row.axes) or "scalar"
        if row.summed:
            axes += f", sum over {_axes_text(row.summed)}"
        nbytes = quantity(prod(size for _, size in row.axes) * itemsize(row.dtype), "B")
        array = ("view", "quiet") if row.kind == "view" else (nbytes, "text" if row.made else "quiet")
        alive = found.base + row.held
        is_peak = row.kind != "view" and alive == peak
        yield [
            [(f"{row.times}×" if has_times else "", "quiet")],
            call,
            [(line, "text") for line in _wrapped(axes, _AXES)],
            [(quantity(row.multiply_adds) if row.multiply_adds else "", "text")],
            [array],
            [(quantity(alive, "B") if alive != above else "", "text strong" if is_peak else "quiet")],
        ]
        above = alive


def _calls(rows: Sequence[Row]) -> list[str]:
    """Lines of calls, as many in each as there is room for."""
    lines = [""]
    for row in rows:
        joined = f"{lines[-1]}; {row.call}".removeprefix("; ")
        lines[-1:] = [joined] if _width(joined) <= _CALL else [*filter(None, lines[-1:]), *_wrapped(row.call, _CALL)]
    return lines


def _axes_text(axes: Iterable[tuple[Names, int]]) -> str:
    """Labels and sizes.

    >>> _axes_text([(("b", "n"), 512), (("i",), 100), ((), 1)])
    'bn=512 i=100 1'
    """
    return " ".join(f"{''.join(names)}={size}" if names else f"{size}" for names, size in axes)


def _header(found: Timeline, width: float) -> tuple[list[Box], list[Mark], float]:
    """The equation, sentences on the whole, and the legend; and where all that ends."""
    y, boxes = _MARGIN, []
    for line in _wrapped(found.equation, _fitting(width - 2 * _MARGIN, TITLE)):
        boxes.append(Box(_MARGIN, y, line, "text strong", TITLE))
        y += TITLE * 1.4
    for fact in found.facts:
        for line in _wrapped(fact, _fitting(width - 2 * _MARGIN)):
            boxes.append(Box(_MARGIN, y, line, "quiet"))
            y += _LINE
    y += 8
    marks, x = [], _MARGIN
    for kind, meaning in _legend(found):
        wide = 18 + _width(meaning) * SIZE * _LETTER
        if x > _MARGIN and x + wide > width - _MARGIN:
            x, y = _MARGIN, y + _LINE
        marks.append(Mark(kind, x + 6, y + _MIDDLE))
        boxes.append(Box(x + 18, y, meaning, "quiet"))
        x += wide + _GAP
    return boxes, marks, y + _LINE + 10


def _legend(found: Timeline) -> Iterator[tuple[str, str]]:
    there = {row.kind for row in found.rows}
    yield from ((kind, meaning) for kind, meaning in _MEANINGS.items() if kind in there)
    if found.base:
        yield "base", f"memory: {found.base_name}"
    if any(row.held for row in found.rows):
        yield "made", f"memory: {'blocks and what is made of them' if found.limit else 'what is made'}"
    if _limit_is_near(found):
        yield "limit", "memory: the limit"


def _lines(cell: Cell, x: float, y: float, height: float = _LINE) -> list[Box]:
    return [Box(x, y + place * height, text, style) for place, (text, style) in enumerate(cell) if text]


def _fitting(width: float, size: float = SIZE) -> int:
    """How many letters fit."""
    return int(width / (size * _LETTER))


def _width(text: str) -> int:
    """How many letters wide a text is; letters of East Asia are two."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _wrapped(text: str, width: int) -> list[str]:
    """A text as lines, broken after blanks and commas where that does, else anywhere.

    >>> _wrapped("transpose %0 (0,2,1,3)", 17), _wrapped("abcdefgh", 3)
    (['transpose %0 (0,', '2,1,3)'], ['abc', 'def', 'gh'])
    """
    lines, line, there = [], "", 0  # the last line, and how wide it is
    for piece in re.findall(r"[^\s,]+,?|,|\s+", text):
        wide, least = _width(piece), _width(piece.rstrip())
        if there + least > width >= wide:
            lines.append(line)
            line, there = "", 0
        for part in piece if there + least > width else [piece]:
            if there + _width(part.rstrip()) > width:
                lines.append(line)
                line, there = "", 0
            written = " " if part.isspace() else part
            line += written
            there += _width(written)
    return [stripped for stripped in map(str.strip, [*lines, line]) if stripped] or [""]


# -- how it is written ------------------------------------------------------------------------------------------


def _svg(found: Timeline, made: Layout) -> str:
    # In a narrow window it shrinks as far as letters stay legible, and is scrolled from there on.
    style = f"max-width:100%;min-width:{made.width * _SHRUNK:.0f}px;height:auto"
    width, height = f"{made.width:.0f}", f"{made.height:.0f}"
    size, view = f'width="{width}" height="{height}"', f'viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="einsumx" role="img" {size} {view} style="{style}">',
        f"<title>Plan of {_safe(found.equation)}</title>",
        f"<desc>{_safe(found.text)}\n{_safe('; '.join(found.facts))}</desc>",
        f"<style>{_style()}</style>",
        f'<rect class="ground" {size}/>',
        *_bands(made),
        *_bars(made, found.base),
        f'<path class="edge" d="{"".join(_edges(made.rows))}"/>',
        *(_text(box, box.y) for box in made.boxes),
        *(_node(mark.kind, mark.x, mark.y) for mark in made.marks),
    ]
    most = max(row.multiply_adds * row.times for row in found.rows)
    for placed in made.rows:
        row = placed.row
        first = placed.y - _MIDDLE
        title = "; ".join(f"{each.call}: {each.remark}" for each in placed.rows)
        parts.append(
            f'<g class="{row.kind}-row" transform="translate(0,{_number(first)})"><title>{_safe(title)}</title>'
        )
        x, wide = made.work
        if row.multiply_adds * row.times * wide > 2 * most:
            wide *= row.multiply_adds * row.times / most
            parts.append(f'<rect class="work" x="{_number(x)}" y="{SIZE + 1:g}" width="{_number(wide)}" height="2"/>')
        parts += [_node(row.kind, placed.x, _MIDDLE), *(_text(box, box.y - first) for box in placed.boxes), "</g>"]
    if _limit_is_near(found):
        x = made.bars + found.limit * made.scale
        parts.append(f'<path class="limit" d="M{_number(x)} {_number(made.top)}V{_number(made.height - _MARGIN)}"/>')
    return "\n".join([*parts, "</svg>\n"])


def _style() -> str:
    """How everything looks, in light and in dark."""
    return (
        ".einsumx{color-scheme:light dark}"
        ".einsumx text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"font-size:{SIZE:g}px;direction:ltr;unicode-bidi:bidi-override;white-space:pre}}"
        f".einsumx .title{{font-size:{TITLE:g}px}}"
        ".einsumx rect{shape-rendering:crispEdges}.einsumx .strong{font-weight:600}"
        ".einsumx .edge{fill:none;stroke-width:1.5}"
        ".einsumx .limit{stroke-width:1.5;stroke-dasharray:5 3}.einsumx .operand,.einsumx .result{stroke-width:1.5}"
        f"{_rules(0)}@media (prefers-color-scheme:dark){{{_rules(1)}}}"
    )


def _rules(theme: int, within: str = "") -> str:
    """The colours of light, 0, or dark, 1; within elements of a page that are selected so."""
    inside = f"{within} .einsumx".lstrip()
    fills = "".join(f"{inside} .{name}{{fill:{colours[theme]}}}" for name, colours in _COLOURS.items())
    ground, line, text = (_COLOURS[name][theme] for name in ("ground", "line", "text"))
    return (
        f"{inside} text{{fill:{text}}}{fills}"
        f"{inside} .edge,{inside} .base{{stroke:{line}}}"
        f"{inside} .limit{{stroke:{_COLOURS['limit'][theme]}}}"
        f"{inside} .operand,{inside} .result{{fill:{ground};stroke:{text}}}"
        f"{inside} .view{{fill:{_COLOURS['quiet'][theme]}}}"
    )


def _bands(made: Layout) -> Iterator[str]:
    """Every second band on a ground of its own."""
    for band, rows in groupby(made.rows, key=lambda placed: placed.row.band):
        first, *others = rows
        if band % 2:
            height = (others[-1] if others else first).bottom - first.top
            yield f'<rect class="band" y="{_number(first.top)}" width="{made.width:.0f}" height="{_number(height)}"/>'


def _edges(rows: Sequence[Placed]) -> Iterator[str]:
    """Lines from each value down to what takes it."""
    places = {row.number: placed for placed in rows for row in placed.rows}
    for placed in rows:
        for source in dict.fromkeys(placed.row.sources):
            start, x, y = places[source], placed.x, placed.y
            begin = f"M{_number(start.x)} {_number(start.y)}"
            if start.x == x:
                yield f"{begin}V{_number(y)}"
            else:
                turn = 6 if start.x < x else -6
                yield f"{begin}V{_number(y - 6)}q0 6 {turn} 6H{_number(x)}"


def _bars(made: Layout, base: int) -> Iterator[str]:
    """The memory that is alive: what is there all the time, and beside it an area as wide as what is made."""
    top, bottom = made.rows[0].top, made.rows[-1].bottom
    start = made.bars + round(base * made.scale)
    if any(placed.row.held for placed in made.rows):
        steps = ((start + round(placed.row.held * made.scale), placed.bottom) for placed in made.rows)
        path = "".join(f"H{_number(x)}V{_number(y)}" for x, y in steps)
        yield f'<path class="made" d="M{_number(start)} {_number(top)}{path}H{_number(start)}z"/>'
    if base:
        size = f'width="{_number(start - made.bars)}" height="{_number(bottom - top)}"'
        yield f'<rect class="base" x="{_number(made.bars)}" y="{_number(top)}" {size}/>'


def _node(kind: str, x: float, y: float) -> str:
    """The symbol of a kind of row, or of a colour: shapes differ, so that colour is not needed."""
    match kind:
        case "operand":
            return f'<circle class="operand" cx="{_number(x)}" cy="{_number(y)}" r="4.5"/>'
        case "view":
            return f'<circle class="view" cx="{_number(x)}" cy="{_number(y)}" r="2.5"/>'
        case "work":
            return f'<circle class="work" cx="{_number(x)}" cy="{_number(y)}" r="5.5"/>'
        case "copy":
            return f'<path class="copy" d="M{_number(x)} {_number(y - 7)}l7 7l-7 7l-7 -7z"/>'
        case "native":
            return f'<rect class="native" x="{_number(x - 5.5)}" y="{_number(y - 5.5)}" width="11" height="11"/>'
        case "result":
            ring = f'<circle class="result" cx="{_number(x)}" cy="{_number(y)}" r="6"/>'
            return f'{ring}<circle class="text" cx="{_number(x)}" cy="{_number(y)}" r="2.5"/>'
        case "limit":
            return f'<path class="limit" d="M{_number(x)} {_number(y - 7)}v14"/>'
        case _:
            return f'<rect class="{kind}" x="{_number(x - 6)}" y="{_number(y - 5)}" width="12" height="10"/>'


def _text(box: Box, y: float) -> str:
    """A text at a height, stretched to its room, whichever font there is."""
    style = " ".join([*box.style.removeprefix("text").split(), *["title"] * (box.size == TITLE)])
    named = f'class="{style}" ' if style else ""
    place = f'x="{_number(box.x)}" y="{_number(y + box.size * 0.95)}"'
    return f'<text {named}{place} textLength="{_number(box.width)}">{_safe(box.text)}</text>'


def _number(value: float) -> str:
    """A place or a length, to a tenth.

    >>> _number(12.0), _number(3.25), _number(12345.678)
    ('12', '3.2', '12345.7')
    """
    return f"{value:.1f}".removesuffix(".0")


def _safe(text: str) -> str:
    """A text that XML and HTML take for text; characters that nobody would see, or XML cannot hold, are escaped.

    >>> _safe('a<b & "c"')
    'a&lt;b &amp; &quot;c&quot;'
    """
    return escape("\n".join(map(visible, text.split("\n"))))
