"""Selections: which of its candidates a plan uses, instead of those that the cost model estimates to be the fastest.

A candidate has a name, made of the numbers of labels. A selection is a list of names, so that it can be stored and used
for other sizes. It chooses among the candidates that the planner makes itself; a name that none of them has changes
nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, NamedTuple, TypeAlias

from einsumx.ir.operand import Path
from einsumx.ir.records import record

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


class Alternative(NamedTuple):
    """A candidate for one step.

    Attributes:
        name: see :class:`Selection`.
        seconds: its estimated time.
        kind: what makes it different from other candidates at first sight.
    """

    name: str
    seconds: float
    kind: Hashable


class Choosing:
    """How lowering chooses among the candidates for its steps.

    Args:
        names: as :attr:`Selection.steps`.
        listed: whether to list the candidates.

    Attributes:
        selected: the name of the candidate for the current step; empty for the one that the cost model prefers.
        alternatives: the candidates of each step so far; None if nobody asks for them.
    """

    def __init__(self, names: Sequence[str] = (), *, listed: bool = False) -> None:
        self._names = names
        self.asks_for_one_einsum = tuple(names) == (ONE_EINSUM,)
        self.selected = ""
        self.alternatives: list[list[Alternative]] | None = [] if listed else None
        self.is_by_cost = not (names or listed)

    def begin_step(self, number: int) -> None:
        """Begin a step, by its place in the path."""
        self.selected = self._names[number] if number < len(self._names) else ""
        if self.alternatives is not None:
            self.alternatives.append([])


BY_COST = Choosing()
"""The choice that the cost model makes."""


def different(alternatives: Sequence[Alternative]) -> list[Alternative]:
    """The alternatives in the order in which to try them: the fastest of each kind first, then the others."""
    ordered = sorted(alternatives, key=lambda each: each.seconds)
    firsts = {each.kind: each for each in reversed(ordered)}
    return [*(each for each in ordered if firsts[each.kind] is each), *(
        each for each in ordered if firsts[each.kind] is not each
    )]  # fmt: skip
