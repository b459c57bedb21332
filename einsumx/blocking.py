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

__all__ = ["Blocking", "Bodies", "Body", "Landing", "Stage", "blocking", "carried", "ranges", "stages", "truncated"]

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
    """

    inputs: tuple[int | Stage, ...]
    terms: tuple[Labels, ...]
    output: Labels
    path: Path
    nest: Labels
    loops: Labels
    nests: tuple[Labels, ...]

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
class _Node:
    """A value of the contraction's tree."""

    labels: frozenset[int]
    children: tuple[_Node, ...]
    operand: int = -1


def carried(equation: SizedEquation) -> list[frozenset[int]]:
    """The labels that each operand really has: an axis of size 1 that broadcasts is no axis."""
    return [
        frozenset(label for label, size in zip(term, shape) if size == equation.sizes[label])
        for term, shape in zip(equation.inputs, equation.shapes)
    ]


def tree(equation: SizedEquation, path: Path) -> _Node:
    """The contraction as a tree."""
    leaves = carried(equation)
    nodes = [_Node(labels, (), number) for number, labels in enumerate(leaves)]
    for step, keep in step_outputs(path, leaves, frozenset(equation.output)):
        taken = [nodes.pop(position) for position in sorted(step, reverse=True)][::-1]
        nodes.append(_Node(keep, tuple(taken)))
    (root,) = nodes
    return root


def stages(equation: SizedEquation, path: Path, order: Labels) -> Stage:
    """The contraction as stages, where the labels of ``order`` are cut, in loops of that order.

    >>> from einsumx.bind import bind
    >>> from einsumx.parse import parse_text
    >>> sized = bind(parse_text("ab,bc,cd->ad", 3), [(4, 5), (5, 6), (6, 7)])
    >>> root = stages(sized, ((1, 2), (0, 1)), (0, 2))
    >>> root.equation, root.nest, root.loops, root.inputs[1].equation, root.inputs[1].nest, root.inputs[1].loops
    ('ab,bd->ad', (0,), (), 'bc,cd->bd', (), (2,))
    """
    root = tree(equation, path)
    nest = tuple(label for label in order if label in root.labels)

    def summed(node: _Node) -> Labels:
        below = frozenset().union(*(child.labels for child in node.children))
        return tuple(label for label in order if label in below and label not in node.labels)

    def stage(node: _Node, nest: Labels, output: Labels) -> Stage:
        loops = summed(node)
        inside = (*nest, *loops)
        inputs: list[int | Stage] = []
        terms: list[Labels] = []
        nests: list[Labels] = []
        steps: list[tuple[int, ...]] = []
        made: list[int] = []  # the places of what steps made, in the order of their making

        def place(node: _Node) -> int:
            """A number for a value: inputs from 0 on; what steps make, from -1 down."""
            around = truncated(inside, node.labels)
            if node.operand >= 0:
                inputs.append(node.operand)
                terms.append(equation.inputs[node.operand])
                nests.append(around)
                return len(inputs) - 1
            if node is not top and (around != inside or summed(node)):
                labels = tuple(sorted(node.labels))
                inputs.append(stage(node, around, labels))
                terms.append(labels)
                nests.append(around)
                return len(inputs) - 1
            steps.append(tuple(place(child) for child in node.children))
            made.append(-len(steps))
            return made[-1]

        top = node
        place(node)
        return Stage(tuple(inputs), tuple(terms), output, _linear(steps, len(inputs)), nest, loops, tuple(nests))

    return stage(root, nest, equation.output)


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
    """

    value: int
    peak: int
    seconds: float
    read: tuple[int, ...]
    read_seconds: tuple[float, ...]


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
    """

    counts: tuple[int, ...]
    order: Labels
    root: Stage
    peak_bytes: int
    seconds: float
    reads: tuple[int, ...]
    read_ahead: int

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


Bodies: TypeAlias = Callable[[Stage, tuple[int, ...]], Body]
"""What a stage costs with blocks of such sizes, a size a label."""


_SHARE = 0.25
"""The part of the time of reading that is not hidden where it goes on beside the computing."""

_RUN, _READ, _HANDED = 20e-6, 10e-6, 200e-6
"""Seconds beside the work itself: of a run of a stage, of a block that is read, and of one that a thread hands over.

The last is mostly time that threads take to wake up, while those of the BLAS are busy on all cores.
"""


class _Cost(NamedTuple):
    """What the value of a stage costs.

    Attributes:
        seconds: of computing in all its runs, and in those of the stages that it takes values of.
        peak: the most bytes that are alive at once for it.
        value: bytes of it.
        kept: what stays when it is there, for its next run: the number of loops that it outlasts, and bytes.
    """

    seconds: float
    peak: int
    value: int
    kept: tuple[tuple[int, int], ...]


def blocking(
    root: Stage,
    counts: tuple[int, ...],
    order: Labels,
    equation: SizedEquation,
    landing: Landing,
    bodies: Bodies,
    *,
    read_ahead: bool,
) -> Blocking:
    """What a contraction costs that is cut so.

    Args:
        root: the stage that gives the result, as :func:`stages` has it for the loops of ``order``.
        counts: into how many blocks each label is cut.
        order: the labels that are cut, in the order of their loops.
        equation: what is computed.
        landing: what the result takes besides the blocks of it.
        bodies: what stages cost.
        read_ahead: whether the blocks for the next run of a stage are read during one.
    """
    largest = tuple(-(-size // count) if size else 0 for size, count in zip(equation.sizes, counts))
    blocks = [prod(counts[label] for label in labels) for labels in carried(equation)]
    reads = [0] * len(blocks)
    ahead = 0
    reading = 0.0

    def runs(loops: Labels) -> int:
        return prod(counts[label] for label in loops)

    def cost(stage: Stage) -> _Cost:
        nonlocal ahead, reading
        body = bodies(stage, largest)
        if read_ahead and stage.inside:
            ahead = max(ahead, sum(size for size, nest in zip(body.read, stage.nests) if nest == stage.inside))
        seconds = runs(stage.inside) * (body.seconds + _RUN)
        found: dict[int, _Cost] = {}
        for place, source in enumerate(stage.inputs):
            if isinstance(source, Stage):
                found[place] = cost(source)
                seconds += found[place].seconds
            else:
                times = runs(stage.nests[place])
                reads[source] = -(-times // blocks[source])
                reading += times * body.read_seconds[place]
                seconds += times * (_READ + (_HANDED if read_ahead and body.read[place] else 0))
                found[place] = _Cost(0.0, 0, body.read[place], ())
        depths = [len(nest) for nest in stage.nests]
        held = [sum(size for _, size in found[place].kept) + found[place].value for place in range(len(stage.inputs))]
        total = body.value if stage.loops else 0
        peak = sum(held) + total + body.peak
        order = stage.order
        for number, place in enumerate(order):
            # An input is made anew when one of its loops goes on; what depends on that loop is gone by then.
            beside = sum(held[other] for other in order[:number])
            for other in order[number + 1 :]:
                stays = ((depths[other], found[other].value), *found[other].kept)
                beside += sum(size for depth, size in stays if depth < depths[place])
            if depths[place] > len(stage.nest):
                beside += total
            peak = max(peak, beside + found[place].peak)
        entries = [(depths[place], found[place].value) for place in order]
        entries += [entry for part in found.values() for entry in part.kept]
        kept = tuple((depth, size) for depth, size in entries if depth < len(stage.nest) and size)
        return _Cost(seconds, peak, body.value, kept)

    found = cost(root)
    landed = found.value + sum(size for _, size in found.kept)
    block = prod(largest[label] for label in root.output)
    landed += landing.copied * block
    peak = max(found.peak, landed) + landing.cut if root.nest else max(found.peak, landed + landing.whole)
    peak += landing.waiting * block
    # What is read meanwhile takes its share of the memory's bandwidth, and of the cores where it is decoded.
    seconds = max(found.seconds, reading) + min(found.seconds, reading) * (_SHARE if ahead else 1)
    return Blocking(counts, order, root, peak + landing.beside + ahead, seconds, tuple(reads), ahead)
