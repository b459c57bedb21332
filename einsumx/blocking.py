"""``block``: under a memory limit, which labels are cut, into how many blocks, and what is computed how often.

A contraction is a tree of pairwise ones. Where labels are cut into blocks, each value of the tree is needed once for
every block of the cut labels that it has itself: a cut label that is summed is looped over where it is summed, and
partial sums are added up there. A value that an inner loop does not change is computed outside of it and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations
from math import inf, prod
from typing import NamedTuple, TypeAlias

from einsumx.bind import SizedEquation
from einsumx.parse import symbol
from einsumx.path import step_outputs
from einsumx.plan import Path

__all__ = ["Blocking", "Body", "Landing", "Stage", "block", "carried", "ranges", "stages", "truncated"]

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
    """

    inputs: tuple[int | Stage, ...]
    terms: tuple[Labels, ...]
    output: Labels
    path: Path
    nest: Labels
    loops: Labels

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
        steps: list[tuple[int, ...]] = []
        made: list[int] = []  # the places of what steps made, in the order of their making

        def place(node: _Node) -> int:
            """A number for a value: inputs from 0 on; what steps make, from -1 down."""
            if node.operand >= 0:
                inputs.append(node.operand)
                terms.append(equation.inputs[node.operand])
                return len(inputs) - 1
            around = truncated(inside, node.labels)
            if node is not top and (around != inside or summed(node)):
                labels = tuple(sorted(node.labels))
                inputs.append(stage(node, around, labels))
                terms.append(labels)
                return len(inputs) - 1
            steps.append(tuple(place(child) for child in node.children))
            made.append(-len(steps))
            return made[-1]

        top = node
        place(node)
        return Stage(tuple(inputs), tuple(terms), output, _linear(steps, len(inputs)), nest, loops)

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
    """

    cut: int = 0
    whole: int = 0
    copied: int = 0
    beside: int = 0


Bodies: TypeAlias = Callable[[Stage, tuple[int, ...]], Body]
"""What a stage costs with blocks of such sizes, a size a label."""


def block(
    equation: SizedEquation,
    path: Path,
    limit: float,
    landing: Landing,
    bodies: Bodies,
    *,
    read_ahead: bool = False,
    pieces: int = 1,
) -> tuple[Blocking, bool]:
    """The fastest blocking that is found to stay within ``limit`` bytes, or else the smallest; and whether it fits.

    Cuts are made where they save most memory for the time that they cost, until all fits; then each is taken back as
    far as it can be.

    Args:
        equation, path: what is computed.
        limit: bytes.
        landing: what the result takes besides the blocks of it.
        bodies: what stages cost.
        read_ahead: whether the blocks for the next run of a stage are read during one.
        pieces: into how many the contraction is cut at least, where its sizes allow it.
    """
    search = _Search(equation, path, landing, lru_cache(maxsize=None)(bodies), read_ahead)
    best = smallest = search.blocking((1,) * len(equation.sizes), ())
    while best.peak_bytes > limit:
        steps = list(search.finer(best))
        if not steps:
            return smallest, False
        best = min(steps, key=lambda step: _price(best, step))
        smallest = min(smallest, best, key=lambda blocking: blocking.peak_bytes)
    best = search.coarsest(best, limit)
    while best.pieces < pieces:
        steps = [step for step in search.finer(best) if step.peak_bytes <= limit and step.pieces > best.pieces]
        if not steps:
            break
        best = min(steps, key=lambda step: (step.seconds, len(step.root.loops), step.peak_bytes))
    return best, True


def _price(now: Blocking, step: Blocking) -> tuple[float, float]:
    """Seconds for a share of the memory; steps that save none come last."""
    saved = now.peak_bytes - step.peak_bytes
    if saved <= 0:
        return inf, step.seconds
    return (step.seconds - now.seconds) / saved, -saved


_SHARE = 0.25
"""The part of the time of reading that is not hidden where it goes on beside the computing."""

_FEW = 4
"""Cut labels up to which all orders of their loops are tried."""


def _with_count(blocking: Blocking, label: int, count: int) -> tuple[int, ...]:
    """The counts, but for one label."""
    counts = list(blocking.counts)
    counts[label] = count
    return tuple(counts)


class _Search:
    """Blockings of one contraction, and what they cost."""

    def __init__(self, equation: SizedEquation, path: Path, landing: Landing, bodies: Bodies, read_ahead: bool) -> None:
        self.equation, self.path, self.landing, self.bodies = equation, path, landing, bodies
        self.read_ahead = read_ahead
        self.carried = [frozenset(labels) for labels in carried(equation)]

    def finer(self, blocking: Blocking) -> Iterator[Blocking]:
        """Each label cut into twice as many blocks, in the best order of loops."""
        for label, (size, count) in enumerate(zip(self.equation.sizes, blocking.counts)):
            if count < size:
                yield self.best_order(_with_count(blocking, label, min(2 * count, size)), blocking.order)

    def coarsest(self, blocking: Blocking, limit: float) -> Blocking:
        """Each cut taken back as far as the limit allows, the one that saves most time first."""
        while True:
            found = blocking
            for label, count in enumerate(blocking.counts):
                low, high = 1, count  # the fewest blocks that fit, by halving
                while low < high:
                    middle = (low + high) // 2
                    trial = self.best_order(_with_count(blocking, label, middle), blocking.order)
                    if trial.peak_bytes <= limit:
                        high = middle
                        if trial.seconds < found.seconds:
                            found = trial
                    else:
                        low = middle + 1
            if found is blocking:
                return blocking
            blocking = found

    def best_order(self, counts: tuple[int, ...], near: Labels) -> Blocking:
        """The fastest order of loops: of all where they are few, else of those near to the order before."""
        cut = tuple(label for label, count in enumerate(counts) if count > 1)
        if len(cut) <= _FEW:
            orders = list(permutations(cut))
        else:
            before = tuple(label for label in near if label in cut)
            orders = [before] if len(before) == len(cut) else []
            for label in set(cut) - set(before):
                orders += [(*before[:place], label, *before[place:]) for place in range(len(before) + 1)]
        return min(
            (self.blocking(counts, order) for order in orders), key=lambda found: (found.seconds, found.peak_bytes)
        )

    def blocking(self, counts: tuple[int, ...], order: Labels) -> Blocking:
        """The contraction cut so, with what it costs."""
        root = stages(self.equation, self.path, order)
        sizes = tuple(-(-size // count) if size else 0 for size, count in zip(self.equation.sizes, counts))
        reads = [0] * len(self.equation.inputs)
        ahead = 0
        reading = 0.0

        def runs(loops: Labels) -> int:
            return prod(counts[label] for label in loops)

        def cost(stage: Stage) -> tuple[float, int, int]:
            """Seconds of computing in all, peak bytes, and bytes that stay when its value is there."""
            body = self.bodies(stage, sizes)
            inside = (*stage.nest, *stage.loops)
            seconds = runs(inside) * body.seconds
            kept_reads = stay = 0
            nonlocal ahead, reading
            changing = 0
            for place, source in enumerate(stage.inputs):
                if not isinstance(source, Stage):
                    nest = truncated(inside, self.carried[source])
                    times = runs(nest)
                    own = prod(counts[label] for label in self.carried[source])
                    reads[source] = -(-times // own)
                    reading += times * body.read_seconds[place]
                    kept_reads += body.read[place] if len(nest) < len(inside) else 0
                    changing += body.read[place] if len(nest) == len(inside) else 0
                    stay += body.read[place] if len(nest) < len(stage.nest) else 0
            ahead = max(ahead, changing) if self.read_ahead and inside else ahead
            parts = [cost(source) for source in stage.inputs if isinstance(source, Stage)]
            kept = [source for source in stage.inputs if isinstance(source, Stage)]
            total = body.value if stage.loops else 0
            peak = sum(held for _, _, held in parts) + sum(body.read) + body.peak
            for number, (_, high, _) in enumerate(parts):
                beside = kept_reads + sum(
                    parts[other][2]
                    for other in range(len(parts))
                    if other < number or (other > number and len(kept[other].nest) < len(inside))
                )
                peak = max(peak, beside + high)
            stay += sum(held for source, (_, _, held) in zip(kept, parts) if len(source.nest) < len(stage.nest))
            return seconds + sum(part[0] for part in parts), total + peak, body.value + stay

        seconds, peak, _ = cost(root)
        landing = self.landing
        landed = landing.beside + (landing.cut if root.nest else landing.whole)
        landed += landing.copied * prod(sizes[label] for label in root.output)
        # What is read meanwhile takes its share of the memory's bandwidth, and of the cores where it is decoded.
        seconds = max(seconds, reading) + min(seconds, reading) * (_SHARE if ahead else 1)
        return Blocking(counts, order, root, peak + landed + ahead, seconds, tuple(reads), ahead)
