"""Costs the stages of a blocked contraction: estimates for the search, and exact costs for its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import TypeAlias

from einsumx.adapters.base import Adapter
from einsumx.blocked.cost import RunCost
from einsumx.blocked.estimate import Amounts, Estimate, Sketch, amounts
from einsumx.blocked.stages import Stage
from einsumx.dtypes import itemsize
from einsumx.ir.algebra import Algebra
from einsumx.ir.bind import SizedEquation
from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.cost import returns_view
from einsumx.ir.layout import contiguous, layout_class
from einsumx.ir.operand import Operand, Path
from einsumx.ir.program import Program
from einsumx.ir.traits import Traits
from einsumx.planner.lower import lower
from einsumx.runtime.prepare import sized_equation

Layout: TypeAlias = tuple[int, ...] | None
"""The strides of a layout class; None for C-contiguous."""


@dataclass(frozen=True, slots=True)
class StageCostModel:
    """The contraction whose stages are costed.

    Attributes:
        equation: the contraction.
        operands: shape, dtype and layout of each.
        in_place: whether each operand is already on the device, so that blocks of it are views.
        read_rates: bytes a second at which the other operands are read.
        adapter, traits, device: what its plans are lowered for.
        dtype: the dtype to compute in.
        algebra: what sums and products mean.
    """

    equation: SizedEquation
    operands: tuple[Operand, ...]
    in_place: tuple[bool, ...]
    read_rates: tuple[float, ...]
    adapter: Adapter
    traits: Traits
    device: str
    dtype: str
    algebra: Algebra

    def lowered(self, stage: Stage, sizes: Sequence[int], traits: Traits, values: Sequence[Layout]) -> Program:
        """The program of a stage for blocks of these sizes, and for values of other stages in these layouts."""
        described = []
        value_layouts = iter(values)
        for source, term in zip(stage.inputs, stage.terms):
            if isinstance(source, Stage):
                described.append(Operand(tuple(sizes[label] for label in term), self.dtype, next(value_layouts)))
                continue
            operand, shape = self.operands[source], self.block(source, sizes)
            strides = None
            if self.in_place[source]:
                strides = layout_class(shape, operand.strides or contiguous(operand.shape))
            described.append(Operand(shape, operand.dtype, strides))
        equation = sized_equation(stage.equation, [operand.shape for operand in described])
        place = Place(self.adapter.name, self.device, traits)
        return lower(Contraction(equation, tuple(described), self.dtype, stage.path, place, algebra=self.algebra))

    def block(self, number: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of a block of an operand."""
        term, shape = self.equation.inputs[number], self.operands[number].shape
        return tuple(sizes[label] if size == self.equation.sizes[label] else size for label, size in zip(term, shape))

    def amounts(
        self, stage: Stage, sizes: Sequence[int], traits: Traits, values: Sequence[Layout] = ()
    ) -> tuple[Program, list[Amounts]]:
        """The program of a stage, and the work and memory of each of its ops."""
        program = self.lowered(stage, sizes, traits, values)
        return program, amounts(program, stage.terms, stage.output, sizes, self.adapter, traits)


class Outline:
    """The plan of a contraction that is not cut, from which the costs of its stages are estimated.

    Attributes:
        path: the order of its pairwise contractions.
        seconds: the time of the contraction without cuts and without reading its operands.
    """

    def __init__(self, model: StageCostModel, path: Path) -> None:
        equation, self.path = model.equation, path
        every = tuple(range(len(model.operands)))
        loops = ((),) * len(every)
        whole = Stage(every, equation.inputs, equation.output, path, (), (), loops, loops, every)
        self._sizes = equation.sizes
        # A single call of the framework's own einsum would tell nothing about the stages.
        rates = replace(model.traits.rates, native=0.0) if len(every) > 2 else model.traits.rates
        self._program, parts = model.amounts(whole, self._sizes, replace(model.traits, rates=rates))
        # Values are identified by the operands that they depend on.
        self._used_by: dict[frozenset[int], frozenset[int]] = {}
        self._ops: dict[frozenset[int], list[Amounts]] = {}
        for value, *inputs in _step_values(path, [frozenset([number]) for number in every]):
            self._ops[value] = []
            self._used_by.update(dict.fromkeys(inputs, value))
        for part in parts:
            self._ops[self._value_of(part)].append(part)
        self.seconds = Sketch(self._program, parts, self._sizes)(self._sizes).seconds

    def _value_of(self, part: Amounts) -> frozenset[int]:
        """The value that an op helps to compute; a copy of another value belongs to the value that uses it."""
        own = part.operands
        computes_it = own in self._ops and part.op.effect == "work"
        return own if computes_it else self._used_by.get(own, own)

    def sketch(self, path: Path, inputs: Sequence[frozenset[int]]) -> Sketch:
        """The ops for the values along a path; inputs are identified by the operands that they depend on."""
        parts = [part for value, *_ in _step_values(path, inputs) for part in self._ops[value]]
        return Sketch(self._program, parts, self._sizes)


def _step_values(path: Path, inputs: Sequence[frozenset[int]]) -> list[list[frozenset[int]]]:
    """For each step, its value and those that it uses, identified by the operands that they depend on."""
    terms = list(inputs)
    steps = []
    for step in path:
        taken = [terms.pop(position) for position in sorted(step, reverse=True)]
        terms.append(frozenset().union(*taken))
        steps.append([terms[-1], *(part for part in taken if part != terms[-1])])
    return steps


class StageCost:
    """The cost of a run of one stage, whatever the loops around it; ``below`` are those of its inputs that are stages.

    Without an outline of the contraction along the same path, it can only be costed exactly.
    """

    def __init__(
        self, model: StageCostModel, stage: Stage, outline: Outline | None, below: Sequence[StageCost]
    ) -> None:
        self._model, self._stage, self._outline, self._below = model, stage, outline, below
        self._labels = tuple(dict.fromkeys(label for term in stage.terms for label in term))
        self._first: Sketch | None = None
        self._own: list[Sketch] = []
        self._about: dict[tuple[int, ...], RunCost] = {}
        self._near: dict[tuple[int, ...], RunCost] = {}
        self._exact: dict[tuple[tuple[int, ...], tuple[Layout, ...]], tuple[RunCost, Layout]] = {}
        values = iter(below)
        self._inputs = [  # the operands that each depends on
            next(values)._operands if isinstance(source, Stage) else frozenset([source]) for source in stage.inputs
        ]
        self._operands: frozenset[int] = frozenset().union(*self._inputs)
        self._reads = [  # the labels of the block that is read for each input, bytes an element, and bytes a second
            None
            if isinstance(source, Stage) or model.in_place[source]
            else (model.equation.carried(source), itemsize(model.operands[source].dtype), model.read_rates[source])
            for source in stage.inputs
        ]
        self._value_bytes = itemsize(model.dtype)

    def about(self, sizes: Sequence[int]) -> RunCost:
        """The cost estimated from the plan of the whole contraction."""
        assert self._outline is not None
        key = tuple([sizes[label] for label in self._labels])
        if key not in self._about:
            if self._first is None:
                self._first = self._outline.sketch(self._stage.path, self._inputs)
            self._about[key] = self._run_cost(self._first(sizes), sizes)
        return self._about[key]

    def near(self, sizes: Sequence[int]) -> RunCost:
        """The cost estimated from the plan for the nearest sizes that the stage was lowered for."""
        if not self._own:
            return self.about(sizes)
        key = tuple([sizes[label] for label in self._labels])
        if key not in self._near:
            nearest = min(self._own, key=lambda sketch: self._distance(sketch, sizes))
            self._near[key] = self._run_cost(nearest(sizes), sizes)
        return self._near[key]

    def exact(self, sizes: Sequence[int]) -> RunCost:
        """The cost of a plan for exactly these sizes."""
        return self._lowered(sizes)[0]

    def program(self, sizes: Sequence[int]) -> Program:
        """The program for exactly these sizes."""
        values = [cost._lowered(sizes)[1] for cost in self._below]
        return self._model.lowered(self._stage, sizes, self._model.traits, values)

    def _lowered(self, sizes: Sequence[int]) -> tuple[RunCost, Layout]:
        """The cost of a plan for exactly these sizes, and the layout of its value."""
        values = tuple([cost._lowered(sizes)[1] for cost in self._below])
        key = tuple([sizes[label] for label in self._labels]), values
        if key not in self._exact:
            model = self._model
            program, parts = model.amounts(self._stage, sizes, model.traits, values)
            sketch = Sketch(program, parts, sizes)
            cost, layout = self._run_cost(sketch(sizes), sizes), None
            strides = program.values[program.result].strides
            if strides is not None and model.traits.strided and not (self._stage.loops and returns_view(program)):
                layout = layout_class(program.shape, strides)
            self._exact[key] = cost, layout
            self._own.append(sketch)
            self._near = {known: exact for (known, _), (exact, _) in self._exact.items()}
        return self._exact[key]

    def _distance(self, sketch: Sketch, sizes: Sequence[int]) -> float:
        """How far sizes are from those of a sketch; axes of size 1 change the plan, so they count most."""
        pairs = [(sizes[label], sketch.sizes[label]) for label in self._labels]
        return sum(
            abs(log(max(size, 1) / max(other, 1))) + 9.0 * ((size == 1) != (other == 1)) for size, other in pairs
        )

    def _run_cost(self, estimate: Estimate, sizes: Sequence[int]) -> RunCost:
        value = prod([sizes[label] for label in self._stage.output]) * self._value_bytes
        read = [0 if part is None else prod([sizes[label] for label in part[0]]) * part[1] for part in self._reads]
        if not estimate.peak and not self._stage.loops:  # a view, which keeps its inputs alive
            terms = [term for source, term in zip(self._stage.inputs, self._stage.terms) if isinstance(source, Stage)]
            value = sum(read) + sum(prod([sizes[label] for label in term]) for term in terms) * self._value_bytes
        return RunCost(
            value,
            max(estimate.peak, value if self._stage.loops else 0),  # a view is copied
            estimate.seconds,
            tuple(read),
            tuple([0.0 if part is None else size / part[2] for size, part in zip(read, self._reads)]),
            estimate.tight,
        )
