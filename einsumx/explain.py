"""A plan as text: exactly the calls that run, with what each costs and why each copy is made."""

from __future__ import annotations

from einsumx.cost import OpCost, PlanCost, plan_cost
from einsumx.ops import Cast, Copy, Diagonal, Expand, First, Matmul, Multiply, Native, Op, Reshape, Sum, Transpose
from einsumx.plan import Plan

__all__ = ["plan_text", "quantity", "summary"]


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
    lines = [(f"%{op.out} = {_call(op)}", _remark(op, entry)) for op, entry in zip(plan.ops, cost.ops)]
    lines.append((f"result %{plan.result}", f"{_shape(plan.shape)} {plan.dtype}"))
    width = max(len(call) for call, _ in lines)
    body = "\n".join(f"  {call:<{width}}  {remark}".rstrip() for call, remark in lines)
    return f"{plan.equation}  {shapes}  {types} on {where}\n{body}"


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

    >>> quantity(655_360_000), quantity(26_214_400, "B"), quantity(24)
    ('655 M', '26.2 MB', '24')
    """
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def _call(op: Op) -> str:
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
        case Multiply():
            return f"multiply %{op.lhs} %{op.rhs}"
        case Matmul():
            lhs = f"%{op.lhs}{' transposed' if op.transpose_lhs else ''}"
            rhs = f"%{op.rhs}{' transposed' if op.transpose_rhs else ''}"
            return f"matmul {lhs} {rhs}{' with a batch axis inside' if op.inner_batch else ''}"
        case Native():
            return f"einsum {op.equation} {' '.join(f'%{slot}' for slot in op.operands)}"


def _remark(op: Op, cost: OpCost) -> str:
    match op:
        case Transpose(reason="") | Diagonal(reason="") | Reshape() | Expand() | First():
            return "view"
        case Transpose() | Diagonal() | Copy():
            return f"copy {quantity(cost.copied, 'B')}: {op.reason}"
        case Cast():
            return f"copy {quantity(cost.copied, 'B')}: computed in {op.dtype}"
        case Sum():
            return f"{quantity(cost.multiply_adds)} additions"
        case Multiply():
            return f"{quantity(cost.multiply_adds)} multiplications"
        case Matmul():
            return f"{quantity(cost.multiply_adds)} multiply-adds"
        case Native():
            return f"{quantity(cost.multiply_adds)} multiply-adds in the framework's own kernel"


def _shape(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))})"
