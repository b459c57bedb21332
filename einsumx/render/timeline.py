"""The rows of a plan in execution order, with axes, arithmetic and memory: the data behind a picture.

A plan has a row per operand and op; a blocked plan has a row per operation on a block, with the number of its repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import Literal, TypeAlias

from einsumx.adapters.registry import get_backend
from einsumx.blocked.cost import Cost, beside, landed_bytes
from einsumx.blocked.estimate import axis_labels
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Labels, Stage
from einsumx.blocked.text import blocked_text, stage_lines
from einsumx.errors import visible
from einsumx.ir import ops
from einsumx.ir.algebra import Kernels
from einsumx.ir.bind import label_names
from einsumx.ir.cost import OpCost, in_use, program_cost
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.ir.sizes import TYPICAL, evaluated_shape, names_in
from einsumx.ir.text import quantity, remark_text, summary
from einsumx.runtime.programs import program_text

Symbol: TypeAlias = Literal["operand", "view", "copy", "work", "native", "result"]


@dataclass(frozen=True, slots=True)
class PictureRow:
    """An operand, an op, or the result.

    Attributes:
        number: the slot of its value; -1 for the result row.
        symbol: the mark of its kind of row in a picture.
        call: the call as a plan prints it.
        axes: labels and sizes of its value's axes, and of those that it sums over.
        array: bytes and dtype of its value; empty for a view.
        cost: its cost, and the reason for a copy.
        held: bytes alive while it runs, besides :attr:`Timeline.base`.
        sources: the slots that it reads.
        work: the multiply-adds of all of its runs.
        times: how often it runs; 0 in a plan without blocks.
        stage: the stage of a blocked plan that it belongs to, as the plan prints it.
    """

    number: int
    symbol: Symbol
    call: str
    axes: str
    array: str
    cost: str
    held: int
    sources: tuple[int, ...] = ()
    work: int = 0
    times: int = 0
    stage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A plan as rows.

    Attributes:
        text: the plan as it prints.
        facts: lines about the whole plan, below the first line of its text.
        rows: the rows in execution order.
        base: bytes that are alive all the time.
        limit: the memory limit in bytes; 0 for none.
    """

    text: str
    facts: tuple[str, ...]
    rows: tuple[PictureRow, ...]
    base: int
    limit: int = 0

    @property
    def title(self) -> str:
        """The equation, the operands, and where the plan runs."""
        return self.text.split("\n")[0]

    @property
    def peak_bytes(self) -> int:
        """The largest number of bytes alive at once."""
        return self.base + max(row.held for row in self.rows)


def _with_typical_sizes(program: Program) -> Program:
    """The same ops with a typical size for each unknown one."""
    values = dict.fromkeys(names_in([operand.shape for operand in program.operands]), TYPICAL)
    operands = []
    for operand in program.operands:
        strides = None if operand.strides is None else evaluated_shape(operand.strides, values)
        operands.append(replace(operand, shape=evaluated_shape(operand.shape, values), strides=strides))
    equation = program.contraction.equation
    shapes = tuple([operand.shape for operand in operands])
    equation = equation._replace(sizes=evaluated_shape(equation.sizes, values), shapes=shapes)
    contraction = replace(program.contraction, equation=equation, operands=tuple(operands))
    return replace(program, contraction=contraction, ops=tuple([op.sized(values) for op in program.ops]))


def plan_timeline(program: Program, kernels: Kernels | None) -> Timeline:
    """The rows of a plan, for typical sizes where they are not known. Each operand precedes the first op that reads it.

    Args:
        program: a program for one framework.
        kernels: the kernels of that framework; None if they are unknown.

    >>> import einsumx
    >>> timeline = plan_timeline(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"), None)
    >>> [(row.symbol, row.call) for row in timeline.rows[:3]]
    [('operand', '%0 = operand 0'), ('view', '%2 = transpose %0 (1,0)'), ('operand', '%1 = operand 1')]
    """
    text = program_text(program, program_cost(program, kernels))
    program = _with_typical_sizes(program)
    cost, axes = program_cost(program, kernels), _plan_axes(program)
    rows: list[PictureRow] = []
    unread, left = dict(enumerate(program.operands)), 0
    for op, entry, held in zip(program.ops, cost.ops, in_use(cost.ops, program.result)):
        before = held - entry.allocated
        rows += [_operand_row(slot, unread.pop(slot), axes, before) for slot in op.sources if slot in unread]
        rows.append(_op_row(op, entry, axes.of(op, entry.result.shape), held))
        left = entry.allocated or left  # a view keeps its source alive
    rows += [_operand_row(slot, operand, axes, left) for slot, operand in unread.items()]
    array, result = _array(cost.output_bytes, program.dtype), axes.text(program.result, program.shape)
    rows.append(PictureRow(-1, "result", f"result %{program.result}", result, array, "", left, (program.result,)))
    facts = tuple(f"{name}: {value}" for name, value in summary(cost).items())
    return Timeline(text=text, facts=facts, rows=tuple(rows), base=cost.input_bytes)


def blocked_timeline(program: BlockedProgram) -> Timeline:
    """The rows of a blocked plan: the operations on the largest blocks, and how often each runs.

    >>> import einsumx
    >>> plan = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True)
    >>> timeline = blocked_timeline(plan)
    >>> [(row.call, row.times) for row in timeline.rows]
    [('%0 = block of operand 0', 4), ('%1 = block of operand 1', 28), ('%2 = matmul %0 %1', 28), ('result %2', 28)]
    >>> timeline.peak_bytes == plan.peak_bytes
    True
    """
    rows, text = _BlockedRows(program), blocked_text(program)
    rows.add_all()
    lines = [line.removeprefix("  ") for line in text.split("\n")]
    facts = (*lines[1 : 1 + len(program.cuts)], *lines[-2:])  # the cuts, the peak, and the time
    return Timeline(text=text, facts=facts, rows=tuple(rows.rows), base=rows.base, limit=program.limit)


# -- axes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AxisNames:
    """Writes the axes of a program's slots.

    Attributes:
        labels: the labels of each axis of a slot, by number, as far as they are known.
        names, sizes: of the labels.
    """

    labels: Mapping[int, tuple[Labels, ...]]
    names: Sequence[str] = ()
    sizes: Sequence[int] = ()

    def text(self, slot: int, shape: Sequence[int]) -> str:
        """The labels and sizes of a slot's axes.

        >>> _AxisNames({0: ((0, 1), ())}, "bn", (8, 64)).text(0, (512, 1))
        'bn=512 1'
        """
        axes = self.labels.get(slot, ((),) * len(shape))
        names = ["".join([self.names[label] for label in axis]) for axis in axes]
        return " ".join(f"{name}={size}" if name else f"{size}" for name, size in zip(names, shape)) or "scalar"

    def of(self, op: ops.Op, shape: Sequence[int]) -> str:
        """The axes of an op's result, and those that it sums over."""
        written = self.text(op.out, shape)
        if op.effect != "work":
            return written
        kept = {label for axis in self.labels.get(op.out, ()) for label in axis}
        read = [label for slot in op.sources for axis in self.labels.get(slot, ()) for label in axis]
        summed = [f"{self.names[label]}={self.sizes[label]}" for label in dict.fromkeys(read) if label not in kept]
        return f"{written}, sum over {' '.join(summed)}" if summed else written


def _plan_axes(program: Program) -> _AxisNames:
    equation = program.contraction.equation
    labels = axis_labels(program, equation.inputs, equation.output, equation.sizes)
    return _AxisNames(labels, tuple(map(visible, label_names(equation))), equation.sizes)


# -- rows -------------------------------------------------------------------------------------------------------


def _array(nbytes: int, dtype: str) -> str:
    return f"{quantity(nbytes, 'B')} {dtype}"


def _operand_row(slot: int, operand: Operand, axes: _AxisNames, held: int) -> PictureRow:
    array = _array(operand.nbytes, operand.dtype)
    return PictureRow(slot, "operand", f"%{slot} = operand {slot}", axes.text(slot, operand.shape), array, "", held)


def _op_row(op: ops.Op, cost: OpCost, axes: str, held: int) -> PictureRow:
    symbol: Symbol = "native" if isinstance(op, ops.Native) else op.effect
    call = f"%{op.out} = {op.text}"
    array = "" if op.effect == "view" else _array(cost.allocated, cost.result.dtype)
    held += cost.workspace
    return PictureRow(op.out, symbol, call, axes, array, remark_text(op, cost), held, op.sources, cost.multiply_adds)


class _BlockedRows:
    """Builds the rows of a blocked plan, stage by stage. Memory is counted as in the search for the blocking.

    Args:
        program: the blocked plan's data.

    Attributes:
        rows: the rows so far.
        base: bytes that are alive all the time.
    """

    def __init__(self, program: BlockedProgram) -> None:
        self._adapter = get_backend(program.backend)
        equation, cut, landing = program.contraction.equation, program.blocking, program.landing
        self._program, self._counts = program, cut.counts
        self._sizes = program.grid.largest
        self._block = prod(self._sizes[label] for label in cut.root.output)  # elements
        self._names = tuple(map(visible, label_names(equation)))
        self._stages = iter(stage_lines(cut.root, self._names))
        self._slots = count(len(program.operands))
        self.rows: list[PictureRow] = []
        self.base = landing.waiting * self._block + landing.beside + cut.read_ahead
        self.base += landing.cut if cut.root.nest else 0

    def add_all(self) -> None:
        """Add the rows of all stages and of the result."""
        root, cost, landing = self._program.blocking.root, self._program.blocking.cost, self._program.landing
        slot, axes = self._add_stage(root, cost, 0)
        held = landed_bytes(root, cost, landing, self._block)
        call, array, access = f"result %{slot}", _array(cost.value, self._program.dtype), "stored in the result"
        row = PictureRow(-1, "result", call, axes, array, access, held, (slot,))
        self._add(row, root.nest, self.rows[-1].stage)

    def _add(self, row: PictureRow, loops: Sequence[int], stage: str) -> None:
        times = prod(self._counts[label] for label in loops)
        self.rows.append(replace(row, work=row.work * times, times=times, stage=stage))

    def _add_stage(self, stage: Stage, cost: Cost, outside: int) -> tuple[int, str]:
        """Add the rows of a stage and of the stages that it depends on. Returns the slot of its value and its axes.

        Args:
            stage: a stage of the contraction.
            cost: that of its value.
            outside: bytes that other stages hold at the same time.
        """
        body, exact = self._program.programs.program(stage, self._sizes), cost.run
        axes = _AxisNames(axis_labels(body, stage.terms, stage.output, self._sizes), self._names, self._sizes)
        total = exact.value if stage.summed else 0
        slots: dict[int, int] = {}
        blocks: list[tuple[int, int]] = []  # the places of operands, and bytes while each is read
        for number, place in enumerate(stage.order):
            source = stage.inputs[place]
            around = outside + beside(stage, number, cost.stays, total)
            if isinstance(source, Stage):
                slots[place], _ = self._add_stage(source, cost.inputs[place], around)
            else:
                slots[place] = source
                blocks.append((place, around + exact.read[place]))
        text = "  ".join(next(self._stages))
        for place, held in blocks:
            slot, operand = slots[place], body.operands[place]
            call, array = f"%{slot} = block of operand {slot}", _array(operand.nbytes, operand.dtype)
            access = "in place" if self._program.in_place[slot] else "read"
            row = PictureRow(slot, "operand", call, axes.text(place, operand.shape), array, access, held)
            self._add(row, stage.nests[place], text)
        alive = outside + total + sum(size for kept in cost.stays for _, size in kept)
        entries = program_cost(body, self._adapter).ops
        for op, entry, held in zip(body.ops, entries, in_use(entries, body.result)):
            slots[op.out] = next(self._slots)
            row = _op_row(op.renamed(slots), entry, axes.of(op, entry.result.shape), alive + held)
            self._add(row, stage.inside, text)
        slot, written = slots[body.result], axes.text(body.result, body.shape)
        if stage.summed:
            part, slot = slot, next(self._slots)
            call = f"%{slot} = add up %{part} over blocks of {' '.join(self._names[label] for label in stage.summed)}"
            array, additions = _array(exact.value, body.dtype), f"{quantity(prod(body.shape))} additions"
            row = PictureRow(slot, "work", call, written, array, additions, alive + exact.value, (part,))
            self._add(row, stage.inside, text)
        return slot, written
