"""Runs as JUnit XML for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from einsumx.conformance.results import Run, count_statuses

__all__ = ["junit"]

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(runs: Sequence[Run]) -> str:
    """One test suite per run. Deviations and inapplicable cases are skipped tests with a reason."""
    root = Element("testsuites", name="einsumx.conformance")
    for run in runs:
        counts = count_statuses(run.outcomes)
        suite = SubElement(
            root,
            "testsuite",
            name=_text(run.name),
            tests=str(len(run.outcomes)),
            failures=str(counts["fail"]),
            errors="0",
            skipped=str(counts["deviation"] + counts["inapplicable"]),
            time=f"{run.seconds:.6f}",
            timestamp=run.date,
        )
        for outcome in run.outcomes:
            test = SubElement(
                suite,
                "testcase",
                classname=_text(f"{run.subject}.{outcome.feature}"),
                name=_text(outcome.case),
                time=f"{outcome.seconds:.6f}",
            )
            match outcome.status:
                case "fail":
                    SubElement(test, "failure", message=_text(outcome.message)).text = _text(outcome.reproducer)
                case "deviation":
                    skipped = SubElement(test, "skipped", message=_text(f"deviation: {outcome.reason}"))
                    skipped.text = _text(outcome.message)
                case "inapplicable":
                    SubElement(test, "skipped", message=_text(outcome.message))
    indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, "unicode")}\n'


def _text(text: str) -> str:
    """The text without the characters that XML excludes even if they are escaped."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
