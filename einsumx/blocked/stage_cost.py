"""Costs the stages of a blocked contraction: estimates for the search, and exact costs for its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, prod
from typing import Literal, TypeAlias

from einsumx.adapters.base import Adapter
from einsumx.adapters.facets import loops_of
from einsumx.blocked.cost import RunCost
from einsumx.blocked.estimate import Estimate, Sketch, labelled_costs
from einsumx.blocked.program import BlockedContraction
from einsumx.blocked.stage_programs import Layout, stage_program, value_layout
from einsumx.blocked.stages import Labels, Stage
from einsumx.dtypes import itemsize
from einsumx.ir.algebra import PLUS_TIMES, Kernels
from einsumx.ir.cost import OpCost
from einsumx.ir.operand import Path
from einsumx.ir.ops import Op
from einsumx.ir.program import Program

How: TypeAlias = Literal["about", "nearly", "exactly"]
"""How a run of a stage is costed: by the plan of the whole contraction, by that of the nearest sizes that were costed
exactly, or by that of its own sizes."""


def kernels_of(adapter: Adapter, request: BlockedContraction) -> Kernels:
    """What tells the memory of single ops: of compiled ones in a traced program."""
    return loops_of(adapter) if request.is_traced and request.contraction.algebra is PLUS_TIMES else adapter


class Outline:
    """The plan of a contraction that is not cut, from which the costs of its stages are estimated.

    Attributes:
        request: what is to be cut.
        path: the order of its pairwise contractions.
        kernels: what tells the memory of its ops.
        seconds: the time of the contraction without cuts and without reading its operands.
    """

    def __init__(self, adapter: Adapter, request: BlockedContraction, path: Path) -> None:
        self.request, self.path = request, path
        contraction = request.contraction
        self.kernels = kernels_of(adapter, request)
        equation, traits = contraction.equation, contraction.place.traits
        every = tuple(range(len(contraction.operands)))
        loops = ((),) * len(every)
        whole = Stage(every, equation.inputs, equation.output, path, (), (), loops, loops, every)
        self._sizes = equation.sizes
        if len(every) > 2:  # a single call of the framework's own einsum would tell nothing about the stages
            traits = replace(traits, rates=replace(traits.rates, native=0.0))
        contraction = replace(contraction, place=replace(contraction.place, traits=traits))
        self._program = stage_program(contraction, request.in_place, whole, self._sizes, ())
        costs = labelled_costs(self._program, equation.inputs, equation.output, self._sizes, self.kernels)
        # Values are identified by the operands that they depend on.
        self._used_by: dict[frozenset[int], frozenset[int]] = {}
        self._ops: dict[frozenset[int], list[OpCost]] = {}
        for value, *inputs in _step_values(path, [frozenset([number]) for number in every]):
            self._ops[value] = []
            self._used_by.update(dict.fromkeys(inputs, value))
        depends = [frozenset([number]) for number in every]  # the operands that each slot depends on
        for cost in costs:
            depends.append(frozenset().union(*[depends[slot] for slot in cost.op.sources]))
            self._ops[self._value_of(cost.op, depends[-1])].append(cost)
        self.seconds = Sketch(self._program, costs, self._sizes)(self._sizes).seconds

    def _value_of(self, op: Op, own: frozenset[int]) -> frozenset[int]:
        """The value that an op helps to compute; a copy of another value belongs to the value that uses it."""
        computes_it = own in self._ops and op.effect == "work"
        return own if computes_it else self._used_by.get(own, own)

    def sketch(self, path: Path, inputs: Sequence[frozenset[int]]) -> Sketch:
        """The ops for the values along a path; inputs are identified by the operands that they depend on."""
        costs = [cost for value, *_ in _step_values(path, inputs) for cost in self._ops[value]]
        return Sketch(self._program, costs, self._sizes)


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
    """The cost of a run of one stage, whatever the loops around it.

    Args:
        outline: of the contraction along the same path.
        stage: the stage.
        below: those of its inputs that are stages.
    """

    def __init__(self, outline: Outline, stage: Stage, below: Sequence[StageCost]) -> None:
        self._stage, self._outline, self._below = stage, outline, below
        request = outline.request
        self._contraction = request.contraction
        self._labels = tuple(dict.fromkeys(label for term in stage.terms for label in term))
        self._first: Sketch | None = None
        self._own: list[Sketch] = []
        self._about: dict[tuple[int, ...], RunCost] = {}
        self._near: dict[tuple[int, ...], RunCost] = {}
        self._exact: dict[tuple[tuple[int, ...], tuple[Layout, ...]], tuple[RunCost, Program]] = {}
        values = iter(below)
        self._inputs = [  # the operands that each depends on
            next(values)._operands if isinstance(source, Stage) else frozenset([source]) for source in stage.inputs
        ]
        self._operands: frozenset[int] = frozenset().union(*self._inputs)
        self._reads = [  # the labels of the block that is read for each input, bytes an element, and bytes a second
            None
            if isinstance(source, Stage) or request.in_place[source]
            else (
                self._contraction.equation.carried(source),
                itemsize(self._contraction.operands[source].dtype),
                request.read_rate(source),
            )
            for source in stage.inputs
        ]
        self._value_bytes = itemsize(self._contraction.compute_dtype)

    def run_cost(self, sizes: Sequence[int], how: How) -> RunCost:
        """The cost for blocks of these sizes."""
        if how == "exactly":
            return self._lowered(sizes)[0]
        known = self._near if how == "nearly" and self._own else self._about
        key = tuple([sizes[label] for label in self._labels])
        if key not in known:
            known[key] = self._run_cost(self._sketch(sizes, known is self._near)(sizes), sizes)
        return known[key]

    def _sketch(self, sizes: Sequence[int], is_near: bool) -> Sketch:
        """That of the nearest sizes that the stage was lowered for, or of the whole contraction."""
        if is_near:
            return min(self._own, key=lambda sketch: self._distance(sketch, sizes))
        if self._first is None:
            self._first = self._outline.sketch(self._stage.path, self._inputs)
        return self._first

    def program(self, sizes: Sequence[int]) -> Program:
        """The program for exactly these sizes."""
        return self._lowered(sizes)[1]

    def _lowered(self, sizes: Sequence[int]) -> tuple[RunCost, Program]:
        """The program for exactly these sizes, and its cost."""
        values = tuple([value_layout(cost._stage, cost.program(sizes)) for cost in self._below])
        key = tuple([sizes[label] for label in self._labels]), values
        if key not in self._exact:
            stage, outline = self._stage, self._outline
            program = stage_program(self._contraction, outline.request.in_place, stage, sizes, values)
            costs = labelled_costs(program, stage.terms, stage.output, sizes, outline.kernels)
            sketch = Sketch(program, costs, sizes)
            self._exact[key] = self._run_cost(sketch(sizes), sizes), program
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
        read = [0 if part is None else self._read_elements(part[0], sizes) * part[1] for part in self._reads]
        if not estimate.peak and not self._stage.summed:  # a view, which keeps its inputs alive
            terms = [term for source, term in zip(self._stage.inputs, self._stage.terms) if isinstance(source, Stage)]
            value = sum(read) + sum(prod([sizes[label] for label in term]) for term in terms) * self._value_bytes
        return RunCost(
            value,
            max(estimate.peak, value if self._stage.summed else 0),  # a view is copied
            estimate.seconds,
            tuple(read),
            tuple([0.0 if part is None else size / part[2] for size, part in zip(read, self._reads)]),
            estimate.tight,
        )

    def _read_elements(self, labels: Labels, sizes: Sequence[int]) -> int:
        """The elements of a block that is read; a traced program reads an operand in place that is not cut.

        That of a diagonal counts, because compilers copy it.
        """
        block = [sizes[label] for label in labels]
        whole = [self._contraction.equation.sizes[label] for label in labels]
        is_in_place = self._outline.request.is_traced and block == whole and len({*labels}) == len(labels)
        return 0 if is_in_place else prod(block)
