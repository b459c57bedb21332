"""What a plan costs: arithmetic, bytes copied, and the most memory alive at once. All from shapes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from einsumx.dtypes import itemsize
from einsumx.ir.layout import contiguous, memory_order, reshaped
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
    sources,
)
from einsumx.ir.program import Operand, Program
from einsumx.ir.verify import replay

__all__ = [
    "Kernels",
    "OpCost",
    "PlanCost",
    "freed",
    "in_use",
    "last_uses",
    "layouts",
    "op_cost",
    "program_cost",
    "result_strides",
    "returns_view",
    "slot_dtypes",
]


@dataclass(frozen=True, slots=True)
class OpCost:
    """The cost of one op.

    Attributes:
        multiply_adds: multiplications with their additions; a sum counts its additions.
        copied: bytes written by an op that only moves or casts data, 0 for a view and for arithmetic.
        allocated: bytes of the array that the op makes, 0 for a view.
        workspace: bytes that it takes besides while it runs.
        shape: of the op's result.
        dtype: of the op's result.
    """

    multiply_adds: int
    copied: int
    allocated: int
    workspace: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class PlanCost:
    """The cost of a plan.

    Attributes:
        ops: an entry an op.
        multiply_adds: of all ops; a multiply-add is two floating-point operations.
        copied: bytes written by copies and casts.
        input_bytes: of all operands; what repeats itself along an axis (stride 0) is stored once.
        output_bytes: of the result.
        peak_bytes: the most bytes alive at once, as :attr:`einsumx.Plan.peak_bytes` says.
    """

    ops: tuple[OpCost, ...]
    multiply_adds: int
    copied: int
    input_bytes: int
    output_bytes: int
    peak_bytes: int


class Kernels(Protocol):
    """What costing a program asks of its framework; each adapter is one."""

    def workspace(self, op: Op, operands: Sequence[Operand], /) -> int:
        """Bytes that the kernel of ``op`` allocates while it runs, at most, besides its result."""


def program_cost(plan: Program, kernels: Kernels | None) -> PlanCost:
    """The cost of a program.

    Args:
        plan: lowered for a framework.
        kernels: of that framework; None where they are not known, and are taken to need no memory of their own.
    """
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    types = slot_dtypes(plan)
    lies = layouts(plan, shapes, types)
    costs = []
    for op in plan.ops:
        workspace = kernels.workspace(op, [lies[slot] for slot in sources(op)]) if kernels else 0
        costs.append(op_cost(op, shapes, types[op.out], workspace))
    inputs = sum(_stored_bytes(operand) for operand in plan.operands)
    return PlanCost(
        tuple(costs),
        sum(cost.multiply_adds for cost in costs),
        sum(cost.copied for cost in costs),
        inputs,
        prod(plan.shape) * itemsize(plan.dtype),
        inputs + _peak(plan, costs),
    )


def _stored_bytes(operand: Operand) -> int:
    steps = operand.strides or contiguous(operand.shape)
    return prod(size for size, step in zip(operand.shape, steps) if step) * itemsize(operand.dtype)


def slot_dtypes(plan: Program) -> dict[int, str]:
    """The dtype of every slot."""
    types = {slot: operand.dtype for slot, operand in enumerate(plan.operands)}
    for op in plan.ops:
        types[op.out] = op.dtype if isinstance(op, Cast | Zeros) else types[sources(op)[0]]
    return types


def last_uses(plan: Program) -> dict[int, list[int]]:
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


def returns_view(plan: Program) -> bool:
    """Whether the result may be a view of an operand: nothing on the way to it makes a new array for sure."""
    slot = plan.result
    for op in reversed(plan.ops):
        if op.out == slot:
            if not isinstance(op, Transpose | Reshape | Expand | First | Diagonal | Cast):
                return False
            (slot,) = sources(op)
    return True


def layouts(plan: Program, shapes: Mapping[int, tuple[int, ...]], types: Mapping[int, str]) -> dict[int, Operand]:
    """Shape, dtype and strides of every slot; what an op computes is C-contiguous."""
    strides = {slot: operand.strides for slot, operand in enumerate(plan.operands)}
    for op in plan.ops:
        strides[op.out] = _strides(op, shapes[sources(op)[0]], strides[sources(op)[0]])
    return {slot: Operand(shape, types[slot], strides[slot]) for slot, shape in shapes.items()}


def result_strides(plan: Program) -> tuple[int, ...]:
    """Where the elements of a plan's result lie."""
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    return layouts(plan, shapes, slot_dtypes(plan))[plan.result].strides or contiguous(plan.shape)


def _strides(op: Op, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Where the result of an op lies, from the shape and strides of its first source; None where C-contiguous."""
    steps = contiguous(shape) if strides is None else strides
    match op:
        case Transpose(reason=""):
            return tuple(steps[axis] for axis in op.axes)
        case Reshape():
            return None if strides is None else reshaped(shape, steps, op.shape)
        case Expand():
            return tuple(step if size == wide else 0 for size, wide, step in zip(shape, op.shape, steps))
        case First():
            return tuple(step for axis, step in enumerate(steps) if axis not in op.axes)
        case Diagonal(reason=""):
            pair = (op.axis1, op.axis2)
            kept = tuple(step for axis, step in enumerate(steps) if axis not in pair)
            return (*kept, steps[op.axis1] + steps[op.axis2])
        case Cast() if strides is not None:  # it keeps the order of the axes in memory
            order = memory_order(steps)
            packed = dict(zip(order, contiguous([shape[axis] for axis in order])))
            return tuple(packed[axis] for axis in range(len(shape)))
        case _:
            return None


def op_cost(op: Op, shapes: Mapping[int, tuple[int, ...]], dtype: str, workspace: int = 0) -> OpCost:
    """The cost of an op whose result has ``dtype``, from the shapes of all slots."""
    shape = shapes[op.out]
    nbytes = prod(shape) * itemsize(dtype)
    match op:
        case Transpose() | Diagonal():
            copied = nbytes if op.reason else 0
            return OpCost(0, copied, copied, workspace, shape, dtype)
        case Reshape() | Expand() | First():
            return OpCost(0, 0, 0, workspace, shape, dtype)
        case Copy() | Cast():
            return OpCost(0, nbytes, nbytes, workspace, shape, dtype)
        case Sum():
            return OpCost(prod(shapes[op.src]), 0, nbytes, workspace, shape, dtype)
        case Zeros():
            return OpCost(0, 0, nbytes, workspace, shape, dtype)
        case Scale() | Multiply():
            return OpCost(prod(shape), 0, nbytes, workspace, shape, dtype)
        case Matmul():
            inner = shapes[op.lhs][-1 if not op.transpose_lhs else -3 if op.inner_batch else -2]
            return OpCost(prod(shape) * inner, 0, nbytes, workspace, shape, dtype)
        case Native():
            terms = op.equation.partition("->")[0].split(",")
            sizes = {label: size for term, slot in zip(terms, op.operands) for label, size in zip(term, shapes[slot])}
            return OpCost(prod(sizes.values()) * max(len(terms) - 1, 1), 0, nbytes, workspace, shape, dtype)


def in_use(plan: Program, costs: Sequence[OpCost]) -> Iterator[int]:
    """When each op has run, the bytes of memory that ops have made and that is in use."""
    there: dict[int, int] = {}
    total = 0
    for op, cost, gone in zip(plan.ops, costs, freed(plan, [cost.allocated > 0 for cost in costs])):
        there[op.out] = cost.allocated
        total += cost.allocated
        yield total
        total -= sum(there.pop(slot, 0) for slot in gone)


def freed(plan: Program, makes: Sequence[bool]) -> Iterator[list[int]]:
    """After each op, the slots whose memory is let go; a view keeps alive what it looks at.

    Args:
        plan: its ops are looked at, and which slot has the result.
        makes: of each op, whether it makes an array of its own.
    """
    owner: dict[int, int] = {}  # the slot whose memory a slot uses
    readers: dict[int, int] = {}  # how many live slots use that memory
    dead = last_uses(plan)
    for op, is_own in zip(plan.ops, makes):
        home = op.out if is_own else owner.get(sources(op)[0], sources(op)[0])
        owner[op.out] = home
        readers[home] = readers.get(home, 0) + 1
        gone = []
        for slot in dead.get(op.out, ()):
            home = owner.get(slot, slot)
            readers[home] = readers.get(home, 0) - 1
            if readers[home] == 0:
                gone.append(home)
        yield gone


def _peak(plan: Program, costs: list[OpCost]) -> int:
    """The most bytes of memory made by ops that are alive at once."""
    return max((there + cost.workspace for there, cost in zip(in_use(plan, costs), costs)), default=0)
