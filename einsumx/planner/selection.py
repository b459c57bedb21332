"""``Selection``: which of the planner's own candidates a plan uses."""

from __future__ import annotations

from dataclasses import dataclass

from einsumx.ir.program import Path

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of its candidates a plan uses.

    Attributes:
        path: the path; None for the path that ``optimize=`` leads to.
        steps: the name of the candidate for each step of the path; "" for the one that the cost model estimates to be
            the fastest.
    """

    path: Path | None
    steps: tuple[str, ...]
