"""Runs as a matrix in Markdown, for a project's documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from einsumx.conformance.case import Outcome
from einsumx.conformance.results import Run, count_statuses, features_of, group_by, not_judged
from einsumx.conformance.suite import FEATURES

__all__ = ["markdown"]

_ABOUT = (
    "{cases} cases test what einsumx promises on every array library. Each element of a result is compared with its "
    "exact value, within the bound on rounding. Generated on {days} by `python -m einsumx.conformance`. In einsumx's "
    "repository, `nox -s full` updates this page and [conformance.html](conformance.html), which has every case "
    "and dtype."
)

_LEGEND = (
    "Cells count cases: ✓ pass, ≠ deviate for the reason in the footnote, ✗ fail. Cases do not count if they need "
    "something that the framework lacks, such as a dtype, a memory layout or gradients; – means that none applies."
)


_MOST_COLUMNS = 7
"""The most subjects of one table: more are beside each other in no window."""


def markdown(runs: Sequence[Run]) -> str:
    """A page with matrices for einsumx and for other functions, what features are, and the environment of each run."""
    notes: dict[str, int] = {}
    days = sorted({run.date[:10] for run in runs})
    cases = len({outcome.case for run in runs for outcome in run.outcomes})
    about = _ABOUT.format(cases=cases, days=" to ".join(dict.fromkeys((days[0], days[-1]))))
    lines = ["# Conformance", "", about, "", _LEGEND, "", *filter(None, [not_judged(runs)]), ""]
    for title, group in (
        ("einsumx", [run for run in runs if run.is_einsumx]),
        ("Other libraries' own functions, by the same cases", [run for run in runs if not run.is_einsumx]),
    ):
        if group:
            lines += [f"## {title}", ""]
        for part in _parts(group):
            lines += [*_matrix(part, features_of(group), notes), ""]
    lines += ["## Features", "", *_features(runs), "", "## Environments", "", *_runs(runs)]
    if notes:
        lines += ["", *(f"[^{number}]: {reason}" for reason, number in notes.items())]
    return "\n".join(lines) + "\n"


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


def _features(runs: Sequence[Run]) -> Iterator[str]:
    """A description of each feature."""
    for feature in features_of(runs):
        yield f"- **{_escaped(feature)}**: {_escaped(FEATURES.get(feature, ''))}."


def _cell(outcomes: Sequence[Outcome], notes: dict[str, int]) -> str:
    """The counts of each status, with footnotes for the reasons; ``notes`` numbers them for the whole page."""
    counts = count_statuses(outcomes)
    parts = [f"✗ {counts['fail']}"] * bool(counts["fail"])
    if counts["deviation"]:
        reasons = group_by((o for o in outcomes if o.status == "deviation"), lambda outcome: outcome.reason)
        numbers = sorted(notes.setdefault(_escaped(reason), len(notes) + 1) for reason in reasons)
        parts.append(f"≠ {counts['deviation']}{''.join(f'[^{number}]' for number in numbers)}")
    if counts["pass"]:
        parts.append(f"✓ {counts['pass']}")
    return " ".join(parts) or "–"


def _runs(runs: Sequence[Run]) -> Iterator[str]:
    yield _row(["subject", "arrays of", "level", "pass", "deviate", "fail", "do not apply", "seconds", "environment"])
    yield _row(["---", "---", "---", *["---:"] * 5, "---"])
    for run in runs:
        counts = count_statuses(run.outcomes)
        yield _row(
            [
                _escaped(run.name),
                _escaped(f"{run.framework} {run.framework_version}"),
                _escaped(run.level),
                *(str(counts[status]) for status in ("pass", "deviation", "fail", "inapplicable")),
                f"{run.seconds:.0f}",
                _escaped(f"einsumx {run.einsumx}, Python {run.python}, {run.platform}, {run.date[:10]}"),
            ]
        )


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
