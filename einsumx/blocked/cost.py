"""What a contraction takes that is cut into blocks: the most memory that is alive at once, and seconds.

Each stage keeps what its inner loops do not change; partial sums are added up where a cut label is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias

from einsumx.blocked.stages import Labels, Stage
from einsumx.ir.bind import SizedEquation

__all__ = ["Blocking", "Cost", "ResultFootprint", "RunCost", "Size", "Step", "blocking"]


@dataclass(frozen=True, slots=True)
class RunCost:
    """What one run of a stage's plan costs, on its largest blocks.

    Attributes:
        value: bytes of its result.
        peak: the most bytes alive at once of what it makes itself, its result among them; without its inputs.
        seconds: that it takes.
        read: bytes of the blocks that are brought to the device for it, an operand each; 0 where one lies there.
        read_seconds: that bringing each takes.
        tight: the labels of what is alive at the peak.
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
        counts: into how many blocks each label is cut; 1 where it is not.
        order: the labels that are cut, in the order of their loops.
        root: the stage that gives the result; its nest has the loops over blocks of the result.
        peak_bytes: the most bytes that are alive at once, the result's own among them where it is cut.
        seconds: that it is expected to take.
        reads: how often each operand is read, all its blocks together.
        read_ahead: bytes of blocks that may be read before they are needed; they are counted in ``peak_bytes``.
        tight: the labels whose blocks decide the peak; cutting others saves no memory.
    """

    counts: tuple[int, ...]
    order: Labels
    root: Stage
    peak_bytes: int
    seconds: float
    reads: tuple[int, ...]
    read_ahead: int
    tight: frozenset[int]

    @property
    def pieces(self) -> int:
        """The runs of the root stage: the blocks of the result, times the terms that each is the sum of."""
        return prod(self.counts[label] for label in (*self.root.nest, *self.root.loops))


class ResultFootprint(NamedTuple):
    """The memory that it takes to bring a result where it belongs.

    Attributes:
        cut: bytes of the whole result, where it is computed in more than one block.
        whole: bytes of a copy of it, where it is computed in one.
        copied: bytes an element of a copy of each block that is written.
        beside: bytes that are there meanwhile, and count.
        waiting: bytes an element of the blocks that are there while the next one is computed.
    """

    cut: int = 0
    whole: int = 0
    copied: int = 0
    beside: int = 0
    waiting: int = 0


_SHARE = 0.25
"""The part of the time of reading that is not hidden where it goes on beside the computing."""

_RUN, _READ, _HANDED = 20e-6, 10e-6, 200e-6
"""Seconds beside the work itself: of a run of a stage, of a block that is read, and of one that a thread hands over.

The last is mostly time that threads take to wake up, while those of the BLAS are busy on all cores.
"""


class Cost(NamedTuple):
    """What the value of a stage costs in all its runs, and in those of the stages that it takes values of.

    Attributes:
        seconds: of computing.
        reading: seconds of reading.
        handing: seconds that it takes besides to hand over what a thread has read.
        reads: the operands that are read, and how often all the blocks of each are.
        peak: the most bytes that are alive at once for a run.
        value: bytes of its value.
        kept: what stays when it is there, for its next run: the number of loops that it outlasts, and bytes.
        tight: the labels of what is alive at its peak.
        ahead: the most bytes that are read for the next run of a stage during one.
        early: the labels of those.
    """

    seconds: float
    reading: float
    handing: float
    reads: tuple[tuple[int, int], ...]
    peak: int
    value: int
    kept: tuple[tuple[int, int], ...]
    tight: frozenset[int]
    ahead: int
    early: frozenset[int]


Size: TypeAlias = Callable[[Sequence[int]], RunCost]
"""Gives what a run of a stage costs, from the sizes of labels."""


class Step:
    """A stage among those of a contraction, and what it has cost with the cuts that were looked at.

    Args:
        stage: itself.
        body: gives what a run of it costs.
        below: the steps of the stages that it takes values of, by the places of these.

    Attributes:
        count: how many stages there are, with those below.
    """

    def __init__(self, stage: Stage, body: Size, below: dict[int, Step]) -> None:
        self.stage, self._body, self._below = stage, body, below
        self._inside, self._order = stage.inside, stage.order
        self._depths = [len(nest) for nest in stage.nests]
        labels = {label for term in (*stage.terms, stage.inside) for label in term}
        self._labels: Labels = tuple(sorted(labels.union(*(step._labels for step in below.values()))))
        self._costs: dict[tuple[int, ...], Cost] = {}
        self.count: int = 1 + sum(step.count for step in below.values())

    @classmethod
    def of(cls, stage: Stage, body: Callable[[Stage], Size]) -> Step:
        """That of a stage, and under it those of the stages that it takes values of."""
        below = {place: cls.of(source, body) for place, source in enumerate(stage.inputs) if isinstance(source, Stage)}
        return cls(stage, body(stage), below)

    def cost(self, counts: Sequence[int], sizes: Sequence[int]) -> Cost:
        """What it costs where labels are cut into so many blocks, the largest of such sizes."""
        key = tuple([counts[label] for label in self._labels])
        if key not in self._costs:
            self._costs[key] = self._cost(counts, sizes)
        return self._costs[key]

    def _cost(self, counts: Sequence[int], sizes: Sequence[int]) -> Cost:
        stage, inside, depths, body = self.stage, self._inside, self._depths, self._body(sizes)
        outside = len(stage.nest)
        seconds, reading, handing = prod([counts[label] for label in inside]) * (body.seconds + _RUN), 0.0, 0.0
        reads: list[tuple[int, int]] = []
        ahead, early = 0, frozenset[int]()
        taken = {place: step.cost(counts, sizes) for place, step in self._below.items()}
        held = list(body.read)
        for place, source in enumerate(stage.inputs):
            if place in taken:
                part = taken[place]
                held[place] = part.value + sum([size for _, size in part.kept])
                seconds += part.seconds
                reading += part.reading
                handing += part.handing
                reads += part.reads
            else:
                times = prod([counts[label] for label in stage.nests[place]])
                blocks = prod([counts[label] for label in stage.carried[place]])
                reads.append((source, -(-times // blocks)))  # type: ignore[arg-type]  # else it is a stage
                reading += times * body.read_seconds[place]
                seconds += times * _READ
                handing += times * _HANDED if held[place] else 0.0
                if depths[place] == len(inside) > 0 and held[place]:
                    ahead += held[place]
                    early = early.union(stage.terms[place])
        total = body.value if stage.loops else 0
        peak = sum(held) + total + body.peak
        tight = body.tight.union(*[term for size, term in zip(held, stage.terms) if size])
        for number, place in enumerate(self._order):
            if place not in taken:  # computing has that and more
                continue
            part = taken[place]
            # An input is made anew when one of its loops goes on; what depends on that loop is gone by then.
            beside = sum([held[other] for other in self._order[:number]])
            for other in self._order[number + 1 :]:
                stays = [(depths[other], body.read[other])]
                if other in taken:
                    stays = [(depths[other], taken[other].value), *taken[other].kept]
                beside += sum([size for depth, size in stays if depth < depths[place]])
            if depths[place] > outside:
                beside += total
            if beside + part.peak > peak:
                peak = beside + part.peak
                tight = part.tight.union(*[term for size, term in zip(held, stage.terms) if size and beside])
            if part.ahead > ahead:
                ahead, early = part.ahead, part.early
        kept = [(depth, taken[place].value if place in taken else held[place]) for place, depth in enumerate(depths)]
        kept += [entry for part in taken.values() for entry in part.kept]
        outlasting = tuple([(depth, size) for depth, size in kept if depth < outside and size])
        return Cost(seconds, reading, handing, tuple(reads), peak, body.value, outlasting, tight, ahead, early)


def blocking(
    step: Step,
    counts: tuple[int, ...],
    order: Labels,
    equation: SizedEquation,
    landing: ResultFootprint,
    *,
    read_ahead: bool,
) -> Blocking:
    """What a contraction costs that is cut so.

    Args:
        step: the stage that gives the result, as :func:`stages` has it for the loops of ``order``.
        counts: into how many blocks each label is cut.
        order: the labels that are cut, in the order of their loops.
        equation: what is computed.
        landing: what the result takes besides the blocks of it.
        read_ahead: whether the blocks for the next run of a stage are read during one.
    """
    root = step.stage
    largest = [-(-size // count) for size, count in zip(equation.sizes, counts)]
    found = step.cost(counts, largest)
    ahead = found.ahead if read_ahead else 0
    landed = found.value + sum([size for _, size in found.kept])
    block = prod([largest[label] for label in root.output])
    landed += landing.copied * block
    landed += 0 if root.nest else landing.whole
    peak = max(found.peak, landed) + (landing.cut if root.nest else 0)
    peak += landing.waiting * block + landing.beside + ahead
    tight = found.tight if found.peak >= landed and not landing.waiting else found.tight.union(root.output)
    # What is read meanwhile takes its share of the memory's bandwidth, and of the cores where it is decoded.
    computing = found.seconds + (found.handing if read_ahead else 0)
    longer, shorter = max(computing, found.reading), min(computing, found.reading)
    seconds = longer + shorter * (_SHARE if ahead else 1)
    times = dict(found.reads)
    reads = tuple([times[number] for number in range(len(times))])
    return Blocking(counts, order, root, peak, seconds, reads, ahead, tight.union(found.early) if ahead else tight)
