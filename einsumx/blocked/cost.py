"""Costs a blocked contraction: the most memory that is alive at once, and the expected time.

Each stage keeps the values that its inner loops do not change, and adds up partial sums if a cut label is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from typing import NamedTuple, TypeAlias

from einsumx.blocked.stages import Labels, Stage
from einsumx.ir.bind import SizedEquation


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of one run of a stage's plan, on its largest blocks.

    Attributes:
        value: bytes of its result.
        peak: the most bytes alive at once of the arrays that the run allocates, the result included.
        seconds: computing time.
        read: bytes of the block that is read for each input; 0 for views and for values of other stages.
        read_seconds: the time to read each.
        tight: the labels of the arrays alive at the peak.
    """

    value: int
    peak: int
    seconds: float
    read: tuple[int, ...]
    read_seconds: tuple[float, ...]
    tight: frozenset[int]


@dataclass(frozen=True, slots=True)
class Blocking:
    """How a contraction is cut.

    Attributes:
        counts: the number of blocks of each label; 1 if it is not cut.
        order: the cut labels, in the order of their loops.
        root: the stage that computes the result; its nest has the loops over blocks of the result.
        peak_bytes: the most bytes alive at once, including the result's own if it is cut.
        seconds: the expected time.
        reads: how often each operand is read from end to end.
        read_ahead: bytes for blocks that are read before they are needed; included in ``peak_bytes``.
        tight: the labels whose blocks decide the peak; cutting others saves no memory.
        cost: that of the stages.
    """

    counts: tuple[int, ...]
    order: Labels
    root: Stage
    peak_bytes: int
    seconds: float
    reads: tuple[int, ...]
    read_ahead: int
    tight: frozenset[int]
    cost: Cost = field(compare=False, repr=False)

    @property
    def terms(self) -> int:
        """The number of partial sums that each block of the result is the sum of."""
        return prod(self.counts[label] for label in self.root.summed)

    @property
    def pieces(self) -> int:
        """The number of runs of the root stage: the blocks of the result times the terms of each."""
        return prod(self.counts[label] for label in self.root.nest) * self.terms


class ResultFootprint(NamedTuple):
    """The memory needed to store a result.

    Attributes:
        cut: bytes of the whole result, needed if it is computed in more than one block.
        whole: bytes of a copy of it, needed if it is computed in one.
        copied: bytes an element of the copy that is made of each block when it is written.
        beside: bytes that other arrays take meanwhile.
        waiting: bytes an element of the blocks that are held while the next one is computed.
    """

    cut: int = 0
    whole: int = 0
    copied: int = 0
    beside: int = 0
    waiting: int = 0


_SHARE = 0.25
"""The part of the reading time that is not hidden when a thread reads ahead."""

_RUN, _READ, _HANDED = 20e-6, 10e-6, 200e-6
"""Fixed seconds per run of a stage, per block that is read, and per block that a thread hands over.

The last is mostly the time that threads take to wake up while BLAS threads are busy on all cores.
"""


Kept: TypeAlias = Sequence[tuple[int, int]]
"""Arrays that stay for the next run of a stage: the number of loops that each outlasts, and bytes."""


class Cost(NamedTuple):
    """The cost of the value of a stage in all its runs, and those of the stages below it.

    Attributes:
        seconds: computing time.
        reading: reading time in seconds.
        handing: seconds for handing over blocks that a thread reads ahead.
        reads: operands, and how often each is read from end to end.
        peak: the most bytes alive at once in a run.
        value: bytes of its value.
        inputs: the costs of the inputs that are stages, by place.
        stays: what each input keeps alive, by place.
        tight: the labels of the arrays alive at its peak.
        ahead: the most bytes that are read for the next run of a stage during one.
        early: the labels of those.
        run: the cost of one run.
    """

    seconds: float
    reading: float
    handing: float
    reads: tuple[tuple[int, int], ...]
    peak: int
    value: int
    inputs: Mapping[int, Cost]
    stays: Sequence[Kept]
    tight: frozenset[int]
    ahead: int
    early: frozenset[int]
    run: RunCost

    def kept(self, stage: Stage) -> Kept:
        """The arrays that stay for the next run of its stage."""
        return [(depth, size) for depth, size in chain(*self.stays) if depth < len(stage.nest) and size]


RunCosts: TypeAlias = Callable[[Stage, Sequence[int]], RunCost]
"""Gives the cost of a run of a stage from the sizes of labels."""


def total_cost(stage: Stage, run_cost: RunCosts, counts: Sequence[int], sizes: Sequence[int]) -> Cost:
    """The cost of a stage with labels cut into ``counts`` blocks, the largest of which have ``sizes``."""
    inside, depths = stage.inside, [len(nest) for nest in stage.nests]
    body = run_cost(stage, sizes)
    seconds, reading, handing = prod([counts[label] for label in inside]) * (body.seconds + _RUN), 0.0, 0.0
    reads: list[tuple[int, int]] = []
    ahead, early = 0, frozenset[int]()
    inputs: dict[int, Cost] = {}
    stays: list[Kept] = []
    for place, (source, depth) in enumerate(zip(stage.inputs, depths)):
        if isinstance(source, Stage):
            part = inputs[place] = total_cost(source, run_cost, counts, sizes)
            seconds += part.seconds
            reading += part.reading
            handing += part.handing
            reads += part.reads
            stays.append([(depth, part.value), *part.kept(source)])
            continue
        size = body.read[place]
        times = prod([counts[label] for label in stage.nests[place]])
        blocks = prod([counts[label] for label in stage.carried[place]])
        reads.append((source, -(-times // blocks)))
        reading += times * body.read_seconds[place]
        seconds += times * _READ
        handing += times * _HANDED if size else 0.0
        stays.append([(depth, size)])
        if depth == len(inside) > 0 and size:
            ahead += size
            early = early.union(stage.terms[place])
    for place in stage.order:
        if place in inputs and inputs[place].ahead > ahead:
            ahead, early = inputs[place].ahead, inputs[place].early
    peak, tight = _peak(stage, body, inputs, stays)
    return Cost(seconds, reading, handing, tuple(reads), peak, body.value, inputs, stays, tight, ahead, early, body)


def _peak(stage: Stage, body: RunCost, inputs: Mapping[int, Cost], stays: Sequence[Kept]) -> tuple[int, frozenset[int]]:
    """The most bytes alive at once in a run or while its inputs are computed, and the labels of those arrays."""
    held = [sum([size for _, size in entries]) for entries in stays]
    held_labels = [term for size, term in zip(held, stage.terms) if size]
    total = body.value if stage.summed else 0
    peak, tight = sum(held) + total + body.peak, body.tight.union(*held_labels)
    for number, place in enumerate(stage.order):
        if place not in inputs:  # computing takes at least as much
            continue
        around = beside(stage, number, stays, total)
        if around + inputs[place].peak > peak:
            peak = around + inputs[place].peak
            tight = inputs[place].tight.union(*(held_labels if around else ()))
    return peak, tight


def beside(stage: Stage, number: int, stays: Sequence[Kept], total: int) -> int:
    """Bytes of a stage that are alive while an input is computed or read.

    Args:
        stage: the stage.
        number: of the input, in :attr:`Stage.order`.
        stays: what each input keeps alive, by its place.
        total: bytes of the sum to which the terms of the stage are added.
    """
    order, depth = stage.order, len(stage.nests[stage.order[number]])
    alive = sum([size for other in order[:number] for _, size in stays[other]])
    # An input is recomputed when one of its loops advances; what depends on that loop is gone by then.
    alive += sum([size for other in order[number + 1 :] for deep, size in stays[other] if deep < depth])
    return alive + total if depth > len(stage.nest) else alive


def largest_blocks(sizes: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """The size of the largest block of each label, from its own size and the number of its blocks."""
    return tuple([-(-size // count) for size, count in zip(sizes, counts)])


def landed_bytes(root: Stage, cost: Cost, landing: ResultFootprint, block: int) -> int:
    """Bytes alive while a block of the result, of so many elements, is written."""
    copies = landing.copied * block + (0 if root.nest else landing.whole)
    return cost.value + sum([size for _, size in cost.kept(root)]) + copies


def blocking(
    root: Stage,
    run_cost: RunCosts,
    counts: tuple[int, ...],
    order: Labels,
    equation: SizedEquation,
    landing: ResultFootprint,
    *,
    read_ahead: bool,
) -> Blocking:
    """The cost of a contraction that is cut into blocks; ``root`` computes the result in the loops of ``order``.

    With ``read_ahead``, the blocks for the next run of a stage are read during one.
    """
    largest = largest_blocks(equation.sizes, counts)
    cost = total_cost(root, run_cost, counts, largest)
    ahead = cost.ahead if read_ahead else 0
    block = prod([largest[label] for label in root.output])
    landed = landed_bytes(root, cost, landing, block)
    peak = max(cost.peak, landed) + (landing.cut if root.nest else 0)
    peak += landing.waiting * block + landing.beside + ahead
    tight = cost.tight if cost.peak >= landed and not landing.waiting else cost.tight.union(root.output)
    # Reading ahead takes its share of the memory bandwidth, and of the cores if data is decoded.
    computing = cost.seconds + (cost.handing if read_ahead else 0)
    longer, shorter = max(computing, cost.reading), min(computing, cost.reading)
    seconds = longer + shorter * (_SHARE if ahead else 1)
    times = dict(cost.reads)
    reads = tuple([times[number] for number in range(len(times))])
    tight = tight.union(cost.early) if ahead else tight
    return Blocking(counts, order, root, peak, seconds, reads, ahead, tight, cost)
