"""A plan as text: exactly the calls that run, with what each costs and why each copy is made."""

from __future__ import annotations

from collections.abc import Sequence
from logging import DEBUG, INFO
from typing import TYPE_CHECKING

from einsumx.errors import excerpt, visible
from einsumx.ir.bind import label_names
from einsumx.ir.cost import OpCost, PlanCost, plan_cost
from einsumx.ir.ops import (
    Cast,
    Copy,
    Diagonal,
    Expand,
    First,
    Matmul,
    Multiply,
    Native,
    Op,
    Reshape,
    Scale,
    Sum,
    Transpose,
    Zeros,
)
from einsumx.ir.program import Plan
from einsumx.log import log

if TYPE_CHECKING:
    from einsumx.blocked.blocked_plan import BlockedPlan
    from einsumx.blocked.stages import Stage

__all__ = [
    "blocked_text",
    "call_text",
    "duration",
    "plan_text",
    "quantity",
    "remark_text",
    "stage_lines",
    "summary",
    "tell_blocks",
    "tell_plan",
]


def plan_text(plan: Plan) -> str:
    """The plan, a header and a line an op.

    >>> import einsumx
    >>> print(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"))
    ij,kj->ki  (2,3) (4,3)  float32 on numpy
      %2 = transpose %0 (1,0)  view
      %3 = matmul %1 %2        24 multiply-adds
      result %3                (4,2) float32
    """
    cost = plan_cost(plan)
    shapes = " ".join(_shape(operand.shape) for operand in plan.operands)
    inputs = list(dict.fromkeys(operand.dtype for operand in plan.operands))
    types = "/".join(inputs) if inputs == [plan.dtype] else f"{'/'.join(inputs)} -> {plan.dtype}"
    where = f"{plan.backend} ({plan.device})" if plan.device else plan.backend
    lines = [(f"%{op.out} = {call_text(op)}", remark_text(op, entry)) for op, entry in zip(plan.ops, cost.ops)]
    lines.append((f"result %{plan.result}", f"{_shape(plan.shape)} {plan.dtype}"))
    width = max(len(call) for call, _ in lines)
    body = "\n".join(f"  {call:<{width}}  {remark}".rstrip() for call, remark in lines)
    return f"{visible(plan.equation)}  {shapes}  {types} on {where}\n{body}"


def tell_plan(plan: Plan) -> None:
    """Log a plan that was made, in a line; and where it takes the framework's own einsum kernel."""
    if log.isEnabledFor(DEBUG):
        log.debug("plan %s: %s", excerpt(plan.equation), _plan_line(plan))
    if log.isEnabledFor(INFO):
        for op in plan.ops:
            if isinstance(op, Native):
                text = excerpt(plan.equation)
                log.info("plan %s takes the own einsum kernel of %s for %s", text, plan.backend, op.equation)


def tell_blocks(plan: BlockedPlan) -> None:
    """Log how a contraction is cut that begins to run, in a line; nothing of one that is neither cut nor read."""
    if log.isEnabledFor(INFO) and (plan.cuts or sum(plan.read_bytes)):
        log.info("blocks of %s: %s", excerpt(plan.equation.text), _blocks_line(plan))


def _blocks_line(plan: BlockedPlan) -> str:
    """Into how many blocks each label is cut, and what that takes.

    >>> import einsumx
    >>> _blocks_line(einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True))
    'k into 4, i into 7; 28.8 MB to read, peak 8.98 MB of 9 MB, on numpy'
    """
    cuts = ", ".join(f"{visible(label)} into {count}" for label, count in plan.cuts.items()) or "one"
    return (
        f"{cuts}; {quantity(sum(plan.read_bytes), 'B')} to read, "
        f"peak {quantity(plan.peak_bytes, 'B')} of {quantity(plan.limit, 'B')}, on {plan.backend}"
    )


_NAMED = 8
"""How many operands a plan may have, so that shapes and path are logged."""


def _plan_line(plan: Plan) -> str:
    """What a plan is for, its path, and what it costs.

    >>> import einsumx
    >>> _plan_line(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"))
    '(2,3) (4,3) float32 on numpy, path (0,1), 2 ops, 24 multiply-adds, 0 B copied, peak 104 B'
    """
    cost = plan_cost(plan)
    shapes, path = (" ".join(map(_shape, part)) for part in ([each.shape for each in plan.operands], plan.path))
    if len(plan.operands) > _NAMED:
        shapes, path = f"{len(plan.operands)} operands", f"of {len(plan.path)} steps"
    ops = f"{len(plan.ops)} op{'s' * (len(plan.ops) != 1)}"
    return (
        f"{shapes} {plan.dtype} on {plan.backend}, path {path}, {ops}, "
        f"{quantity(cost.multiply_adds)} multiply-adds, {quantity(cost.copied, 'B')} copied, "
        f"peak {quantity(cost.peak_bytes, 'B')}"
    )


def blocked_text(plan: BlockedPlan) -> str:
    """How a contraction is cut: a header, a line a loop, a line a stage from the first to run, a line an operand."""
    equation, cut = plan.equation, plan.blocking
    names = tuple(map(visible, label_names(equation)))
    shapes = " ".join(_shape(operand.shape) for operand in plan.operands)
    where = f"{plan.backend} ({plan.device})" if plan.device else plan.backend
    lines = []
    for label in cut.order:
        size, count = equation.sizes[label], cut.counts[label]
        lines.append((f"cut {names[label]}", f"{size} into {count} blocks of up to {-(-size // count)}"))
    lines += stage_lines(cut.root, names)
    for number, (operand, is_there, times) in enumerate(zip(plan.operands, plan.in_place, plan.reads)):
        nbytes = quantity(operand.nbytes, "B")
        often = f"{times} time{'s' * (times != 1)}"
        read = f", {quantity(plan.read_bytes[number], 'B')}" if times > 1 else ""
        how = f"gone through {often} where it lies" if is_there else f"read {often}{read}"
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
    """A line a stage, those that it takes values of first; ``around`` are the loops of the one that takes its value."""

    def written(labels: Sequence[int]) -> str:
        return "".join(names[label] for label in labels)

    lines = []
    for place in stage.order:
        source = stage.inputs[place]
        if not isinstance(source, int):
            lines += stage_lines(source, names, stage.inside)
    remark = f"for each block of {written(stage.nest)}" if stage.nest else "once"
    if stage.loops:
        remark += f", summed over blocks of {written(stage.loops)}"
    if len(stage.nest) < len(around):
        remark += f", kept while {written(around[len(stage.nest) :])} goes on"
    return [*lines, (f"{','.join(map(written, stage.terms))}->{written(stage.output)}", remark)]


def duration(seconds: float) -> str:
    """Seconds with three digits, in thousandths where they are few.

    >>> duration(0.0042), duration(75.3)
    ('4.2 ms', '75.3 s')
    """
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{quantity(seconds)} s"


def summary(cost: PlanCost) -> dict[str, str]:
    """The totals of a plan in words: arithmetic, bytes copied, peak memory."""
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
    for scale, prefix in (
        (1e24, "Y"),
        (1e21, "Z"),
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
    ):
        if number >= scale:
            return f"{number / scale:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def call_text(op: Op) -> str:
    """What an op calls, on which slots."""
    match op:
        case Transpose():
            return f"transpose %{op.src} {_shape(op.axes)}"
        case Reshape():
            return f"reshape %{op.src} {_shape(op.shape)}"
        case Expand():
            return f"expand %{op.src} {_shape(op.shape)}"
        case First():
            return f"first %{op.src} of axes {_shape(op.axes)}"
        case Diagonal():
            return f"diagonal %{op.src} axes {op.axis1} and {op.axis2}"
        case Copy():
            return f"copy %{op.src}"
        case Cast():
            return f"cast %{op.src} {op.dtype}"
        case Sum():
            return f"sum %{op.src} over {_shape(op.axes)}"
        case Scale():
            return f"scale %{op.src} by {op.count}"
        case Multiply():
            return f"multiply %{op.lhs} %{op.rhs}"
        case Matmul():
            lhs = f"%{op.lhs}{' transposed' if op.transpose_lhs else ''}"
            rhs = f"%{op.rhs}{' transposed' if op.transpose_rhs else ''}"
            return f"matmul {lhs} {rhs}{' with a batch axis inside' if op.inner_batch else ''}"
        case Native():
            return f"einsum {op.equation} {' '.join(f'%{slot}' for slot in op.operands)}"
        case Zeros():
            return f"zeros {_shape(op.shape)} {op.dtype}"


def remark_text(op: Op, cost: OpCost) -> str:
    """What an op takes, and why it copies if it does."""
    match op:
        case Transpose(reason="") | Diagonal(reason="") | Reshape() | Expand() | First():
            return "view"
        case Transpose() | Diagonal() | Copy():
            return f"copy {quantity(cost.copied, 'B')}: {op.reason}"
        case Cast():
            return f"copy {quantity(cost.copied, 'B')}: computed in {op.dtype}"
        case Sum():
            return f"{quantity(cost.multiply_adds)} additions"
        case Scale():
            return f"{quantity(cost.multiply_adds)} multiplications: each sum is of {quantity(op.count)} equal terms"
        case Multiply():
            return f"{quantity(cost.multiply_adds)} multiplications"
        case Matmul():
            return f"{quantity(cost.multiply_adds)} multiply-adds"
        case Native():
            return f"{quantity(cost.multiply_adds)} multiply-adds in the framework's own kernel"
        case Zeros():
            return "a label has size 0"


def _shape(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))})"
