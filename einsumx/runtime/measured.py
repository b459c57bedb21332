"""Measured plans: which plan the wisdom has for a contraction, and trials of its candidates where it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einsumx.adapters.base import Array, Run
from einsumx.errors import EinsumxError
from einsumx.ir.bind import SizedEquation
from einsumx.ir.program import Program
from einsumx.measuring import effort, wisdom
from einsumx.measuring.findings import Finding, computed_text, key_of, now
from einsumx.measuring.trials import Attempt, Trials
from einsumx.planner.candidates import Candidate, candidates, selected_program
from einsumx.planner.lower import Setting
from einsumx.planner.selection import Selection
from einsumx.runtime.execute import executable
from einsumx.runtime.request import Contraction

_MOST_OPERANDS = 32
"""The most operands of a contraction whose candidates are tried; for more, making them takes too long."""


def found(contraction: Contraction, sized: SizedEquation, setting: Setting) -> Finding | None:
    """The finding of the wisdom for a contraction."""
    key = _key(contraction, sized, setting)
    return None if key is None else wisdom.find(contraction.adapter, contraction.device, key)


def _key(contraction: Contraction, sized: SizedEquation, setting: Setting) -> str | None:
    """The key of a contraction in the wisdom."""
    computed = computed_text(setting.dtype, setting.accumulate)
    return key_of(sized, contraction.operands, computed, contraction.options.optimize)


def remembered(contraction: Contraction, sized: SizedEquation, setting: Setting) -> Program | None:
    """The program that the wisdom selects; None if it has no finding that fits."""
    finding = found(contraction, sized, setting)
    if finding is None:
        return None
    try:
        return selected_program(sized, contraction.operands, contraction.options.optimize, setting, finding.selection)
    except EinsumxError:
        return None


def candidates_of(
    contraction: Contraction, sized: SizedEquation, setting: Setting, most: int | None = 7
) -> list[Candidate]:
    """The candidates for a contraction, the estimate's choice first."""
    few = 1 if len(contraction.operands) > _MOST_OPERANDS else most
    return candidates(sized, contraction.operands, contraction.options.optimize, setting, few)


def trying(
    contraction: Contraction, sized: SizedEquation, setting: Setting, constants: Mapping[int, Array] | None = None
) -> Run | None:
    """A function that tries the candidates in its first calls; None if the wisdom has the contraction, or is frozen.

    Args:
        contraction, sized, setting: what to compute, and where.
        constants: operands that are known already, by position.
    """
    if effort.is_frozen() or found(contraction, sized, setting) is not None:
        return None
    adapter, operands, optimize = contraction.runner, contraction.operands, contraction.options.optimize

    programs = {candidate.selection: candidate.program for candidate in candidates_of(contraction, sized, setting)}

    def compiled(selection: Selection) -> Run:
        program = programs.get(selection)  # None for a combination of candidates
        if program is None:
            program = selected_program(sized, operands, optimize, setting, selection)
        return executable(program, adapter, constants)

    def report(attempts: Sequence[Attempt], chosen: Attempt) -> None:
        remember(contraction, sized, setting, chosen.selection, (chosen.least, attempts[0].least), len(attempts))

    return Trials(adapter, list(programs), compiled, report)


def remember(
    contraction: Contraction,
    sized: SizedEquation,
    setting: Setting,
    selection: Selection,
    seconds: tuple[float, float],
    tried: int,
) -> bool:
    """Add to the wisdom which candidate is the fastest, unless it is frozen; returns whether that was done.

    Args:
        contraction, sized, setting: what was computed, and where.
        selection: of the fastest candidate.
        seconds: its least time, and that of the estimate's choice.
        tried: the number of candidates.
    """
    key = _key(contraction, sized, setting)
    if key is None or effort.is_frozen():
        return False
    wisdom.record(contraction.adapter, contraction.device, key, Finding(selection, *seconds, tried, now()))
    return True
