"""How a contraction is cut into blocks: its stages, what each of them keeps, and the most memory that it takes.

A contraction is a tree of pairwise ones. Where labels are cut into blocks, each value of the tree is needed once for
every block of the cut labels that it has itself: a cut label that is summed is looped over where it is summed, and
partial sums are added up there. A value that an inner loop does not change is computed outside of it and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeAlias

from einsumx.bind import SizedEquation
from einsumx.parse import symbol
from einsumx.path import step_outputs
from einsumx.plan import Path

__all__ = [
    "Blocking",
    "Body",
    "Cost",
    "Landing",
    "Node",
    "Size",
    "Stage",
    "Step",
    "blocking",
    "carried",
    "ranges",
    "stages",
    "tree",
    "truncated",
]

Labels: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a contraction that runs as one plan, on a block of each label that is cut.

    Attributes:
        inputs: operands by number, and stages whose values it takes.
        terms: the labels of each input.
        output: the labels of its value.
        path: the order of pairwise contractions of its inputs.
        nest: the loops that it runs in, from the outermost: it runs again for each of their blocks.
        loops: cut labels that are summed here, block by block, outermost first.
        nests: of each input, the loops that change it.
        carried: of each input, the labels that are cut and that it has.
    """

    inputs: tuple[int | Stage, ...]
    terms: tuple[Labels, ...]
    output: Labels
    path: Path
    nest: Labels
    loops: Labels
    nests: tuple[Labels, ...]
    carried: tuple[Labels, ...]

    @property
    def inside(self) -> Labels:
        """The loops around a run of its plan."""
        return (*self.nest, *self.loops)

    @property
    def order(self) -> list[int]:
        """The places of its inputs in the order in which they are brought.

        What is computed comes first, so that nothing that is read for this stage alone lies beside it; and of what is
        computed, and of what is read, that which is kept longest.
        """
        places = range(len(self.inputs))
        return sorted(places, key=lambda place: (not isinstance(self.inputs[place], Stage), len(self.nests[place])))

    @property
    def equation(self) -> str:
        """What it computes on its blocks, in letters."""
        terms = ",".join("".join(map(symbol, term)) for term in self.terms)
        return f"{terms}->{''.join(map(symbol, self.output))}"


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the contraction's tree.

    Attributes:
        labels: that it has.
        children: the values that it is made of.
        operand: its number, where it is one; else -1.
        summed: labels that its children have and it has not.
    """

    labels: frozenset[int]
    children: tuple[Node, ...] = ()
    operand: int = -1
    summed: frozenset[int] = frozenset()


def carried(equation: SizedEquation) -> list[frozenset[int]]:
    """The labels that each operand really has: an axis of size 1 that broadcasts is no axis."""
    return [
        frozenset(label for label, size in zip(term, shape) if size == equation.sizes[label])
        for term, shape in zip(equation.inputs, equation.shapes)
    ]


def tree(equation: SizedEquation, path: Path) -> Node:
    """The contraction as a tree."""
    leaves = carried(equation)
    nodes = [Node(labels, operand=number) for number, labels in enumerate(leaves)]
    for step, keep in step_outputs(path, leaves, frozenset(equation.output)):
        taken = [nodes.pop(position) for position in sorted(step, reverse=True)][::-1]
        below = frozenset[int]().union(*(child.labels for child in taken))
        nodes.append(Node(keep, tuple(taken), summed=below - keep))
    (root,) = nodes
    return root


def stages(equation: SizedEquation, root: Node, order: Labels) -> Stage:
    """The contraction as stages, where the labels of ``order`` are cut, in loops of that order.

    >>> from einsumx.bind import bind
    >>> from einsumx.parse import parse_text
    >>> sized = bind(parse_text("ab,bc,cd->ad", 3), [(4, 5), (5, 6), (6, 7)])
    >>> root = stages(sized, tree(sized, ((1, 2), (0, 1))), (0, 2))
    >>> root.equation, root.nest, root.loops, root.inputs[1].equation, root.inputs[1].nest, root.inputs[1].loops
    ('ab,bd->ad', (0,), (), 'bc,cd->bd', (), (2,))
    """

    def stage(top: Node, nest: Labels, output: Labels) -> Stage:
        loops = tuple([label for label in order if label in top.summed])
        inside = (*nest, *loops)
        inputs: list[int | Stage] = []
        terms: list[Labels] = []
        nests: list[Labels] = []
        cut: list[Labels] = []
        steps: list[tuple[int, ...]] = []

        def given(source: int | Stage, labels: Labels, node: Node, around: Labels) -> int:
            inputs.append(source)
            terms.append(labels)
            nests.append(around)
            cut.append(tuple([label for label in order if label in node.labels]))
            return len(inputs) - 1

        def place(node: Node) -> int:
            """A number for a value: inputs from 0 on; what steps make, from -1 down."""
            around = truncated(inside, node.labels)
            if node.operand >= 0:
                return given(node.operand, equation.inputs[node.operand], node, around)
            if node is not top and (around != inside or not node.summed.isdisjoint(order)):
                labels = tuple(sorted(node.labels))
                return given(stage(node, around, labels), labels, node, around)
            steps.append(tuple([place(child) for child in node.children]))
            return -len(steps)

        place(top)
        path = _linear(steps, len(inputs))
        return Stage(tuple(inputs), tuple(terms), output, path, nest, loops, tuple(nests), tuple(cut))

    return stage(root, tuple(label for label in order if label in root.labels), equation.output)


def truncated(nest: Labels, labels: frozenset[int]) -> Labels:
    """The loops up to the last that a value with ``labels`` depends on."""
    while nest and nest[-1] not in labels:
        nest = nest[:-1]
    return nest


def _linear(steps: Sequence[tuple[int, ...]], count: int) -> Path:
    """Steps over numbered values as a path over a list that shrinks."""
    values = list(range(count))
    path = []
    for number, step in enumerate(steps, 1):
        positions = tuple(sorted(values.index(value) for value in step))
        for position in reversed(positions):
            del values[position]
        values.append(-number)
        path.append(positions)
    return tuple(path)


def ranges(size: int, count: int) -> list[slice]:
    """An axis as ``count`` blocks whose sizes differ by one at most.

    >>> ranges(7, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    ends = [size * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Body:
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


class Landing(NamedTuple):
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


Size: TypeAlias = Callable[[Sequence[int]], Body]
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
    landing: Landing,
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
    largest = [-(-size // count) or 1 for size, count in zip(equation.sizes, counts)]
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
