"""Pictures of plans: shown in notebooks, saved as SVG files or HTML pages.

A picture has the plan's rows from top to bottom, with a tree on the left and memory on the right. The tree has a line
from each value to the rows that read it; the bars show the memory that is alive during each row. The picture contains
no scripts and loads nothing. Its colours follow the reader's light or dark theme.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from unicodedata import east_asian_width
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from einsumx.errors import EinsumxError, excerpt, shown, visible
from einsumx.host.files import write_text
from einsumx.ir.text import quantity
from einsumx.render.timeline import PictureRow, Timeline

_LIGHT = ":is(body[data-jp-theme-light=true],body.vscode-light,html[theme=light],[data-md-color-scheme=default])"
_DARK = ":is(body[data-jp-theme-light=false],body.vscode-dark,html[theme=dark],[data-md-color-scheme=slate])"
"""How Jupyter, VS Code, Colab and mkdocs mark a page as light or dark, whatever the system's theme is."""

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; }}</style>
{picture}
<pre>{text}</pre>
</html>
"""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of a plan. Notebooks display it, and :meth:`save` writes it to a file.

    Attributes:
        timeline: the rows to draw.

    >>> import einsumx
    >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).draw().svg[:48]
    '<svg xmlns="http://www.w3.org/2000/svg" class="e'
    """

    timeline: Timeline

    def __repr__(self) -> str:
        return f"<einsumx drawing of {excerpt(self.timeline.title)}; save('plan.svg') writes it>"

    @property
    def svg(self) -> str:
        """The text of an SVG file."""
        return _svg_text(self.timeline)

    @property
    def html(self) -> str:
        """A page that loads nothing: the picture and the text of the plan."""
        title, text = escape(_printable(self.timeline.title)), escape(_printable(self.timeline.text))
        return _PAGE.format(title=title, picture=self.svg, text=text)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        themes = _theme_rules(0, _LIGHT) + _theme_rules(1, _DARK)
        return f'<div style="overflow:auto;max-height:50rem"><style>{themes}</style>{self.svg}</div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a ``.svg`` file or the page to a ``.html`` file, atomically.

        Raises:
            EinsumxError: the file name has another ending.
            OSError: the file cannot be written.
        """
        target = Path(path)
        match target.suffix.lower():
            case ".svg":
                write_text(target, self.svg)
            case ".html":
                write_text(target, self.html)
            case _:
                raise EinsumxError(f"pictures are saved as .svg or .html, and {shown(str(target))} ends in neither")


# -- SVG ----------------------------------------------------------------------------------------------------------

_LETTER = 7.2
"""The width of a letter in most monospaced fonts; text in other fonts is stretched to it."""

_LINE, _PAD, _MIDDLE, _BASELINE = 16, 2, 8, 12
"""The height of a line of text, the space above and below a row, and where a line has its middle and its baseline."""

_MARGIN, _GAP = 16, 20
"""The space around the picture and after a column."""

_LANE, _TREE = 14, 280
"""The width of a lane of the tree, which is less if the tree would be wider than this."""

_BARS, _NUMBER = 200, 76
"""The width of the memory bars, and of the numbers after them."""

_HEADER = 100
_COLUMNS = {"times": 12, "what runs": 50, "axes": 46, "array": 30, "cost": 30}
"""The letters after which a line wraps, in the header and in each column."""

_STYLES = {
    ("what runs", "work"): "text strong",
    ("what runs", "native"): "native strong",
    ("cost", "copy"): "copy",
    ("cost", "view"): "quiet",
}
"""The CSS classes of a text by its column and by the symbol of its row; others have the class ``text``."""

_SHRINK = 0.8
"""A picture shrinks to this share of its width in a narrow window; below that, the window scrolls."""

_FAR = 3
"""A limit of more than this many times the peak is not drawn."""

_CIRCLE = "m-{0} 0a{0} {0} 0 1 0 {1} 0a{0} {0} 0 1 0 -{1} 0z"
_SHAPES = {
    "operand": _CIRCLE.format(4.5, 9),
    "work": _CIRCLE.format(5.5, 11),
    "view": _CIRCLE.format(2.5, 5),
    "copy": "m0 -7l7 7l-7 7l-7 -7z",
    "native": "m-5.5 -5.5h11v11h-11z",
    "result": "m-6.5 -5h13l-6.5 11z",
    "base": "m-6 -5h12v10h-12z",
    "made": "m-6 -5h12v10h-12z",
    "limit": "m0 -7v14",
}
"""Symbols of rows and bars, around their centres. Shapes differ, so that colour carries no information alone."""

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
"""The light and the dark colour of each name."""

_FILLS = {"operand": "ground", "view": "quiet", "result": "text"}
_STROKES = {"operand": "text", "edge": "line", "base": "line", "limit": "limit"}
"""The colours of CSS classes; others are filled with the colour of their name."""

_STYLE = (
    ".einsumx{color-scheme:light dark}"
    ".einsumx text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "direction:ltr;unicode-bidi:bidi-override;white-space:pre}"
    ".einsumx rect{shape-rendering:crispEdges}.einsumx .strong{font-weight:600}"
    ".einsumx .edge,.einsumx .operand,.einsumx .limit{stroke-width:1.5}"
    ".einsumx .edge{fill:none}.einsumx .limit{stroke-dasharray:5 3}"
)


def _svg_text(timeline: Timeline) -> str:
    """The SVG file of a timeline. No two texts overlap and none is cut off."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "einsumx", "role": "img"})
    SubElement(root, "title").text = f"Plan of {_printable(timeline.title)}"
    SubElement(root, "desc").text = _printable(timeline.text)
    dark = f"@media (prefers-color-scheme:dark){{{_theme_rules(1)}}}"
    SubElement(root, "style").text = f"{_STYLE}{_theme_rules(0)}{dark}"
    picture = _Picture(root, timeline)
    width, height = f"{picture.width:.0f}", f"{picture.draw():.0f}"
    root.attrib |= {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    root.set("style", f"max-width:100%;min-width:{picture.width * _SHRINK:.0f}px;height:auto")
    indent(root, "")
    return f"{tostring(root, 'unicode')}\n"


def _theme_rules(theme: int, selector: str = "") -> str:
    """The CSS colours of the light theme (0) or the dark theme (1), inside elements that match a selector."""
    inside = f"{selector} .einsumx".lstrip()
    fills = {**{name: name for name in _COLOURS}, **_FILLS}
    return "".join(
        f"{inside} .{css_class}{{{paint}:{_COLOURS[name][theme]}}}"
        for paint, names in (("fill", fills), ("stroke", _STROKES))
        for css_class, name in names.items()
    )


def _printable(text: str) -> str:
    """Text that XML can hold: invisible and control characters are written as escapes, except line breaks."""
    return "\n".join(map(visible, text.split("\n")))


class _Picture:
    """Draws a timeline into an SVG element.

    Attributes:
        width: of the picture.
    """

    def __init__(self, root: Element, timeline: Timeline) -> None:
        self._timeline, self._peak = timeline, timeline.peak_bytes
        self._limit = timeline.limit if timeline.limit <= _FAR * self._peak else 0
        self._scale = _BARS / (max(self._peak, self._limit) or 1)
        self._most_work = max(row.work for row in timeline.rows) or 1
        self._lanes = _lanes(timeline.rows)
        self._lane = min(_LANE, _TREE / (max(self._lanes) + 1))
        self._title = _wrapped(timeline.title, _HEADER)
        self._facts = [line for fact in timeline.facts for line in _wrapped(fact, _HEADER)]
        self._cells = [_cells(row) for row in timeline.rows]
        self._left = x = _MARGIN + self._lane * (max(self._lanes) + 1) + 4
        self._columns: dict[str, tuple[float, float]] = {}
        for name in _COLUMNS:
            lines = [line for cells in self._cells for line in cells[name]]
            if lines:
                self._columns[name] = x, _width([name, *lines])
                x += self._columns[name][1] + _GAP
        header = _MARGIN + _width([*self._title, *self._facts]) + _GAP
        self._stages = {row.stage: _wrapped(row.stage, _HEADER) for row in timeline.rows}
        stages = self._left + max(map(_width, self._stages.values())) + _GAP
        self._bars = float(round(max(x, header, stages)))
        self.width = self._bars + _BARS + _NUMBER + _MARGIN
        _add(root, "rect", "ground", width="100%", height="100%")
        self._back, self._tree, self._front = (SubElement(root, "g") for _ in range(3))

    def draw(self) -> float:
        """Draw everything. Returns the height."""
        timeline = self._timeline
        top = y = self._draw_header()
        start = self._bars + timeline.base * self._scale
        nodes: dict[int, tuple[float, float]] = {}
        alive, stage, contracted, shaded = -1, "", False, bool(timeline.rows[0].stage)
        for row, lane, cells in zip(timeline.rows, self._lanes, self._cells):
            above, y = y, y + _PAD
            begins = row.stage != stage
            if begins:
                y = self._draw_lines(self._left, y, self._stages[row.stage], "quiet strong") + 2 * _PAD
            if begins or (contracted and not row.stage):
                shaded = not shaded
            node = nodes[row.number] = _MARGIN + self._lane * (lane + 0.5), y + _MIDDLE
            for source in dict.fromkeys(row.sources):
                self._draw_edge(nodes[source], node)
            self._draw_symbol(row.symbol, *node)
            now = timeline.base + row.held
            if now != alive:
                style = "text strong" if now == self._peak else "quiet"
                self._draw_lines(self._bars + _BARS + _GAP / 2, y, [quantity(now, "B")], style)
            y = self._draw_cells(row, cells, y) + _PAD
            if shaded:
                self._draw_rect("band", 0, above, self.width, y)
            self._draw_rect("made", start, above, start + row.held * self._scale, y)
            alive, stage, contracted = now, row.stage, len(row.sources) > 1
        self._draw_rect("base", self._bars, top, start, y)
        if self._limit:
            x = self._bars + self._limit * self._scale
            _add(self._front, "path", "limit", d=f"M{_number(x)} {_number(top)}V{_number(y)}")
        return y + _MARGIN

    def _draw_header(self) -> float:
        """Draw the facts, the meanings of the bars, and the heads of the columns. Returns where they end."""
        timeline = self._timeline
        left = self._draw_lines(_MARGIN, _MARGIN, self._title, "text strong")
        left = self._draw_lines(_MARGIN, left, self._facts, "quiet") + 2 * _LINE
        y = self._draw_lines(self._bars, _MARGIN, ["memory alive"], "quiet")
        meanings = {"base": "operands", "made": "intermediates, result"}
        if timeline.limit:
            meanings = {"base": "result, blocks read ahead", "made": "blocks, intermediates", "limit": "the limit"}
        for symbol, meaning in meanings.items():
            if symbol != "limit" or self._limit:
                self._draw_symbol(symbol, self._bars + 6, y + _MIDDLE)
                y = self._draw_lines(self._bars + 18, y, [meaning], "quiet")
        y = max(left, y)
        for name, (x, _) in self._columns.items():
            self._draw_lines(x, y - _LINE, [name], "quiet")
        return y + 2 * _PAD

    def _draw_cells(self, row: PictureRow, cells: Mapping[str, Sequence[str]], y: float) -> float:
        """Draw the texts of a row, and its share of the work as a line. Returns where the longest text ends."""
        for name, (x, width) in self._columns.items():
            self._draw_lines(x, y, cells[name], _STYLES.get((name, row.symbol), "text"))
            if name == "cost" and row.work:
                width *= row.work / self._most_work
                _add(self._tree, "rect", "work", x=x, y=y + _LINE - 3, width=width, height=2)
        return y + _LINE * max(map(len, cells.values()))

    def _draw_lines(self, x: float, y: float, lines: Iterable[str], style: str) -> float:
        """Draw lines of text below each other. Returns where they end."""
        for line in lines:
            attributes = {"x": x, "y": y + _BASELINE, "textLength": _width([line])}
            _add(self._front, "text", style, **attributes).text = line
            y += _LINE
        return y

    def _draw_edge(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw a line down from a value and then across to a row that reads it."""
        (begin_x, begin_y), (x, y) = begin, end
        turn = 6 if begin_x < x else -6
        across = f"V{_number(y)}" if begin_x == x else f"V{_number(y - 6)}q0 6 {turn} 6H{_number(x)}"
        _add(self._tree, "path", "edge", d=f"M{_number(begin_x)} {_number(begin_y)}{across}")

    def _draw_symbol(self, symbol: str, x: float, y: float) -> None:
        _add(self._front, "path", symbol, d=f"M{_number(x)} {_number(y)}{_SHAPES[symbol]}")

    def _draw_rect(self, style: str, left: float, top: float, right: float, bottom: float) -> None:
        if right > left:
            _add(self._back, "rect", style, x=left, y=top, width=right - left, height=bottom - top)


# -- the tree ---------------------------------------------------------------------------------------------------


def _lanes(rows: Sequence[PictureRow]) -> list[int]:
    """The lane of each row's node, counted from the left. A value keeps its lane until its last reader."""
    last = {source: place for place, row in enumerate(rows) for source in row.sources}
    values: list[int] = []  # in each lane; -1 for none
    lanes = []
    for place, row in enumerate(rows):
        ends = [lane for lane, value in enumerate(values) if value in row.sources and last[value] == place]
        free = [lane for lane, value in enumerate(values) if value < 0]
        lane = min(ends or free or [len(values)])
        values += [-1] * (lane == len(values))
        for end in ends:
            values[end] = -1
        values[lane] = row.number if row.number in last else -1
        lanes.append(lane)
    return lanes


# -- text and numbers -------------------------------------------------------------------------------------------


def _cells(row: PictureRow) -> dict[str, list[str]]:
    times = f"{row.times}×" if row.times else ""
    texts = {"times": times, "what runs": row.call, "axes": row.axes, "array": row.array, "cost": row.cost}
    return {name: _wrapped(text, _COLUMNS[name]) for name, text in texts.items()}


def _wrapped(text: str, letters: int) -> list[str]:
    """The lines of a text, which break after blanks and commas if possible, else anywhere.

    >>> _wrapped("transpose %0 (0,2,1,3)", 17), _wrapped("abcdefgh", 3)
    (['transpose %0 (0,', '2,1,3)'], ['abc', 'def', 'gh'])
    """
    pattern = f".{{1,{letters}}}$|.{{1,{letters - 1}}}[ ,]|.{{1,{letters}}}"
    return [line.strip() for line in re.findall(pattern, visible(text))]


def _width(lines: Iterable[str]) -> float:
    """The width of the longest line; wide East Asian characters count twice."""
    return max(map(_letters, lines), default=0) * _LETTER


def _letters(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _add(parent: Element, tag: str, css_class: str, **attributes: str | float) -> Element:
    written = {name: value if isinstance(value, str) else _number(value) for name, value in attributes.items()}
    return SubElement(parent, tag, {"class": css_class, **written})


def _number(value: float) -> str:
    """A coordinate or a length, rounded to a tenth.

    >>> _number(12.0), _number(3.25), _number(12345.678)
    ('12', '3.2', '12345.7')
    """
    return f"{value:.1f}".removesuffix(".0")
