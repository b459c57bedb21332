"""What runs, row by row: operands, ops and the result in their order, with labels, sizes, work and memory.

It is what :mod:`einsumx.render.svg` draws, as data: of a plan, an op a row; of a contraction in blocks, a row for each
thing that is done for a block, with how often that is.
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
from einsumx.ir.bind import label_names
from einsumx.ir.cost import Kernels, OpCost, PlanCost, in_use, program_cost
from einsumx.ir.meaning import check_fields
from einsumx.ir.ops import Matmul, Native, Op, Sum
from einsumx.ir.program import Program
from einsumx.ir.text import call_text, duration, plan_text, quantity, remark_text, summary
from einsumx.runtime.calibration import calibrated
from einsumx.runtime.prepare import sized_equation

__all__ = ["Kind", "Row", "Timeline", "blocked_timeline", "plan_timeline"]

Kind: TypeAlias = Literal["operand", "view", "copy", "work", "native", "result"]

Names: TypeAlias = tuple[str, ...]
"""The labels that an axis runs over; none where that is not known, or its size is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that is there or happens.

    Attributes:
        number: of the value that it gives; that of the result has none of its own, but -1.
        sources: the numbers of the values that it takes.
        kind: what it is.
        call: how it is written in a plan.
        axes: labels and size of each axis of its value.
        summed: the same of what it sums over.
        dtype: of its value.
        multiply_adds: its arithmetic.
        made: bytes of the array that it makes, 0 for a view.
        held: bytes that are alive meanwhile, besides what is there all the time.
        remark: what it takes, and why it copies if it does.
        times: how often it happens.
        band: rows with the same number belong together.
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
        equation: what is computed.
        facts: sentences about the whole.
        text: the plan as it prints.
        rows: in their order.
        captions: of bands, where they have one.
        base: bytes that are alive all the time.
        base_name: what these are.
        limit: bytes that must not be exceeded; 0 for none.
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
        """The most bytes alive at once."""
        return self.base + max(row.held for row in self.rows)


# -- a plan -----------------------------------------------------------------------------------------------------


def plan_timeline(plan: Program, kernels: Kernels | None) -> Timeline:
    """A plan as rows; each operand stands before the first op that reads it.

    Args:
        plan: lowered for a framework.
        kernels: of that framework; None where they are not known.

    >>> import einsumx
    >>> found = plan_timeline(einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32"), None)
    >>> [(row.kind, row.call) for row in found.rows[:3]]
    [('operand', '%0 = operand 0'), ('view', '%2 = transpose %0 (1,0)'), ('operand', '%1 = operand 1')]
    """
    check_fields(plan)
    cost = program_cost(plan, kernels)
    facts = tuple(f"{name}: {value}" for name, value in summary(cost).items())
    rows = tuple(_plan_rows(plan, cost, _labels(plan)))
    return Timeline(
        visible(plan.equation), (_where(plan), *facts), plan_text(plan, cost), rows, (), cost.input_bytes, "operands", 0
    )


def _where(plan: Program | BlockedProgram) -> str:
    return f"{plan.dtype} on {plan.backend}" + (f" ({plan.device})" if plan.device else "")


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of values, as far as they are known.

    Attributes:
        axes: those that each axis of a slot runs over.
        sizes: of each label.
    """

    axes: Mapping[int, tuple[Names, ...]]
    sizes: Mapping[str, int]

    def named(self, slot: int, shape: Sequence[int]) -> tuple[tuple[Names, int], ...]:
        """The axes of a slot with their sizes."""
        return tuple(zip(self.axes.get(slot, ((),) * len(shape)), shape))

    def summed(self, op: Op) -> tuple[tuple[Names, int], ...]:
        """What an op sums over."""
        if not isinstance(op, Sum | Matmul | Native):
            return ()
        kept = {label for axis in self.axes.get(op.out, ()) for label in axis}
        read = [label for slot in op.sources for axis in self.axes.get(slot, ()) for label in axis]
        return tuple(((label,), self.sizes[label]) for label in dict.fromkeys(read) if label not in kept)


def _labels(plan: Program) -> _Labels:
    """The labels of a plan's slots; none where its equation does not fit them, as that of a stored plan may not."""
    try:
        equation = sized_equation(plan.equation, [operand.shape for operand in plan.operands])
    except EinsumxError:
        return _Labels({}, {})
    names = tuple(map(visible, label_names(equation)))
    sizes = dict(zip(names, equation.sizes))
    if 0 in equation.sizes or equation.shape != plan.shape:  # which labels axes of size 0 run over cannot be told
        return _Labels(
            {slot: tuple((names[label],) for label in term) for slot, term in enumerate(equation.inputs)}, sizes
        )
    try:
        return _Labels(_named(axis_labels(plan, equation.inputs, equation.output, equation.sizes), names), sizes)
    except (LookupError, RuntimeError):
        return _Labels({}, {})


def _named(axes: Mapping[int, tuple[tuple[int, ...], ...]], names: Sequence[str]) -> dict[int, tuple[Names, ...]]:
    return {slot: tuple(tuple(names[label] for label in axis) for axis in shape) for slot, shape in axes.items()}


def _plan_rows(plan: Program, cost: PlanCost, labels: _Labels) -> Iterator[Row]:
    waiting = dict(enumerate(plan.operands))
    left = band = 0

    def operands(slots: Iterable[int], held: int) -> Iterator[Row]:
        for slot in slots:
            if slot in waiting:
                given = waiting.pop(slot)
                yield Row(
                    number=slot,
                    sources=(),
                    kind="operand",
                    call=f"%{slot} = operand {slot}",
                    axes=labels.named(slot, given.shape),
                    dtype=given.dtype,
                    held=held,
                    remark=_amount(given.shape, given.dtype),
                    band=band,
                )

    read = {slot for op in plan.ops for slot in op.sources}
    last = max(sum(len(op.sources) > 1 for op in plan.ops) - 1, 0)
    yield from operands([slot for slot in waiting if slot not in read], 0)
    for op, entry, held, before in _moments(plan, cost.ops):
        yield from operands(op.sources, before)
        yield _op_row(op, entry, labels, held, 1, band)
        band = min(band + (len(op.sources) > 1), last)
        # A view holds what it looks at.
        left = entry.allocated or left
    yield Row(
        number=-1,
        sources=(plan.result,),
        kind="result",
        call=f"result %{plan.result}",
        axes=labels.named(plan.result, plan.shape),
        dtype=plan.dtype,
        held=left,
        remark=_amount(plan.shape, plan.dtype),
        band=band,
    )


def _amount(shape: Sequence[int], dtype: str) -> str:
    return f"{quantity(prod(shape) * itemsize(dtype), 'B')} {dtype}"


def _moments(plan: Program, costs: Sequence[OpCost]) -> Iterator[tuple[Op, OpCost, int, int]]:
    """Each op with its cost, the bytes of what ops have made while it runs, and the same before it."""
    for op, cost, now in zip(plan.ops, costs, in_use(plan, costs)):
        yield op, cost, now + cost.workspace, now - cost.allocated


def _op_row(op: Op, cost: OpCost, labels: _Labels, held: int, times: int, band: int) -> Row:
    return Row(
        number=op.out,
        sources=op.sources,
        kind=_kind(op),
        call=f"%{op.out} = {call_text(op)}",
        axes=labels.named(op.out, cost.shape),
        summed=labels.summed(op),
        dtype=cost.dtype,
        multiply_adds=cost.multiply_adds,
        made=cost.allocated,
        held=held,
        remark=remark_text(op, cost),
        times=times,
        band=band,
    )


def _kind(op: Op) -> Kind:
    return "native" if isinstance(op, Native) else op.kind


# -- a contraction in blocks ------------------------------------------------------------------------------------


def blocked_timeline(plan: BlockedProgram) -> Timeline:
    """A contraction in blocks as rows: what is done for the largest block, and how often.

    >>> import einsumx
    >>> plan = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True)
    >>> found = blocked_timeline(plan)
    >>> [(row.call, row.times) for row in found.rows]
    [('%1 = block of operand 1', 4), ('%0 = block of operand 0', 28), ('%2 = matmul %0 %1', 28), ('result %2', 28)]
    >>> found.peak_bytes == plan.peak_bytes
    True
    """
    walk = _Walk(plan)
    number = walk.stage(plan.blocking.root, 0)
    walk.result(number)
    cuts = ", ".join(f"{visible(label)} into {count}" for label, count in plan.cuts.items())
    facts = (
        f"{_where(plan)} in blocks",
        f"cut: {cuts or 'nothing'}",
        f"peak memory: {quantity(plan.peak_bytes, 'B')} of the limit of {quantity(plan.limit, 'B')}",
        f"time: {duration(plan.seconds)} expected",
    )
    stages = stage_lines(plan.blocking.root, walk.names)
    return Timeline(
        visible(plan.equation.text),
        facts,
        blocked_text(plan),
        tuple(walk.rows),
        tuple(f"{equation}  {remark}" for equation, remark in stages),
        walk.base,
        "result, blocks read ahead",
        plan.limit,
    )


class _Walk:
    """What is done for a block of the result, stage by stage, with memory counted as when the cuts were chosen.

    Args:
        plan: the contraction.

    Attributes:
        names: of the labels, as people see them.
        rows: what is done.
        base: bytes that are there all the time.
    """

    def __init__(self, plan: BlockedProgram) -> None:
        adapter = get_backend(plan.backend)
        traits = calibrated(adapter, plan.device)
        equation, cut, landing = plan.equation, plan.blocking, plan.landing
        rates = (traits.rates.copy,) * len(plan.operands)
        self._bodies = StageCostModel(
            equation, plan.operands, plan.in_place, rates, adapter, traits, plan.device, plan.compute_dtype
        )
        self._plan, self._counts = plan, cut.counts
        self._sizes = [-(-size // count) or 1 for size, count in zip(equation.sizes, cut.counts)]
        self.names = tuple(map(visible, label_names(equation)))
        self._works: dict[Stage, StageCost] = {}
        self._next = len(plan.operands)
        self._band = 0
        self.rows: list[Row] = []
        waiting = landing.waiting * self._block
        self.base = (landing.cut if cut.root.nest else 0) + waiting + landing.beside + cut.read_ahead

    def result(self, number: int) -> None:
        """The row of the value that is the result."""
        root, landing, dtype = self._plan.blocking.root, self._plan.landing, self._plan.dtype
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
                remark=f"{quantity(cost.value, 'B')} {dtype}, brought where it belongs",
                times=self._times(root.nest),
                band=self._band - 1,
            )
        )

    def stage(self, stage: Stage, beside: int) -> int:
        """The rows of a stage, and of those that it takes values of; the number of its value.

        Args:
            stage: of the contraction.
            beside: bytes that other stages hold meanwhile.
        """
        work = self._work(stage)
        plan, body = work.program(self._sizes), work.exact(self._sizes)
        inputs = [self._held(stage, body.read, place) for place in range(len(stage.inputs))]
        depths = [len(nest) for nest in stage.nests]
        total = body.value if stage.loops else 0
        numbers: dict[int, int] = {}
        there, order = beside, stage.order
        for at, place in enumerate(order):
            source = stage.inputs[place]
            # What an outer loop keeps is there from its block before.
            stays = sum(size for other in order[at + 1 :] for depth, size in inputs[other] if depth < depths[place])
            around = there + stays + (total if depths[place] > len(stage.nest) else 0)
            there += sum(size for _, size in inputs[place])
            if isinstance(source, Stage):
                numbers[place] = self.stage(source, around)
            else:
                numbers[place] = source
                self._read(stage, place, source, around + body.read[place])
        labels = _Labels(
            _named(axis_labels(plan, stage.terms, stage.output, self._sizes), self.names),
            dict(zip(self.names, self._sizes)),
        )
        times, there = self._times(stage.inside), there + total
        cost = program_cost(plan, self._bodies.adapter)
        for op, entry, held, _ in _moments(plan, cost.ops):
            numbers[op.out] = self._number()
            row = _op_row(op, entry, labels, there + held, times, self._band)
            self.rows.append(_renumbered(row, op, numbers))
        number = numbers[plan.result]
        if stage.loops:
            number = self._add(stage, number, plan.dtype, body.value, there)
        self._band += 1
        return number

    def _read(self, stage: Stage, place: int, source: int, held: int) -> None:
        """The row of a block of an operand."""
        operand = self._plan.operands[source]
        term, shape = stage.terms[place], self._bodies.block(source, self._sizes)
        axes = tuple(
            ((self.names[label],) if size == self._sizes[label] else (), size) for label, size in zip(term, shape)
        )
        lies = "where it lies" if self._plan.in_place[source] else "read"
        self.rows.append(
            Row(
                number=source,
                sources=(),
                kind="operand",
                call=f"%{source} = block of operand {source}",
                axes=axes,
                dtype=operand.dtype,
                held=held,
                remark=f"{_amount(shape, operand.dtype)}, {lies}",
                times=self._times(stage.nests[place]),
                band=self._band,
            )
        )

    def _add(self, stage: Stage, part: int, dtype: str, value: int, held: int) -> int:
        """The row that adds up the blocks of a label that is summed; the number of the sum."""
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
        """Elements of a block of the result."""
        return prod(self._sizes[label] for label in self._plan.blocking.root.output)

    def _axes(self, labels: Sequence[int]) -> tuple[tuple[Names, int], ...]:
        return tuple(((self.names[label],), self._sizes[label]) for label in labels)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _times(self, loops: Sequence[int]) -> int:
        return prod(self._counts[label] for label in loops)

    def _held(self, stage: Stage, read: Sequence[int], place: int) -> list[tuple[int, int]]:
        """How deep in the loops, and how many bytes, an input and what is kept for it are."""
        source, depth = stage.inputs[place], len(stage.nests[place])
        if not isinstance(source, Stage):
            return [(depth, read[place])]
        cost = self._cost(source)
        return [(depth, cost.value), *cost.kept]

    def _cost(self, stage: Stage) -> Cost:
        return Step.of(stage, lambda each: self._work(each).exact).cost(self._counts, self._sizes)

    def _work(self, stage: Stage) -> StageCost:
        if stage not in self._works:
            below = [self._work(source) for source in stage.inputs if isinstance(source, Stage)]
            self._works[stage] = StageCost(self._bodies, stage, None, below)
        return self._works[stage]


def _renumbered(row: Row, op: Op, numbers: Mapping[int, int]) -> Row:
    """The row of an op with other numbers for the values that it reads and writes."""
    written = op.renamed(numbers)
    return replace(row, number=written.out, sources=written.sources, call=f"%{written.out} = {call_text(written)}")
