"""The programs of a contraction's stages: those that are priced are those that run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from einsumx.blocked.stages import Stage
from einsumx.ir.contraction import Contraction, Place
from einsumx.ir.layout import contiguous, layout_class
from einsumx.ir.operand import Operand
from einsumx.ir.program import Program
from einsumx.planner.lower import lower
from einsumx.runtime.equations import sized_equation

Layout: TypeAlias = tuple[int, ...] | None
"""The strides of a layout class; None for C-contiguous."""


def stage_program(
    whole: Contraction, in_place: Sequence[bool], stage: Stage, sizes: Sequence[int], values: Sequence[Layout]
) -> Program:
    """The program of a stage for blocks of these sizes of labels.

    Args:
        whole: the contraction that the stage is a part of.
        in_place: whether each operand is already on the device, so that blocks of it are views.
        stage, sizes: the stage, and the sizes of the blocks of all labels.
        values: the layout of each input that is the value of another stage.
    """
    operands = []
    layouts = iter(values)
    for source, term in zip(stage.inputs, stage.terms):
        if isinstance(source, Stage):
            operands.append(Operand(tuple([sizes[label] for label in term]), whole.compute_dtype, next(layouts)))
            continue
        operand, strides = whole.operands[source], None
        axes = zip(term, operand.shape)
        shape = tuple([sizes[label] if size == whole.equation.sizes[label] else size for label, size in axes])
        if in_place[source]:
            strides = layout_class(shape, operand.strides or contiguous(operand.shape))
        operands.append(Operand(shape, operand.dtype, strides))
    equation = sized_equation((stage.terms, stage.output), [operand.shape for operand in operands])
    positions = [-1 if isinstance(source, Stage) else source for source in stage.inputs]
    part = whole.part(equation, tuple(operands), stage.path, positions)
    program: Program = whole.algebra.lowered(lower(part))
    return program


def value_layout(stage: Stage, program: Program) -> Layout:
    """The layout of the value of a stage that ``program`` computes; sums over blocks are added in place of a copy."""
    strides = program.values[program.result].strides
    if strides is None or not program.contraction.place.traits.strided or (stage.summed and program.returns_view):
        return None
    return layout_class(program.shape, strides)


class StagePrograms:
    """The programs of the stages of one contraction; its plan fills in those that it has priced.

    Pickles are without programs, as other processes make those of their own blocks in the same way.

    Attributes:
        contraction: the whole contraction.
        in_place: whether each operand is already on the device, so that blocks of it are views.
        runs: the functions that run these programs, for those who run them.
    """

    def __init__(self, contraction: Contraction, in_place: tuple[bool, ...]) -> None:
        self.contraction: Contraction = contraction
        self.in_place: tuple[bool, ...] = in_place
        self.runs: dict[Hashable, Any] = {}
        self._programs: dict[tuple[Stage, tuple[int, ...]], Program] = {}

    def program(self, stage: Stage, sizes: tuple[int, ...]) -> Program:
        """The program of a stage for blocks of these sizes of labels."""
        key = stage, sizes
        if key not in self._programs:
            values = [
                value_layout(source, self.program(source, sizes))
                for source in stage.inputs
                if isinstance(source, Stage)
            ]
            self._programs[key] = stage_program(self.contraction, self.in_place, stage, sizes, values)
        return self._programs[key]

    def add(self, stage: Stage, sizes: tuple[int, ...], program: Program) -> None:
        """Keep the program that was priced."""
        self._programs[stage, sizes] = program

    def on(self, place: Place) -> StagePrograms:
        """Those of the same contraction in another place."""
        return StagePrograms(replace(self.contraction, place=place), self.in_place)

    def __reduce__(self) -> tuple[Any, ...]:
        return StagePrograms, (self.contraction, self.in_place)
