"""The HTML page of a plan: the picture, the text of the plan, and a table of its rows, in one file."""

from __future__ import annotations

from html import escape
from string import Template
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from einsumx.ir.text import quantity
from einsumx.render.layout import axes_text, has_times
from einsumx.render.svg import printable
from einsumx.render.timeline import Row, Timeline

__all__ = ["html_page"]

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1.5rem; max-width: 110rem; font: 0.9375rem/1.45 system-ui, sans-serif;
  background: #ffffff; color: #1c2024; }
h1 { font-size: 1.375rem; margin: 0 0 1rem; }
h2 { font-size: 1.125rem; margin: 2rem 0 0.5rem; }
.wide { overflow-x: auto; border: 1px solid #d5dae0; border-radius: 4px; }
.wide:focus-visible { outline: 2px solid #0b5cad; }
pre { font: 0.8125rem/1.5 ui-monospace, monospace; margin: 0; padding: 0.75rem 1rem; }
table { border-collapse: collapse; font: 0.8125rem/1.4 ui-monospace, monospace; width: 100%; }
th, td { text-align: left; padding: 0.25rem 0.75rem; vertical-align: top; border-bottom: 1px solid #d5dae0; }
th { font-weight: 600; }
tbody th { font-weight: normal; }
.number { text-align: right; white-space: nowrap; }
.copy { color: #9a4700; }
@media (prefers-color-scheme: dark) {
  body { background: #14171a; color: #e4e7ea; }
  .wide, th, td { border-color: #343b42; }
  .copy { color: #f2b35c; }
}
</style>
</head>
<body>
<h1>How einsumx runs a contraction</h1>
<main>
<div class="wide" tabindex="0" role="region" aria-label="picture of the plan">
$picture</div>
<h2>The plan</h2>
<div class="wide" tabindex="0" role="region" aria-label="text of the plan"><pre>$text</pre></div>
<h2>Call by call</h2>
<div class="wide" tabindex="0" role="region" aria-label="table of calls">$table</div>
</main>
</body>
</html>
""")

_NUMERIC = ("times", "multiply-adds", "makes", "alive")
"""Columns that are aligned to the right."""


def html_page(timeline: Timeline, svg: str) -> str:
    """A page that loads nothing, with ``svg`` as its picture."""
    return _PAGE.substitute(
        title=escape(printable(timeline.equation)),
        picture=svg,
        text=escape(printable(timeline.text)),
        table=_table(timeline),
    )


def _table(timeline: Timeline) -> str:
    table = Element("table")
    rows = [_cells(timeline, row) for row in timeline.rows]
    columns = [column for column in rows[0] if column != "times" or has_times(timeline)]
    head = SubElement(SubElement(table, "thead"), "tr")
    for column in columns:
        SubElement(head, "th", {"scope": "col", **_class_of(column)}).text = column
    body = SubElement(table, "tbody")
    for row, cells in zip(timeline.rows, rows):
        line = SubElement(body, "tr")
        for column in columns:
            if column == "call":
                cell = SubElement(line, "th", {"scope": "row"})
            else:
                is_reason = column == "remark" and row.kind == "copy"
                cell = SubElement(line, "td", {"class": "copy"} if is_reason else _class_of(column))
            cell.text = printable(cells[column])
    indent(table, "")
    return tostring(table, "unicode", "html")


def _class_of(column: str) -> dict[str, str]:
    return {"class": "number"} if column in _NUMERIC else {}


def _cells(timeline: Timeline, row: Row) -> dict[str, str]:
    """The text of a row by column."""
    return {
        "call": row.call,
        "times": f"{row.times}",
        "axes": axes_text(row.axes) or "scalar",
        "sums over": axes_text(row.summed),
        "dtype": row.dtype,
        "multiply-adds": quantity(row.multiply_adds) if row.multiply_adds else "",
        "makes": quantity(row.made, "B") if row.made else "",
        "alive": quantity(timeline.base + row.held, "B"),
        "remark": row.remark,
    }
