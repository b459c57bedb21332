"""What a plan costs: arithmetic, bytes copied, the most memory alive at once, and seconds. All from shapes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from einsumx.dtypes import arithmetic, itemsize
from einsumx.ir.layout import contiguous
from einsumx.ir.ops import Copy, Diagonal, Matmul, Native, Op
from einsumx.ir.program import Operand, Program
from einsumx.ir.verify import replay

__all__ = [
    "Kernels",
    "OpCost",
    "PlanCost",
    "Price",
    "Speeds",
    "freed",
    "in_use",
    "last_uses",
    "layouts",
    "op_cost",
    "op_price",
    "op_seconds",
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
        workspace = kernels.workspace(op, [lies[slot] for slot in op.sources]) if kernels else 0
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
        types[op.out] = op.result_dtype(types[op.sources[0]])
    return types


def last_uses(plan: Program) -> dict[int, list[int]]:
    """By the slot that an op writes, the slots that nothing reads after that op (never the result's)."""
    last: dict[int, int] = {}
    for op in plan.ops:
        for slot in (*op.sources, op.out):
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
            if op.kind == "work" or isinstance(op, Copy):
                return False
            (slot,) = op.sources
    return True


def layouts(plan: Program, shapes: Mapping[int, tuple[int, ...]], types: Mapping[int, str]) -> dict[int, Operand]:
    """Shape, dtype and strides of every slot; what an op computes is C-contiguous."""
    strides = {slot: operand.strides for slot, operand in enumerate(plan.operands)}
    for op in plan.ops:
        first = op.sources[0]
        strides[op.out] = op.result_strides(shapes[first], strides[first])
    return {slot: Operand(shape, types[slot], strides[slot]) for slot, shape in shapes.items()}


def result_strides(plan: Program) -> tuple[int, ...]:
    """Where the elements of a plan's result lie."""
    shapes = replay(plan.ops, [operand.shape for operand in plan.operands])
    return layouts(plan, shapes, slot_dtypes(plan))[plan.result].strides or contiguous(plan.shape)


def op_cost(op: Op, shapes: Mapping[int, tuple[int, ...]], dtype: str, workspace: int = 0) -> OpCost:
    """The cost of an op whose result has ``dtype``, from the shapes of all slots."""
    shape = shapes[op.out]
    nbytes = prod(shape) * itemsize(dtype)
    multiply_adds = op.multiply_adds([shapes[slot] for slot in op.sources], shape)
    copied = nbytes if op.kind == "copy" else 0
    return OpCost(multiply_adds, copied, 0 if op.kind == "view" else nbytes, workspace, shape, dtype)


# -- seconds --------------------------------------------------------------------------------------------------------


class Speeds(Protocol):
    """How fast a framework is; :class:`einsumx.adapters.rates.Rates` says what each is, and is one."""

    @property
    def call(self) -> float: ...
    @property
    def view(self) -> float: ...
    @property
    def matrix(self) -> float: ...
    @property
    def gemm(self) -> float: ...
    @property
    def stream(self) -> float: ...
    @property
    def permute(self) -> float: ...
    @property
    def native(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Price:
    """What an op takes whatever its sizes, and for each unit of what it does.

    Attributes:
        fixed: seconds.
        loop: seconds for each step of the loops of its arithmetic; 0 where memory alone counts.
        speed: bytes that it reads and writes a second, while it computes; 0 where it touches none.
        matrix: seconds for each matrix of a batch.
    """

    fixed: float
    loop: float = 0.0
    speed: float = 0.0
    matrix: float = 0.0


def op_price(op: Op, dtype: str, speeds: Speeds) -> Price:
    """What an op takes whose result has ``dtype``.

    Blocking and ``einsumx profile`` go by it, and lowering where it weighs its ops against one call of the framework's
    own einsum. Ways to compute one product lowering weighs more finely (:mod:`einsumx.planner.matmul`).
    """
    if op.kind == "view":
        return Price(speeds.call if isinstance(op, Diagonal) else speeds.view)
    if op.kind == "copy":
        return Price(speeds.call, speed=speeds.permute)
    match op:
        case Matmul():
            return Price(speeds.call, arithmetic(dtype) / speeds.gemm, speeds.stream, speeds.matrix)
        case Native():
            return Price(speeds.call, max(len(op.operands) - 1, 1) / (speeds.native or speeds.stream), speeds.stream)
        case _:
            return Price(speeds.call, speed=speeds.stream)


def op_seconds(op: Op, operands: Sequence[Operand], speeds: Speeds) -> float:
    """Seconds that an op takes on operands of these shapes and dtypes.

    >>> from einsumx.adapters.rates import Rates
    >>> row = Operand((1000, 2000), "float32")
    >>> op_seconds(Copy(1, 0, "why"), [row], Rates(call=0.25, permute=16e6))
    1.25
    """
    made = Operand(op.result_shape([each.shape for each in operands]), op.result_dtype(operands[0].dtype))
    price = op_price(op, made.dtype, speeds)
    looped = op.loops([each.shape for each in operands], made.shape) if price.loop else ()
    traffic = sum(each.nbytes / price.speed for each in (*operands, made)) if price.speed else 0.0
    matrices = prod(made.shape[:-2]) * price.matrix
    return price.fixed + max(prod(looped or ()) * price.loop, traffic) + matrices


# -- memory ---------------------------------------------------------------------------------------------------------


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
        home = op.out if is_own else owner.get(op.sources[0], op.sources[0])
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
