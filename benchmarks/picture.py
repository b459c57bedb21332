"""Draw a run of the benchmarks: for each problem, how many times longer the best peer takes than einsumx.

``python benchmarks/picture.py RESULTS.json ... PICTURE.svg`` draws the results of several runs side by side.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from math import log2
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from einsumx.ir.text import duration

LOW, HIGH = -3, 7  # powers of two at the ends of the axis; ratios beyond are drawn at the end
LABEL, AXIS, TIMES, LINE, TOP = 270, 300, 240, 13, 64
FASTER, SLOWER, EQUAL = "#1a7f5a", "#c0392b", "#8a8f98"
STYLE = """
text { font: 9.5px ui-monospace, Menlo, Consolas, monospace; fill: #24292f } .ground { fill: white }
.title { font: bold 15px system-ui, sans-serif } .group { font: bold 11px system-ui, sans-serif }
.faint { fill: #6e7781 } .grid { stroke: #e3e6ea } .one { stroke: #57606a }
"""


def svg_root(width: float, height: float, zoom: float, title: str, style: str) -> Element:
    """An SVG element with a title and a style sheet, shown ``zoom`` times as large as its coordinates."""
    size = {"width": f"{width * zoom:g}", "height": f"{height * zoom:g}", "viewBox": f"0 0 {width:g} {height:g}"}
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **size})
    SubElement(root, "title").text = title
    SubElement(root, "style").text = style
    return root


def add(parent: Element, tag: str, css_class: str = "", text: str = "", **attributes: str | float) -> Element:
    """Append an element; numbers are rounded to a tenth, and ``text_anchor`` becomes ``text-anchor``."""
    written = {
        name.replace("_", "-"): value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        for name, value in attributes.items()
    }
    element = SubElement(parent, tag, {"class": css_class, **written} if css_class else written)
    element.text = text or None
    return element


def svg_text(root: Element) -> str:
    """The text of an SVG file, a line per element."""
    indent(root, "")
    return f"{tostring(root, 'unicode')}\n"


def picture(runs: Sequence[dict[str, Any]]) -> str:
    """Runs in their JSON form as SVG: a column per framework, a bar per problem, on a logarithmic axis."""
    rows = [row for run in runs for row in run["rows"] if row["ratio"] is not None]
    # Several runs may have measured one framework with different versions: each has a column.
    columns = [list(group) for _, group in groupby(rows, key=lambda row: row["framework"])]
    width = LABEL + AXIS + TIMES
    height = TOP + LINE * max(len(column) + 2 * len({row["group"] for row in column}) for column in columns) + 36
    versions = {name: version for run in runs for name, version in run["versions"].items()}
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    root = svg_root(len(columns) * width, height, 1, "the time of the best peer over that of einsumx", STYLE)
    add(root, "rect", "ground", width="100%", height="100%")
    for place, column in enumerate(columns):
        _add_column(add(root, "g", transform=f"translate({place * width},0)"), column)
    foot = f"{runs[0]['date'][:10]}, {runs[0]['cores']} cores, {names}"
    add(root, "text", "faint", foot, x=12, y=height - 12)
    return svg_text(root)


def _x(ratio: float) -> float:
    return LABEL + (min(max(log2(ratio), LOW), HIGH) - LOW) / (HIGH - LOW) * AXIS


def _add_column(parent: Element, rows: Sequence[dict[str, Any]]) -> None:
    add(parent, "text", "title", rows[0]["framework"], x=12, y=24)
    add(parent, "text", "faint", "time of the best peer / time of einsumx", x=LABEL, y=24)
    bottom = TOP + LINE * (len(rows) + 2 * len({row["group"] for row in rows})) - LINE
    for power in range(LOW, HIGH + 1):
        x = _x(2.0**power)
        label = f"{2**power}×" if power >= 0 else f"1/{2**-power}"
        add(parent, "line", "grid" if power else "one", x1=x, x2=x, y1=TOP - 14, y2=bottom)
        add(parent, "text", "faint", label, text_anchor="middle", x=x, y=TOP - 20)
    y = TOP
    for group, members in groupby(rows, key=lambda row: row["group"]):
        add(parent, "text", "group", group, x=12, y=y)
        for row in members:
            y += LINE
            _add_bar(parent, row, y)
        y += 2 * LINE


def _add_bar(parent: Element, row: dict[str, Any], y: float) -> None:
    ratio, peer = row["ratio"], row["best_peer"]
    colour = FASTER if ratio >= 1.03 else SLOWER if ratio < 0.97 else EQUAL
    x, one = _x(ratio), _x(1.0)
    dtype = "" if row["dtype"] == "float32" else row["dtype"]
    label = " ".join(filter(None, (row["equation"], dtype, *row["layouts"])))
    label = label if len(label) < 45 else f"{label[:43]}…"
    shapes = " ".join(str(tuple(shape)) for shape in row["shapes"])
    times = f"{duration(row['seconds']['einsumx'])}, {peer} {duration(row['seconds'][peer])}"
    group = add(parent, "g")
    add(group, "title", text=f"{row['equation']} {shapes}: {ratio:.2f}×")
    add(group, "text", text=label, x=12, y=y)
    add(group, "rect", x=min(x, one), y=y - 6, width=abs(x - one), height=4, fill=colour)
    add(group, "circle", cx=x, cy=y - 4, r=3.5, fill=colour)
    add(group, "text", "faint", times, x=LABEL + AXIS + 8, y=y)


if __name__ == "__main__":
    *sources, target = map(Path, sys.argv[1:])
    runs = [json.loads(source.read_text(encoding="utf-8")) for source in sources]
    target.write_text(picture(runs), encoding="utf-8")
