"""The cost of a program and of its ops, from their data alone: arithmetic, bytes copied, memory in use, and seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from einsumx.dtypes import itemsize
from einsumx.ir import ops
from einsumx.ir.algebra import Kernels
from einsumx.ir.cost_model import CostModel, run_counters
from einsumx.ir.fill import sparse_work
from einsumx.ir.layout import contiguous, is_contiguous, memory_order
from einsumx.ir.loops import outer_loops
from einsumx.ir.operand import Operand, span_bytes
from einsumx.ir.ops import Op
from einsumx.ir.program import Program, last_uses, writer
from einsumx.ir.records import record
from einsumx.ir.sizes import assumed
from einsumx.ir.traits import Traits
from einsumx.ir.values import result_of


@record
class OpCost:
    """The cost of one op.

    Attributes:
        op: the op.
        sources: the values that it reads.
        result: the value that it makes.
        multiply_adds: multiplications with their additions; a sum counts its additions.
        copied: bytes written by an op that only moves or casts data, otherwise 0.
        allocated: bytes of the result, 0 for a view.
        workspace: further bytes that it takes while it runs.
    """

    op: Op
    sources: Sequence[Operand]
    result: Operand
    multiply_adds: int
    copied: int
    allocated: int
    workspace: int


@record
class PlanCost:
    """The cost of a program; sizes that are not known count as :data:`~einsumx.ir.sizes.TYPICAL` ones.

    Attributes:
        ops: an entry for each op.
        multiply_adds: of all ops; a multiply-add is two floating-point operations.
        copied: bytes written by copies and casts.
        input_bytes: of all operands; memory that one shows several times is counted once.
        output_bytes: of the result.
        peak_bytes: the most bytes alive at once, as :attr:`einsumx.Plan.peak_bytes` says.

    Of sparse arrays, all of these are estimates (:mod:`einsumx.ir.fill`).
    """

    ops: tuple[OpCost, ...]
    multiply_adds: int
    copied: int
    input_bytes: int
    output_bytes: int
    peak_bytes: int


def program_cost(program: Program, kernels: Kernels | None) -> PlanCost:
    """The cost of a program.

    Args:
        program: lowered for a framework.
        kernels: of that framework; None to assume that they need no workspace.
    """
    costs = op_costs(program, kernels, program.values)
    inputs, output = sum(map(_operand_bytes, program.operands)), program.values[program.result].nbytes
    held = [total + cost.workspace for total, cost in zip(in_use(costs, program.result), costs)]
    op = writer(program.ops)
    if program.into is not None and program.into.how == "written" and op is not None:
        first = program.ops.index(op)  # which allocates nothing, as the result is in memory of the caller
        held[first:] = [total - output for total in held[first:]]
    return PlanCost(
        costs,
        sum(cost.multiply_adds for cost in costs),
        sum(cost.copied for cost in costs),
        inputs,
        output,
        inputs + max(held, default=0) + (program.into.nbytes if program.into else 0),
    )


def op_costs(program: Program, kernels: Kernels | None, values: Sequence[Operand]) -> tuple[OpCost, ...]:
    """The cost of each op of a program with these values; ``kernels`` are as for :func:`program_cost`."""
    costs = []
    for op in program.ops:
        sources, result = [values[slot] for slot in op.sources], values[op.out]
        workspace = program.algebra.workspace(kernels, op, sources, program.device) if kernels else 0
        nbytes, estimate = assumed(result.nbytes), sparse_work(op, sources, result.shape)
        copied, allocated = nbytes if op.effect == "copy" else 0, 0 if op.effect == "view" else nbytes
        if estimate is not None:
            multiply_adds, allocated = estimate.multiply_adds, nbytes
        else:
            multiply_adds = assumed(op.multiply_adds([each.shape for each in sources], result.shape))
        costs.append(OpCost(op, sources, result, multiply_adds, copied, allocated, workspace))
    return tuple(costs)


def _operand_bytes(operand: Operand) -> int:
    if operand.nnz is not None:
        return operand.nbytes
    return int(min(assumed(operand.nbytes), assumed(span_bytes(operand))))


# -- seconds --------------------------------------------------------------------------------------------------------


class Price(NamedTuple):
    """The time of an op as a function of the sizes of axes.

    Attributes:
        time: seconds, from a number for each of ``amounts``.
        amounts: axes whose sizes are to be multiplied, as the operands' shapes have them.
    """

    time: Callable[..., float]
    amounts: tuple[Sequence[int], ...]

    @property
    def seconds(self) -> float:
        """The time for these sizes."""
        return self.time(*[assumed(prod(amount)) for amount in self.amounts])


def op_price(op: Op, operands: Sequence[Operand], result: Operand, framework: Traits) -> Price:
    """The price of an op, from shapes, dtypes and strides."""
    model = CostModel(framework, result.dtype)
    estimate = sparse_work(op, operands, result.shape)
    if estimate is not None:
        elements = [prod(each.shape) if each.nnz is None else each.nnz for each in operands]
        return Price(model.sparse, ((estimate.nnz + sum(elements),), (estimate.multiply_adds,)))
    if op.effect == "view":
        return Price(partial(model.overhead, op), ())
    match op:
        case _ if op.effect == "copy":
            amounts, turned = _run_counters(op, operands[0])
            time = partial(model.copy, turned=turned, source_size=itemsize(operands[0].dtype))
            return Price(time, (result.shape, *amounts))
        case ops.Matmul():
            return _matmul_price(op, operands, result, model, framework)
        case ops.Native() if framework.arrays == "einsum" and len(operands) == 1:
            return Price(model.elementwise, (operands[0].shape, result.shape))
        case ops.Native():
            factor = framework.einsum_factor(op.equation)
            return _native_price(op, operands, model) if factor is None else _pair_price(op, operands, model, factor)
        case ops.Zeros():
            return Price(model.elementwise, (result.shape,))
        case _:
            return Price(model.elementwise, tuple(each.shape for each in (*operands, result)))


def _run_counters(op: Op, operand: Operand) -> tuple[Sequence[list[int]], bool]:
    """The sizes of the axes that count the runs of a copy's innermost loop, and whether it moves the innermost axis.

    Without sizes, the runs are long.
    """
    shape = operand.shape
    source: Sequence[int] = range(len(shape))
    match op:
        case ops.Transpose():
            target = op.axes
        case ops.Copy():
            source, target = memory_order(operand.strides or contiguous(shape)), tuple(source)
        case ops.Cast():  # it keeps the order in memory
            return ([],), False
        case _:
            return (), True
    before, after = ([axis for axis in order if shape[axis] != 1] for order in (source, target))
    return ([shape[axis] for axis in run_counters(before, after)],), before[-1:] != after[-1:]


def _matmul_price(
    op: ops.Matmul, operands: Sequence[Operand], result: Operand, model: CostModel, framework: Traits
) -> Price:
    lhs, rhs = operands
    batch, shape = result.shape[:-2], result.shape
    rows, cols = shape[-2:-1], shape[-1:]
    if min(len(lhs.shape), len(rhs.shape)) == 1:
        rows, cols = lhs.shape[:-1], rhs.shape[1:]
    inner = op.contracted(lhs.shape, rhs.shape)[:1]
    calls = sorted(batch)[:-1] if framework.max_batch_axes == 1 else ()
    if (
        framework.strided
        and framework.layouts(lhs.dtype).batch == "C"
        and any(each.strides is not None and not is_contiguous(each.shape, each.strides) for each in operands)
    ):
        calls = list(batch)  # one for each pair of matrices
    steps = op.contracted(*(each.strides or contiguous(each.shape) for each in (lhs, rhs)))
    turned = steps[0] != 1, steps[1] == 1
    return Price(partial(model.matmul, turned=turned), (calls, batch, rows, cols, inner))


def _native_price(op: ops.Native, operands: Sequence[Operand], model: CostModel) -> Price:
    sizes = op.by_letter([each.shape for each in operands])
    orders, steps = [], []
    for term, operand in zip(op.terms, operands):
        strides = operand.strides or contiguous(operand.shape)
        axes = [axis for axis in memory_order(strides) if operand.shape[axis] != 1]
        orders.append([term[axis] for axis in axes])
        steps += [strides[axis] for axis in axes[-1:]]
    loops = outer_loops(orders, [letter for letter in op.output if sizes[letter] != 1])
    is_packed = loops.is_packed and all(step == 1 for step in steps)
    time = partial(model.einsum, loops=loops.count, operands=len(operands), is_packed=is_packed)
    rows, fills = (tuple([sizes[letter] for letter in letters]) for letters in (loops.outer, loops.filled))
    return Price(time, (tuple(sizes.values()), rows, fills))


def _pair_price(op: ops.Native, operands: Sequence[Operand], model: CostModel, factor: float) -> Price:
    """The price of two operands' einsum that is as fast as a matmul."""
    lhs, rhs = map(set, op.terms)
    kept = lhs & rhs & set(op.output)
    sizes = op.by_letter([each.shape for each in operands])
    groups = (set[str](), kept, lhs - rhs, rhs - lhs, (lhs & rhs) - kept)
    amounts = tuple([size for label, size in sizes.items() if label in group] for group in groups)
    return Price(partial(model.matmul, factor=factor), amounts)


def op_seconds(op: Op, operands: Sequence[Operand], framework: Traits) -> float:
    """Seconds that an op takes on operands of these shapes, dtypes and strides.

    >>> from einsumx.ir.rates import Rates
    >>> row = Operand((1000, 2000), "float32")
    >>> op_seconds(ops.Transpose(1, 0, (1, 0), "why"), [row], Traits(rates=Rates(call=0.25, permute=16e6, run=0.0)))
    1.25
    """
    return op_price(op, operands, result_of(op, operands), framework).seconds


def program_seconds(program: Program, framework: Traits) -> float:
    """Seconds that all ops of a program take."""
    values = program.values
    return sum(
        [op_price(op, [values[slot] for slot in op.sources], values[op.out], framework).seconds for op in program.ops]
    )


# -- memory ---------------------------------------------------------------------------------------------------------


def in_use(costs: Sequence[OpCost], result: int) -> Iterator[int]:
    """After each op, the bytes that the ops have allocated and that are still in use."""
    held: dict[int, int] = {}
    total = 0
    for cost, gone in zip(costs, freed(costs, result)):
        held[cost.op.out] = cost.allocated
        total += cost.allocated
        yield total
        total -= sum(held.pop(slot, 0) for slot in gone)


def freed(costs: Sequence[OpCost], result: int) -> Iterator[list[int]]:
    """After each op, the slots whose memory is freed; a view keeps its source alive, and ``result`` stays."""
    owner: dict[int, int] = {}  # the slot whose memory a slot uses
    readers: dict[int, int] = {}  # how many live slots use that memory
    dead = last_uses([(cost.op.out, cost.op.sources) for cost in costs], result)
    for cost in costs:
        op = cost.op
        home = op.out if cost.allocated else owner.get(op.sources[0], op.sources[0])
        owner[op.out] = home
        readers[home] = readers.get(home, 0) + 1
        gone = []
        for slot in dead.get(op.out, ()):
            home = owner.get(slot, slot)
            readers[home] = readers.get(home, 0) - 1
            if readers[home] == 0:
                gone.append(home)
        yield gone
