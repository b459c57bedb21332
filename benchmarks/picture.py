"""The README's picture of speed: how many times longer the other einsums take than einsumx, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import quantiles
from textwrap import wrap
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from names import EINSUMX
from summary import BEST, geometric_mean, ratios

from einsumx.ir.text import three_digits

FASTEST = "fastest other einsum"

DRAWN = {
    "numpy": ("NumPy", ("np.einsum", "np.einsum(optimize)", "opt_einsum", "cotengra", BEST)),
    "torch": ("PyTorch", ("torch.einsum", "opt_einsum", "cotengra", BEST)),
    "jax, jitted": ("JAX (jitted)", ("jnp.einsum", "opt_einsum", "cotengra", BEST)),
    "mxnet": ("MXNet", ("mx.np.einsum",)),
}
"""Of each framework in the data: its title, and the peers to draw, its own einsum first."""

TIE = 1.1
"""Ratios up to this one, and down to its inverse, are noise."""

WIDTH, LABEL, VALUE = 440.0, 152.0, 52.0
ROW, HEAD, TOP, FOOT = 19.0, 25.0, 72.0, 14.0
FOOT_LETTERS = 76

STYLE = """
text { font: 12.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1c2024 }
.ground { fill: #ffffff } .title { font-size: 16px; font-weight: 600 } .head { font-weight: 600 }
.small { font-size: 10.5px; fill: #5c636a } .grid { stroke: #dfe4ea } .one { stroke: #5c636a; stroke-width: 1.5 }
.range { stroke: #1c2024; stroke-width: 1 } .faster { fill: #2f8f5b } .tie { fill: #7a8591 } .slower { fill: #c05a1a }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7ea } .ground { fill: #14171a } .small { fill: #9da5ad } .grid { stroke: #2b3238 }
.one { stroke: #9da5ad } .range { stroke: #e4e7ea } .faster { fill: #4fb883 } .tie { fill: #7b8691 }
.slower { fill: #e08a4a }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A peer on a framework.

    Attributes:
        framework, peer: their names in the picture.
        mean: the geometric mean of the peer's time over einsumx's.
        low, high: the 10th and the 90th percentile of these ratios.
        count: the number of problems that both computed.
    """

    framework: str
    peer: str
    mean: float
    low: float
    high: float
    count: int

    @property
    def verdict(self) -> str:
        """``"faster"``, ``"tie"`` or ``"slower"`` for einsumx."""
        return "tie" if 1 / TIE < self.mean < TIE else "faster" if self.mean > 1 else "slower"


def bars(rows: Sequence[dict[str, Any]]) -> Iterator[Bar]:
    """A bar for each peer on each framework in the rows of a run's data."""
    for name, (title, peers) in DRAWN.items():
        own = [row for row in rows if row["framework"] == name]
        for peer in peers:
            found = ratios(own, EINSUMX, peer)
            if len(found) > 1:
                low, *_, high = quantiles(found, n=10, method="inclusive")
                label = FASTEST if peer == BEST else peer
                yield Bar(title, label, geometric_mean(found), low, high, len(found))


def speed_picture(rows: Sequence[dict[str, Any]], recorded: Sequence[str]) -> str:
    """The picture as SVG: a bar for each peer on a logarithmic axis, einsumx at 1.

    Args:
        rows: those of a run's data.
        recorded: sentences on the problems, the machine and the command.

    Raises:
        ValueError: the rows contain no time of a peer.
    """
    drawn = list(bars(rows))
    if not drawn:
        raise ValueError("no run has times of einsumx and of another einsum")
    frameworks = list(dict.fromkeys(bar.framework for bar in drawn))
    bottom = TOP + HEAD * len(frameworks) + ROW * len(drawn)
    sentences = ("Bars: geometric means. Lines: from the 10th to the 90th percentile.", *recorded)
    caption = [line for text in sentences for line in wrap(text, FOOT_LETTERS)]
    height = bottom + 16 + FOOT * len(caption)
    root = _svg_root(WIDTH, height, 1.5, "einsumx against other einsums: " + "; ".join(map(_sentence, drawn)), STYLE)
    _add(root, "rect", "ground", width=WIDTH, height=height)
    _add(root, "text", "title", "Time of other einsums, relative to einsumx", x=12, y=24)
    _add(root, "text", "small", "Bars to the right: einsumx is faster. Logarithmic scale.", x=12, y=41)
    axis = _Axis(min(bar.low for bar in drawn), max(bar.high for bar in drawn))
    _add_grid(root, axis, bottom)
    y = TOP
    for framework in frameworks:
        _add(root, "text", "head", framework, x=12, y=y + HEAD - 8)
        y += HEAD
        for bar in (bar for bar in drawn if bar.framework == framework):
            _add_bar(root, bar, axis, y)
            y += ROW
    for line, text in enumerate(caption):
        _add(root, "text", "small", text, x=12, y=bottom + 20 + FOOT * line)
    indent(root, "")
    return f"{tostring(root, 'unicode')}\n"


class _Axis:
    """A logarithmic axis that includes 1."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = min(low / 1.05, 0.8), max(high * 1.05, 2.0)
        steps = (1, 2, 5) if self.high / self.low < 50 else (1,)
        ticks = [step * 10.0**power for power in range(-4, 7) for step in steps]
        self.ticks = [tick for tick in ticks if self.low <= tick <= self.high]

    def x(self, ratio: float) -> float:
        share = log(min(max(ratio, self.low), self.high) / self.low) / log(self.high / self.low)
        return LABEL + share * (WIDTH - LABEL - VALUE)


def _add_grid(root: Element, axis: _Axis, bottom: float) -> None:
    for tick in axis.ticks:
        x = axis.x(tick)
        _add(root, "line", "one" if tick == 1 else "grid", x1=x, x2=x, y1=TOP - 2, y2=bottom + 2)
        label = "einsumx" if tick == 1 else f"{tick:g}×"
        # The neighbours of 1 make room for its longer label.
        if tick == 1 or abs(x - axis.x(1)) > 38:
            _add(root, "text", "small", label, x=x, y=TOP - 7, text_anchor="middle")


def _add_bar(root: Element, bar: Bar, axis: _Axis, y: float) -> None:
    one, x, middle = axis.x(1), axis.x(bar.mean), y + ROW / 2
    _add(root, "text", "", bar.peer, x=22, y=middle + 4.5)
    _add(root, "rect", bar.verdict, x=min(one, x) - 1, y=y + 3.5, width=abs(x - one) + 2, height=ROW - 7)
    _add(root, "line", "range", x1=axis.x(bar.low), x2=axis.x(bar.high), y1=middle, y2=middle)
    _add(root, "text", "head", f"{three_digits(bar.mean)}×", x=WIDTH - 10, y=middle + 4.5, text_anchor="end")


def _sentence(bar: Bar) -> str:
    return f"{bar.peer} on {bar.framework} takes {bar.mean:.2f} times as long"


def _svg_root(width: float, height: float, zoom: float, title: str, style: str) -> Element:
    """An SVG element with a title and a style sheet, shown ``zoom`` times as large as its coordinates."""
    size = {"width": f"{width * zoom:g}", "height": f"{height * zoom:g}", "viewBox": f"0 0 {width:g} {height:g}"}
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **size})
    SubElement(root, "title").text = title
    SubElement(root, "style").text = style
    return root


def _add(parent: Element, tag: str, css_class: str = "", text: str = "", **attributes: str | float) -> None:
    """Append an element; numbers are rounded to a tenth, and ``text_anchor`` becomes ``text-anchor``."""
    written = {
        name.replace("_", "-"): value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        for name, value in attributes.items()
    }
    SubElement(parent, tag, {"class": css_class, **written} if css_class else written).text = text or None
