"""The rows of a plan in execution order, with labels, sizes, arithmetic and memory.

A timeline is the data behind a drawing. A plan has a row per operand and op; a blocked plan has a row per operation on
a block, with the number of its repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, TypeAlias

from einsumx.adapters.registry import get_backend
from einsumx.blocked.cost import Cost, Step
from einsumx.blocked.estimate import axis_labels
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stage_cost import StageCost, StageCostModel
from einsumx.blocked.stages import Stage
from einsumx.blocked.text import blocked_text, stage_lines
from einsumx.dtypes import itemsize
from einsumx.errors import EinsumxError, visible
from einsumx.ir import ops
from einsumx.ir.bind import label_names
from einsumx.ir.cost import Kernels, OpCost, PlanCost, in_use, program_cost
from einsumx.ir.meaning import check_fields
from einsumx.ir.program import Program
from einsumx.ir.sizes import TYPICAL, names_in
from einsumx.ir.text import assumption, call_text, duration, in_algebra, plan_text, quantity, remark_text, summary
from einsumx.runtime.calibration import calibrated
from einsumx.runtime.prepare import sized_equation
from einsumx.runtime.request import adapter_in

__all__ = ["Kind", "Row", "Timeline", "blocked_timeline", "plan_timeline"]

Kind: TypeAlias = Literal["operand", "view", "copy", "work", "native", "result"]

Names: TypeAlias = tuple[str, ...]
"""The labels of an axis; empty if they are unknown, or if the size is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An operand, an op, or the result.

    Attributes:
        number: the slot of its value; -1 for the result row.
        sources: the slots that it reads.
        kind: the kind of row.
        call: the call as a plan prints it.
        axes: labels and size of each axis of its value.
        summed: labels and size of each axis that it sums over.
        dtype: the dtype of its value.
        multiply_adds: its arithmetic.
        made: bytes of the array that it allocates; 0 for a view.
        held: bytes alive while it runs, besides :attr:`Timeline.base`.
        remark: its cost, and the reason for a copy.
        times: how often it runs.
        band: rows with the same band belong together.
    """

    number: int
    sources: tuple[int, ...]
    kind: Kind
    call: str
    axes: tuple[tuple[Names, int], ...]
    summed: tuple[tuple[Names, int], ...] = ()
    dtype: str
    multiply_adds: int = 0
    made: int = 0
    held: int
    remark: str
    times: int = 1
    band: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A plan as rows.

    Attributes:
        equation: the equation.
        facts: sentences about the whole plan.
        text: the plan as it prints.
        rows: the rows in execution order.
        captions: a caption for each band, or none.
        base: bytes that are alive all the time.
        base_name: what these bytes hold.
        limit: the memory limit in bytes; 0 for none.
    """

    equation: str
    facts: tuple[str, ...]
    text: str
    rows: tuple[Row, ...]
    captions: tuple[str, ...]
    base: int
    base_name: str
    limit: int

    @property
    def peak_bytes(self) -> int:
        """The largest number of bytes alive at once."""
        return self.base + max(row.held for row in self.rows)


# -- a plan -----------------------------------------------------------------------------------------------------


def plan_timeline(program: Program, kernels: Kernels | None) -> Timeline:
    """The rows of a plan, for typical sizes where they are not known. Each operand precedes the first op that reads it.

    Args:
        program: a program for one framework.
        kernels: the kernels of that framework; None if they are unknown.

    >>> import einsumx
    >>> timeline = plan_timeline(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"), None)
    >>> [(row.kind, row.call) for row in timeline.rows[:3]]
    [('operand', '%0 = operand 0'), ('view', '%2 = transpose %0 (1,0)'), ('operand', '%1 = operand 1')]
    """
    check_fields(program)
    cost = program_cost(program, kernels)
    text, where = plan_text(program, cost), f"{_where(program)}{assumption(program)}"
    program = program.sized(dict.fromkeys(names_in([operand.shape for operand in program.operands]), TYPICAL))
    cost = program_cost(program, kernels)
    return Timeline(
        equation=visible(program.written),
        facts=(where, *(f"{name}: {value}" for name, value in summary(cost).items())),
        text=text,
        rows=tuple(_program_rows(program, cost, _labels(program))),
        captions=(),
        base=cost.input_bytes,
        base_name="operands",
        limit=0,
    )


def _where(program: Program | BlockedProgram) -> str:
    device = f" ({program.device})" if program.device else ""
    return f"{program.dtype} on {program.backend}{device}{visible(in_algebra(program.semiring))}"


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of slots, as far as they are known.

    Attributes:
        axes: the labels of each axis of a slot.
        sizes: the size of each label.
    """

    axes: Mapping[int, tuple[Names, ...]]
    sizes: Mapping[str, int]

    def shape(self, slot: int, shape: Sequence[int]) -> tuple[tuple[Names, int], ...]:
        """The axes of a slot with their sizes."""
        return tuple(zip(self.axes.get(slot, ((),) * len(shape)), shape))

    def summed(self, op: ops.Op) -> tuple[tuple[Names, int], ...]:
        """The axes that an op sums over, with their sizes."""
        if not isinstance(op, ops.Sum | ops.Matmul | ops.Native):
            return ()
        kept = {label for axis in self.axes.get(op.out, ()) for label in axis}
        read = [label for slot in op.sources for axis in self.axes.get(slot, ()) for label in axis]
        return tuple(((label,), self.sizes[label]) for label in dict.fromkeys(read) if label not in kept)


def _labels(program: Program) -> _Labels:
    """The labels of a program's slots; none if its equation does not fit, which is possible for a stored plan."""
    try:
        equation = sized_equation(program.equation, [operand.shape for operand in program.operands])
    except EinsumxError:
        return _Labels({}, {})
    names = tuple(map(visible, label_names(equation)))
    sizes = dict(zip(names, equation.sizes))
    if 0 in equation.sizes or equation.shape != program.shape:  # the labels of axes of size 0 cannot be inferred
        return _Labels(
            {slot: tuple((names[label],) for label in term) for slot, term in enumerate(equation.inputs)}, sizes
        )
    try:
        return _Labels(_named(axis_labels(program, equation.inputs, equation.output, equation.sizes), names), sizes)
    except (LookupError, RuntimeError):
        return _Labels({}, {})


def _named(axes: Mapping[int, tuple[tuple[int, ...], ...]], names: Sequence[str]) -> dict[int, tuple[Names, ...]]:
    return {slot: tuple(tuple(names[label] for label in axis) for axis in shape) for slot, shape in axes.items()}


def _program_rows(program: Program, cost: PlanCost, labels: _Labels) -> Iterator[Row]:
    unread = dict(enumerate(program.operands))
    left = band = 0

    def operand_rows(slots: Iterable[int], held: int) -> Iterator[Row]:
        for slot in slots:
            if slot in unread:
                operand = unread.pop(slot)
                yield Row(
                    number=slot,
                    sources=(),
                    kind="operand",
                    call=f"%{slot} = operand {slot}",
                    axes=labels.shape(slot, operand.shape),
                    dtype=operand.dtype,
                    held=held,
                    remark=_amount(operand.shape, operand.dtype),
                    band=band,
                )

    read = {slot for op in program.ops for slot in op.sources}
    last = max(sum(len(op.sources) > 1 for op in program.ops) - 1, 0)
    yield from operand_rows([slot for slot in unread if slot not in read], 0)
    for op, entry, held, before in _moments(program, cost.ops):
        yield from operand_rows(op.sources, before)
        yield _op_row(op, entry, labels, held, 1, band)
        band = min(band + (len(op.sources) > 1), last)
        # A view keeps its source alive.
        left = entry.allocated or left
    yield Row(
        number=-1,
        sources=(program.result,),
        kind="result",
        call=f"result %{program.result}",
        axes=labels.shape(program.result, program.shape),
        dtype=program.dtype,
        held=left,
        remark=_amount(program.shape, program.dtype),
        band=band,
    )


def _amount(shape: Sequence[int], dtype: str) -> str:
    return f"{quantity(prod(shape) * itemsize(dtype), 'B')} {dtype}"


def _moments(program: Program, costs: Sequence[OpCost]) -> Iterator[tuple[ops.Op, OpCost, int, int]]:
    """Each op with its cost, and the bytes of all op results alive while it runs and before it runs."""
    for op, cost, now in zip(program.ops, costs, in_use(program, costs)):
        yield op, cost, now + cost.workspace, now - cost.allocated


def _op_row(op: ops.Op, cost: OpCost, labels: _Labels, held: int, times: int, band: int) -> Row:
    return Row(
        number=op.out,
        sources=op.sources,
        kind=_kind(op),
        call=f"%{op.out} = {call_text(op)}",
        axes=labels.shape(op.out, cost.shape),
        summed=labels.summed(op),
        dtype=cost.dtype,
        multiply_adds=cost.multiply_adds,
        made=cost.allocated,
        held=held,
        remark=remark_text(op, cost),
        times=times,
        band=band,
    )


def _kind(op: ops.Op) -> Kind:
    return "native" if isinstance(op, ops.Native) else op.kind


# -- a blocked plan ---------------------------------------------------------------------------------------------


def blocked_timeline(program: BlockedProgram) -> Timeline:
    """The rows of a blocked plan: the operations on the largest blocks, and how often each runs.

    >>> import einsumx
    >>> plan = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True)
    >>> timeline = blocked_timeline(plan)
    >>> [(row.call, row.times) for row in timeline.rows]
    [('%1 = block of operand 1', 4), ('%0 = block of operand 0', 28), ('%2 = matmul %0 %1', 28), ('result %2', 28)]
    >>> timeline.peak_bytes == plan.peak_bytes
    True
    """
    builder = _BlockedRows(program)
    number = builder.add_stage(program.blocking.root, 0)
    builder.add_result(number)
    cuts = ", ".join(f"{visible(label)} into {count}" for label, count in program.cuts.items())
    return Timeline(
        equation=visible(program.equation.text),
        facts=(
            f"{_where(program)} in blocks",
            f"cut: {cuts or 'nothing'}",
            f"peak memory: {quantity(program.peak_bytes, 'B')} of the limit of {quantity(program.limit, 'B')}",
            f"time: {duration(program.seconds)} expected",
        ),
        text=blocked_text(program),
        rows=tuple(builder.rows),
        captions=tuple(map("  ".join, stage_lines(program.blocking.root, builder.names))),
        base=builder.base,
        base_name="result, blocks read ahead",
        limit=program.limit,
    )


class _BlockedRows:
    """Builds the rows of a blocked plan, stage by stage. Memory is counted as in the search for the blocking.

    Args:
        program: the blocked plan's data.

    Attributes:
        names: the printed labels.
        rows: the rows so far.
        base: bytes that are alive all the time.
    """

    def __init__(self, program: BlockedProgram) -> None:
        adapter = adapter_in(get_backend(program.backend), program.semiring)
        traits = calibrated(adapter, program.device)
        equation, cut, landing = program.equation, program.blocking, program.landing
        rates = (traits.rates.copy,) * len(program.operands)
        self._model = StageCostModel(
            equation, program.operands, program.in_place, rates, adapter, traits, program.device, program.compute_dtype
        )
        self._program, self._counts = program, cut.counts
        self._sizes = [-(-size // count) or 1 for size, count in zip(equation.sizes, cut.counts)]
        self.names = tuple(map(visible, label_names(equation)))
        self._stage_costs: dict[Stage, StageCost] = {}
        self._next = len(program.operands)
        self._band = 0
        self.rows: list[Row] = []
        waiting = landing.waiting * self._block
        self.base = (landing.cut if cut.root.nest else 0) + waiting + landing.beside + cut.read_ahead

    def add_result(self, number: int) -> None:
        """Add the row of the result, which is the value with this number."""
        root, landing, dtype = self._program.blocking.root, self._program.landing, self._program.dtype
        cost = self._cost(root)
        held = cost.value + sum(size for _, size in cost.kept) + landing.copied * self._block
        held += 0 if root.nest else landing.whole
        self.rows.append(
            Row(
                number=-1,
                sources=(number,),
                kind="result",
                call=f"result %{number}",
                axes=self._axes(root.output),
                dtype=dtype,
                held=held,
                remark=f"{quantity(cost.value, 'B')} {dtype}, stored in the result",
                times=self._times(root.nest),
                band=self._band - 1,
            )
        )

    def add_stage(self, stage: Stage, beside: int) -> int:
        """Add the rows of a stage and of the stages that it depends on. Returns the number of its value.

        Args:
            stage: a stage of the contraction.
            beside: bytes that other stages hold at the same time.
        """
        stage_cost = self._stage_cost(stage)
        body, exact = stage_cost.program(self._sizes), stage_cost.exact(self._sizes)
        inputs = [self._held(stage, exact.read, place) for place in range(len(stage.inputs))]
        depths = [len(nest) for nest in stage.nests]
        total = exact.value if stage.loops else 0
        numbers: dict[int, int] = {}
        alive, order = beside, stage.order
        for at, place in enumerate(order):
            source = stage.inputs[place]
            # Outer loops still hold the blocks of their previous iteration.
            stays = sum(size for other in order[at + 1 :] for depth, size in inputs[other] if depth < depths[place])
            around = alive + stays + (total if depths[place] > len(stage.nest) else 0)
            alive += sum(size for _, size in inputs[place])
            if isinstance(source, Stage):
                numbers[place] = self.add_stage(source, around)
            else:
                numbers[place] = source
                self._add_operand(stage, place, source, around + exact.read[place])
        labels = _Labels(
            _named(axis_labels(body, stage.terms, stage.output, self._sizes), self.names),
            dict(zip(self.names, self._sizes)),
        )
        times, alive = self._times(stage.inside), alive + total
        cost = program_cost(body, self._model.adapter)
        for op, entry, held, _ in _moments(body, cost.ops):
            numbers[op.out] = self._number()
            row = _op_row(op, entry, labels, alive + held, times, self._band)
            self.rows.append(_renumbered(row, op, numbers))
        number = numbers[body.result]
        if stage.loops:
            number = self._add_sum(stage, number, body.dtype, exact.value, alive)
        self._band += 1
        return number

    def _add_operand(self, stage: Stage, place: int, source: int, held: int) -> None:
        """Add the row of a block of an operand."""
        operand = self._program.operands[source]
        term, shape = stage.terms[place], self._model.block(source, self._sizes)
        axes = tuple(
            ((self.names[label],) if size == self._sizes[label] else (), size) for label, size in zip(term, shape)
        )
        access = "in place" if self._program.in_place[source] else "read"
        self.rows.append(
            Row(
                number=source,
                sources=(),
                kind="operand",
                call=f"%{source} = block of operand {source}",
                axes=axes,
                dtype=operand.dtype,
                held=held,
                remark=f"{_amount(shape, operand.dtype)}, {access}",
                times=self._times(stage.nests[place]),
                band=self._band,
            )
        )

    def _add_sum(self, stage: Stage, part: int, dtype: str, value: int, held: int) -> int:
        """Add the row that sums over the blocks of contracted labels. Returns the number of the sum."""
        number = self._number()
        over = " ".join(self.names[label] for label in stage.loops)
        self.rows.append(
            Row(
                number=number,
                sources=(part,),
                kind="work",
                call=f"%{number} = add up %{part} over blocks of {over}",
                axes=self._axes(stage.output),
                dtype=dtype,
                held=held + value,
                remark=f"{quantity(prod(self._sizes[label] for label in stage.output))} additions",
                times=self._times(stage.inside),
                band=self._band,
            )
        )
        return number

    @property
    def _block(self) -> int:
        """Elements in a block of the result."""
        return prod(self._sizes[label] for label in self._program.blocking.root.output)

    def _axes(self, labels: Sequence[int]) -> tuple[tuple[Names, int], ...]:
        return tuple(((self.names[label],), self._sizes[label]) for label in labels)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _times(self, loops: Sequence[int]) -> int:
        return prod(self._counts[label] for label in loops)

    def _held(self, stage: Stage, read: Sequence[int], place: int) -> list[tuple[int, int]]:
        """The loop depth and the bytes of an input, and of each value kept for it."""
        source, depth = stage.inputs[place], len(stage.nests[place])
        if not isinstance(source, Stage):
            return [(depth, read[place])]
        cost = self._cost(source)
        return [(depth, cost.value), *cost.kept]

    def _cost(self, stage: Stage) -> Cost:
        return Step.of(stage, lambda each: self._stage_cost(each).exact).cost(self._counts, self._sizes)

    def _stage_cost(self, stage: Stage) -> StageCost:
        if stage not in self._stage_costs:
            below = [self._stage_cost(source) for source in stage.inputs if isinstance(source, Stage)]
            self._stage_costs[stage] = StageCost(self._model, stage, None, below)
        return self._stage_costs[stage]


def _renumbered(row: Row, op: ops.Op, numbers: Mapping[int, int]) -> Row:
    """The row of an op with other slot numbers."""
    renamed = op.renamed(numbers)
    return replace(row, number=renamed.out, sources=renamed.sources, call=f"%{renamed.out} = {call_text(renamed)}")
