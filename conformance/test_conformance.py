"""The tests that ``pytest -p einsumx.conformance.plugin --pyargs einsumx.conformance`` collects, one per case."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from einsumx.conformance.case import Outcome
from einsumx.conformance.plugin import report


def test_conformance(einsumx_case: Callable[[], Iterable[Outcome]]) -> None:
    """One case on one subject."""
    report(einsumx_case())
