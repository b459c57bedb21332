"""Prints a blocked contraction: its cuts, its stages and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from logging import INFO
from math import prod

from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Stage
from einsumx.dtypes import itemsize
from einsumx.errors import counted, excerpt, visible
from einsumx.ir.bind import label_names
from einsumx.ir.text import duration, in_columns, operands_text, place_text, quantity
from einsumx.log import log


def log_blocks(program: BlockedProgram) -> None:
    """Log the cuts of a contraction that starts to run, and their cost, unless it is neither cut nor read.

    The line reads ``blocks of ij,jk->ik: k into 4, i into 7; 28.8 MB to read, peak 8.98 MB of 9 MB, on numpy``.
    """
    if log.isEnabledFor(INFO) and (program.cuts or sum(program.read_bytes)):
        log.info("blocks of %s: %s", excerpt(program.equation), blocks_line(program))


def blocks_line(program: BlockedProgram) -> str:
    """The cuts of a blocked contraction, and its cost.

    >>> import einsumx
    >>> blocks_line(einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True))
    'i into 4, k into 7; 28.8 MB to read, peak 8.98 MB of 9 MB, on numpy'
    """
    cuts = ", ".join(f"{visible(label)} into {count}" for label, count in program.cuts.items()) or "one"
    read, peak, limit = (quantity(count, "B") for count in (sum(program.read_bytes), program.peak_bytes, program.limit))
    return f"{cuts}; {read} to read, peak {peak} of {limit}, on {program.backend}"


def blocked_text(program: BlockedProgram) -> str:
    """The text of a plan: a header, then a line for each loop, each stage in the order of computation, each operand."""
    equation, cut = program.contraction.equation, program.blocking
    names = tuple(map(visible, label_names(equation)))
    where = place_text(program.backend, program.device) + program.algebra.text
    lines = []
    for label in cut.order:
        size, count = equation.sizes[label], cut.counts[label]
        lines.append((f"cut {names[label]}", f"{size} into {count} blocks of up to {-(-size // count)}"))
    lines += stage_lines(cut.root, names)
    for number, (operand, in_place, times) in enumerate(zip(program.operands, program.in_place, program.reads)):
        nbytes = quantity(operand.nbytes, "B")
        often = counted(times, "time")
        read = f", {quantity(program.read_bytes[number], 'B')}" if times > 1 else ""
        how = f"read in place {often}" if in_place else f"read {often}{read}"
        lines.append((f"operand {number}", f"{nbytes}, {how}"))
    result = prod(program.shape) * itemsize(program.dtype)
    if program.landing.cut < result:
        how = "held by the caller" if program.is_traced else "written to out="
        lines.append(("result", f"{quantity(result, 'B')}, {how}"))
    if sum(program.read_bytes) and len(program.operands) > 1:
        lines.append(("read in all", quantity(sum(program.read_bytes), "B")))
    if cut.read_ahead:
        lines.append(("read ahead", f"up to {quantity(cut.read_ahead, 'B')}"))
    lines.append(("peak memory", f"{quantity(program.peak_bytes, 'B')} of the limit of {quantity(program.limit, 'B')}"))
    lines.append(("time", f"{duration(program.seconds)} expected"))
    where += " in loops of a compiled program" if program.is_traced else " in blocks"
    header = f"{excerpt(equation.text)}  {operands_text(program.operands)}  {program.dtype} on {where}"
    return f"{header}\n{in_columns(lines)}"


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
    if stage.summed:
        remark += f", summed over blocks of {term(stage.summed)}"
    if len(stage.nest) < len(around):
        remark += f", kept while {term(around[len(stage.nest) :])} goes on"
    return [*lines, (f"{','.join(map(term, stage.terms))}->{term(stage.output)}", remark)]
