"""A picture of benchmarks: for each problem how many times longer the best peer takes than einsumx.

``python benchmarks/picture.py RESULTS.json ... PICTURE.svg`` draws the results of several runs side by side.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log2
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from einsumx.terminal import timing

__all__ = ["picture"]

LOW, HIGH = -3, 7  # powers of two at the ends of the axis; what lies beyond is drawn at the end
LABEL, AXIS, TIMES, LINE, TOP = 270, 300, 240, 13, 64
FASTER, SLOWER, EQUAL = "#1a7f5a", "#c0392b", "#8a8f98"
STYLE = """
text { font: 9.5px ui-monospace, Menlo, Consolas, monospace; fill: #24292f }
.title { font: bold 15px system-ui, sans-serif } .group { font: bold 11px system-ui, sans-serif }
.faint { fill: #6e7781 } .grid { stroke: #e3e6ea } .one { stroke: #57606a }
"""


def picture(runs: Sequence[dict[str, Any]]) -> str:
    """Runs, as ``show.data`` has them, as SVG: a column a framework, a bar a problem, on a logarithmic axis."""
    rows = [row for run in runs for row in run["rows"] if row["ratio"] is not None]
    columns = [list(found) for _, found in groupby(rows, key=lambda row: row["framework"])]
    width = LABEL + AXIS + TIMES
    height = TOP + LINE * max(len(column) + 2 * len({row["group"] for row in column}) for column in columns) + 36
    # Several runs may have measured one framework with different versions: the columns stay those of the runs.
    drawn = [
        f'<g transform="translate({place * width},0)">{"".join(_column(found))}</g>'
        for place, found in enumerate(columns)
    ]
    named = ", ".join(
        f"{name} {number}" for name, number in {k: v for run in runs for k, v in run["versions"].items()}.items()
    )
    foot = f"{runs[0]['date'][:10]}, {runs[0]['cores']} cores, {named}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(columns) * width}" height="{height}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>{"".join(drawn)}'
        f'<text class="faint" x="12" y="{height - 12}">{escape(foot)}</text></svg>\n'
    )


def _x(ratio: float) -> float:
    return LABEL + (min(max(log2(ratio), LOW), HIGH) - LOW) / (HIGH - LOW) * AXIS


def _column(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f'<text class="title" x="12" y="24">{escape(rows[0]["framework"])}</text>'
    yield f'<text class="faint" x="{LABEL}" y="24">time of the best peer / time of einsumx</text>'
    bottom = TOP + LINE * (len(rows) + 2 * len({row["group"] for row in rows})) - LINE
    for power in range(LOW, HIGH + 1):
        x = _x(2.0**power)
        name = f"{2**power}×" if power >= 0 else f"1/{2**-power}"
        yield f'<line class="{"grid" if power else "one"}" x1="{x}" x2="{x}" y1="{TOP - 14}" y2="{bottom}"/>'
        yield f'<text class="faint" text-anchor="middle" x="{x}" y="{TOP - 20}">{name}</text>'
    y = TOP
    for group, found in groupby(rows, key=lambda row: row["group"]):
        yield f'<text class="group" x="12" y="{y}">{escape(group)}</text>'
        for row in found:
            y += LINE
            yield from _bar(row, y)
        y += 2 * LINE


def _bar(row: dict[str, Any], y: float) -> Iterator[str]:
    ratio, peer = row["ratio"], row["best_peer"]
    color = FASTER if ratio >= 1.03 else SLOWER if ratio < 0.97 else EQUAL
    x, one = _x(ratio), _x(1.0)
    dtype = "" if row["dtype"] == "float32" else row["dtype"]
    label = " ".join(filter(None, (row["equation"], dtype, *row["layouts"])))
    label = label if len(label) < 45 else f"{label[:43]}…"
    shapes = " ".join(str(tuple(shape)) for shape in row["shapes"])
    times = f"{timing(row['seconds']['einsumx'])}, {peer} {timing(row['seconds'][peer])}"
    yield f"<g><title>{escape(row['equation'])} {shapes}: {ratio:.2f}×</title>"
    yield f'<text x="12" y="{y}">{escape(label)}</text>'
    yield f'<rect x="{min(x, one):.1f}" y="{y - 6}" width="{abs(x - one):.1f}" height="4" fill="{color}"/>'
    yield f'<circle cx="{x:.1f}" cy="{y - 4}" r="3.5" fill="{color}"/>'
    yield f'<text class="faint" x="{LABEL + AXIS + 8}" y="{y}">{escape(times)}</text></g>'


if __name__ == "__main__":
    *sources, target = map(Path, sys.argv[1:])
    target.write_text(picture([json.loads(source.read_text()) for source in sources]))
