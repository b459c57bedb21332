"""Measured plans: which plan the wisdom has for a contraction, and trials of its candidates where it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.errors import EinsumxError
from einsumx.ir.contraction import Contraction
from einsumx.ir.program import Program
from einsumx.measuring import effort, wisdom
from einsumx.measuring.findings import Finding, key_of, now
from einsumx.measuring.trials import Attempt, Trials
from einsumx.planner.candidates import candidates, selected_program
from einsumx.planner.selection import Selection
from einsumx.runtime.execute import folded, run_of

_MOST_OPERANDS = 32
"""The most operands of a contraction whose candidates are tried; for more, making them takes too long."""


def found(adapter: Adapter, contraction: Contraction, is_path_free: bool) -> Finding | None:
    """The finding of the wisdom for a contraction; ``is_path_free`` if the planner chooses its path."""
    key = key_of(contraction, is_path_free)
    return None if key is None else wisdom.find(adapter, contraction.place.device, key)


def remembered(adapter: Adapter, contraction: Contraction, is_path_free: bool) -> Program | None:
    """The program that the wisdom selects; None if it has no finding that fits."""
    finding = found(adapter, contraction, is_path_free)
    if finding is None:
        return None
    try:
        return selected_program(contraction, finding.selection)
    except EinsumxError:
        return None


def candidates_of(contraction: Contraction, is_path_free: bool, most: int | None = 7) -> dict[Selection, Program]:
    """The programs to try for a contraction, the estimate's choice first."""
    few = 1 if len(contraction.operands) > _MOST_OPERANDS else most
    return candidates(contraction, few, is_path_free=is_path_free)


def trying(
    adapter: Adapter, contraction: Contraction, is_path_free: bool, constants: Mapping[int, Array] | None = None
) -> Run | None:
    """A function that tries the candidates in its first calls; None if the wisdom has the contraction, or is frozen.

    Args:
        adapter: that runs them.
        contraction: what to compute.
        is_path_free: whether the planner chooses the path.
        constants: operands that are known already, by position.
    """
    if effort.is_frozen() or found(adapter, contraction, is_path_free) is not None:
        return None
    programs = candidates_of(contraction, is_path_free)

    def compiled(selection: Selection) -> Run:
        program = programs.get(selection)  # None for a combination of candidates
        program = program or selected_program(contraction, selection)
        return run_of(program, adapter, folded(program, adapter, constants))

    def report(attempts: Sequence[Attempt], chosen: Attempt) -> None:
        seconds = chosen.least, attempts[0].least
        remember(adapter, contraction, is_path_free, chosen.selection, seconds, len(attempts))

    return Trials(adapter, list(programs), compiled, report)


def remember(
    adapter: Adapter,
    contraction: Contraction,
    is_path_free: bool,
    selection: Selection,
    seconds: tuple[float, float],
    tried: int,
) -> bool:
    """Add to the wisdom which candidate is the fastest, unless it is frozen; returns whether that was done.

    Args:
        adapter, contraction, is_path_free: what was computed, and where.
        selection: of the fastest candidate.
        seconds: its least time, and that of the estimate's choice.
        tried: the number of candidates.
    """
    key = key_of(contraction, is_path_free)
    if key is None or effort.is_frozen():
        return False
    wisdom.record(adapter, contraction.place.device, key, Finding(selection, *seconds, tried, now()))
    return True
