"""Findings: what measuring the candidates of a contraction found, and how the store has it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from time import gmtime, strftime
from typing import TYPE_CHECKING, Annotated

from einsumx.errors import MalformedError, shown
from einsumx.imports import LazyModule
from einsumx.planner.selection import Selection

if TYPE_CHECKING:
    from einsumx.ir import strict
else:
    strict = LazyModule("einsumx.ir.strict")

__all__ = ["Finding", "now", "read_finding", "text_of"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What measuring the candidates of a contraction found.

    Attributes:
        selection: the fastest candidate.
        seconds: of the fastest candidate.
        estimated: seconds of the candidate that the cost model prefers.
        tried: how many candidates were measured.
        when: date and time in UTC, such as ``2026-01-31T12:00:00Z``.
    """

    selection: Selection
    seconds: float
    estimated: float
    tried: int
    when: Annotated[str, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"]


def now() -> str:
    """The date and time for a finding."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())


def text_of(finding: Finding) -> str:
    """A finding as JSON."""
    return json.dumps(asdict(finding))


def read_finding(key: str, text: str) -> Finding:
    """The finding in a row of the store. It selects among the planner's own candidates, so it cannot do harm.

    Raises:
        MalformedError: it is malformed.
    """
    finding = strict.read(Finding, strict.parse(text))
    if "->" not in key or not (finding.seconds > 0 and finding.estimated > 0 and finding.tried > 0):
        raise MalformedError(f"{shown(key)} has no times of candidates")
    return finding
