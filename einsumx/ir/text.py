"""A program as text: the calls that run, the cost of each and the reason for each copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from einsumx.caches import Table, when_cleared
from einsumx.errors import counted, excerpt, visible
from einsumx.ir import ops
from einsumx.ir.algebra import Kernels
from einsumx.ir.cost import OpCost, PlanCost, op_seconds, program_cost
from einsumx.ir.fill import density
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Op
from einsumx.ir.program import Program
from einsumx.ir.sizes import TYPICAL, names_in, shape_text
from einsumx.log import log, tells_notes, tells_plans


def displayed(value: Any, printer: Any, _: bool) -> None:
    """As ``_repr_pretty_`` of a class: IPython shows a value as it prints, and its ``repr`` inside other objects."""
    printer.text(repr(value) if len(printer.stack) > 1 else str(value))


def plan_text(program: Program, cost: PlanCost) -> str:
    """A header and a line for each op. The header of many operands has their number, not their shapes.

    >>> import einsumx
    >>> print(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"))
    ij,kj->ki  (2,3) (4,3)  float32 on numpy
      %2 = transpose %0 (1,0)  view
      %3 = matmul %1 %2        24 multiply-adds
      result %3                (4,2) float32
    """
    types = types_text([operand.dtype for operand in program.operands], program.dtype)
    where = place_text(program.backend, program.device)
    lines = [(f"%{op.out} = {op.text}", remark_text(op, entry)) for op, entry in zip(program.ops, cost.ops)]
    into = f", {program.into.how} to out=" if program.into else ""
    lines.append((f"result %{program.result}", f"{shape_text(program.shape)} {program.dtype}{into}"))
    where += program.algebra.text + assumption(program)
    return f"{excerpt(program.written)}  {operands_text(program.operands)}  {types} on {where}\n{in_columns(lines)}"


def types_text(inputs: Iterable[str], dtype: str) -> str:
    """The dtypes of the operands, each once, and that of the result if it is another one.

    >>> types_text(["int8", "float32", "int8"], "float32"), types_text(["int8"], "int8")
    ('int8/float32 -> float32', 'int8')
    """
    each = list(dict.fromkeys(inputs))
    return dtype if each == [dtype] else f"{'/'.join(each)} -> {dtype}"


def place_text(backend: str, device: str) -> str:
    """A backend, and the device if it is known."""
    return f"{backend} ({device})" if device else backend


_WIDEST = 48
"""The most letters of a first column that others are aligned with."""


def in_columns(lines: Sequence[tuple[str, str]], indent: str = "  ") -> str:
    """Lines of two columns; a long first one moves the second one of its own line only.

    >>> print(in_columns([("a", "x"), ("bcd", "y")], ""))
    a    x
    bcd  y
    """
    width = max((len(first) for first, _ in lines if len(first) <= _WIDEST), default=0)
    return "\n".join(f"{indent}{first:<{width}}  {second}".rstrip() for first, second in lines)


def assumption(program: Program) -> str:
    """The assumption behind the figures of a plan with unknown sizes, to follow a text; empty for another plan.

    >>> import einsumx
    >>> assumption(einsumx.plan("ij,jk->ik", (None, 3), (3, None)))
    '; figures are for i = k = 256'
    """
    names = names_in([operand.shape for operand in program.operands])
    return f"; figures are for {' = '.join(map(visible, names))} = {TYPICAL}" if names else ""


def brief_text(program: Program) -> str:
    """What a plan copies and computes, in a few words; operands are numbers.

    >>> import einsumx
    >>> brief_text(einsumx.plan("ab,bc,cd->ad", (2, 9), (9, 3), (3, 8)))
    '(0*1)*2'
    >>> brief_text(einsumx.plan("bij,bjk->bik", (800, 2, 9), (800, 9, 3), dtypes="int8"))
    '800 of 0*1'
    """
    names = {slot: str(slot) for slot in range(len(program.operands))}
    copies: list[str] = []
    for op in program.ops:
        sources = [names[slot] for slot in op.sources]
        name = sources[0]
        match op:
            case ops.Matmul():
                *sources_shapes, shape = [program.values[slot].shape for slot in (*op.sources, op.out)]
                count = prod(shape[:-2]) if min(map(len, sources_shapes)) > 1 else 1
                threads = f" {op.threads}" if op.threads else ""
                name = f"{f'{count} of ' if count > 1 else ''}{'*'.join(map(_grouped, sources))}{threads}"
            case ops.Native():
                name = f"einsum({', '.join(sources)})"
            case _ if op.effect == "copy":
                copies.append(name)
            case _ if op.effect == "work":
                name = f"{op.name}({', '.join(sources)})"
        names[op.out] = name
    return "".join([f"copy {each}; " for each in copies]) + names[program.result]


def _grouped(name: str) -> str:
    return name if name.isdecimal() or name.endswith(")") else f"({name})"


def tell_plan(program: Program, kernels: Kernels) -> None:
    """Log a new plan in one line, and once for each equation the copies that take much of the time."""
    if tells_plans():
        log.debug("plan %s: %s", excerpt(program.written), plan_line(program, kernels))
    if tells_notes() and program.written not in _slow.known:
        note = _copying_text(program, kernels)
        if note:
            _slow.keep(program.written, note)
            advice = "other orders of axes, or equal dtypes, may avoid them"
            log.info("%s: %s; %s", excerpt(program.written), note, advice)


_slow: Table[str] = Table(maxsize=256)
"""What was logged about copies, by equation."""
when_cleared(_slow.cache_clear)

_NOTABLE, _SHARE = 1e-4, 1 / 3
"""Copies that take fewer seconds, or a smaller share of a plan's time, are not logged."""


def _copying_text(program: Program, kernels: Kernels) -> str:
    """The copies of a program and their share of its expected time; empty if they take little of it."""
    values, traits = program.values, program.contraction.place.traits
    seconds = {op: op_seconds(op, [values[slot] for slot in op.sources], traits) for op in program.ops}
    whole, copying = sum(seconds.values()), sum([seconds[op] for op in program.ops if op.effect == "copy"])
    if copying < max(_NOTABLE, _SHARE * whole):
        return ""
    costs = program_cost(program, kernels).ops
    reasons = "; ".join([remark_text(entry.op, entry) for entry in costs if entry.op.effect == "copy"])
    return f"copies take {copying / whole:.0%} of about {duration(whole)} ({reasons})"


_NAMED = 8
"""Up to so many operands, texts about a plan show shapes and path."""


def operands_text(operands: Sequence[Operand]) -> str:
    """The shapes of operands, or how many there are.

    >>> operands_text([Operand((2, 3), "int8")] * 2), operands_text([Operand((2, 3), "int8")] * 9)
    ('(2,3) (2,3)', '9 operands')
    """
    return " ".join(map(operand_text, operands)) if len(operands) <= _NAMED else f"{len(operands)} operands"


def plan_line(program: Program, kernels: Kernels | None) -> str:
    """The operands of a plan, its path and its cost.

    >>> import einsumx
    >>> plan_line(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"), None)
    '(2,3) (4,3) float32 on numpy, path (0,1), 2 ops, 24 multiply-adds, 0 B copied, peak 104 B'
    """
    cost = program_cost(program, kernels)
    path = " ".join(map(shape_text, program.path)) if len(program.path) < _NAMED else f"of {len(program.path)} steps"
    count = counted(len(program.ops), "op")
    own = sum(isinstance(op, ops.Native) for op in program.ops)
    count += f" ({own} of the own einsum)" if own else ""
    return (
        f"{operands_text(program.operands)} {program.dtype} on {program.backend}{program.algebra.text}, "
        f"path {path}, {count}, {quantity(cost.multiply_adds)} multiply-adds, "
        f"{quantity(cost.copied, 'B')} copied, peak {quantity(cost.peak_bytes, 'B')}{assumption(program)}"
    )


def duration(seconds: float) -> str:
    """A time with three digits and a unit; in minutes and hours from 100 seconds on, in days from two days on.

    >>> duration(3.2e-6), duration(0.01499), duration(75.3), duration(6480)
    ('3.20 µs', '15.0 ms', '75.3 s', '1 h 48 min')
    """
    for scale, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")):
        if seconds < min(999.5 * scale, 99.95):
            return f"{three_digits(seconds / scale)} {unit}"
    for scale, most, large, small in ((1, 60, "min", "s"), (60, 48, "h", "min")):
        if seconds < (60 * most - 0.5) * scale:
            count, rest = divmod(round(seconds / scale), 60)
            return f"{count} {large}{f' {rest} {small}' if rest else ''}"
    return f"{quantity(seconds / 86400)} days"


def three_digits(number: float) -> str:
    """A number with at least three digits, without an exponent.

    >>> three_digits(2.2519), three_digits(14.99), three_digits(1234.5)
    ('2.25', '15.0', '1234')
    """
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}"


def summary(cost: PlanCost) -> dict[str, str]:
    """The totals of a plan as text: arithmetic, bytes copied, peak memory."""
    return {
        "arithmetic": f"{quantity(cost.multiply_adds)} multiply-adds",
        "copied": quantity(cost.copied, "B"),
        "peak memory": f"{quantity(cost.peak_bytes, 'B')}, of which operands {quantity(cost.input_bytes, 'B')} "
        f"and result {quantity(cost.output_bytes, 'B')}",
    }


def quantity(number: float, unit: str = "") -> str:
    """A number with three digits and a decimal prefix.

    >>> quantity(655_360_000), quantity(26_214_400, "B"), quantity(24), quantity(8e21, "B")
    ('655 M', '26.2 MB', '24', '8 ZB')
    """
    for power, prefix in enumerate(("", *"kMGTPEZYRQ")):
        if number < 999.5 * 1000**power:
            return f"{number / 1000**power:.3g} {prefix}{unit}".rstrip()
    return f"{number:.3g} {unit}".rstrip()


def remark_text(op: Op, cost: OpCost) -> str:
    """The cost of an op, and the reason if it copies; of sparse arrays, estimates."""
    multiply_adds = quantity(cost.multiply_adds)
    if cost.result.nnz is None:
        return op.filled(op.remark, multiply_adds=multiply_adds, copied=quantity(cost.copied, "B"))
    work = f"about {multiply_adds} multiply-adds, " if op.effect == "work" else ""
    return f"{work}stores {_nnz_text(cost.result.nnz, cost.result.shape)}"


def operand_text(operand: Operand) -> str:
    """An operand's shape, and the share of its elements that it stores if it is sparse.

    >>> operand_text(Operand((2, 3), "float32")), operand_text(Operand((600, 500), "float32", nnz=3000))
    ('(2,3)', '(600,500):1%')
    """
    if operand.nnz is None:
        return shape_text(operand.shape)
    return f"{shape_text(operand.shape)}:{_percent(density(operand))}"


def _nnz_text(nnz: int, shape: tuple[int, ...]) -> str:
    share = _percent(min(nnz / max(prod(shape), 1), 1.0))
    return f"about {quantity(nnz)} of {quantity(prod(shape))} elements ({share})"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"
