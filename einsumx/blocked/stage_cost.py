"""What the stages of a blocked contraction cost: estimated while blockings are searched, and then exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import TypeAlias

from einsumx.adapters.base import Adapter
from einsumx.adapters.traits import Traits
from einsumx.blocked.cost import RunCost
from einsumx.blocked.estimate import Amounts, Estimate, Sketch, amounts
from einsumx.blocked.stages import Stage
from einsumx.dtypes import itemsize
from einsumx.ir.bind import SizedEquation
from einsumx.ir.cost import result_strides, returns_view
from einsumx.ir.layout import contiguous, layout_class
from einsumx.ir.program import Operand, Path, Program
from einsumx.planner.lower import lower
from einsumx.runtime.prepare import sized_equation

__all__ = ["Outline", "StageCost", "StageCostModel"]

Layout: TypeAlias = tuple[int, ...] | None
"""Strides, by their layout class; None for C-contiguous."""


@dataclass(frozen=True, slots=True)
class StageCostModel:
    """The contraction whose stages are costed.

    Attributes:
        equation: what is computed.
        operands: shape, dtype and layout of each.
        lies_there: of each operand, whether it lies on the device, and blocks of it are views.
        read_rates: bytes a second at which each operand is read that does not lie there.
        adapter, traits, device: for what its plans are lowered.
        dtype: that is computed in.
    """

    equation: SizedEquation
    operands: tuple[Operand, ...]
    lies_there: tuple[bool, ...]
    read_rates: tuple[float, ...]
    adapter: Adapter
    traits: Traits
    device: str
    dtype: str

    def lowered(self, stage: Stage, sizes: Sequence[int], traits: Traits, values: Sequence[Layout]) -> Program:
        """The plan of a stage on blocks of such sizes, and on values of other stages that lie so."""
        described = []
        lying = iter(values)
        for source, term in zip(stage.inputs, stage.terms):
            if isinstance(source, Stage):
                described.append(Operand(tuple(sizes[label] for label in term), self.dtype, next(lying)))
                continue
            operand, shape = self.operands[source], self.block(source, sizes)
            strides = None
            if self.lies_there[source]:
                strides = layout_class(shape, operand.strides or contiguous(operand.shape))
            described.append(Operand(shape, operand.dtype, strides))
        equation = sized_equation(stage.equation, [operand.shape for operand in described])
        return lower(
            equation,
            described,
            stage.path,
            backend=self.adapter.name,
            traits=traits,
            dtype=self.dtype,
            device=self.device,
        )

    def block(self, number: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of a block of an operand."""
        term, shape = self.equation.inputs[number], self.operands[number].shape
        return tuple(sizes[label] if size == self.equation.sizes[label] else size for label, size in zip(term, shape))

    def amounts(
        self, stage: Stage, sizes: Sequence[int], traits: Traits, values: Sequence[Layout] = ()
    ) -> tuple[Program, list[Amounts]]:
        """The plan of a stage, and what each of its ops takes."""
        plan = self.lowered(stage, sizes, traits, values)
        return plan, amounts(plan, stage.terms, stage.output, sizes, self.adapter, traits)


class Outline:
    """The plan of a contraction that is not cut, from which what its stages take is estimated.

    Args:
        model: the contraction.
        path: the order of its pairwise contractions.

    Attributes:
        path: the same.
        seconds: that the contraction takes so, without reading its operands.
    """

    def __init__(self, model: StageCostModel, path: Path) -> None:
        equation, self.path = model.equation, path
        every = tuple(range(len(model.operands)))
        loops = ((),) * len(every)
        whole = Stage(every, equation.inputs, equation.output, path, (), (), loops, loops)
        self._sizes = equation.sizes
        # One call of the framework's own einsum for all would say nothing of the parts.
        rates = replace(model.traits.rates, native=0.0) if len(every) > 2 else model.traits.rates
        self._plan, parts = model.amounts(whole, self._sizes, replace(model.traits, rates=rates))
        self._taken: dict[frozenset[int], frozenset[int]] = {}  # a value and that which it is taken for, by operands
        self._ops: dict[frozenset[int], list[Amounts]] = {}
        for made, *taken in made_by(path, [frozenset([number]) for number in every]):
            self._ops[made] = []
            self._taken.update(dict.fromkeys(taken, made))
        for part in parts:
            self._ops[self._home(part)].append(part)
        self.seconds = Sketch(self._plan, parts, self._sizes)(self._sizes).seconds

    def _home(self, part: Amounts) -> frozenset[int]:
        """The value that an op is a part of the making of: a copy of another value is made for it."""
        own = part.operands
        makes_it = own in self._ops and part.op.kind == "work"
        return own if makes_it else self._taken.get(own, own)

    def sketch(self, path: Path, inputs: Sequence[frozenset[int]]) -> Sketch:
        """What the plan does for the values along a path, from inputs by the operands that they are made of."""
        parts = [part for made, *_ in made_by(path, inputs) for part in self._ops[made]]
        return Sketch(self._plan, parts, self._sizes)


def made_by(path: Path, inputs: Sequence[frozenset[int]]) -> list[list[frozenset[int]]]:
    """Of each step, its value and those that it takes, by the operands that they are made of."""
    terms = list(inputs)
    found = []
    for step in path:
        taken = [terms.pop(position) for position in sorted(step, reverse=True)]
        terms.append(frozenset().union(*taken))
        found.append([terms[-1], *(part for part in taken if part != terms[-1])])
    return found


class StageCost:
    """What a run of one stage costs, whatever the loops around it.

    Args:
        model: the contraction.
        stage: of it.
        outline: of the contraction along the same path; None where nothing is estimated, but costed exactly.
        below: the works of the stages that it takes values of, in the order of its inputs.
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
        self._inputs = [  # the operands of which each is made
            next(values)._operands if isinstance(source, Stage) else frozenset([source]) for source in stage.inputs
        ]
        self._operands: frozenset[int] = frozenset().union(*self._inputs)
        self._reads = [  # the labels of what is brought for each input, bytes an element, and bytes a second
            None
            if isinstance(source, Stage) or model.lies_there[source]
            else (model.equation.carried(source), itemsize(model.operands[source].dtype), model.read_rates[source])
            for source in stage.inputs
        ]
        self._value_bytes = itemsize(model.dtype)

    def about(self, sizes: Sequence[int]) -> RunCost:
        """By the plan of the whole contraction."""
        if self._outline is None:
            return self.exact(sizes)
        key = tuple([sizes[label] for label in self._labels])
        if key not in self._about:
            if self._first is None:
                self._first = self._outline.sketch(self._stage.path, self._inputs)
            self._about[key] = self._body(self._first(sizes), sizes)
        return self._about[key]

    def near(self, sizes: Sequence[int]) -> RunCost:
        """By the plan for the nearest sizes that it was lowered for."""
        if not self._own:
            return self.about(sizes)
        key = tuple([sizes[label] for label in self._labels])
        if key not in self._near:
            self._near[key] = self._body(min(self._own, key=lambda sketch: self._distance(sketch, sizes))(sizes), sizes)
        return self._near[key]

    def exact(self, sizes: Sequence[int]) -> RunCost:
        """By a plan for these very sizes."""
        return self._lowered(sizes)[0]

    def plan(self, sizes: Sequence[int]) -> Program:
        """The plan for these very sizes."""
        values = [work._lowered(sizes)[1] for work in self._below]
        return self._model.lowered(self._stage, sizes, self._model.traits, values)

    def _lowered(self, sizes: Sequence[int]) -> tuple[RunCost, Layout]:
        """What it costs by a plan for these very sizes, and how its value lies."""
        own = tuple([sizes[label] for label in self._labels])
        values = tuple([work._lowered(sizes)[1] for work in self._below])
        key = own, values
        if key not in self._exact:
            model = self._model
            plan, parts = model.amounts(self._stage, sizes, model.traits, values)
            sketch = Sketch(plan, parts, sizes)
            body, layout = self._body(sketch(sizes), sizes), None
            if model.traits.strided and not (self._stage.loops and returns_view(plan)):
                layout = layout_class(plan.shape, result_strides(plan))
            self._exact[key] = body, layout
            self._own.append(sketch)
            self._near = {known: found for (known, _), (found, _) in self._exact.items()}
        return self._exact[key]

    def _taken(self, sizes: Sequence[int]) -> int:
        """Bytes of the values that it takes of other stages."""
        terms = [term for source, term in zip(self._stage.inputs, self._stage.terms) if isinstance(source, Stage)]
        return sum(prod(sizes[label] for label in term) for term in terms) * itemsize(self._model.dtype)

    def _distance(self, sketch: Sketch, sizes: Sequence[int]) -> float:
        """How far sizes are from those of a sketch; one for an axis is another plan than more."""
        pairs = [(sizes[label], sketch.sizes[label]) for label in self._labels]
        return sum(
            abs(log(max(size, 1) / max(other, 1))) + 9.0 * ((size == 1) != (other == 1)) for size, other in pairs
        )

    def _body(self, estimate: Estimate, sizes: Sequence[int]) -> RunCost:
        value = prod([sizes[label] for label in self._stage.output]) * self._value_bytes
        read = [0 if part is None else prod([sizes[label] for label in part[0]]) * part[1] for part in self._reads]
        if not estimate.peak and not self._stage.loops:  # a view, which keeps what it looks at
            value = sum(read) + self._taken(sizes)
        return RunCost(
            value,
            max(estimate.peak, value if self._stage.loops else 0),  # where it is a view, it is copied
            estimate.seconds,
            tuple(read),
            tuple([0.0 if part is None else size / part[2] for size, part in zip(read, self._reads)]),
            estimate.tight,
        )
