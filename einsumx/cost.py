"""What a plan costs: arithmetic, bytes copied, and the most memory alive at once. All from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from einsumx.dtypes import arithmetic, itemsize
from einsumx.ops import (
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
    Sum,
    Transpose,
    sources,
)
from einsumx.plan import Plan
from einsumx.traits import Traits
from einsumx.verify import replay

__all__ = ["OpCost", "PlanCost", "last_uses", "plan_cost", "plan_seconds", "returns_view", "slot_dtypes"]


@dataclass(frozen=True, slots=True)
class OpCost:
    """The cost of one op.

    Attributes:
        multiply_adds: multiplications with their additions; a sum counts its additions.
        copied: bytes written by an op that only moves or casts data, 0 for a view and for arithmetic.
        allocated: bytes of the array that the op makes, 0 for a view.
        shape: of the op's result.
        dtype: of the op's result.
    """

    multiply_adds: int
    copied: int
    allocated: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class PlanCost:
    """The cost of a plan.

    Attributes:
        ops: an entry an op.
        multiply_adds: of all ops; a multiply-add is two floating-point operations.
        copied: bytes written by copies and casts.
        input_bytes: of all operands.
        output_bytes: of the result.
        peak_bytes: the most bytes alive at once: operands, intermediates and result, without what the
            framework's own kernels allocate while they run.
    """

    ops: tuple[OpCost, ...]
    multiply_adds: int
    copied: int
    input_bytes: int
    output_bytes: int
    peak_bytes: int


def plan_cost(plan: Plan) -> PlanCost:
    """The cost of a plan.

    >>> import einsumx
    >>> cost = plan_cost(einsumx.plan("ij,jk->ik", (2, 3), (3, 4), dtypes="float64"))
    >>> cost.multiply_adds, cost.copied, cost.peak_bytes
    (24, 0, 208)
    """
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    types = slot_dtypes(plan)
    costs = [_op_cost(op, shapes, types[op.out]) for op in plan.ops]
    inputs = sum(prod(operand.shape) * itemsize(operand.dtype) for operand in plan.operands)
    return PlanCost(
        tuple(costs),
        sum(cost.multiply_adds for cost in costs),
        sum(cost.copied for cost in costs),
        inputs,
        prod(plan.shape) * itemsize(plan.dtype),
        inputs + _peak(plan, costs),
    )


def plan_seconds(plan: Plan, traits: Traits) -> float:
    """Seconds that a plan is expected to take, by the rates that it was chosen with."""
    rates = traits.rates
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    types = slot_dtypes(plan)
    seconds = 0.0
    for op in plan.ops:
        entry = _op_cost(op, shapes, types[op.out])
        read = sum(prod(shapes[slot]) * itemsize(types[slot]) for slot in sources(op))
        touched = read + prod(entry.shape) * itemsize(entry.dtype)
        match op:
            case Reshape() | Expand() | First():
                seconds += rates.view
            case Transpose() | Diagonal() if not entry.copied:
                seconds += rates.view
            case Transpose() | Diagonal() | Copy() | Cast():
                seconds += rates.call + touched / rates.permute
            case Matmul():
                work = entry.multiply_adds * arithmetic(entry.dtype) / rates.gemm
                matrices = prod(entry.shape[:-2])
                seconds += rates.call + max(work, touched / rates.stream) + matrices * rates.matrix
            case Native():
                seconds += rates.call + max(
                    entry.multiply_adds / (rates.native or rates.stream), touched / rates.stream
                )
            case _:
                seconds += rates.call + touched / rates.stream
    return seconds


def slot_dtypes(plan: Plan) -> dict[int, str]:
    """The dtype of every slot."""
    types = {slot: operand.dtype for slot, operand in enumerate(plan.operands)}
    for op in plan.ops:
        types[op.out] = op.dtype if isinstance(op, Cast) else types[sources(op)[0]]
    return types


def last_uses(plan: Plan) -> dict[int, list[int]]:
    """By the slot that an op writes, the slots that nothing reads after that op (never the result's)."""
    last: dict[int, int] = {}
    for op in plan.ops:
        for slot in (*sources(op), op.out):
            last[slot] = op.out
    found: dict[int, list[int]] = {}
    for slot, out in last.items():
        if slot != plan.result:
            found.setdefault(out, []).append(slot)
    return found


def returns_view(plan: Plan) -> bool:
    """Whether the result may be a view of an operand: nothing on the way to it makes a new array for sure."""
    slot = plan.result
    for op in reversed(plan.ops):
        if op.out == slot:
            if not isinstance(op, Transpose | Reshape | Expand | First | Diagonal | Cast):
                return False
            (slot,) = sources(op)
    return True


def _op_cost(op: Op, shapes: dict[int, tuple[int, ...]], dtype: str) -> OpCost:
    shape = shapes[op.out]
    nbytes = prod(shape) * itemsize(dtype)
    match op:
        case Transpose() | Diagonal():
            copied = nbytes if op.reason else 0
            return OpCost(0, copied, copied, shape, dtype)
        case Reshape() | Expand() | First():
            return OpCost(0, 0, 0, shape, dtype)
        case Copy() | Cast():
            return OpCost(0, nbytes, nbytes, shape, dtype)
        case Sum():
            return OpCost(prod(shapes[op.src]), 0, nbytes, shape, dtype)
        case Multiply():
            return OpCost(prod(shape), 0, nbytes, shape, dtype)
        case Matmul():
            inner = shapes[op.lhs][-1 if not op.transpose_lhs else -3 if op.inner_batch else -2]
            return OpCost(prod(shape) * inner, 0, nbytes, shape, dtype)
        case Native():
            terms = op.equation.partition("->")[0].split(",")
            sizes = {label: size for term, slot in zip(terms, op.operands) for label, size in zip(term, shapes[slot])}
            return OpCost(prod(sizes.values()) * max(len(terms) - 1, 1), 0, nbytes, shape, dtype)


def _peak(plan: Plan, costs: list[OpCost]) -> int:
    """The most bytes of memory made by ops that are alive at once; a view keeps alive what it looks at."""
    owner: dict[int, int] = {}  # the slot whose memory a slot uses
    readers: dict[int, int] = {}  # how many live slots use that memory
    dead = last_uses(plan)
    size: dict[int, int] = {}
    alive = peak = 0
    for op, cost in zip(plan.ops, costs):
        home = op.out if cost.allocated else owner.get(sources(op)[0], sources(op)[0])
        owner[op.out] = home
        readers[home] = readers.get(home, 0) + 1
        size.setdefault(op.out, cost.allocated)
        alive += cost.allocated
        peak = max(peak, alive)
        for slot in dead.get(op.out, ()):
            home = owner.get(slot, slot)
            readers[home] = readers.get(home, 0) - 1
            if readers[home] == 0:
                alive -= size.get(home, 0)
    return peak
