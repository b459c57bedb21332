"""A contraction that runs block by block: what :func:`einsumx.plan` gives under a memory limit, and its execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from einsumx.adapter import Adapter, Array
from einsumx.bind import SizedEquation
from einsumx.blocking import Blocking, Stage, ranges
from einsumx.plan import Operand

__all__ = ["BlockedPlan", "Blocks"]

Place: TypeAlias = dict[int, int]
"""The number of the block that each cut label is at."""

Contract: TypeAlias = Callable[[Stage, Sequence[Array]], Array]
"""Runs a stage on blocks of its inputs."""


@dataclass(frozen=True, slots=True)
class BlockedPlan:
    """A contraction cut into blocks, as it runs under a memory limit.

    Attributes:
        equation: the labels, their sizes and the operands' shapes.
        backend, device: where it is computed.
        operands: shape, dtype and layout of each operand.
        dtype: the result's dtype.
        compute_dtype: in which blocks are computed and partial sums are added up.
        limit: bytes that must not be exceeded.
        blocking: which labels are cut, and what it costs.
    """

    equation: SizedEquation
    backend: str
    device: str
    operands: tuple[Operand, ...]
    dtype: str
    compute_dtype: str
    limit: int
    blocking: Blocking

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.equation.shape

    @property
    def peak_bytes(self) -> int:
        """The most bytes that running it has alive at once."""
        return self.blocking.peak_bytes


class Blocks:
    """Computes the values of a blocked contraction, and keeps those that more than one block needs.

    Args:
        plan: how it is cut.
        adapter: adds partial sums up.
        read: gives the part of an operand that lies in a box.
        contract: runs a stage.
    """

    def __init__(
        self,
        plan: BlockedPlan,
        adapter: Adapter,
        read: Callable[[int, tuple[slice, ...]], Array],
        contract: Contract,
    ) -> None:
        self._plan, self._adapter, self._read, self._contract = plan, adapter, read, contract
        self._ranges = [ranges(size, count) for size, count in zip(plan.equation.sizes, plan.blocking.counts)]
        self._kept: dict[Stage, tuple[tuple[int, ...], Array]] = {}

    def results(self) -> Iterator[tuple[tuple[slice, ...], Array]]:
        """Each block of the result, and where it belongs."""
        root = self._plan.blocking.root
        for place in self._places(root.nest):
            box = self._box(root.output, place)
            yield box, self._value(root, place)

    def _places(self, loops: Sequence[int]) -> Iterator[Place]:
        for numbers in product(*(range(len(self._ranges[label])) for label in loops)):
            yield dict(zip(loops, numbers))

    def _box(self, labels: Sequence[int], place: Place, shape: Sequence[int] | None = None) -> tuple[slice, ...]:
        """The part of an array that lies in the blocks of ``place``; axes of size 1 that broadcast are whole."""
        return tuple(
            slice(None) if label not in place or (shape and shape[axis] != self._plan.equation.sizes[label])
            else self._ranges[label][place[label]]
            for axis, label in enumerate(labels)
        )  # fmt: skip

    def _value(self, stage: Stage, place: Place) -> Array:
        """The value of a stage at a place, summed over the cut labels that it sums."""
        total = None
        for inner in self._places(stage.loops):
            here = {**place, **inner}
            inputs = [self._input(stage, number, here) for number in range(len(stage.inputs))]
            part = self._contract(stage, inputs)
            del inputs
            total = part if total is None else self._adapter.add(total, part)
        self._forget(stage, stage.nest)
        return total

    def _input(self, stage: Stage, number: int, place: Place) -> Array:
        source, term = stage.inputs[number], stage.terms[number]
        if not isinstance(source, Stage):
            shape = self._plan.operands[source].shape
            return self._read(source, self._box(term, place, shape))
        at = tuple(place[label] for label in source.nest)
        if source in self._kept and self._kept[source][0] == at:
            return self._kept[source][1]
        self._kept.pop(source, None)
        value = self._value(source, {label: place[label] for label in source.nest})
        if len(source.nest) < len(stage.nest) + len(stage.loops):
            self._kept[source] = at, value
        return value

    def _forget(self, stage: Stage, nest: Sequence[int]) -> None:
        """Let go what the loops around ``stage`` do not come back to."""
        for source in stage.inputs:
            if isinstance(source, Stage) and len(source.nest) >= len(nest):
                self._kept.pop(source, None)
