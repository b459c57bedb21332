"""Measure and draw the picture of the README: how many times longer the other einsums take than einsumx.

``python benchmarks/speed.py --json FILE --svg PICTURE`` measures every installed framework in a few minutes. If a
framework needs its own environment, measure it there with ``--backend NAME --json FILE``, and add it with
``--merge FILE``. The problems are a fixed sample: equally many from each group, evenly spaced in problems.txt.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import quantiles
from textwrap import wrap
from typing import Any
from xml.etree.ElementTree import Element

from picture import add, svg_root, svg_text
from summary import geometric_mean

from einsumx.ir.text import three_digits

GROUPS, PER_GROUP = ("attention", "mlp", "pairs", "networks"), 6

PEERS = {
    "numpy": ("NumPy {}", ("np.einsum", "np.einsum(optimize)", "opt_einsum")),
    "torch": ("PyTorch {}", ("torch.einsum", "opt_einsum")),
    "jax, jitted": ("JAX {}, jitted", ("jnp.einsum", "opt_einsum")),
    "mxnet": ("MXNet {}", ("mx.np.einsum",)),
}
"""Of each framework in the JSON: its title with the version, and the peers to draw."""

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


def bars(runs: Sequence[dict[str, Any]]) -> Iterator[Bar]:
    """A bar for each peer on each framework in the JSON form of runs."""
    for name, (title, peers) in PEERS.items():
        measured = [(run, [row for row in run["rows"] if row["framework"] == name]) for run in runs]
        for run, rows in ((run, rows) for run, rows in measured if rows):
            version = run["versions"].get(name.partition(",")[0], "").partition("+")[0]
            for peer in peers:
                times = [row["seconds"] for row in rows if {peer, "einsumx"} <= set(row["seconds"])]
                ratios = [seconds[peer] / seconds["einsumx"] for seconds in times]
                if len(ratios) > 1:
                    low, *_, high = quantiles(ratios, n=10, method="inclusive")
                    yield Bar(title.format(version), peer, geometric_mean(ratios), low, high, len(ratios))


def speed_picture(runs: Sequence[dict[str, Any]], command: str) -> str:
    """The picture as SVG: a bar for each peer on a logarithmic axis, einsumx at 1.

    Args:
        runs: at least one, in their JSON form.
        command: how to repeat the measurement.

    Raises:
        ValueError: the runs contain no time of a peer.
    """
    drawn = list(bars(runs))
    if not drawn:
        raise ValueError("no run has times of einsumx and of another einsum")
    frameworks = list(dict.fromkeys(bar.framework for bar in drawn))
    bottom = TOP + HEAD * len(frameworks) + ROW * len(drawn)
    caption = [line for text in _caption(runs, drawn, command) for line in wrap(text, FOOT_LETTERS)]
    height = bottom + 16 + FOOT * len(caption)
    root = svg_root(WIDTH, height, 1.5, "einsumx against other einsums: " + "; ".join(map(_sentence, drawn)), STYLE)
    add(root, "rect", "ground", width=WIDTH, height=height)
    add(root, "text", "title", "Time of other einsums, relative to einsumx", x=12, y=24)
    add(root, "text", "small", "Bars to the right: einsumx is faster. Logarithmic scale.", x=12, y=41)
    axis = _Axis(min(bar.low for bar in drawn), max(bar.high for bar in drawn))
    _add_grid(root, axis, bottom)
    y = TOP
    for framework in frameworks:
        add(root, "text", "head", framework, x=12, y=y + HEAD - 8)
        y += HEAD
        for bar in (bar for bar in drawn if bar.framework == framework):
            _add_bar(root, bar, axis, y)
            y += ROW
    for line, text in enumerate(caption):
        add(root, "text", "small", text, x=12, y=bottom + 20 + FOOT * line)
    return svg_text(root)


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
        add(root, "line", "one" if tick == 1 else "grid", x1=x, x2=x, y1=TOP - 2, y2=bottom + 2)
        label = "einsumx" if tick == 1 else f"{tick:g}×"
        # The neighbours of 1 make room for its longer label.
        if tick == 1 or abs(x - axis.x(1)) > 38:
            add(root, "text", "small", label, x=x, y=TOP - 7, text_anchor="middle")


def _add_bar(root: Element, bar: Bar, axis: _Axis, y: float) -> None:
    one, x, middle = axis.x(1), axis.x(bar.mean), y + ROW / 2
    add(root, "text", "", bar.peer, x=22, y=middle + 4.5)
    add(root, "rect", bar.verdict, x=min(one, x) - 1, y=y + 3.5, width=abs(x - one) + 2, height=ROW - 7)
    add(root, "line", "range", x1=axis.x(bar.low), x2=axis.x(bar.high), y1=middle, y2=middle)
    add(root, "text", "head", f"{three_digits(bar.mean)}×", x=WIDTH - 10, y=middle + 4.5, text_anchor="end")


def _sentence(bar: Bar) -> str:
    return f"{bar.peer} on {bar.framework} takes {bar.mean:.2f} times as long"


def _caption(runs: Sequence[dict[str, Any]], drawn: Sequence[Bar], command: str) -> Iterator[str]:
    counts = sorted({bar.count for bar in drawn})
    count = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    yield f"Bars: geometric means over {count} contractions. Lines: from the 10th to the 90th percentile."
    machines = dict.fromkeys(f"{run['machine']}, {run['cores']} cores" for run in runs)
    yield f"{'; '.join(machines)}; {max(run['date'] for run in runs)[:10]}; CPU only."
    yield f"Measured by: {command}"


# -- the command --------------------------------------------------------------------------------------------------


def main() -> None:
    """Measure, merge, write JSON and draw."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add_argument = parser.add_argument
    add_argument("--backend", nargs="+", metavar="NAME", help="measure only these frameworks")
    add_argument("--seconds", type=float, default=0.5, help="of rounds for each problem (default: 0.5)")
    add_argument("--merge", nargs="+", type=Path, default=[], metavar="FILE", help="also draw these runs")
    add_argument("--only-draw", action="store_true", help="measure nothing, draw what --merge reads")
    add_argument("--json", type=Path, metavar="FILE", help="write the measured run to this file")
    add_argument("--svg", type=Path, metavar="FILE", help="draw the picture to this file")
    options = parser.parse_args()
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in options.merge]
    if not options.only_draw:
        runs.insert(0, _run(options))
        if not runs[0]["rows"]:
            parser.error("none of these frameworks is installed")
        if options.json:
            options.json.write_text(json.dumps(runs[0], indent=1) + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(speed_picture(runs, "python benchmarks/speed.py"), encoding="utf-8")


def _run(options: Namespace) -> dict[str, Any]:
    """Measure the sample on the installed frameworks."""
    from contenders import FRAMEWORKS
    from measure import measure, prepare
    from problems import all_problems
    from show import console, data, print_rows

    import einsumx
    from einsumx.measuring.machine import watched

    installed = einsumx.backends()
    frameworks = [
        replace(each, peers=_drawn(each.peers, PEERS[each.name][1]), engines={}, tuned=False, spins=False)
        for each in FRAMEWORKS
        if each.name in PEERS and installed[each.backend] and each.backend in (options.backend or [each.backend])
    ]
    for framework in frameworks:
        framework.start()
    groups = all_problems(count=0)
    rows = []
    with watched() as watch:
        for problem in (problem for group in GROUPS for problem in sample(groups[group])):
            prepared = prepare(problem)
            for framework in frameworks:
                with console.status(f"{framework.name}  {problem}"):
                    row = measure(framework, prepared, options.seconds)
                rows += [row] if row is not None else []
    rows.sort(key=lambda row: list(PEERS).index(row.framework))
    for framework in frameworks:
        print_rows([row for row in rows if row.framework == framework.name])
    for reason in watch.reasons:
        console.print(f"WARNING: the machine was busy: {reason}", style="bold yellow")
    return data(rows)


def _drawn(peers: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: peer for name, peer in peers.items() if name in names}


def sample(problems: Sequence[Any]) -> list[Any]:
    """Evenly spaced problems, the first one among them.

    >>> sample(range(20))
    [0, 3, 6, 10, 13, 16]
    """
    return [problems[place * len(problems) // PER_GROUP] for place in range(PER_GROUP)]


if __name__ == "__main__":
    main()
