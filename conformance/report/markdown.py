"""Runs as a matrix in Markdown, for a project's documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from einsumx.conformance.case import Outcome
from einsumx.conformance.report.results import Run, count_statuses, features_of, group_by, not_judged
from einsumx.errors import counted

_ABOUT = (
    "einsumx's promises are tested by {cases} on every array library. Each element of a result is compared with its "
    "exact value, within the bound on rounding. Judged {days} by `python -m einsumx.conformance`. In einsumx's "
    "repository, `nox -s full` updates this page and [conformance.html](conformance.html), which has every case, "
    "dtype and environment, and describes each feature."
)

_LEGEND = (
    "Cells count cases that pass; ≠ deviate for the reason in the footnote, ✗ fail. Cases do not count if they need "
    "something that the framework lacks, such as a dtype, a memory layout or gradients; – means that none applies."
)

_OTHERS = "[conformance.html](conformance.html) has the reason of each deviation."

_MOST_COLUMNS = 8
"""The most subjects of one table: more are beside each other in no window."""


def markdown(runs: Sequence[Run]) -> str:
    """A page with matrices for einsumx, and the counts of other functions."""
    notes: dict[str, int] = {}
    days = sorted({run.date[:10] for run in runs})
    cases = len({outcome.case for run in runs for outcome in run.outcomes})
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    about = _ABOUT.format(cases=counted(cases, "case"), days=when)
    missing = not_judged(runs).replace("a GPU", "a [GPU](gpu.md)")
    lines = ["# Conformance", "", about, "", _LEGEND, "", *filter(None, [missing]), ""]
    ours = [run for run in runs if run.is_einsumx]
    if ours:
        lines += ["## einsumx", ""]
    for part in _parts(ours):
        lines += [*_matrix(part, features_of(ours), notes), ""]
    if others := [run for run in runs if not run.is_einsumx]:
        lines += ["## Other libraries' own functions, by the same cases", "", _OTHERS, "", *_counts(others), ""]
    lines += [f"[^{number}]: {reason}" for reason, number in notes.items()]
    return "\n".join(lines).rstrip() + "\n"


def _parts(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """The runs in parts of equal sizes, give or take one, that each fit beside each other in a table."""
    count = -(-len(runs) // _MOST_COLUMNS)
    for number in range(count):
        yield runs[len(runs) * number // count : len(runs) * (number + 1) // count]


def _matrix(runs: Sequence[Run], features: Sequence[str], notes: dict[str, int]) -> Iterator[str]:
    headings = (filter(None, (run.subject, run.version, run.device)) for run in runs)
    yield _row(["", *("<br>".join(map(_escaped, heading)) for heading in headings)])
    yield _row(["---"] * (len(runs) + 1))
    for feature in features:
        cells = (_cell([outcome for outcome in run.outcomes if outcome.feature == feature], notes) for run in runs)
        yield _row([f"**{_escaped(feature)}**", *cells])


def _counts(runs: Sequence[Run]) -> Iterator[str]:
    yield _row(["function", "pass", "deviate", "fail"])
    yield _row(["---", "---:", "---:", "---:"])
    for run in runs:
        counts = count_statuses(run.outcomes)
        yield _row([_escaped(run.name), *(str(counts[status]) for status in ("pass", "deviation", "fail"))])


def _cell(outcomes: Sequence[Outcome], notes: dict[str, int]) -> str:
    """The counts of each status, with footnotes for the reasons; ``notes`` numbers them for the whole page."""
    counts = count_statuses(outcomes)
    parts = [str(counts["pass"])] * bool(counts["pass"])
    if counts["deviation"]:
        reasons = group_by((o for o in outcomes if o.status == "deviation"), lambda outcome: outcome.reason)
        numbers = sorted(notes.setdefault(_escaped(reason), len(notes) + 1) for reason in reasons)
        parts.append(f"≠ {counts['deviation']}{''.join(f'[^{number}]' for number in numbers)}")
    if counts["fail"]:
        parts.append(f"✗ {counts['fail']}")
    return ", ".join(parts) or "–"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    r"""The text on one line, with Markdown's special characters escaped.

    >>> print(_escaped("a|b <c> *d*"))
    a\|b &lt;c> \*d\*
    """
    for mark in "\\`*_|[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.replace("<", "&lt;").split())
