"""The picture of a plan as SVG elements, built with the standard library's ElementTree.

The picture contains no scripts and loads nothing. Its colours follow the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from einsumx.errors import visible
from einsumx.render.layout import FONT_SIZE, LINE_MIDDLE, TITLE_SIZE, Box, Layout, PlacedRow, limit_is_near
from einsumx.render.timeline import Timeline

__all__ = ["printable", "svg_text", "theme_rules"]

_SHRINK = 0.8
"""A picture shrinks to this share of its width in a narrow window; below that, the window scrolls."""

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
"""The light and the dark colour of each CSS class."""

_STYLE = (
    ".einsumx{color-scheme:light dark}"
    ".einsumx text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    f"font-size:{FONT_SIZE:g}px;direction:ltr;unicode-bidi:bidi-override;white-space:pre}}"
    f".einsumx .title{{font-size:{TITLE_SIZE:g}px}}"
    ".einsumx rect{shape-rendering:crispEdges}.einsumx .strong{font-weight:600}"
    ".einsumx .edge{fill:none;stroke-width:1.5}"
    ".einsumx .limit{stroke-width:1.5;stroke-dasharray:5 3}.einsumx .operand,.einsumx .result{stroke-width:1.5}"
)


def svg_text(timeline: Timeline, layout: Layout) -> str:
    """The SVG file of a timeline with a known layout."""
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "einsumx", "role": "img"})
    root.attrib |= {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    root.set("style", f"max-width:100%;min-width:{layout.width * _SHRINK:.0f}px;height:auto")
    SubElement(root, "title").text = f"Plan of {printable(timeline.equation)}"
    SubElement(root, "desc").text = printable("\n".join([timeline.text, "; ".join(timeline.facts)]))
    dark = f"@media (prefers-color-scheme:dark){{{theme_rules(1)}}}"
    SubElement(root, "style").text = f"{_STYLE}{theme_rules(0)}{dark}"
    _add(root, "rect", "ground", width=width, height=height)
    _add_bands(root, layout)
    _add_bars(root, layout, timeline.base)
    _add(root, "path", "edge", d="".join(_edges(layout.rows)))
    for box in layout.boxes:
        _add_text(root, box, box.y)
    for mark in layout.marks:
        _add_symbol(root, mark.kind, mark.x, mark.y)
    _add_rows(root, layout)
    if limit_is_near(timeline):
        x = _number(layout.bars + timeline.limit * layout.scale)
        _add(root, "path", "limit", d=f"M{x} {_number(layout.top)}V{_number(layout.rows[-1].bottom)}")
    indent(root, "")
    return f"{tostring(root, 'unicode')}\n"


def theme_rules(theme: int, selector: str = "") -> str:
    """The CSS colours of the light theme (0) or the dark theme (1), inside elements that match a selector."""
    inside = f"{selector} .einsumx".lstrip()
    colours = {name: pair[theme] for name, pair in _COLOURS.items()}
    fills = "".join(f"{inside} .{name}{{fill:{colour}}}" for name, colour in colours.items())
    return (
        f"{inside} text{{fill:{colours['text']}}}{fills}"
        f"{inside} .edge,{inside} .base{{stroke:{colours['line']}}}"
        f"{inside} .limit{{stroke:{colours['limit']}}}"
        f"{inside} .operand,{inside} .result{{fill:{colours['ground']};stroke:{colours['text']}}}"
        f"{inside} .view{{fill:{colours['quiet']}}}"
    )


def printable(text: str) -> str:
    """Text that XML can hold: invisible and control characters are written as escapes, except line breaks."""
    return "\n".join(map(visible, text.split("\n")))


def _add(parent: Element, tag: str, css_class: str, **attributes: str | float) -> Element:
    """Append an element; numbers are rounded to a tenth."""
    written = {name: value if isinstance(value, str) else _number(value) for name, value in attributes.items()}
    return SubElement(parent, tag, {"class": css_class, **written} if css_class else written)


def _add_rows(root: Element, layout: Layout) -> None:
    most = max(placed.row.multiply_adds * placed.row.times for placed in layout.rows)
    for placed in layout.rows:
        row, top = placed.row, placed.y - LINE_MIDDLE
        group = _add(root, "g", f"{row.kind}-row", transform=f"translate(0,{_number(top)})")
        SubElement(group, "title").text = printable("; ".join(f"{each.call}: {each.remark}" for each in placed.rows))
        x, column_width = layout.work
        width = column_width * row.multiply_adds * row.times / most if most else 0
        if width > 2:
            _add(group, "rect", "work", x=x, y=FONT_SIZE + 1, width=width, height=2)
        _add_symbol(group, row.kind, placed.x, LINE_MIDDLE)
        for box in placed.boxes:
            _add_text(group, box, box.y - top)


def _add_bands(root: Element, layout: Layout) -> None:
    """A background behind every second band."""
    for band, rows in groupby(layout.rows, key=lambda placed: placed.row.band):
        if band % 2:
            first, *others = rows
            bottom = others[-1].bottom if others else first.bottom
            _add(root, "rect", "band", y=first.top, width=layout.width, height=bottom - first.top)


def _add_bars(root: Element, layout: Layout, base: int) -> None:
    """The memory alive over time: the constant part, and next to it the outline of what the ops hold."""
    top, bottom = layout.rows[0].top, layout.rows[-1].bottom
    start = layout.bars + round(base * layout.scale)
    if any(placed.row.held for placed in layout.rows):
        steps = ((start + round(placed.row.held * layout.scale), placed.bottom) for placed in layout.rows)
        outline = "".join(f"H{_number(x)}V{_number(y)}" for x, y in steps)
        _add(root, "path", "made", d=f"M{_number(start)} {_number(top)}{outline}H{_number(start)}z")
    if base:
        _add(root, "rect", "base", x=layout.bars, y=top, width=start - layout.bars, height=bottom - top)


def _edges(rows: Sequence[PlacedRow]) -> Iterator[str]:
    """The path data of lines from each value down to the rows that read it."""
    producers = {row.number: placed for placed in rows for row in placed.rows}
    for placed in rows:
        for source in dict.fromkeys(placed.row.sources):
            producer, x, y = producers[source], placed.x, placed.y
            begin = f"M{_number(producer.x)} {_number(producer.y)}"
            if producer.x == x:
                yield f"{begin}V{_number(y)}"
            else:
                turn = 6 if producer.x < x else -6
                yield f"{begin}V{_number(y - 6)}q0 6 {turn} 6H{_number(x)}"


def _add_symbol(parent: Element, kind: str, x: float, y: float) -> None:
    """The symbol of a row kind or of a bar colour. Shapes differ, so that colour carries no information alone."""
    match kind:
        case "operand" | "view" | "work":
            radius = {"operand": 4.5, "view": 2.5, "work": 5.5}[kind]
            _add(parent, "circle", kind, cx=x, cy=y, r=radius)
        case "copy":
            _add(parent, "path", kind, d=f"M{_number(x)} {_number(y - 7)}l7 7l-7 7l-7 -7z")
        case "native":
            _add(parent, "rect", kind, x=x - 5.5, y=y - 5.5, width=11, height=11)
        case "result":
            _add(parent, "circle", kind, cx=x, cy=y, r=6)
            _add(parent, "circle", "text", cx=x, cy=y, r=2.5)
        case "limit":
            _add(parent, "path", kind, d=f"M{_number(x)} {_number(y - 7)}v14")
        case _:
            _add(parent, "rect", kind, x=x - 6, y=y - 5, width=12, height=10)


def _add_text(parent: Element, box: Box, y: float) -> None:
    """Text whose upper edge is at ``y``, stretched to the width of its box in any font."""
    css_class = " ".join([*box.style.removeprefix("text").split(), *["title"] * (box.size == TITLE_SIZE)])
    element = _add(parent, "text", css_class, x=box.x, y=y + box.size * 0.95, textLength=box.width)
    element.text = printable(box.text)


def _number(value: float) -> str:
    """A coordinate or a length, rounded to a tenth.

    >>> _number(12.0), _number(3.25), _number(12345.678)
    ('12', '3.2', '12345.7')
    """
    return f"{value:.1f}".removesuffix(".0")
