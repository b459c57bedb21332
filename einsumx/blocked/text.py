"""Prints a blocked contraction: its cuts, its stages and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from logging import INFO

from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Stage
from einsumx.errors import excerpt, visible
from einsumx.ir.bind import label_names
from einsumx.ir.text import duration, quantity, shape_text
from einsumx.log import log

__all__ = ["blocked_text", "log_blocks", "stage_lines"]


def log_blocks(plan: BlockedProgram) -> None:
    """Log the cuts of a contraction that starts to run, unless it is neither cut nor read."""
    if log.isEnabledFor(INFO) and (plan.cuts or sum(plan.read_bytes)):
        log.info("blocks of %s: %s", excerpt(plan.equation.text), _blocks_line(plan))


def _blocks_line(plan: BlockedProgram) -> str:
    """The cuts and their cost in one line.

    >>> import einsumx
    >>> _blocks_line(einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True))
    'k into 4, i into 7; 28.8 MB to read, peak 8.98 MB of 9 MB, on numpy'
    """
    cuts = ", ".join(f"{visible(label)} into {count}" for label, count in plan.cuts.items()) or "one"
    return (
        f"{cuts}; {quantity(sum(plan.read_bytes), 'B')} to read, "
        f"peak {quantity(plan.peak_bytes, 'B')} of {quantity(plan.limit, 'B')}, on {plan.backend}"
    )


def blocked_text(plan: BlockedProgram) -> str:
    """The text of a plan: a header, then a line for each loop, each stage in the order of computation, each operand."""
    equation, cut = plan.equation, plan.blocking
    names = tuple(map(visible, label_names(equation)))
    shapes = " ".join(shape_text(operand.shape) for operand in plan.operands)
    where = f"{plan.backend} ({plan.device})" if plan.device else plan.backend
    lines = []
    for label in cut.order:
        size, count = equation.sizes[label], cut.counts[label]
        lines.append((f"cut {names[label]}", f"{size} into {count} blocks of up to {-(-size // count)}"))
    lines += stage_lines(cut.root, names)
    for number, (operand, in_place, times) in enumerate(zip(plan.operands, plan.in_place, plan.reads)):
        nbytes = quantity(operand.nbytes, "B")
        often = f"{times} time{'s' * (times != 1)}"
        read = f", {quantity(plan.read_bytes[number], 'B')}" if times > 1 else ""
        how = f"gone through {often} where it lies" if in_place else f"read {often}{read}"
        lines.append((f"operand {number}", f"{nbytes}, {how}"))
    if sum(plan.read_bytes) and len(plan.operands) > 1:
        lines.append(("read in all", quantity(sum(plan.read_bytes), "B")))
    if cut.read_ahead:
        lines.append(("read ahead", f"up to {quantity(cut.read_ahead, 'B')}"))
    lines.append(("peak memory", f"{quantity(plan.peak_bytes, 'B')} of the limit of {quantity(plan.limit, 'B')}"))
    lines.append(("time", f"{duration(plan.seconds)} expected"))
    width = max(len(name) for name, _ in lines)
    body = "\n".join(f"  {name:<{width}}  {remark}" for name, remark in lines)
    return f"{visible(equation.text)}  {shapes}  {plan.dtype} on {where} in blocks\n{body}"


def stage_lines(stage: Stage, names: Sequence[str], around: tuple[int, ...] = ()) -> list[tuple[str, str]]:
    """A line for each stage, inputs first; ``around`` are the loops of the stage that uses its value."""

    def term(labels: Sequence[int]) -> str:
        return "".join(names[label] for label in labels)

    lines = []
    for place in stage.order:
        source = stage.inputs[place]
        if not isinstance(source, int):
            lines += stage_lines(source, names, stage.inside)
    remark = f"for each block of {term(stage.nest)}" if stage.nest else "once"
    if stage.loops:
        remark += f", summed over blocks of {term(stage.loops)}"
    if len(stage.nest) < len(around):
        remark += f", kept while {term(around[len(stage.nest) :])} goes on"
    return [*lines, (f"{','.join(map(term, stage.terms))}->{term(stage.output)}", remark)]
