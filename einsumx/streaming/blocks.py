"""Walks over the blocks of a contraction: which are read, computed, kept and added up, in which order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import TypeAlias

from einsumx.adapters.base import Adapter, Array, Run
from einsumx.algebra.scaled import ScaledArray, binary_exponent
from einsumx.blocked.boxes import BlockIndex, Box
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Labels, Stage
from einsumx.host import array_memory
from einsumx.ir.text import tell_plan
from einsumx.measuring.calibration import place_of
from einsumx.runtime.execute import run_of

Read: TypeAlias = tuple[int, Box]
"""The number of an operand, and the part of it to read."""

Steps: TypeAlias = Generator[Read, list[Array] | None, Array]
"""A computation that yields reads, is sent each block in a list, and returns a value."""

Contract: TypeAlias = Callable[[Stage, tuple[int, ...], Sequence[Array]], Array]
"""Runs a stage on blocks of its inputs, in which labels have these sizes."""

_ONCE: tuple[BlockIndex] = ({},)
"""The steps of no loop."""


class Blocks:
    """The values of a blocked contraction, computed step by step; values that several blocks need are kept.

    A step yields what to read and is sent the block. So the same walk, with functions that compute nothing, also gives
    the order of reads in advance.
    """

    def __init__(self, program: BlockedProgram, contract: Contract, add: Callable[[Array, Array], Array]) -> None:
        self._grid, self._root, self._contract, self._add = program.grid, program.blocking.root, contract, add
        self._operands = program.contraction.operands
        self._kept: dict[tuple[int, int], tuple[Labels, tuple[int, ...], Array]] = {}  # by the stage's identity

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
        contraction, blocking, programs = program.contraction, program.blocking, program.programs
        algebra, root, runs = contraction.algebra, blocking.root, count(1)
        if device not in ("", contraction.place.device):
            programs = programs.on(place_of(algebra, adapter, device))
        ready: dict[tuple[int, tuple[int, ...]], tuple[Run, str, bool]] = {}

        def made_ready(stage: Stage, sizes: tuple[int, ...]) -> tuple[Run, str, bool]:
            """The function that runs a stage, the dtype of its value, and whether that is to be copied."""
            part = programs.program(stage, sizes)
            key = part, adapter, adapter.planning_mode(part.device)
            if key not in programs.runs:
                tell_plan(part, adapter)
                programs.runs[key] = run_of(part, adapter)
            # Sums are added in place, so the first one must not be a view of an operand.
            return programs.runs[key], part.dtype, bool(stage.summed) and part.returns_view

        def contract(stage: Stage, sizes: tuple[int, ...], arrays: Sequence[Array]) -> Array:
            inputs = [array.mantissa if isinstance(array, ScaledArray) else array for array in arrays]
            key = id(stage), sizes
            if key not in ready:
                ready[key] = made_ready(stage, sizes)
            run, dtype, is_copied = ready[key]
            with array_memory.unused():
                result = run(*inputs)
                value, exponent = result if algebra.has_exponents else (result, 0)
                value = adapter.boxed(value, dtype)
                value = adapter.copy(value) if is_copied else value
            adapter.synchronize(value)  # queued operations would keep their blocks alive
            if stage is not root or next(runs) % blocking.terms:
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

    @property
    def keeps(self) -> bool:
        """Whether it keeps values that another block of the result may need."""
        return bool(self._kept)

    def value(self, index: BlockIndex, start: int = 0, stop: int | None = None, *, stage: Stage | None = None) -> Steps:
        """The steps that compute a block of a stage's value, summed over the blocks of its loops, or over some of them.

        Args:
            index: the block.
            start, stop: the range of terms to sum; all by default.
            stage: None for that of the result.
        """
        total, stage = None, stage or self._root
        steps = self._grid.steps(stage.summed) if stage.summed else _ONCE
        for number, inner in enumerate(islice(steps, start, stop)):
            here = {**index, **inner}
            if self._kept:
                self._kept = {key: kept for key, kept in self._kept.items() if kept[1] == _at(kept[0], here)}
            inputs: list[Array] = [None] * len(stage.inputs)
            for slot in stage.order:
                source, nest, key = stage.inputs[slot], stage.nests[slot], (id(stage), slot)
                if key in self._kept:
                    inputs[slot] = self._kept[key][-1]
                    continue
                if isinstance(source, Stage):
                    inputs[slot] = yield from self.value({label: here[label] for label in nest}, stage=source)
                else:
                    block = yield source, self._grid.box(stage.terms[slot], here, self._operands[source].shape)
                    inputs[slot] = block.pop() if block else None  # from a list, so that the sender has no reference
                if len(nest) < len(stage.nest) + len(stage.summed):
                    self._kept[key] = nest, _at(nest, here), inputs[slot]
            part = self._contract(stage, self._grid.block_sizes(here), inputs)
            inputs.clear()
            total = part if number == 0 else self._add(total, part)
            del part
        if self._kept:
            self._forget(stage, len(stage.nest))
        return total

    def _forget(self, stage: Stage, depth: int) -> None:
        """Drop the inputs kept for a stage and those below it, except those that outlast ``depth`` loops."""
        for slot, (source, nest) in enumerate(zip(stage.inputs, stage.nests)):
            if len(nest) >= depth:
                self._kept.pop((id(stage), slot), None)
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
