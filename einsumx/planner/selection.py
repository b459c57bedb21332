"""Selections: which of its candidates a plan uses, instead of those that the cost model estimates to be the fastest.

A candidate has a name, made of the numbers of labels. A selection is a list of names, so that it can be stored and used
for other sizes. It chooses among the candidates that the planner makes itself; a name that none of them has changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

from einsumx.ir.operand import Path
from einsumx.ir.records import record

if TYPE_CHECKING:
    from einsumx.planner.terms import Term

Name: TypeAlias = Annotated[str, r"[A-Za-z0-9 .,:\-+*/()]{0,500}"]
"""The name of a candidate, and the pattern that it has."""

ONE_EINSUM = "one einsum"
"""The only step of a selection that leaves the whole contraction to the framework's own einsum."""


@record
class Selection:
    """Which of its candidates a plan uses.

    Attributes:
        path: None for the path that ``optimize`` leads to.
        steps: for each step of the path, the name of its candidate; empty for the one that the cost model prefers.
    """

    path: Path | None = None
    steps: tuple[Name, ...] = ()


ESTIMATE = Selection()
"""The candidates that the cost model prefers."""


class Candidate(NamedTuple):
    """A way to compute a step.

    Attributes:
        name: see :class:`Selection`; empty if names are not needed.
        seconds: its estimated time.
        kind: equal for candidates that differ little, of which the fastest is tried first.
        write: appends its ops, and returns the result.
    """

    name: str
    seconds: float
    kind: Hashable
    write: Callable[[], Term]


def different(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates in the order in which to try them: the fastest of each kind first, then the others."""
    ordered = sorted(candidates, key=lambda each: each.seconds)
    firsts = {each.kind: each for each in reversed(ordered)}
    return sorted(ordered, key=lambda each: firsts[each.kind] is not each)
