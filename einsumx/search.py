"""``block``: under a memory limit, which labels are cut, into how many blocks, in which order of loops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from math import inf

from einsumx.bind import SizedEquation
from einsumx.blocking import Blocking, Bodies, Body, Labels, Landing, Stage, blocking, stages
from einsumx.plan import Path

__all__ = ["block"]

_FEW = 3
"""Cut labels up to which all orders of their loops are tried."""


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

    Cuts are made where they save most memory for the time that they cost, until all fits. Then they are shifted
    between labels, and taken back as far as the limit allows, as long as that saves time.

    Args:
        equation, path: what is computed.
        limit: bytes.
        landing: what the result takes besides the blocks of it.
        bodies: what stages cost.
        read_ahead: whether the blocks for the next run of a stage are read during one.
        pieces: into how many the contraction is cut at least, where its sizes allow it.
    """
    search = _Search(equation, path, landing, bodies, read_ahead)
    best = smallest = search.blocking((1,) * len(equation.sizes), ())
    while best.peak_bytes > limit:
        steps = list(search.finer(best))
        if not steps:
            smallest = search.smallest(smallest, best)
            if smallest.peak_bytes > limit:
                return smallest, False
            best = smallest
            break
        best = min(steps, key=lambda step: _price(best, step))
        smallest = min(smallest, best, key=lambda found: found.peak_bytes)
    best = search.fastest(best, limit)
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


class _Search:
    """Blockings of one contraction, and what they cost."""

    def __init__(self, equation: SizedEquation, path: Path, landing: Landing, bodies: Bodies, read_ahead: bool) -> None:
        self.equation, self.path, self.landing = equation, path, landing
        self.read_ahead = read_ahead
        self._make_body = bodies
        self._bodies: dict[tuple[object, ...], Body] = {}
        self._roots: dict[Labels, Stage] = {}
        self._found: dict[tuple[tuple[int, ...], Labels], Blocking] = {}

    def finer(self, now: Blocking) -> Iterator[Blocking]:
        """One label cut into twice as many blocks; or two, where no single one saves memory."""
        sizes = self.equation.sizes
        doubled = {
            label: min(2 * count, size) for label, (size, count) in enumerate(zip(sizes, now.counts)) if count < size
        }
        singles = [self.cut(now, {label: count}) for label, count in doubled.items()]
        yield from singles
        if not any(found.peak_bytes < now.peak_bytes for found in singles):
            yield from (self.cut(now, dict(pair)) for pair in combinations(doubled.items(), 2))

    def smallest(self, *known: Blocking) -> Blocking:
        """The blocking with the least memory, from the smallest that are known on: each label cut wholly or not."""
        best = min(known, key=lambda found: found.peak_bytes)
        while True:
            whole = ({label: count} for label, size in enumerate(self.equation.sizes) for count in {1, max(size, 1)})
            found = min((self.cut(best, change) for change in whole), key=lambda found: found.peak_bytes)
            if found.peak_bytes >= best.peak_bytes:
                return best
            best = found

    def fastest(self, now: Blocking, limit: float) -> Blocking:
        """Cuts taken back, or shifted to another label, and loops put into another order, while that saves time."""
        while True:
            found = min(
                (trial for trial in self._near(now, limit) if trial.peak_bytes <= limit),
                key=lambda trial: (trial.seconds, trial.peak_bytes),
                default=now,
            )
            if found.seconds >= now.seconds:
                return now
            now = found

    def _near(self, now: Blocking, limit: float) -> Iterator[Blocking]:
        cut = now.order
        yield from (self.blocking(now.counts, order) for order in _orders(cut))
        for label in cut:
            yield self._coarsest(now, {}, label, limit)
        for other, size in enumerate(self.equation.sizes):
            if now.counts[other] < size:
                finer = {other: min(2 * now.counts[other], size)}
                yield from (self._coarsest(now, finer, label, limit) for label in cut if label != other)

    def _coarsest(self, now: Blocking, change: dict[int, int], label: int, limit: float) -> Blocking:
        """A change, with ``label`` cut into as few blocks as the limit then allows."""
        low, high = 1, now.counts[label]
        while low < high:
            middle = (low + high) // 2
            if self.cut(now, {**change, label: middle}).peak_bytes <= limit:
                high = middle
            else:
                low = middle + 1
        return self.cut(now, {**change, label: high})

    def cut(self, now: Blocking, change: dict[int, int]) -> Blocking:
        """Some labels cut otherwise; a loop that is new where it costs least."""
        counts = tuple(change.get(label, count) for label, count in enumerate(now.counts))
        orders = [tuple(label for label in now.order if counts[label] > 1)]
        for label in change:
            if counts[label] > 1 and label not in now.order:
                orders = [(*order[:at], label, *order[at:]) for order in orders for at in range(len(order) + 1)]
        return min(
            (self.blocking(counts, order) for order in orders), key=lambda found: (found.seconds, found.peak_bytes)
        )

    def blocking(self, counts: tuple[int, ...], order: Labels) -> Blocking:
        """The contraction cut so, with loops in this order."""
        key = counts, order
        if key not in self._found:
            if order not in self._roots:
                self._roots[order] = stages(self.equation, self.path, order)
            self._found[key] = blocking(
                self._roots[order],
                counts,
                order,
                self.equation,
                self.landing,
                self._body,
                read_ahead=self.read_ahead,
            )
        return self._found[key]

    def _body(self, stage: Stage, sizes: tuple[int, ...]) -> Body:
        """From what was asked before, whatever the loops around the stage were then."""
        inputs = tuple(-1 if isinstance(source, Stage) else source for source in stage.inputs)
        labels = dict.fromkeys(label for term in stage.terms for label in term)
        key = inputs, stage.terms, stage.output, stage.path, tuple(sizes[label] for label in labels)
        if key not in self._bodies:
            self._bodies[key] = self._make_body(stage, sizes)
        return self._bodies[key]


def _orders(cut: Labels) -> Iterator[Labels]:
    """All orders where they are few, else those with two loops exchanged."""
    if len(cut) <= _FEW:
        yield from permutations(cut)
        return
    for first, second in combinations(range(len(cut)), 2):
        order = list(cut)
        order[first], order[second] = order[second], order[first]
        yield tuple(order)
