"""Walks over the blocks of a contraction: which are read, computed, kept and added up, in which order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count, islice, product
from math import prod
from typing import TypeAlias

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.algebra.scaled import ScaledArray, binary_exponent
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Stage
from einsumx.host import array_memory
from einsumx.ir.cost import returns_view
from einsumx.ir.layout import ranges
from einsumx.measuring.calibration import place_of
from einsumx.runtime.execute import executable

Box: TypeAlias = tuple[slice, ...]
"""A part of an array: a range of each axis."""

Read: TypeAlias = tuple[int, Box]
"""The number of an operand, and the part of it to read."""

Steps: TypeAlias = Generator[Read, list[Array] | None, Array]
"""A computation that yields reads, is sent each block in a list, and returns a value."""

BlockIndex: TypeAlias = dict[int, int]
"""The number of the current block of each cut label."""

Contract: TypeAlias = Callable[[Stage, tuple[int, ...], Sequence[Array]], Array]
"""Runs a stage on blocks of its inputs, in which labels have these sizes."""


def box_size(box: Iterable[slice]) -> int:
    """The number of elements in a box."""
    return prod(axis.stop - axis.start for axis in box)


def inside(part: Box, box: Box) -> Box:
    """The place of a part in its box."""
    return tuple([slice(ours.start - whole.start, ours.stop - whole.start) for ours, whole in zip(part, box)])


def difference(box: Box, other: Box) -> Iterator[Box]:
    """Boxes that make up the part of ``box`` that is outside of ``other``, a box of the same array.

    >>> list(difference((slice(0, 4), slice(0, 4)), (slice(2, 9), slice(1, 9))))
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 4, None), slice(0, 1, None))]
    """
    if any(ours.stop <= theirs.start or theirs.stop <= ours.start for ours, theirs in zip(box, other)):
        yield box
        return
    rest = list(box)
    for axis, (ours, theirs) in enumerate(zip(box, other)):
        start, stop = max(ours.start, theirs.start), min(ours.stop, theirs.stop)
        for outside in (slice(ours.start, start), slice(stop, ours.stop)):
            if outside.start < outside.stop:
                yield (*rest[:axis], outside, *rest[axis + 1 :])
        rest[axis] = slice(start, stop)


class Blocks:
    """The values of a blocked contraction, computed step by step; values that several blocks need are kept.

    A step yields what to read and is sent the block. So the same walk, with functions that compute nothing, also gives
    the order of reads in advance.
    """

    def __init__(self, program: BlockedProgram, contract: Contract, add: Callable[[Array, Array], Array]) -> None:
        self._program, self._contract, self._add = program, contract, add
        self._ranges = [ranges(size, count) for size, count in zip(program.equation.sizes, program.blocking.counts)]
        self._largest = program.blocking.largest(program.equation.sizes)
        self._kept: dict[tuple[Stage, int], tuple[tuple[int, ...], Array]] = {}

    @classmethod
    def outline(cls, program: BlockedProgram) -> Blocks:
        """A walk that computes nothing."""
        return cls(program, lambda *_: None, lambda *_: None)

    @classmethod
    def computing(
        cls, program: BlockedProgram, adapter: Adapter, step: Callable[[], None] = lambda: None, device: str = ""
    ) -> Blocks:
        """A walk that computes with a framework, and calls ``step`` after each run of a stage but the last of a block.

        It empties the memory pool and does not use it, because the limit counts every byte. It runs the programs that
        were priced for the largest blocks, and those made in the same way for others.

        Args:
            program: the contraction in blocks.
            adapter: that of the framework.
            step: called after the runs.
            device: where to compute; empty for the program's.
        """
        array_memory.release()
        algebra, root, runs = program.algebra, program.blocking.root, count(1)
        programs = program.programs
        if device not in ("", program.device):
            programs = programs.on(place_of(algebra, adapter, device))
        ready: dict[tuple[Stage, tuple[int, ...]], tuple[Run, bool]] = {}

        def made_ready(stage: Stage, sizes: tuple[int, ...]) -> tuple[Run, bool]:
            """The function that runs a stage, and whether its value is to be copied."""
            part = programs.program(stage, sizes)
            key = part, adapter, adapter.planning_mode(part.device)
            if key not in programs.runs:
                programs.runs[key] = executable(part, adapter)
            # Sums are added in place, so the first one must not be a view of an operand.
            return programs.runs[key], bool(stage.loops) and returns_view(part)

        def contract(stage: Stage, sizes: tuple[int, ...], arrays: Sequence[Array]) -> Array:
            inputs = [array.mantissa if isinstance(array, ScaledArray) else array for array in arrays]
            if (stage, sizes) not in ready:
                ready[stage, sizes] = made_ready(stage, sizes)
            run, is_copied = ready[stage, sizes]
            with array_memory.unused():
                result = run(*inputs)
                value, exponent = result if algebra.has_exponents else (result, 0)
                value = adapter.boxed(value, program.compute_dtype)
                value = adapter.copy(value) if is_copied else value
            adapter.synchronize(value)  # queued operations would keep their blocks alive
            if stage is not root or next(runs) % program.blocking.terms:
                step()
            return _scaled(adapter, value, exponent, arrays) if algebra.has_exponents else value

        def added(total: Array, part: Array) -> Array:
            total = algebra.added(adapter, total, part)
            algebra.mapped(adapter.synchronize, total)
            return total

        return cls(program, contract, added)

    @classmethod
    def reads(cls, program: BlockedProgram, indices: Iterable[BlockIndex]) -> Iterator[Read]:
        """The reads for these blocks of the result, in order."""
        walk = cls.outline(program)
        for index in indices:
            yield from walk.value(index)

    @classmethod
    def steps(cls, program: BlockedProgram, indices: Iterable[BlockIndex]) -> int:
        """How often a stage runs for these blocks of the result."""
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        walk = cls(program, counted, lambda *_: None)
        for index in indices:
            compute(walk.value(index), lambda *_: None)
        return count

    def indices(self) -> Iterator[BlockIndex]:
        """The blocks of the result, in the best order of computation."""
        return self._indices(self._program.blocking.root.nest)

    def box(self, index: BlockIndex) -> Box:
        """The part of the result that a block is."""
        return self._box(self._program.blocking.root.output, index)

    def value(self, index: BlockIndex, start: int = 0, stop: int | None = None) -> Steps:
        """The steps that compute a block of the result, or the sum of its terms from ``start`` to ``stop``."""
        return self._value(self._program.blocking.root, index, start, stop)

    @property
    def keeps(self) -> bool:
        """Whether it keeps values that another block of the result may need."""
        return bool(self._kept)

    def _indices(self, loops: Sequence[int]) -> Iterator[BlockIndex]:
        for numbers in product(*(range(len(self._ranges[label])) for label in loops)):
            yield dict(zip(loops, numbers))

    def _sizes(self, index: BlockIndex) -> tuple[int, ...]:
        """The sizes of all labels in these blocks; those of the largest blocks for labels that it has none of."""
        sizes = list(self._largest)
        for label, number in index.items():
            block = self._ranges[label][number]
            sizes[label] = block.stop - block.start
        return tuple(sizes)

    def _box(self, labels: Sequence[int], index: BlockIndex, shape: Sequence[int] | None = None) -> Box:
        """The part of an array in these blocks; axes of size 1 that broadcast are whole."""
        sizes = self._program.equation.sizes
        return tuple(
            self._ranges[label][index[label]] if label in index and (not shape or shape[axis] == sizes[label])
            else slice(0, shape[axis] if shape else sizes[label])
            for axis, label in enumerate(labels)
        )  # fmt: skip

    def _value(self, stage: Stage, index: BlockIndex, start: int = 0, stop: int | None = None) -> Steps:
        """The value of a stage, summed over the blocks of its loops, or over some of them."""
        total = None
        for number, inner in enumerate(islice(self._indices(stage.loops), start, stop)):
            here = {**index, **inner}
            self._kept = {
                (user, slot): kept
                for (user, slot), kept in self._kept.items()
                if kept[0] == _at(user.nests[slot], here)
            }
            inputs: dict[int, Array] = {}
            for slot in stage.order:
                inputs[slot] = yield from self._input(stage, slot, here)
            part = self._contract(stage, self._sizes(here), [inputs.pop(slot) for slot in range(len(stage.inputs))])
            total = part if number == 0 else self._add(total, part)
            del part
        self._forget(stage, len(stage.nest))
        return total

    def _input(self, stage: Stage, slot: int, index: BlockIndex) -> Steps:
        source, nest, key = stage.inputs[slot], stage.nests[slot], (stage, slot)
        if key in self._kept:
            return self._kept[key][1]
        if isinstance(source, Stage):
            value = yield from self._value(source, {label: index[label] for label in nest})
        else:
            shape = self._program.operands[source].shape
            block = yield source, self._box(stage.terms[slot], index, shape)
            value = block.pop() if block else None  # from a list, so that the sender holds no reference
        if len(nest) < len(stage.inside):
            self._kept[key] = _at(nest, index), value
        return value

    def _forget(self, stage: Stage, depth: int) -> None:
        """Drop the inputs kept for a stage and those below it, except those that outlast ``depth`` loops."""
        for slot, (source, nest) in enumerate(zip(stage.inputs, stage.nests)):
            if len(nest) >= depth:
                self._kept.pop((stage, slot), None)
            if isinstance(source, Stage):
                self._forget(source, depth)


def _scaled(adapter: Adapter, mantissa: Array, exponent: int, inputs: Sequence[Array]) -> ScaledArray:
    """A result as a mantissa and an exponent, from inputs some of which are such results."""
    if not exponent and binary_exponent(adapter, mantissa) is None:
        return ScaledArray(mantissa, None, True)
    before = [array.exponent or 0 for array in inputs if isinstance(array, ScaledArray)]
    return ScaledArray(mantissa, sum(before, exponent), True)


def _at(loops: Sequence[int], index: BlockIndex) -> tuple[int, ...]:
    """The current blocks of some loops; -1 for a loop that has not started."""
    return tuple(index.get(label, -1) for label in loops)


def compute(steps: Steps, read: Callable[[int, Box], Array]) -> Array:
    """Run ``steps`` with the blocks that ``read`` returns; return their value."""
    try:
        number, box = next(steps)
        while True:
            number, box = steps.send([read(number, box)])
    except StopIteration as end:
        return end.value
