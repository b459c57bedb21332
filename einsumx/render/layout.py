"""Where everything in the picture of a plan goes: the lanes of its tree, columns of text, and memory bars.

Rows are in execution order. On the left, lines lead from each value to the rows that read it; on the right, bars show
the memory that is alive during each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, prod
from typing import TypeAlias
from unicodedata import east_asian_width

from einsumx.dtypes import itemsize
from einsumx.ir.text import quantity
from einsumx.render.timeline import Kind, Names, Row, Timeline

__all__ = ["Box", "Layout", "Mark", "PlacedRow", "axes_text", "has_times", "lay_out", "limit_is_near"]

FONT_SIZE, TITLE_SIZE = 12.0, 14.0

LINE_MIDDLE = FONT_SIZE * 0.625
"""How far below its upper edge a line of text has its middle, where the row's node is."""

_LETTER = 0.602
"""The width of a letter in ems, as in most monospaced fonts; text in other fonts is stretched to it."""

_LINE, _MARGIN, _GAP = 16.0, 16.0, 22.0
_BARS, _LEAST_WIDTH = 232.0, 880.0

_WIDE, _DENSE = (16.0, 2.0, 14.0), (15.0, 0.0, 10.0)
"""Line height, padding of a row, and width of a lane; of few rows, and of more than :data:`_MANY`."""

_MANY = 48
"""More rows than this are set closer, and views share the row of their source."""

_CALL_WIDTH, _AXES_WIDTH = 50, 46
"""Letters after which a column wraps."""

_FAR = 3
"""A limit of more than this many times the peak is not drawn."""

_MEANINGS: dict[Kind, str] = {
    "operand": "operand",
    "work": "arithmetic",
    "view": "view, which is free",
    "copy": "copy, with its reason",
    "native": "the framework's own einsum",
    "result": "result",
}


@dataclass(frozen=True, slots=True)
class Box:
    """A line of text and its extent.

    Attributes:
        x, y: the upper left corner.
        text: the line.
        style: CSS classes: a colour, and ``strong`` for bold text.
        size: the font size.
    """

    x: float
    y: float
    text: str
    style: str = "text"
    size: float = FONT_SIZE

    @property
    def width(self) -> float:
        return _width(self.text, self.size)

    @property
    def height(self) -> float:
        return self.size * 1.25


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A row of the picture.

    Attributes:
        rows: a row of the timeline, followed by the views that share its place.
        x, y: the centre of its node.
        top, bottom: its vertical extent.
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
        """The row that is not a view of another one here."""
        return self.rows[0]


@dataclass(frozen=True, slots=True)
class Mark:
    """A symbol in the legend: of a kind of row, or of a bar's colour."""

    kind: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions and extents of everything in a picture.

    Attributes:
        width, height: of the picture.
        boxes: texts outside the rows.
        marks: symbols of the legend.
        rows: the rows from top to bottom.
        top: where the rows begin.
        work: start and width of the column of multiply-adds.
        bars: where the memory bars begin.
        scale: the width of a byte in the bars.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    marks: tuple[Mark, ...]
    rows: tuple[PlacedRow, ...]
    top: float
    work: tuple[float, float]
    bars: float
    scale: float

    @property
    def texts(self) -> tuple[Box, ...]:
        """All texts of the picture."""
        return (*self.boxes, *(box for placed in self.rows for box in placed.boxes))


Cell: TypeAlias = list[tuple[str, str]]
"""Lines of text with their styles."""

_WORK, _ALIVE = 3, 5
"""Columns of multiply-adds and of memory."""


def lay_out(timeline: Timeline) -> Layout:
    """Place all elements so that no two texts overlap and none is cut off."""
    lanes = _lanes(timeline.rows)
    dense = len(timeline.rows) > _MANY
    line, pad, lane = _DENSE if dense else _WIDE
    groups = _groups(timeline, lanes) if dense else [(place,) for place in range(len(timeline.rows))]
    row_groups = [tuple(timeline.rows[place] for place in group) for group in groups]
    heads, cells = _heads(timeline), list(_cells(timeline, row_groups))
    starts, widths, bars = _columns(heads, cells, _MARGIN + lane * (max(lanes) + 1) + 6)
    width = float(ceil(max(starts[-1] + widths[-1] + _MARGIN, _LEAST_WIDTH)))
    boxes, marks, y = _header(timeline, width)
    boxes += [box for cell, start in zip(heads, [*starts[:_ALIVE], bars]) for box in _boxes(cell, start, y + pad)]
    top = y = y + _LINE * max(map(len, heads)) + 2 * pad
    placed: list[PlacedRow] = []
    for group, rows, row_cells in zip(groups, row_groups, cells):
        above = y
        if timeline.captions and (not placed or placed[-1].row.band != rows[0].band):
            lines = _wrapped(timeline.captions[rows[0].band], _letters(width - starts[0] - _MARGIN))
            boxes += _boxes([(caption, "quiet strong") for caption in lines], starts[0], y + pad)
            y += _LINE * len(lines) + 2 * pad
        texts = tuple(box for cell, start in zip(row_cells, starts) for box in _boxes(cell, start, y + pad, line))
        x, bottom = _MARGIN + lane * (lanes[group[0]] + 0.5), y + line * max(map(len, row_cells)) + 2 * pad
        placed.append(PlacedRow(rows, x, y + pad + LINE_MIDDLE, above, bottom, texts))
        y = bottom
    most = timeline.limit if limit_is_near(timeline) else timeline.peak_bytes
    return Layout(
        width=width,
        height=y + _MARGIN,
        boxes=tuple(boxes),
        marks=tuple(marks),
        rows=tuple(placed),
        top=top,
        work=(starts[_WORK], widths[_WORK]),
        bars=bars,
        scale=_BARS / most if most else 0.0,
    )


def limit_is_near(timeline: Timeline) -> bool:
    """Whether there is a limit, close enough to the peak to be drawn at the same scale."""
    return 0 < timeline.limit <= _FAR * timeline.peak_bytes


def has_times(timeline: Timeline) -> bool:
    """Whether a row is executed more than once."""
    return any(row.times > 1 for row in timeline.rows)


def axes_text(axes: Iterable[tuple[Names, int]]) -> str:
    """Labels and sizes.

    >>> axes_text([(("b", "n"), 512), (("i",), 100), ((), 1)])
    'bn=512 i=100 1'
    """
    return " ".join(f"{''.join(names)}={size}" if names else f"{size}" for names, size in axes)


# -- the tree ---------------------------------------------------------------------------------------------------


def _lanes(rows: Sequence[Row]) -> list[int]:
    """The lane of each row's node, counted from the left. A value keeps its lane until its last reader."""
    last = {source: place for place, row in enumerate(rows) for source in row.sources}
    taken: dict[int, int] = {}
    free: list[int] = []  # a heap; every lane so far is either free or taken
    lanes = []
    for place, row in enumerate(rows):
        released = [taken.pop(source) for source in dict.fromkeys(row.sources) if last[source] == place]
        lane = min(released) if released else heappop(free) if free else len(taken)
        released = [other for other in released if other != lane]
        if last.get(row.number, -1) > place:
            released += [taken[row.number]] if row.number in taken else []
            taken[row.number] = lane
        else:
            released.append(lane)
        for other in released:
            heappush(free, other)
        lanes.append(lane)
    return lanes


def _groups(timeline: Timeline, lanes: Sequence[int]) -> list[tuple[int, ...]]:
    """The indices of rows that share a place: a view joins the row above if that is its source and has its lane."""
    groups: list[tuple[int, ...]] = []
    for place, row in enumerate(timeline.rows):
        above = timeline.rows[place - 1]
        follows = row.kind == "view" and above.number in row.sources and lanes[place] == lanes[place - 1]
        if follows and not (timeline.captions and above.band != row.band):
            groups[-1] += (place,)
        else:
            groups.append((place,))
    return groups


# -- the columns ------------------------------------------------------------------------------------------------


def _columns(
    heads: Sequence[Cell], cells: Sequence[Sequence[Cell]], x: float
) -> tuple[list[float], list[float], float]:
    """The start and the width of each column, and the start of the bars, which precede the last column."""
    starts: list[float] = []
    widths: list[float] = []
    for head, *column in zip(heads, *cells):
        bars = float(round(x))
        if len(starts) == _ALIVE:  # its head is above the bars
            x += _BARS + 10
            head = []
        starts.append(x)
        widths.append(max(_width(text) for cell in (head, *column) for text, _ in cell))
        x += widths[-1] + (_GAP if widths[-1] else 0)
    return starts, widths, bars


def _heads(timeline: Timeline) -> list[Cell]:
    times = "times" if has_times(timeline) else ""
    limit = f", limit {quantity(timeline.limit, 'B')}" if timeline.limit else ""
    words = (times, "what runs", "axes", "multiply-adds", "array")
    memory: Cell = [("memory alive", "quiet"), (f"peak {quantity(timeline.peak_bytes, 'B')}{limit}", "quiet")]
    return [*([(word, "quiet")] for word in words), memory]


def _cells(timeline: Timeline, groups: Iterable[Sequence[Row]]) -> Iterator[list[Cell]]:
    """The cells of each group of rows, column by column; memory only if it differs from that of the row above."""
    above, peak, is_repeated = -1, timeline.peak_bytes, has_times(timeline)
    for row, *views in groups:
        style = {"work": "text strong", "native": "native strong"}.get(row.kind, "text")
        call: Cell = [(line, style) for line in _calls([row, *views])]
        if row.kind == "copy":
            call += [(line, "copy") for line in _wrapped(row.remark, _CALL_WIDTH)]
        axes = axes_text(row.axes) or "scalar"
        if row.summed:
            axes += f", sum over {axes_text(row.summed)}"
        nbytes = quantity(prod(size for _, size in row.axes) * itemsize(row.dtype), "B")
        array = ("view", "quiet") if row.kind == "view" else (nbytes, "text" if row.made else "quiet")
        alive = timeline.base + row.held
        is_peak = row.kind != "view" and alive == peak
        yield [
            [(f"{row.times}×" if is_repeated else "", "quiet")],
            call,
            [(line, "text") for line in _wrapped(axes, _AXES_WIDTH)],
            [(quantity(row.multiply_adds) if row.multiply_adds else "", "text")],
            [array],
            [(quantity(alive, "B") if alive != above else "", "text strong" if is_peak else "quiet")],
        ]
        above = alive


def _calls(rows: Sequence[Row]) -> list[str]:
    """The calls of rows, as many on each line as fit."""
    lines = [""]
    for row in rows:
        joined = f"{lines[-1]}; {row.call}".removeprefix("; ")
        fits = _letter_count(joined) <= _CALL_WIDTH
        lines[-1:] = [joined] if fits else [*filter(None, lines[-1:]), *_wrapped(row.call, _CALL_WIDTH)]
    return lines


# -- the header -------------------------------------------------------------------------------------------------


def _header(timeline: Timeline, width: float) -> tuple[list[Box], list[Mark], float]:
    """The equation, the facts and the legend, and the height at which they end."""
    y, boxes = _MARGIN, []
    for line in _wrapped(timeline.equation, _letters(width - 2 * _MARGIN, TITLE_SIZE)):
        boxes.append(Box(_MARGIN, y, line, "text strong", TITLE_SIZE))
        y += TITLE_SIZE * 1.4
    for fact in timeline.facts:
        for line in _wrapped(fact, _letters(width - 2 * _MARGIN)):
            boxes.append(Box(_MARGIN, y, line, "quiet"))
            y += _LINE
    y += 8
    marks, x = [], _MARGIN
    for kind, meaning in _legend(timeline):
        entry_width = 18 + _width(meaning)
        if x > _MARGIN and x + entry_width > width - _MARGIN:
            x, y = _MARGIN, y + _LINE
        marks.append(Mark(kind, x + 6, y + LINE_MIDDLE))
        boxes.append(Box(x + 18, y, meaning, "quiet"))
        x += entry_width + _GAP
    return boxes, marks, y + _LINE + 10


def _legend(timeline: Timeline) -> Iterator[tuple[str, str]]:
    kinds = {row.kind for row in timeline.rows}
    yield from ((kind, meaning) for kind, meaning in _MEANINGS.items() if kind in kinds)
    if timeline.base:
        yield "base", f"memory: {timeline.base_name}"
    if any(row.held for row in timeline.rows):
        yield "made", f"memory: {'blocks and intermediates' if timeline.limit else 'intermediates and result'}"
    if limit_is_near(timeline):
        yield "limit", "memory: the limit"


# -- text -------------------------------------------------------------------------------------------------------


def _boxes(cell: Cell, x: float, y: float, height: float = _LINE) -> list[Box]:
    return [Box(x, y + place * height, text, style) for place, (text, style) in enumerate(cell) if text]


def _letters(width: float, size: float = FONT_SIZE) -> int:
    """How many letters fit into a width."""
    return int(width / (size * _LETTER))


def _width(text: str, size: float = FONT_SIZE) -> float:
    return _letter_count(text) * size * _LETTER


def _letter_count(text: str) -> int:
    """The width of a text in letters; wide East Asian characters count twice."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, broken after blanks and commas if possible, else anywhere.

    >>> _wrapped("transpose %0 (0,2,1,3)", 17), _wrapped("abcdefgh", 3)
    (['transpose %0 (0,', '2,1,3)'], ['abc', 'def', 'gh'])
    """
    lines, line, used = [], "", 0
    for piece in re.findall(r"[^\s,]+,?|,|\s+", text):
        full, least = _letter_count(piece), _letter_count(piece.rstrip())
        if used + least > width >= full:
            lines.append(line)
            line, used = "", 0
        for part in piece if used + least > width else [piece]:
            if used + _letter_count(part.rstrip()) > width:
                lines.append(line)
                line, used = "", 0
            written = " " if part.isspace() else part
            line += written
            used += _letter_count(written)
    return [stripped for stripped in map(str.strip, [*lines, line]) if stripped] or [""]
