"""Write the tables of runs into the documentation: ``python benchmarks/tables.py RESULTS.json ... docs/benchmarks.md``.

The tables replace the text between two marks in the document.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from summary import summaries

__all__ = ["with_tables"]

START, END = "<!-- tables: written by benchmarks/tables.py -->", "<!-- end of tables -->"


def with_tables(document: str, runs: Sequence[dict[str, Any]]) -> str:
    """The document with the tables of ``runs`` between its marks.

    Raises:
        ValueError: the document lacks the marks.

    >>> with_tables(f"Results: {START} old {END} and so on.", []).split()[-3:]
    ['and', 'so', 'on.']
    """
    before, start, rest = document.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the document lacks the lines {START!r} and {END!r}")
    return "\n\n".join([before + START, *_parts(runs), END + after])


def _parts(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    for run in runs:
        versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
        settings = "".join(f", {name}={value}" for name, value in run["environment"].items())
        yield f"{run['date'][:10]}, {run['machine']}, {run['cores']} cores{settings}: {versions}."
        for table in summaries(run):
            yield table.markdown()


if __name__ == "__main__":
    *sources, target = map(Path, sys.argv[1:])
    runs = [json.loads(source.read_text(encoding="utf-8")) for source in sources]
    target.write_text(with_tables(target.read_text(encoding="utf-8"), runs), encoding="utf-8")
