"""A plan as text: exactly the calls that run, with what each costs and why each copy is made."""

from __future__ import annotations

from logging import DEBUG, INFO

from einsumx.errors import excerpt, visible
from einsumx.ir.cost import Kernels, OpCost, PlanCost, program_cost
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
from einsumx.ir.program import Program
from einsumx.log import log

__all__ = [
    "call_text",
    "duration",
    "plan_text",
    "quantity",
    "remark_text",
    "shape_text",
    "summary",
    "tell_plan",
]


def plan_text(plan: Program, cost: PlanCost) -> str:
    """The plan, a header and a line an op.

    >>> import einsumx
    >>> print(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"))
    ij,kj->ki  (2,3) (4,3)  float32 on numpy
      %2 = transpose %0 (1,0)  view
      %3 = matmul %1 %2        24 multiply-adds
      result %3                (4,2) float32
    """
    shapes = " ".join(shape_text(operand.shape) for operand in plan.operands)
    inputs = list(dict.fromkeys(operand.dtype for operand in plan.operands))
    types = "/".join(inputs) if inputs == [plan.dtype] else f"{'/'.join(inputs)} -> {plan.dtype}"
    where = f"{plan.backend} ({plan.device})" if plan.device else plan.backend
    lines = [(f"%{op.out} = {call_text(op)}", remark_text(op, entry)) for op, entry in zip(plan.ops, cost.ops)]
    lines.append((f"result %{plan.result}", f"{shape_text(plan.shape)} {plan.dtype}"))
    width = max(len(call) for call, _ in lines)
    body = "\n".join(f"  {call:<{width}}  {remark}".rstrip() for call, remark in lines)
    return f"{visible(plan.equation)}  {shapes}  {types} on {where}\n{body}"


def tell_plan(plan: Program, kernels: Kernels) -> None:
    """Log a plan that was made, in a line; and where it takes the framework's own einsum kernel."""
    if log.isEnabledFor(DEBUG):
        log.debug("plan %s: %s", excerpt(plan.equation), _plan_line(plan, kernels))
    if log.isEnabledFor(INFO):
        for op in plan.ops:
            if isinstance(op, Native):
                text = excerpt(plan.equation)
                log.info("plan %s takes the own einsum kernel of %s for %s", text, plan.backend, op.equation)


_NAMED = 8
"""How many operands a plan may have, so that shapes and path are logged."""


def _plan_line(plan: Program, kernels: Kernels | None) -> str:
    """What a plan is for, its path, and what it costs.

    >>> import einsumx
    >>> _plan_line(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"), None)
    '(2,3) (4,3) float32 on numpy, path (0,1), 2 ops, 24 multiply-adds, 0 B copied, peak 104 B'
    """
    cost = program_cost(plan, kernels)
    shapes, path = (" ".join(map(shape_text, part)) for part in ([each.shape for each in plan.operands], plan.path))
    if len(plan.operands) > _NAMED:
        shapes, path = f"{len(plan.operands)} operands", f"of {len(plan.path)} steps"
    ops = f"{len(plan.ops)} op{'s' * (len(plan.ops) != 1)}"
    return (
        f"{shapes} {plan.dtype} on {plan.backend}, path {path}, {ops}, "
        f"{quantity(cost.multiply_adds)} multiply-adds, {quantity(cost.copied, 'B')} copied, "
        f"peak {quantity(cost.peak_bytes, 'B')}"
    )


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
            return f"transpose %{op.src} {shape_text(op.axes)}"
        case Reshape():
            return f"reshape %{op.src} {shape_text(op.shape)}"
        case Expand():
            return f"expand %{op.src} {shape_text(op.shape)}"
        case First():
            return f"first %{op.src} of axes {shape_text(op.axes)}"
        case Diagonal():
            return f"diagonal %{op.src} axes {op.axis1} and {op.axis2}"
        case Copy():
            return f"copy %{op.src}"
        case Cast():
            return f"cast %{op.src} {op.dtype}"
        case Sum():
            return f"sum %{op.src} over {shape_text(op.axes)}"
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
            return f"zeros {shape_text(op.shape)} {op.dtype}"


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


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape without blanks.

    >>> shape_text((2, 3)), shape_text(())
    ('(2,3)', '()')
    """
    return f"({','.join(map(str, shape))})"
