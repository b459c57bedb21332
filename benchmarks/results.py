"""What the README, docs/benchmarks.md, its page of details and the picture say of speed: made from speed.json alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from textwrap import fill
from typing import Any, TypeAlias

from names import EINSUMX, best_peer, peers
from picture import DRAWN, FASTEST, TIE, speed_picture
from summary import BEST, COLUMNS, EVEN, Figures, Row, Table, described, fastest, geometric_mean, ratios

from einsumx.errors import counted
from einsumx.ir.text import duration, three_digits

Data: TypeAlias = dict[str, list[dict[str, Any]]]
"""The runs with their environments, the rows of ``einsumx compare``, and the times of all problems."""

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "benchmarks" / "speed.json"
LIBRARIES = ("numpy", "torch", "jax", "mxnet", "opt_einsum", "cotengra", "einsumt", "pytblis", "etops", "sesum")
"""The packages whose versions are shown."""

BEGIN, END = "<!-- {}: generated -->", "<!-- end of {} -->"


def combined(parts: Sequence[Data]) -> Data:
    """The data of several environments as one, in the order of the picture."""

    def place(row: dict[str, Any]) -> int:
        return [*DRAWN].index(row["framework"])

    ordered = sorted(parts, key=lambda part: min(map(place, part["runs"])))
    return {key: [*chain.from_iterable(part[key] for part in ordered)] for key in ("runs", "compare", "rows")}


def write(data: Data) -> None:
    """Write all that is made from the data."""
    for path, text in written(data).items():
        path.write_text(text, encoding="utf-8")


def written(data: Data) -> dict[Path, str]:
    """The text of each file that is made from the data, in whole or between marks."""
    texts = {ROOT / "docs/pictures/speed.svg": speed_picture(data["rows"], [_problems(data), _recorded(data)])}
    texts[ROOT / "docs/benchmarks/details.md"] = _details(data)
    parts: dict[Path, dict[str, Callable[[Data], str]]] = {
        ROOT / "README.md": {"speed": _readme, "compare": _compare},
        ROOT / "docs/benchmarks.md": {"result": _result},
    }
    for path, made in parts.items():
        texts[path] = path.read_text(encoding="utf-8")
        for name, make in made.items():
            texts[path] = with_part(texts[path], name, make(data))
    return texts


def with_part(page: str, name: str, part: str) -> str:
    r"""The page with another text between the marks of this name.

    Raises:
        ValueError: the page lacks the marks.

    >>> print(with_part(f"one {BEGIN.format('x')} two {END.format('x')} three", "x", "2").replace("\n\n", " "))
    one <!-- x: generated --> 2 <!-- end of x --> three
    """
    first, last = BEGIN.format(name), END.format(name)
    before, start, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not (start and end):
        raise ValueError(f"the page lacks the lines {first!r} and {last!r}")
    return "\n\n".join([before + start, part, end + after])


@dataclass(frozen=True)
class Standing:
    """How einsumx stands beside the other einsums on one framework.

    Attributes:
        name: the framework in the data.
        rows: its rows.
    """

    name: str
    rows: list[Row]

    @property
    def title(self) -> str:
        """The framework, for readers."""
        return DRAWN[self.name][0]

    @property
    def own(self) -> str:
        """The framework's own einsum."""
        return DRAWN[self.name][1][0]

    @cached_property
    def own_mean(self) -> float:
        """The geometric mean of its time over that of einsumx."""
        return geometric_mean(ratios(self.rows, EINSUMX, self.own))

    @cached_property
    def best(self) -> Figures:
        """The ratios of the fastest other einsum of each problem."""
        return Figures.of(ratios(self.rows, EINSUMX, BEST))

    @property
    def slower(self) -> str:
        """The share of problems on which einsumx is slower than the fastest other einsum."""
        return f"{1 - self.best.even:.0%}".replace("%", " %")

    @cached_property
    def classes(self) -> dict[str, Figures]:
        """The ratios of the fastest other einsum by class of problems."""
        grouped = {name: list(rows) for name, rows in groupby(self.rows, key=lambda row: row["group"])}
        found = {name: ratios(rows, EINSUMX, BEST) for name, rows in grouped.items()}
        return {name: Figures.of(each) for name, each in found.items() if each}

    @property
    def slower_classes(self) -> list[str]:
        """The classes of problems on which einsumx is slower in the mean, the slowest first."""
        slower = [name for name, figures in self.classes.items() if figures.mean < EVEN]
        return sorted(slower, key=lambda name: self.classes[name].mean)


def standings(data: Data) -> list[Standing]:
    """The frameworks in the order of the data."""
    grouped = groupby(data["rows"], key=lambda row: row["framework"])
    return [Standing(name, list(rows)) for name, rows in grouped]


# -- the README -------------------------------------------------------------------------------------------------


def _readme(data: Data) -> str:
    """The paragraph on speed."""
    first, *_ = frameworks = standings(data)
    text = (
        f"Times of other einsums over that of einsumx, geometric means over {len(first.rows)} contractions: some from "
        f"chemistry, and random ones of seed {data['runs'][0]['seed']}, which nobody tuned einsumx to. [Benchmarks]"
        "(docs/benchmarks.md) has the classes, and each contraction on which einsumx is slower:"
    )
    head = "| | its own einsum | fastest other einsum | einsumx is slower on | most of all on |"
    lines = [head, "|---|---|---|---|---|"]
    for each in frameworks:
        means = f"`{each.own}` {three_digits(each.own_mean)} | {three_digits(each.best.mean)}"
        lines.append(f"| {each.title} | {means} | {each.slower} | {', '.join(each.slower_classes[:3])} |")
    return "\n".join([_wrapped(text), "", *lines])


def _wrapped(text: str) -> str:
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _compare(data: Data) -> str:
    """The table of ``einsumx compare``, without the column of the calls, and when it was recorded."""
    lines = [f"{'framework':<11}  {'equation':<15}  {'native':>7}  {'einsumx':>8}  {'ratio':>8}  {'error':>6}"]
    for backend, group in groupby(data["compare"], key=lambda row: row["backend"]):
        rows = list(group)
        lines.append("─" * len(lines[0]) if len(lines) == 1 else "")
        lines += [_compared(row, label) for row, label in zip(rows, [backend, rows[0]["version"], ""])]
    run = data["runs"][0]
    where = (
        f"Recorded on {run['date'][:10]} on {counted(run['cores'], 'core')} ({run['machine']}); MXNet in its own "
        "environment."
    )
    return "\n".join([*map(str.rstrip, ["```text", *lines, "```"]), "", where])


def _compared(row: dict[str, Any], label: str) -> str:
    ours, native, ratio = row["einsumx_seconds"], row["native_seconds"], row["native_seconds"] / row["einsumx_seconds"]
    doubtful = " ?" if row["verdict"] == "not conclusive" else ""
    shown = "tie" if 1 / TIE < ratio < TIE else f"{three_digits(ratio)}x"
    times = f"{duration(native):>7}  {duration(ours):>8}  {shown + doubtful:>8}  {row['error_per_bound']:>6.1g}"
    return f"{label:<11}  {row['equation']:<15}  {times}"


# -- docs/benchmarks.md -----------------------------------------------------------------------------------------


def _result(data: Data) -> str:
    """The result: a row for each framework, and then for each class of problems."""
    frameworks = Table(
        "The time of other einsums over that of einsumx: geometric means",
        ("library", "problems", "its own einsum", "fastest other einsum", "worst", "einsumx is slower on"),
        [
            (
                *(each.title, str(each.best.number), three_digits(each.own_mean), three_digits(each.best.mean)),
                *(three_digits(each.best.worst), each.slower),
            )
            for each in standings(data)
        ],
    )
    columns = [each.classes for each in standings(data)]
    names = dict.fromkeys(row["group"] for row in data["rows"])
    classes = Table(
        "The fastest other einsum by class of problems, and in brackets, on how many of them einsumx is slower",
        ("class", *(each.title for each in standings(data))),
        [(name, *(_class(column.get(name)) for column in columns)) for name in names],
    )
    return f"{_about(data)}\n\n{frameworks.markdown()}\n\n{classes.markdown()}"


def _class(figures: Figures | None) -> str:
    if figures is None:
        return ""
    slower = round(figures.number * (1 - figures.even))
    return f"{three_digits(figures.mean)} ({slower} of {figures.number})"


def _problems(data: Data) -> str:
    """A sentence on the problems."""
    groups = [row["group"] for row in data["rows"] if row["framework"] == data["runs"][0]["framework"]]
    chemistry, classes = groups.count("chemistry"), len({*groups} - {"chemistry"})
    return (
        f"{len(groups)} contractions: {chemistry} from chemistry, {len(groups) - chemistry} random ones of {classes} "
        f"classes with seed {data['runs'][0]['seed']}."
    )


def _recorded(data: Data) -> str:
    """A sentence on the machine, and one if other programs ran."""
    run = data["runs"][0]
    busy = [DRAWN[each["framework"]][0] for each in data["runs"] if each["busy"]]
    disturbed = f" Other programs disturbed the times of {_listed(busy)}." if busy else ""
    return (
        f"Measured on {run['date'][:10]}, on {counted(run['cores'], 'core')} ({run['machine']}), "
        f"without a GPU.{disturbed}"
    )


def _about(data: Data) -> str:
    """Sentences on the problems, the machine and the versions."""
    versions = {name: number for each in reversed(data["runs"]) for name, number in each["versions"].items()}
    libraries = [f"{name} {versions[name].partition('+')[0]}" for name in LIBRARIES if name in versions]
    return _wrapped(f"{_problems(data)} {_recorded(data)} Written by `nox -s speed`: {', '.join(libraries)}.")


# -- the details ------------------------------------------------------------------------------------------------


def _details(data: Data) -> str:
    """A page with each other einsum, the fastest by class, and every problem on which einsumx is slower."""
    lines = ["# Benchmarks in detail", _about(data), "[Benchmarks](../benchmarks.md) says how this is measured."]
    for each in standings(data):
        lines += [f"## {each.title}", *(table.markdown() for table in _tables(each))]
    return "\n\n".join(lines) + "\n"


def _tables(standing: Standing) -> Iterator[Table]:
    names = dict.fromkeys(name for row in standing.rows for name in peers(row["seconds"]))
    found = {name: ratios(standing.rows, EINSUMX, name) for name in (BEST, *names)}
    cells = [(FASTEST if name == BEST else name, *Figures.of(each).cells()) for name, each in found.items() if each]
    yield Table("The time of other einsums over that of einsumx", ("einsum", *COLUMNS), cells)
    yield replace(fastest(standing.rows), title="Problems on which each is the fastest")
    yield _slower(standing)


def _slower(standing: Standing) -> Table:
    """All problems on which einsumx is slower than the fastest other einsum, worst first."""
    cells = []
    for row in standing.rows:
        for ratio in ratios([row], EINSUMX, BEST):
            if ratio < EVEN:
                seconds, best = row["seconds"], best_peer(row["seconds"]) or ""
                times = duration(seconds[EINSUMX]), f"{duration(seconds[best])} {best}"
                cells.append((ratio, (f"`{described(row)}`", row["group"], *times, f"{ratio:.2f}")))
    rows = [cells for _, cells in sorted(cells)]
    return Table("Slower than the fastest other einsum", ("problem", "class", "einsumx", "fastest", "ratio"), rows)


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
