"""What ``pytest -p einsumx.conformance.plugin --pyargs einsumx.conformance`` collects: each case as a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from einsumx.conformance.case import Outcome
from einsumx.conformance.plugin import end_as


def test_conformance(einsumx_judged: Callable[[], Iterable[Outcome]]) -> None:
    """One case on one subject."""
    end_as(einsumx_judged())
