"""Summaries of a run as small tables of text, made from its JSON form, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, log
from statistics import quantiles
from typing import Any, TypeAlias

from names import EINSUMX, HAND_WRITTEN, OURS, best_peer, peers

from einsumx.errors import counted
from einsumx.ir.text import duration

Row: TypeAlias = dict[str, Any]
"""A problem on a framework, in the format of ``show.data``."""

EVEN = 0.97
"""From this ratio on, einsumx counts as no slower than the best peer."""

CHANGE = 1.1
"""Changes of einsumx's time by less than this factor are not reported."""

BEST = "the best peer of each problem"
"""An oracle: the least of several times, which noise alone makes 2 to 3 % too fast."""

STEADY, AFTER_PRODUCT = "seconds", "after_product"
"""The keys of a row under which its times are."""

WORST = 5
"""Problems on which the best peer is faster that are listed."""

LARGE = 32e6
"""Bytes. The C library maps memory of larger results anew for each call; clearing its pages takes time."""

MIXED = ("attention", "order", "mlp", "pairs", "chemistry", "random")
"""Groups in which contractions of two operands have axes in all orders."""


@dataclass(frozen=True, slots=True)
class Table:
    """Text in columns under a title."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """The table as Markdown."""

        def line(cells: Sequence[str]) -> str:
            return f"| {' | '.join(cells)} |"

        rule = line(["---", *["---:"] * (len(self.columns) - 1)])
        return "\n".join([f"**{self.title}**", "", line(self.columns), rule, *map(line, self.rows)])


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean; a ratio and its inverse cancel.

    >>> geometric_mean([0.5, 2.0, 8.0])
    2.0
    """
    return round(exp(sum(map(log, ratios)) / len(ratios)), 12)


def described(row: Row) -> str:
    """A problem on one line."""
    shapes = " ".join(f"({','.join(map(str, shape))})" for shape in row["shapes"])
    dtype = "" if row["dtype"] == "float32" else row["dtype"]
    real = "first real" if row.get("is_real") else ""
    gradient = "with gradients" if row.get("gradient") else ""
    return "  ".join(filter(None, (row["equation"], shapes, dtype, " ".join(row["layouts"]), real, gradient)))


@dataclass(frozen=True, slots=True)
class Figures:
    """Ratios of times in a few figures.

    Attributes:
        number: of ratios.
        mean: the geometric mean.
        worst: the least ratio.
        low, middle, high: the 10th, 50th and 90th percentile.
        even: the share of ratios from ``EVEN`` on.
    """

    number: int
    mean: float
    worst: float
    low: float
    middle: float
    high: float
    even: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Figures:
        """The figures of at least one ratio.

        >>> Figures.of([0.5, 1.0, 2.0]).middle
        1.0
        """
        several = ratios if len(ratios) > 1 else [*ratios, *ratios]
        low, _, _, _, middle, _, _, _, high = quantiles(several, n=10, method="inclusive")
        even = sum(ratio >= EVEN for ratio in ratios) / len(ratios)
        return cls(len(ratios), geometric_mean(ratios), min(ratios), low, middle, high, even)

    def cells(self) -> tuple[str, ...]:
        """As text, under ``COLUMNS``."""
        figures = (self.mean, self.worst, self.low, self.middle, self.high)
        return (str(self.number), *(f"{figure:.2f}" for figure in figures), f"{self.even:.0%}")


COLUMNS = ("number", "geometric mean", "worst", "10 %", "50 %", "90 %", f"≥ {EVEN}")


def ratios(rows: Sequence[Row], ours: str, other: str, key: str = STEADY) -> list[float]:
    """Another contender's time over that of ``ours``, for each problem that both computed; ``BEST`` is one, too."""
    found = []
    for row in rows:
        times = row.get(key, {})
        name = best_peer(times) if other == BEST else other
        if name in times and ours in times:
            found.append(times[name] / times[ours])
    return found


def summaries(run: dict[str, Any]) -> Iterator[Table]:
    """All tables of a run: ratios of einsumx and of einsumx (measure), the worst, repeats, and the effect of order."""
    for _, members in groupby(run["rows"], key=lambda row: row["framework"]):
        rows = list(members)
        by_ours = [f(rows, ours) for ours in OURS for f in (_by_group, _against)]
        for table in (*by_ours, fastest(rows), _slower(rows), _repeats(rows)):
            if table.rows:
                yield table
    sensitivity = order_sensitivity(run["rows"])
    if sensitivity.rows:
        yield sensitivity


def _by_group(rows: Sequence[Row], ours: str) -> Table:
    """The best peer of each problem, by group."""
    title = f"{rows[0]['framework']}: the time of {BEST}, over that of {ours}"
    cells = [(name, *_means(part, ours)) for name, part in _parts(rows) if ratios(part, ours, BEST)]
    return Table(title, ("problems", *COLUMNS, "roofline", "by hand", "large"), cells)


def _parts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The groups, the contractions of two operands in mixed axis orders, and all rows."""
    for group, members in groupby(rows, key=lambda row: row["group"]):
        yield group, list(members)
    yield "two operands, mixed axis orders", [row for row in rows if _is_mixed(row)]
    yield "all", list(rows)


def _is_mixed(row: Row) -> bool:
    """Whether a problem contracts two operands and belongs to a group of many axis orders."""
    left, _, output = row["equation"].partition("->")
    first, _, second = left.partition(",")
    contracts = (set(first) & set(second)) - set(output)
    return row["group"] in MIXED and left.count(",") == 1 and bool(contracts)


def _means(rows: Sequence[Row], ours: str) -> tuple[str, ...]:
    """The ratios to the best peers, the mean part of the roofline, the mean ratio by hand, and the large results."""
    roofline = [row["floor"] / row[STEADY][ours] for row in rows if "floor" in row and ours in row[STEADY]]
    by_hand = ratios(rows, ours, HAND_WRITTEN)
    large = sum(row.get("result_bytes", 0) > LARGE for row in rows)
    return (
        *Figures.of(ratios(rows, ours, BEST)).cells(),
        f"{geometric_mean(roofline):.0%}" if roofline else "",
        f"{geometric_mean(by_hand):.2f}" if by_hand else "",
        str(large) if large else "",
    )


def _against(rows: Sequence[Row], ours: str) -> Table:
    """All problems: the best peer, each peer and the hand-written line, in steady state and after a product."""
    names = dict.fromkeys(name for row in rows for name in row[STEADY])
    cells = []
    for other in (BEST, *peers(names), HAND_WRITTEN):
        for key, times in ((STEADY, "steady"), (AFTER_PRODUCT, "after a product")):
            if found := ratios(rows, ours, other, key):
                cells.append((other, times, *Figures.of(found).cells()))
    title = f"{rows[0]['framework']}: all problems, the time of each other over that of {ours}"
    return Table(title, ("other", "times", *COLUMNS), cells)


def fastest(rows: Sequence[Row]) -> Table:
    """By group, on how many problems each contender is the fastest."""
    names = list(dict.fromkeys(name for row in rows for name in (EINSUMX, *peers(row[STEADY]))))
    cells = []
    for group, part in _parts(rows):
        times = [{name: row[STEADY][name] for name in names if name in row[STEADY]} for row in part]
        winners = [min(each, key=lambda name: each[name]) for each in times if each]
        cells.append((group, *(str(winners.count(name) or "") for name in names)))
    return Table(f"{rows[0]['framework']}: problems on which each is the fastest", ("problems", *names), cells)


def _slower(rows: Sequence[Row]) -> Table:
    """The problems on which the best peer is faster, worst first."""
    slower = sorted((row for row in rows if row["ratio"] is not None and row["ratio"] < EVEN), key=lambda r: r["ratio"])
    title = f"{rows[0]['framework']}: slower than the best peer, the worst of {len(slower)}"
    cells = [
        (
            described(row) + (" (large)" if row.get("result_bytes", 0) > LARGE else ""),
            row["group"],
            _time(row, EINSUMX),
            _time(row, row["best_peer"]),
            f"{row['ratio']:.2f}",
            *(_only(ratios([row], *pair)) for pair in ((EINSUMX, BEST, AFTER_PRODUCT), (OURS[1], BEST, STEADY))),
        )
        for row in slower[:WORST]
    ]
    return Table(title, ("problem", "group", "einsumx", "best peer", "ratio", "after a product", "measure"), cells)


def _only(figures: Sequence[float]) -> str:
    return f"{figures[0]:.2f}" if figures else ""


def _repeats(rows: Sequence[Row]) -> Table:
    """How much the repeats of each contender differ."""
    names = dict.fromkeys(name for row in rows for name in row.get("spread", {}))
    cells = []
    for name in names:
        figures = Figures.of([row["spread"][name] for row in rows if name in row.get("spread", {})])
        largest = max(row["spread"].get(name, 0.0) for row in rows if "spread" in row)
        cells.append((name, str(figures.number), f"{figures.middle:.2f}", f"{figures.high:.2f}", f"{largest:.2f}"))
    title = f"{rows[0]['framework']}: the median of the repeats over their minimum"
    return Table(title, ("contender", "problems", "50 %", "90 %", "largest"), cells)


def _time(row: Row, name: str) -> str:
    text = duration(row["seconds"][name])
    return text if name == EINSUMX else f"{text} {name}"


def order_sensitivity(rows: Sequence[Row]) -> Table:
    """For contractions in many spellings: the slowest spelling's time over the fastest's.

    The best peer is the one with the least geometric mean over all spellings.
    """
    cells = []
    named = [row for row in rows if row["family"]]
    named.sort(key=lambda row: row["framework"])  # stable: the families stay in order
    for (framework, family), group in groupby(named, key=lambda row: (row["framework"], row["family"])):
        spelled = list(group)
        names = [name for name in spelled[0]["seconds"] if all(name in row["seconds"] for row in spelled)]
        times = {name: [row["seconds"][name] for row in spelled] for name in names}
        if len(spelled) < 2 or "einsumx" not in times:
            continue
        best = best_peer({name: geometric_mean(times[name]) for name in names}) or ""
        cells.append(
            (
                f"{framework}: {family}",
                str(len(spelled)),
                _spread(times["einsumx"]),
                _spread(times[best]) if best else "",
                best,
            )
        )
    title = "Order: the slowest spelling's time over the fastest's"
    return Table(title, ("contraction", "spellings", "einsumx", "best peer", "which peer"), cells)


def _spread(times: Sequence[float]) -> str:
    return f"{max(times) / min(times):.2f}"


def comparison(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Table]:
    """The problems on which einsumx became slower or faster since an older run.

    The last column is the change of the ratio to the best peer. It tells a change of einsumx from one of the machine.
    """
    before = {(row["framework"], described(row)): row for row in old["rows"] if "einsumx" in row["seconds"]}
    pairs = [
        (row, before[key])
        for row in new["rows"]
        if "einsumx" in row["seconds"] and (key := (row["framework"], described(row))) in before
    ]
    for framework, group in groupby(pairs, key=lambda pair: pair[0]["framework"]):
        changed = list(group)
        changes = [_change(*pair) for pair in changed]
        title = f"{framework}: {counted(len(changed), 'problem')} as in the run of {old['date'][:16]}"
        mean = f"{geometric_mean(changes):.3f}"
        yield Table(title, ("", "old time / new time"), [("geometric mean", mean)])
        changed.sort(key=lambda pair: _change(*pair))
        slower = [pair for pair in changed if _change(*pair) < 1 / CHANGE]
        faster = [pair for pair in reversed(changed) if _change(*pair) > CHANGE]
        columns = ("problem", "old", "new", "old / new", "change of the ratio")
        for word, reported in (("slower", slower), ("faster", faster)):
            if reported:
                yield Table(f"{framework}: {word}", columns, [_compared(*pair) for pair in reported])


def _compared(row: Row, old: Row) -> tuple[str, ...]:
    change = f"{_change(row, old):.2f}"
    return described(row), _time(old, "einsumx"), _time(row, "einsumx"), change, _ratio_change(row, old)


def _change(row: Row, old: Row) -> float:
    change: float = old["seconds"]["einsumx"] / row["seconds"]["einsumx"]
    return change


def _ratio_change(row: Row, old: Row) -> str:
    return f"{row['ratio'] / old['ratio']:.2f}" if row["ratio"] and old["ratio"] else ""
