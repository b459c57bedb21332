"""Runs as one self-contained HTML page: a matrix of features and subjects, with the cases behind each cell."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from einsumx.conformance.case import Outcome, Status
from einsumx.conformance.framework import DTYPES
from einsumx.conformance.report.results import STATUSES, Run, differences, features_of, not_judged
from einsumx.conformance.suite import FEATURES
from einsumx.errors import EinsumxError, counted

if TYPE_CHECKING:
    from jinja2 import Template

_ASSETS = files("einsumx.conformance.report")

_MARKS: dict[Status, str] = {"fail": "✗", "deviation": "≠", "pass": "✓", "inapplicable": "–"}
"""The worst status first, which is also the order in a cell."""

_MEANINGS: dict[Status, str] = {
    "fail": "fails",
    "deviation": "deviates for a known reason",
    "pass": "passes",
    "inapplicable": "does not apply",
}

_NO_DTYPE = "no dtype"


def page(runs: Sequence[Run]) -> str:
    """The page, as HTML.

    Raises:
        EinsumxError: Jinja2 is not installed.
    """
    from markupsafe import Markup  # a part of Jinja2

    days = sorted(run.date[:10] for run in runs)
    tallies = [_tally(run) for run in runs]
    ours = [place for place, run in enumerate(runs) if run.is_einsumx]
    others = [place for place, run in enumerate(runs) if not run.is_einsumx]
    return template().render(
        style=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        runs=runs,
        cases=counted(len({outcome.case for run in runs for outcome in run.outcomes}), "case"),
        subjects=counted(len(runs), "subject"),
        days=(days[0], days[-1]),
        not_judged=not_judged(runs),
        marks=_MARKS,
        meanings=_MEANINGS,
        descriptions=FEATURES,
        tallies=tallies,
        matrices=[
            (title, places, list(_rows([runs[place] for place in places], [tallies[place] for place in places])))
            for title, places in (("einsumx on each backend", ours), ("Other libraries’ own functions", others))
        ],
        differing=differences(runs),
        # JSON reads this escape as "<", and no text can end the script element.
        data=Markup(json.dumps(_data(runs), separators=(",", ":")).replace("<", "\\u003c")),
    )


def template() -> Template:
    """The page's template, which escapes what it inserts.

    Raises:
        EinsumxError: Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise EinsumxError("an HTML page needs Jinja2: pip install 'einsumx[conformance]'") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_asset("page.html.jinja"))


def _asset(name: str) -> str:
    return _ASSETS.joinpath(name).read_text(encoding="utf-8")


def _tally(run: Run) -> dict[tuple[str, str], Counter[Status]]:
    """How many outcomes of each status a run has, by feature and dtype; an empty string stands for all."""
    counts: dict[tuple[str, str], Counter[Status]] = defaultdict(Counter)
    for outcome in run.outcomes:
        for key in (("", ""), (outcome.feature, ""), (outcome.feature, outcome.dtype or _NO_DTYPE)):
            counts[key][outcome.status] += 1
    return counts


def _rows(
    runs: Sequence[Run], tallies: Sequence[dict[tuple[str, str], Counter[Status]]]
) -> Iterator[tuple[str, list[str], bool]]:
    """Each feature of some runs, its dtypes, and whether any run fails or deviates in it."""
    known = [*DTYPES, "mixed", _NO_DTYPE]
    for feature in features_of(runs):
        dtypes = {dtype for tally in tallies for name, dtype in tally if name == feature and dtype}
        wrong = any(tally[feature, ""][status] for tally in tallies for status in ("fail", "deviation"))
        yield feature, sorted(dtypes, key=lambda name: (known.index(name) if name in known else 99, name)), wrong


def _data(runs: Sequence[Run]) -> dict[str, Any]:
    """What page.js reads: each case and text once, and for each run one letter per case and notes on those not passed.

    A note refers to the texts of its message, its reason, and for a failure its reproducer.
    """
    cases = {outcome.case: [outcome.case, outcome.feature, outcome.dtype or _NO_DTYPE]
             for run in runs for outcome in run.outcomes}  # fmt: skip
    places = {case: place for place, case in enumerate(cases)}
    texts: dict[str, int] = {}

    def note(outcome: Outcome) -> list[int]:
        reproducer = outcome.reproducer if outcome.status == "fail" else ""
        return [texts.setdefault(text, len(texts)) for text in (outcome.message, outcome.reason, reproducer)]

    data = []
    for run in runs:
        letters = [" "] * len(cases)
        for outcome in run.outcomes:
            letters[places[outcome.case]] = outcome.status[0]
        notes = {places[outcome.case]: note(outcome) for outcome in run.outcomes if outcome.status != "pass"}
        data.append({"name": run.name, "letters": "".join(letters), "notes": notes})
    return {
        "statuses": {status[0]: [status, _MARKS[status]] for status in STATUSES},
        "cases": list(cases.values()),
        "texts": list(texts),
        "runs": data,
    }
