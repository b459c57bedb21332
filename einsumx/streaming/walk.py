"""The walk over the blocks of a contraction: what is read, computed, kept and added up, in which order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import TypeAlias

from einsumx.adapters.base import Adapter, Array
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Stage, ranges
from einsumx.ir.cost import returns_view
from einsumx.runtime.prepare import prepare
from einsumx.runtime.request import Options

__all__ = ["Blocks", "Box", "Contract", "Place", "Read", "compute", "contracting"]

Box: TypeAlias = tuple[slice, ...]
"""A part of an array: a range of each axis."""

Read: TypeAlias = tuple[int, Box]
"""The number of an operand, and the part of it that is needed."""

Steps: TypeAlias = Generator[Read, list[Array] | None, Array]
"""A computation that yields what it has to read, and takes what was read out of a list."""

Place: TypeAlias = dict[int, int]
"""The number of the block that each cut label is at."""

Contract: TypeAlias = Callable[[Stage, Sequence[Array]], Array]
"""Runs a stage on blocks of its inputs."""


class Blocks:
    """The values of a blocked contraction, computed step by step; those that more than one block needs are kept.

    A step yields what has to be read and takes the block that was read, so that the same walk tells beforehand, with
    functions that compute nothing, in which order operands are going to be read.

    Args:
        plan: how it is cut.
        contract: runs a stage.
        add: adds partial sums up.
    """

    def __init__(self, plan: BlockedProgram, contract: Contract, add: Callable[[Array, Array], Array]) -> None:
        self._plan, self._contract, self._add = plan, contract, add
        self._ranges = [ranges(size, count) for size, count in zip(plan.equation.sizes, plan.blocking.counts)]
        self._kept: dict[tuple[Stage, int], tuple[tuple[int, ...], Array]] = {}

    @classmethod
    def outline(cls, plan: BlockedProgram) -> Blocks:
        """A walk that computes nothing, and tells what there is to compute."""
        return cls(plan, lambda *_: None, lambda *_: None)

    @classmethod
    def reads(cls, plan: BlockedProgram, places: Iterable[Place]) -> Iterator[Read]:
        """What is read, in this order, for the blocks of the result at ``places``."""
        walk = cls.outline(plan)
        for place in places:
            yield from walk.value(place)

    @classmethod
    def steps(cls, plan: BlockedProgram, places: Iterable[Place]) -> int:
        """How often a stage runs for the blocks of the result at ``places``."""
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        walk = cls(plan, counted, lambda *_: None)
        for place in places:
            compute(walk.value(place), lambda *_: None)
        return count

    def places(self) -> Iterator[Place]:
        """Where the blocks of the result are, in the order in which they are best computed."""
        return self._places(self._plan.blocking.root.nest)

    def box(self, place: Place) -> Box:
        """The part of the result that a block is."""
        return self._box(self._plan.blocking.root.output, place)

    def value(self, place: Place, start: int = 0, stop: int | None = None) -> Steps:
        """The steps to a block of the result, or to some of the terms that it is the sum of; they return it."""
        return self._value(self._plan.blocking.root, place, start, stop)

    @property
    def keeps(self) -> bool:
        """Whether there are values that another block of the result may need."""
        return bool(self._kept)

    def _places(self, loops: Sequence[int]) -> Iterator[Place]:
        for numbers in product(*(range(len(self._ranges[label])) for label in loops)):
            yield dict(zip(loops, numbers))

    def _box(self, labels: Sequence[int], place: Place, shape: Sequence[int] | None = None) -> Box:
        """The part of an array that lies in the blocks of ``place``; axes of size 1 that broadcast are whole."""
        sizes = self._plan.equation.sizes
        return tuple(
            self._ranges[label][place[label]] if label in place and (not shape or shape[axis] == sizes[label])
            else slice(0, shape[axis] if shape else sizes[label])
            for axis, label in enumerate(labels)
        )  # fmt: skip

    def _value(self, stage: Stage, place: Place, start: int = 0, stop: int | None = None) -> Steps:
        """The value of a stage at a place, summed over the cut labels that it sums, or over some of their blocks."""
        total = None
        for number, inner in enumerate(islice(self._places(stage.loops), start, stop)):
            here = {**place, **inner}
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] == _at(self._nest(key), here)}
            inputs: dict[int, Array] = {}
            for slot in stage.order:
                inputs[slot] = yield from self._input(stage, slot, here)
            part = self._contract(stage, [inputs.pop(slot) for slot in range(len(stage.inputs))])
            total = part if number == 0 else self._add(total, part)
            del part
        self._forget(stage, len(stage.nest))
        return total

    def _input(self, stage: Stage, slot: int, place: Place) -> Steps:
        source, nest, key = stage.inputs[slot], stage.nests[slot], (stage, slot)
        if key in self._kept:
            return self._kept[key][1]
        if isinstance(source, Stage):
            value = yield from self._value(source, {label: place[label] for label in nest})
        else:
            shape = self._plan.operands[source].shape
            brought = yield source, self._box(stage.terms[slot], place, shape)
            value = brought.pop() if brought else None  # out of a list, so that whoever sends it does not hold it too
        if len(nest) < len(stage.inside):
            self._kept[key] = _at(nest, place), value
        return value

    @staticmethod
    def _nest(key: tuple[Stage, int]) -> Sequence[int]:
        stage, slot = key
        return stage.nests[slot]

    def _forget(self, stage: Stage, depth: int) -> None:
        """Let go what was kept for a stage, and for those under it, but for what outlasts ``depth`` loops."""
        for slot, (source, nest) in enumerate(zip(stage.inputs, stage.nests)):
            if len(nest) >= depth:
                self._kept.pop((stage, slot), None)
            if isinstance(source, Stage):
                self._forget(source, depth)


def _at(loops: Sequence[int], place: Place) -> tuple[int, ...]:
    """The numbers of the blocks that some loops are at; -1 for those that ``place`` is not in."""
    return tuple(place.get(label, -1) for label in loops)


def contracting(plan: BlockedProgram, adapter: Adapter) -> Contract:
    """What runs the stages of ``plan``, each on blocks of its inputs."""

    def contract(stage: Stage, arrays: Sequence[Array]) -> Array:
        options = Options(plan.compute_dtype, "unsafe", stage.path)
        prepared = prepare(adapter, stage.equation, arrays, options)
        value = adapter.boxed(prepared.run(*arrays), prepared.program.dtype)
        # What is added up in its own memory must be no view of an operand.
        value = adapter.copy(value) if stage.loops and returns_view(prepared.program) else value
        adapter.synchronize(value)  # what is only queued holds on to its blocks
        return value

    return contract


def compute(steps: Steps, read: Callable[[int, Box], Array]) -> Array:
    """What ``steps`` return, with what they ask for brought by ``read``."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send([read(*wanted)])
    except StopIteration as end:
        return end.value
