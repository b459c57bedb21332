"""The candidates for a contraction: plans that compute the same in different ways, the estimate's choice first.

They differ in the candidate for one step (which operand is on the left, which are copied, whose threads compute it, the
framework's own einsum), or in the path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, combinations, zip_longest

from einsumx.errors import EinsumxError
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction
from einsumx.ir.cost import program_seconds
from einsumx.ir.operand import Path
from einsumx.ir.program import Program
from einsumx.planner.lower import alternatives, lower
from einsumx.planner.path import find_path
from einsumx.planner.search import Network, Pace, as_merges
from einsumx.planner.selection import ESTIMATE, Selection, different

_FAR = 6.0
"""How many times the least estimated time a candidate may take; worse ones are not tried."""

_ALL_TREES = 4
"""The most operands of a contraction of which every path is a candidate."""

_SEARCHES = ("greedy", "optimal", "dp", "branch-2")
"""Other searches for a path, for more operands."""

_MOST_FOR_OPTIMAL = 8
"""The most operands for which these searches take no longer than some milliseconds."""


def selected_program(contraction: Contraction, selection: Selection) -> Program:
    """The program of a selection; the estimate makes the other choices.

    Raises:
        PathError: its path does not fit the operands.
    """
    if selection.path is not None:
        contraction = replace(contraction, path=find_path(contraction.equation, selection.path, contraction.operands))
    return lower(contraction, selection.steps)


def candidates(
    contraction: Contraction, most: int | None = 8, *, is_path_free: bool = True
) -> dict[Selection, Program]:
    """The program that the cost model prefers, and then others, in the order in which to try them.

    Args:
        contraction: along the estimate's path.
        most: how many to return; None for all that there are.
        is_path_free: whether other paths are tried.
    """
    traits = contraction.place.traits
    found = {ESTIMATE: lower(contraction)}
    limit = _FAR * program_seconds(found[ESTIMATE], traits)
    known = {found[ESTIMATE].ops}
    paths = _other_paths(contraction) if is_path_free else ()
    for selection in filter(None, chain.from_iterable(zip_longest(_other_steps(contraction), paths))):
        if len(found) == most:
            break
        program = selected_program(contraction, selection)
        if program.ops not in known and (most is None or program_seconds(program, traits) <= limit):
            known.add(program.ops)
            found[selection] = program
    return found


@lru_cache(maxsize=256)
def path_in_memory(contraction: Contraction, pace: Pace) -> Path:
    """The path of a large contraction of three operands whose program takes the least estimated time.

    The search for a path does not know how arrays lie in memory, so it takes paths for equal along which one product
    reads an operand in place and another turns it.

    Args:
        contraction: along the path that the search has found.
        pace: the cost of a step.
    """
    equation = contraction.equation
    if contraction.algebra is not PLUS_TIMES or any(each.nnz is not None for each in contraction.operands):
        return contraction.path
    network = Network(equation.inputs, equation.output, equation.sizes, pace)
    seconds = {path: network.tree(as_merges(path, 3), "").seconds for path in _all_paths(3)}
    least = _CLOSE * seconds[contraction.path]
    paths = [contraction.path, *[path for path in seconds if seconds[path] <= least and path != contraction.path]]
    programs = [lower(replace(contraction, path=path)) for path in paths] if len(paths) > 1 else []
    prices = [program_seconds(program, contraction.place.traits) for program in programs]
    return paths[prices.index(min(prices))] if prices else contraction.path


_CLOSE = 1.5
"""How many times the seconds of the best path another one may take whose program is priced."""


def _other_steps(contraction: Contraction) -> Iterator[Selection]:
    """Selections that differ in one step, in turn for each step."""
    steps = alternatives(contraction)
    for row in zip_longest(*map(different, steps)):
        for number, candidate in enumerate(row):
            if candidate is not None:
                yield Selection(None, tuple([candidate.name if at == number else "" for at in range(len(steps))]))


def _other_paths(contraction: Contraction) -> Iterator[Selection]:
    """Selections of other paths, those with the least estimated time first."""
    count = len(contraction.operands)
    if count < 3:
        return
    paths = set(_all_paths(count)) if count <= _ALL_TREES else set(_searched_paths(contraction.equation))
    priced = []
    for other in paths - {contraction.path}:
        program = lower(replace(contraction, path=other))
        priced.append((program_seconds(program, contraction.place.traits), other))
    for _, other in sorted(priced):
        yield Selection(other, ())


def _all_paths(count: int) -> Iterator[Path]:
    """Every path for so many operands."""
    if count == 1:
        yield ()
        return
    for step in combinations(range(count), 2):
        for rest in _all_paths(count - 1):
            yield (step, *rest)


def _searched_paths(equation: SizedEquation) -> Iterator[Path]:
    names = _SEARCHES if len(equation.inputs) <= _MOST_FOR_OPTIMAL else _SEARCHES[:1]
    for name in names:
        try:
            yield find_path(equation, name)
        except EinsumxError:
            continue
