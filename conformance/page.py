"""Runs as one HTML page that needs nothing else: a matrix to look at, with the cases behind each cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from einsumx.conformance.case import Outcome, Status
from einsumx.conformance.framework import DTYPES
from einsumx.conformance.results import STATUSES, Run, counted, differences, features_of, not_judged
from einsumx.conformance.suite import FEATURES

__all__ = ["page"]

_SHOWN = 12
"""Cases of a feature in which subjects differ that are listed; of others there is the number."""

_MARKS: dict[Status, str] = {"fail": "✗", "deviation": "≠", "pass": "✓", "inapplicable": "–"}
"""The worst first, which is also the order in a cell."""

_NAMES: dict[Status, str] = {
    "fail": "fails",
    "deviation": "deviates, for a reason that is listed",
    "pass": "passes",
    "inapplicable": "does not apply",
}

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'">
<title>einsum conformance</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>einsum conformance</h1>
<p>{about}</p>
<p class="legend">{legend}</p>
<p class="controls"><button id="all" type="button" aria-pressed="false">Show dtypes</button>
<button id="wrong" type="button" aria-pressed="false">Only what fails or deviates</button></p>
</header>
<main>
{main}</main>
<dialog id="cases" aria-labelledby="title"><div class="bar"><h2 id="title"></h2>
<button id="close" type="button">Close</button></div><div id="groups"></div></dialog>
<script id="data" type="application/json">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


def page(runs: Sequence[Run]) -> str:
    """The page, as HTML."""
    assets = files("einsumx.conformance")
    days = sorted({run.date[:10] for run in runs})
    cases = len({outcome.case for run in runs for outcome in run.outcomes})
    about = (
        f"{cases} cases of what einsumx promises on every array library, judged element by element against exact "
        f"values or the bound on rounding, on {len(runs)} subjects, {' to '.join(dict.fromkeys((days[0], days[-1])))}. "
        f"{not_judged(runs)} A cell counts cases; press it to see them, press a feature for its dtypes."
    )
    groups = (
        ("einsumx on each backend", [place for place, run in enumerate(runs) if run.is_einsumx]),
        ("Other libraries’ own functions", [place for place, run in enumerate(runs) if not run.is_einsumx]),
    )
    return _PAGE.format(
        style=assets.joinpath("page.css").read_text(encoding="utf-8"),
        script=assets.joinpath("page.js").read_text(encoding="utf-8"),
        about=escape(about),
        legend=" ".join(
            f'<span class="{status}"><b>{mark}</b> {_NAMES[status]}</span>' for status, mark in _MARKS.items()
        ),
        main="".join(chunk for title, places in groups if places for chunk in _matrix(title, runs, places))
        + "".join(_differing(runs)),
        # What could end the script element is written otherwise; JSON reads it the same.
        data=json.dumps(_data(runs), separators=(",", ":")).replace("<", "\\u003c"),
    )


def _matrix(title: str, runs: Sequence[Run], places: Sequence[int]) -> Iterator[str]:
    shown = [runs[place] for place in places]
    yield f'<section><h2>{escape(title)}</h2>\n<div class="wide"><table>\n<thead><tr><td></td>'
    for run in shown:
        more = f"{run.version} {run.device}".strip()
        made = f"einsumx {run.einsumx}, Python {run.python}, {run.platform}, {run.date}, {run.seconds:.0f} s"
        yield (
            f'<th scope="col" title="{escape(made)}">{escape(run.subject).replace(":", ":<wbr>")}'
            f"<small>{escape(more)}</small><small>{escape(run.level)}</small></th>"
        )
    yield "</tr></thead>\n<tbody>\n<tr>"
    yield '<th scope="row" class="total">all features</th>'
    yield "".join(_cell(place, "", "", runs[place].outcomes) for place in places) + "</tr>\n</tbody>\n"
    for feature in features_of(shown):
        yield from _rows(feature, runs, places)
    yield "</table></div></section>\n"


def _rows(feature: str, runs: Sequence[Run], places: Sequence[int]) -> Iterator[str]:
    """A feature's row, and those of its dtypes, which are hidden until they are asked for."""
    found = {place: [o for o in runs[place].outcomes if o.feature == feature] for place in places}
    counts = [counted(outcomes) for outcomes in found.values()]
    wrong = any(count["fail"] or count["deviation"] for count in counts)
    yield f'<tbody class="feature{" wrong" * wrong}"><tr><th scope="row">'
    yield f'<button class="name" type="button" aria-expanded="false">{escape(feature)}</button>'
    yield f"<small>{escape(FEATURES.get(feature, ''))}</small></th>"
    yield "".join(_cell(place, feature, "", outcomes) for place, outcomes in found.items()) + "</tr>\n"
    known = [*DTYPES, "mixed", ""]
    names = {outcome.dtype for outcomes in found.values() for outcome in outcomes}
    for dtype in sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name)):
        yield f'<tr class="dtype" hidden><th scope="row">{escape(dtype or "no dtype")}</th>'
        for place, outcomes in found.items():
            yield _cell(place, feature, dtype or "no dtype", [o for o in outcomes if o.dtype == dtype])
        yield "</tr>\n"
    yield "</tbody>\n"


def _cell(place: int, feature: str, dtype: str, outcomes: Sequence[Outcome]) -> str:
    """Counts of each status, in the colour of the worst, with what a script needs to list the cases."""
    counts = counted(outcomes)
    present = [status for status in _MARKS if counts[status]]
    if not present:
        return "<td></td>"
    spans = "".join(f'<span class="{status}">{_MARKS[status]}&nbsp;{counts[status]}</span> ' for status in present)
    about = ", ".join(f"{counts[status]} {status}" for status in present)
    return (
        f'<td><button type="button" class="cell {present[0]}" data-run="{place}" data-feature="{escape(feature)}" '
        f'data-dtype="{escape(dtype)}" title="{escape(about)}">{spans.strip()}</button></td>'
    )


def _differing(runs: Sequence[Run]) -> Iterator[str]:
    """The cases in which two subjects differ, by feature."""
    order = features_of(runs)
    found = sorted(differences(runs), key=lambda difference: order.index(difference.feature))
    if len(runs) < 2:
        return
    yield f"<section><h2>Where subjects differ</h2>\n<p>In {len(found)} of the cases that apply to both.</p>\n"
    for feature, group in groupby(found, key=lambda difference: difference.feature):
        several = list(group)
        yield f"<details><summary>{escape(feature)} <small>{len(several)}</small></summary>\n"
        for difference in several[:_SHOWN]:
            yield f'<div class="case"><code>{escape(difference.case)}</code>'
            for status, subjects in difference.subjects.items():
                yield f'<p class="{status}">{_MARKS[status]} {escape(", ".join(subjects))}</p>'
            yield "</div>\n"
        if len(several) > _SHOWN:
            yield f"<p>and {len(several) - _SHOWN} more</p>\n"
        yield "</details>\n"
    yield "</section>\n"


def _data(runs: Sequence[Run]) -> dict[str, Any]:
    """All cases and texts once; of each run a letter a case, and what there is to say of those that do not pass."""
    cases = {outcome.case: (outcome.feature, outcome.dtype) for run in runs for outcome in run.outcomes}
    places = {case: place for place, case in enumerate(cases)}
    texts: dict[str, int] = {}
    data = []
    for run in runs:
        letters = [" "] * len(cases)
        notes = {}
        for outcome in run.outcomes:
            place = places[outcome.case]
            letters[place] = outcome.status[0]
            if outcome.status != "pass":
                # What deviates does so for a reason that is known; only a failure has to be looked into.
                code = outcome.reproducer if outcome.status == "fail" else ""
                said = (outcome.message, outcome.reason, code)
                notes[place] = [texts.setdefault(text, len(texts)) for text in said]
        data.append({"name": run.name, "letters": "".join(letters), "notes": notes})
    return {
        "statuses": {status[0]: [status, _MARKS[status]] for status in STATUSES},
        "cases": [[case, feature, dtype or "no dtype"] for case, (feature, dtype) in cases.items()],
        "texts": list(texts),
        "runs": data,
    }
