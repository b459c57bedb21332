"""``tune``: time the candidates for a contraction now, and remember the fastest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.registry import get_backend
from einsumx.caches import cache_clear
from einsumx.errors import BackendError, counted, excerpt
from einsumx.ir.algebra import PLUS_TIMES
from einsumx.ir.contraction import Contraction
from einsumx.ir.cost import program_seconds
from einsumx.ir.program import Program
from einsumx.ir.text import brief_text, displayed, duration
from einsumx.measuring.effort import is_frozen
from einsumx.measuring.machine import watched
from einsumx.measuring.steady import steady_times
from einsumx.measuring.trials import winner
from einsumx.planner.path import as_optimize
from einsumx.planner.selection import ESTIMATE
from einsumx.plans import Plan, as_plan
from einsumx.runtime.conversion import arrays_of, described, one_device
from einsumx.runtime.execute import run_of
from einsumx.runtime.front import contraction
from einsumx.runtime.measured import candidates_of, found, remember
from einsumx.runtime.prepare import plan
from einsumx.runtime.request import Request, SumKeywords, request_of, taking
from einsumx.tracing import between_graphs

if TYPE_CHECKING:
    from typing_extensions import Unpack

ESTIMATED = "estimated"
"""What :func:`choice_text` says of a choice that was not measured."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that :func:`tune` timed.

    Attributes:
        plan: its plan.
        estimated: the time that the cost model predicts, in seconds.
        seconds: the least time of a call.
    """

    plan: Plan
    estimated: float
    seconds: float

    def __repr__(self) -> str:
        times = f"{duration(self.seconds)} measured, {duration(self.estimated)} estimated"
        return f"<einsumx candidate {excerpt(brief_text(self.plan))}: {times}>"


@dataclass(frozen=True, slots=True)
class Tuning:
    """What :func:`tune` tried. It prints as a table.

    Attributes:
        tried: the candidates; the first is the one that the cost model prefers.
        chosen: the position of the one that later calls run.
        is_remembered: whether this was added to the wisdom.
        doubts: sentences on what else the machine did meanwhile; if there are any, nothing is remembered.
    """

    tried: tuple[Tried, ...]
    chosen: int
    is_remembered: bool
    doubts: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The plan of the fastest candidate."""
        return self.tried[self.chosen].plan

    @property
    def gain(self) -> float:
        """How many times as fast the chosen candidate is as the one that the cost model prefers."""
        return self.tried[0].seconds / self.tried[self.chosen].seconds

    def __repr__(self) -> str:
        kept = "remembered" if self.is_remembered else "not remembered"
        fastest = f"{excerpt(brief_text(self.plan))}, {self.gain:.2f} times as fast as the estimate's choice"
        tried = counted(len(self.tried), "plan")
        return f"<einsumx tuning of {excerpt(self.plan.written)}: {tried}, fastest {fastest}, {kept}>"

    _repr_pretty_ = displayed

    def __str__(self) -> str:
        rows = [("", "estimated", "measured", "plan")]
        for place, each in enumerate(self.tried):
            mark = "*" if place == self.chosen else ""
            rows.append((mark, duration(each.estimated), duration(each.seconds), brief_text(each.plan)))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            f"{mark:<{widths[0]}} {estimated:>{widths[1]}}  {seconds:>{widths[2]}}  {plan}"
            for mark, estimated, seconds, plan in rows
        ]
        lines.append(f"* {self.gain:.2f} times as fast as the estimate's choice, the first line")
        doubts = self.doubts or ("choices are frozen, or einsumx has no key for this path",)
        lines += [] if self.is_remembered else [f"not remembered: {doubt}" for doubt in doubts]
        return "\n".join(lines)


@taking(SumKeywords)
def tune(*operands: Any, rounds: int = 3, **keywords: Unpack[SumKeywords]) -> Tuning:
    """Time the candidates for a contraction, and let later calls run the fastest one.

    Up to 8 plans are run on the operands, each in its own steady state; this takes some seconds. The result is added to
    the wisdom, which calls of the same contraction use, in this process and in later ones, whatever their effort. It
    also applies to sizes and layouts of the same class. On a busy machine nothing is remembered. Arguments that are not
    described here are those of :func:`einsumx.einsum`.

    Args:
        *operands: as for :func:`einsumx.einsum`.
        rounds: how often each candidate takes its turn.

    Returns:
        A :class:`Tuning`, which prints as a table of what was tried.

    Raises:
        EinsumxError: as :func:`einsumx.einsum` does.

    >>> import einsumx, numpy as np
    >>> tuning = einsumx.tune("ij,jk->ik", np.ones((300, 20)), np.ones((20, 400)), rounds=1)
    >>> tuning.plan in [each.plan for each in tuning.tried]
    True
    """
    request = request_of("tune", operands, keywords, SumKeywords, effort="estimate")
    adapter, arrays = arrays_of(list(request.operands), request.adapter)
    request = request.named(adapter)
    return _tuned(_contraction(request, adapter, arrays), request, adapter, arrays, rounds)


between_graphs(tune)


def tuned_plan(request: Request, adapter: Adapter, arrays: Sequence[Array]) -> Plan:
    """The plan that the wisdom has, or else the one that :func:`tune` finds to be the fastest."""
    asked = _contraction(request, adapter, arrays)
    if is_frozen() or found(adapter, asked, request.is_path_free) is not None:
        return as_plan(plan(asked, adapter, request.is_path_free))
    return _tuned(asked, request, adapter, arrays, rounds=2).plan


def choice_text(program: Program, optimize: Any) -> str:
    """How a program was chosen: whether that was measured, when, and how much faster it is than the estimate's choice.

    >>> import einsumx
    >>> choice_text(einsumx.plan("ij,jk->ik", (2, 3), (3, 4)), "auto")
    'estimated'
    """
    if program.algebra is not PLUS_TIMES:
        return ESTIMATED
    is_path_free = as_optimize(optimize) in ("auto", True)
    finding = found(get_backend(program.backend), program.contraction, is_path_free)
    if finding is None:
        return ESTIMATED
    if finding.selection == ESTIMATE:
        return f"estimated, the fastest of {counted(finding.tried, 'candidate')}, {finding.when}"
    gain = finding.estimated / finding.seconds
    return (
        f"measured {finding.when}: {gain:.2f} times as fast as the estimate's, {counted(finding.tried, 'candidate')} "
        "tried"
    )


def _contraction(request: Request, adapter: Adapter, arrays: Sequence[Array]) -> Contraction:
    if not all(map(adapter.has_values, arrays)):
        raise BackendError(
            "plans are timed on arrays that are computed at once and on one device, not on traced or lazy ones; call "
            "tune outside of the trace"
        )
    signatures = tuple(map(adapter.signature, arrays))
    return contraction(request, adapter, described(adapter, signatures), one_device(adapter, signatures))


def _tuned(asked: Contraction, request: Request, adapter: Adapter, arrays: Sequence[Array], rounds: int) -> Tuning:
    is_path_free = request.is_path_free
    tried = candidates_of(asked, is_path_free, most=8)
    programs = list(tried.values())
    with watched() as watch:
        times = steady_times(adapter, [run_of(program, adapter) for program in programs], arrays, rounds)
        for repeats in times:
            watch.repeats(repeats)
    doubts = tuple(watch.reasons)
    estimates = [program_seconds(program, asked.place.traits) for program in programs]
    least = [min(each) for each in times]
    chosen = winner(least)
    seconds = least[chosen], least[0]
    selection = list(tried)[chosen]
    is_remembered = not doubts and remember(adapter, asked, is_path_free, selection, seconds, len(tried))
    if is_remembered:
        cache_clear()  # plans that were made before do not know of it
    return Tuning(
        tuple(map(Tried, map(as_plan, programs), estimates, least)),
        chosen,
        is_remembered,
        doubts,
    )
