"""Write the tables of runs into the documentation: ``python benchmarks/tables.py RESULTS.json ... docs/benchmarks.md``.

The tables of ``run.py`` and those of ``calls.py`` each replace the text between two marks in the document.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from call_tables import call_tables
from summary import page_tables

MARKS = {
    "rows": ("<!-- tables: written by benchmarks/tables.py -->", "<!-- end of tables -->"),
    "calls": ("<!-- calls: written by benchmarks/tables.py -->", "<!-- end of calls -->"),
}
"""Around the tables of ``run.py``, and of ``calls.py``: by the key under which the JSON has their figures."""


def with_tables(document: str, runs: Sequence[dict[str, Any]], key: str = "rows") -> str:
    """The document with the tables of ``runs`` between its marks.

    Raises:
        ValueError: the document lacks the marks.

    >>> with_tables(f"Results: {MARKS['rows'][0]} old {MARKS['rows'][1]} and so on.", []).split()[-3:]
    ['and', 'so', 'on.']
    """
    first, last = MARKS[key]
    before, start, rest = document.partition(first)
    _, end, after = rest.partition(last)
    if not (start and end):
        raise ValueError(f"the document lacks the lines {first!r} and {last!r}")
    return "\n\n".join([before + start, *_parts(runs), end + after])


def _parts(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    for run in runs:
        versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
        settings = "".join(f", {name}={value}" for name, value in run["environment"].items())
        yield f"{run['date'][:10]}, {run['machine']}, {run['cores']} cores{settings}: {versions}."
        for table in call_tables(run) if "calls" in run else page_tables(run):
            yield table.markdown()


def main() -> None:
    """Replace the tables of which there are runs."""
    *sources, target = map(Path, sys.argv[1:])
    runs = [json.loads(source.read_text(encoding="utf-8")) for source in sources]
    document = target.read_text(encoding="utf-8")
    for key in MARKS:
        if chosen := [run for run in runs if key in run]:
            document = with_tables(document, chosen, key)
    target.write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
