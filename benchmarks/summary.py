"""Summaries of a run as small tables of text, made from its JSON form, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, log
from typing import Any, TypeAlias

from einsumx.terminal import timing

__all__ = ["Table", "comparison", "described", "geometric_mean", "order_sensitivity", "summaries"]

Row: TypeAlias = dict[str, Any]
"""A problem on a framework, in the format of ``show.data``."""

EVEN = 0.97
"""From this ratio on, einsumx counts as no slower than the best peer."""

CHANGE = 1.1
"""Changes of einsumx's time by less than this factor are not reported."""

MIXED = ("attention", "order", "mlp", "pairs", "random")
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
    gradient = "with gradients" if row["gradient"] else ""
    return "  ".join(filter(None, (row["equation"], shapes, dtype, " ".join(row["layouts"]), gradient)))


def summaries(run: dict[str, Any]) -> Iterator[Table]:
    """All tables of a run: means, slower problems, and the effect of the order of axes and operands."""
    for framework, members in groupby(run["rows"], key=lambda row: row["framework"]):
        rows = list(members)
        yield Table(
            f"{framework}: the best peer's time over einsumx's",
            ("problems", "number", "geometric mean", "least", f"below {EVEN}", "by hand: mean", "least"),
            [cells for name, part in _parts(rows) if (cells := _means(name, part))],
        )
        slower = _slower(rows)
        if slower.rows:
            yield slower
    sensitivity = order_sensitivity(run["rows"])
    if sensitivity.rows:
        yield sensitivity


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


def _means(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """A row of means; empty without ratios."""
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    lines = [row["by_hand"] for row in rows if row["by_hand"] is not None]
    if not ratios:
        return ()
    slower = sum(ratio < EVEN for ratio in ratios)
    by_hand = (f"{geometric_mean(lines):.2f}", f"{min(lines):.2f}") if lines else ("", "")
    share = f"{slower} ({slower / len(ratios):.0%})" if slower else "none"
    return (name, str(len(ratios)), f"{geometric_mean(ratios):.2f}", f"{min(ratios):.2f}", share, *by_hand)


def _slower(rows: Sequence[Row]) -> Table:
    """The problems on which the best peer is faster, worst first."""
    slower = sorted((row for row in rows if row["ratio"] is not None and row["ratio"] < EVEN), key=lambda r: r["ratio"])
    title = f"{rows[0]['framework']}: slower than the best peer, worst first"
    cells = [
        (described(row), row["group"], _time(row, "einsumx"), _time(row, row["best_peer"]), f"{row['ratio']:.2f}")
        for row in slower
    ]
    return Table(title, ("problem", "group", "einsumx", "best peer", "ratio"), cells)


def _time(row: Row, name: str) -> str:
    text = timing(row["seconds"][name])
    return text if name == "einsumx" else f"{text} {name}"


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
        peers = [name for name in names if name not in ("einsumx", "hand-written")]
        if len(spelled) < 2 or "einsumx" not in times:
            continue
        best = min(peers, key=lambda name: geometric_mean(times[name]), default="")
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
        title = f"{framework}: {len(changed)} problems as in the run of {old['date'][:16]}"
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
