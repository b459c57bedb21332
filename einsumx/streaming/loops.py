"""Writes a blocked contraction as loops of a compiler: the blocks of an eager run, at positions that are traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from einsumx.adapters.base import Adapter, Array
from einsumx.adapters.facets import loops_of
from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import Labels, Stage
from einsumx.runtime.execute import run_of

Here: TypeAlias = dict[int, tuple[Any, int]]
"""The current block of each label whose loop has started: where it starts, and its size."""

Known: TypeAlias = dict[tuple[int, int], Array]
"""The inputs of stages that the current loops do not change, by the stage's identity and the position."""


class LoopWriter:
    """Records a blocked contraction: each loop over blocks once, and once more for a last block that is smaller.

    Blocks of the result have one size: the last one starts earlier where it would be smaller, and computes some
    elements again.

    Args:
        program: the contraction in blocks.
        adapter: that of the framework, which traces the call.
        operands: traced arrays.
    """

    def __init__(self, program: BlockedProgram, adapter: Adapter, operands: Sequence[Array]) -> None:
        self._program, self._adapter, self._loops, self._operands = program, adapter, loops_of(adapter), operands
        self._sizes, self._largest = program.contraction.equation.sizes, program.grid.largest
        self._last: Array = None  # what was computed last, before which nothing else is to be read

    def result(self) -> Array:
        """The result."""
        program, root = self._program, self._program.blocking.root

        def written(here: Here, known: Known, out: Array) -> Array:
            block = self._value(root, here, known)
            return self._loops.put(out, [start for start, _ in self._box(root.output, here, program.shape)], block)

        if not root.nest:
            return self._loops.as_dtype(self._value(root, {}, {}), program.dtype)
        out = self._adapter.zeros(self._operands, program.shape, program.dtype)
        return self._looped(root, (0, len(root.nest)), {}, {}, out, written)

    def _value(self, stage: Stage, here: Here, known: Known) -> Array:
        """A block of the value of a stage, summed over the blocks of its loops."""

        def computed(here: Here, known: Known, total: Array) -> Array:
            part = self._computed(stage, here, known)
            return self._program.algebra.added(self._adapter, total, part) if stage.summed else part

        return self._looped(stage, (len(stage.nest), len(stage.inside)), here, known, None, computed)

    def _looped(
        self, stage: Stage, depths: tuple[int, int], here: Here, known: Known, carry: Array,
        body: Callable[[Here, Known, Array], Array],
    ) -> Array:  # fmt: skip
        """The value of ``carry`` after a range of the loops of a stage, in the innermost of which ``body`` is."""
        depth, end = depths
        known = self._with_inputs(stage, depth, here, known)
        if depth == end:
            return body(here, known, carry)
        label = stage.inside[depth]
        if carry is None:
            carry = self._zeros(stage, here)

        def step(start: Any, size: int, carry: Array) -> Array:
            if not isinstance(start, int):
                self._last = start
            return self._looped(stage, (depth + 1, end), {**here, label: (start, size)}, known, carry, body)

        total, size = self._sizes[label], self._largest[label]
        count, rest = divmod(total, size)
        if label in stage.nest:
            count, rest = -(-total // size), 0
        carry = self._last = self._loops.loop(
            count, lambda number, carry: step(number * size, size, carry), carry, self._last
        )
        if rest:
            carry = self._last = step(count * size, rest, carry)
        return carry

    def _with_inputs(self, stage: Stage, depth: int, here: Here, known: Known) -> Known:
        """The known inputs, and those of a stage and of the stages below it that the loops further in do not change."""
        for slot in stage.order:
            source, loops, key = stage.inputs[slot], len(stage.nests[slot]), (id(stage), slot)
            if key in known or depth > loops:
                continue
            if isinstance(source, Stage):
                known = self._with_inputs(source, depth, here, known)
                if depth == loops:
                    known = {**known, key: self._value(source, here, known)}
            elif depth == loops:
                operand = self._operands[source]
                box = self._box(stage.terms[slot], here, operand.shape)
                known = {**known, key: self._loops.part(operand, box, self._last)}
        return known

    def _computed(self, stage: Stage, here: Here, known: Known) -> Array:
        """The value of a stage's program for its inputs."""
        sizes = list(self._largest)
        for label, (_, size) in here.items():
            sizes[label] = size
        part = self._program.programs.program(stage, tuple(sizes))
        inputs = [known[id(stage), slot] for slot in range(len(stage.inputs))]
        value = self._last = self._adapter.boxed(run_of(part, self._adapter)(*inputs), part.dtype)
        return value

    def _zeros(self, stage: Stage, here: Here) -> Array:
        """The sum of no blocks of a stage's value."""
        shape = tuple([here[label][1] if label in here else self._sizes[label] for label in stage.output])
        algebra, dtype = self._program.algebra, self._program.compute_dtype
        return self._loops.filled(self._operands, shape, algebra.zero, dtype, self._last)

    def _box(self, labels: Labels, here: Here, shape: Sequence[int]) -> list[tuple[Any, int]]:
        """Where a part of an array starts on each axis, and its size; axes of size 1 that broadcast are whole."""
        axes = zip(labels, shape)
        return [here[label] if label in here and size == self._sizes[label] else (0, size) for label, size in axes]
