"""``block``: under a memory limit, which labels are cut, into how many blocks, in which order of loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, pairwise, permutations
from math import inf
from typing import TypeAlias

from einsumx.blocked.cost import Blocking, ResultFootprint, RunCost, Step, blocking
from einsumx.blocked.stage_cost import Outline, StageCost, StageCostModel
from einsumx.blocked.stages import Known, Labels, Stage, stages, tree
from einsumx.ir.bind import SizedEquation

__all__ = ["Search"]

_FEW = 3
"""Cut labels up to which all orders of their loops are tried."""

_FEW_OPERANDS = 6
"""Operands up to which the smallest blocking is looked for with stages that are lowered each time."""

_ROUNDS = 6
"""How often a blocking is looked for again when its stages have turned out to cost something else than estimated."""

_SURE = 0.01
"""The part of a cost by which an estimate may be off to be right."""

_FASTER = 1 - 1e-6
"""What a change must bring to be one: less would be rounding."""

_PAIRS = 30
"""Pairs of labels whose loops are tried in all places: of many, those that are best with their loops outermost."""

_FAR = 100
"""How many times as long as another a blocking may take before cuts are taken back, which makes it faster."""

_KICK = 4
"""How much finer a label is cut to get away from blockings that no small change makes faster."""

_KICKS = 200
_KICKS_A_SECOND = 100
"""How many stages are costed to get away from a blocking: some, and more the longer it takes to run."""

_ENOUGH = 10_000
"""How many stages are costed, after which the best blocking that is known is taken."""

Gauge: TypeAlias = Callable[[StageCost, Sequence[int]], RunCost]
"""Tells what a stage costs with labels of such sizes: one of the methods of :class:`StageCost`."""


class Search:
    """Blockings of one contraction along one path, and what they cost.

    Most of them are costed by an estimate that lowers nothing; those that are returned are not.

    Args:
        model: the contraction.
        outline: of it along the path that is taken.
        landing: what the result takes besides the blocks of it.
    """

    def __init__(self, model: StageCostModel, outline: Outline, landing: ResultFootprint) -> None:
        self._model, self._outline, self._landing = model, outline, landing
        self._equation: SizedEquation = model.equation
        self._tree = tree(self._equation, outline.path)
        self._stages: Known = {}
        self._works: dict[tuple[object, ...], StageCost] = {}
        self._steps: dict[tuple[int, Gauge], tuple[Step, StageCost]] = {}  # by the identity of one of those stages
        self._found: dict[tuple[tuple[int, ...], Labels], Blocking] = {}
        self._gauge: Gauge = StageCost.about
        self._read_ahead = False
        self._work_done = self._enough = 0  # how many stages were costed, and may be

    def block(
        self,
        limit: float,
        *,
        read_ahead: bool = False,
        pieces: int = 1,
        seconds: float = inf,
        fastest: bool = True,
    ) -> tuple[Blocking, bool]:
        """The fastest blocking that is found to stay within ``limit`` bytes, or else the smallest; and whether it fits.

        Cuts are made where they save most memory for the time that they cost, until all fits. Then they are shifted
        between labels, and taken back as far as the limit allows, as long as that saves time.

        Args:
            limit: bytes.
            read_ahead: whether the blocks for the next run of a stage are read during one.
            pieces: into how many the contraction is cut at least, where its sizes allow it.
            seconds: that another blocking takes; the search is given up where this one would take far longer.
            fastest: False for any that fits.
        """
        self._use(StageCost.about, read_ahead)
        self._enough = self._work_done + _ENOUGH
        best = smallest = self._blocking((1,) * len(self._equation.sizes), ())
        # Estimates alone decide the way here, so that it is the same whatever the limit is.
        while best.peak_bytes > limit or self._exactly(best).peak_bytes > limit:
            if best.seconds > _FAR * seconds:
                return best, False
            steps = list(self._finer(best))
            if not steps:
                ends = [self._exactly(found) for found in (smallest, best)]
                if len(self._equation.inputs) <= _FEW_OPERANDS:
                    self._use(StageCost.exact, read_ahead)
                ends.append(self._exactly(self._smallest(*ends)))
                best = min(ends, key=lambda found: found.peak_bytes)
                if best.peak_bytes > limit:
                    return best, False
                break
            best = min(steps, key=lambda step: _price(best, step))
            smallest = min(smallest, best, key=lambda found: found.peak_bytes)
        if not fastest:
            return self._exactly(best), True
        best = self._fastest(self._exactly(best), limit)
        while best.pieces < pieces:
            found = [step for step in self._finer(best, every=True) if step.pieces > best.pieces]
            found.sort(key=lambda step: (step.seconds, len(step.root.loops), step.peak_bytes))
            exact = map(self._exactly, found)
            fitting = next((step for step in exact if step.peak_bytes <= limit), None)
            if fitting is None:
                break
            best = fitting
        return best, True

    def _use(self, gauge: Gauge, read_ahead: bool) -> None:
        self._gauge, self._read_ahead = gauge, read_ahead
        self._found = {}
        if gauge is StageCost.near:  # it tells something else since stages were lowered
            self._steps = {key: step for key, step in self._steps.items() if key[1] is not gauge}

    def _finer(self, now: Blocking, *, every: bool = False) -> Iterator[Blocking]:
        """One label cut into twice as many blocks; or two, where no single one saves memory."""
        sizes = self._equation.sizes
        doubled = {
            label: min(2 * count, size)
            for label, (size, count) in enumerate(zip(sizes, now.counts))
            if count < size and (every or label in now.tight)
        }
        singles = {label: self._cut(now, {label: count}) for label, count in doubled.items()}
        yield from singles.values()
        if not any(found.peak_bytes < now.peak_bytes for found in singles.values()):
            # Where one is cut, another saves memory if it is at the peak that is left.
            pairs = [
                pair
                for pair in combinations(doubled, 2)
                if pair[1] in singles[pair[0]].tight or pair[0] in singles[pair[1]].tight
            ]
            changes = [{label: doubled[label] for label in pair} for pair in pairs]
            if len(changes) > _PAIRS:
                changes.sort(key=lambda change: _price(now, self._outermost(now, change)))
            yield from (self._cut(now, change) for change in changes[:_PAIRS])

    def _smallest(self, *known: Blocking) -> Blocking:
        """The blocking with the least memory, from the smallest that are known on: each label cut wholly or not."""
        best = min(known, key=lambda found: found.peak_bytes)
        while True:
            whole = (
                {label: count}
                for label, size in enumerate(self._equation.sizes)
                for count in {1, max(size, 1)}
                if label in (best.order if count == 1 else best.tight)
            )
            found = min((self._cut(best, change) for change in whole), key=lambda found: found.peak_bytes, default=best)
            if found.peak_bytes >= best.peak_bytes:
                return best
            best = found

    def _fastest(self, now: Blocking, limit: float) -> Blocking:
        """The fastest that is found from one that fits on; both are costed exactly."""
        for _ in range(_ROUNDS):
            self._use(StageCost.near, self._read_ahead)
            guess = self._kicked(self._descended(now, limit), limit)
            found = self._exactly(guess)
            if found.peak_bytes <= limit and found.seconds < now.seconds:
                now = found
            if (guess.counts, guess.order) == (now.counts, now.order) and _is_near(guess, found):
                break
        return now

    def _descended(self, now: Blocking, limit: float) -> Blocking:
        """Cuts taken back, or shifted to another label, and loops put into another order, while that saves time."""
        while self._work_done < self._enough:
            trials = (trial for trial in self._near(now, limit) if trial.peak_bytes <= limit)
            faster = next((trial for trial in trials if trial.seconds < _FASTER * now.seconds), None)
            if faster is None:
                break
            now = faster
        return now

    def _kicked(self, now: Blocking, limit: float) -> Blocking:
        """The fastest found where one label is cut finer, the others are coarsened, and cuts are shifted from there.

        It goes on for no more than a small part of the time that the contraction takes.
        """
        enough = self._work_done + _KICKS + min(int(_KICKS_A_SECOND * now.seconds), 10 * _KICKS)
        kicks = deque(range(len(now.counts)))
        while kicks and self._work_done < min(enough, self._enough):
            label = kicks.popleft()
            size, count = self._equation.sizes[label], now.counts[label]
            if count >= size:
                continue
            start = self._cut(now, {label: min(_KICK * count, size)})
            for other in start.order:
                if other != label:
                    start = self._coarsest(start, {}, other, limit)
            if start.peak_bytes > limit:
                continue
            found = self._descended(start, limit)
            if found.seconds < _FASTER * now.seconds:
                now = found
                kicks = deque(range(len(now.counts)))
        return now

    def _near(self, now: Blocking, limit: float) -> Iterator[Blocking]:
        cut = now.order
        yield from (self._blocking(now.counts, order) for order in _orders(cut))
        for label in cut:
            yield self._coarsest(now, {}, label, limit)
        # Where a label is cut less, only what is at the peak then makes room again.
        needed = {label: self._cut(now, {label: now.counts[label] - 1}).tight for label in cut}
        for other, size in enumerate(self._equation.sizes):
            if now.counts[other] < size:
                finer = {other: min(2 * now.counts[other], size)}
                yield from (
                    self._coarsest(now, finer, label, limit)
                    for label in cut
                    if label != other and other in needed[label]
                )

    def _coarsest(self, now: Blocking, change: dict[int, int], label: int, limit: float) -> Blocking:
        """A change, with ``label`` cut into as few blocks as the limit then allows."""
        low, high = 1, now.counts[label]
        finest = self._cut(now, {**change, label: high})
        if finest.peak_bytes > limit:
            return finest
        while low < high:
            middle = (low + high) // 2
            if self._cut(now, {**change, label: middle}).peak_bytes <= limit:
                high = middle
            else:
                low = middle + 1
        return self._cut(now, {**change, label: high})

    def _cut(self, now: Blocking, change: dict[int, int]) -> Blocking:
        """Some labels cut otherwise; a loop that is new where it costs least."""
        counts = _changed(now, change)
        orders = [tuple([label for label in now.order if counts[label] > 1])]
        for label in change:
            if counts[label] > 1 and label not in now.order:
                orders = [(*order[:at], label, *order[at:]) for order in orders for at in _places(order)]
        if len(orders) == 1:
            return self._blocking(counts, orders[0])
        found = [self._blocking(counts, order) for order in orders]
        return min(found, key=lambda found: (found.seconds, found.peak_bytes))

    def _outermost(self, now: Blocking, change: dict[int, int]) -> Blocking:
        """Some labels cut finer, those that were not cut before in loops around all others."""
        new = [label for label in change if label not in now.order]
        return self._blocking(_changed(now, change), (*new, *now.order))

    def _blocking(self, counts: tuple[int, ...], order: Labels) -> Blocking:
        """The contraction cut so, with loops in this order."""
        key = counts, order
        if key not in self._found:
            self._found[key] = self._costed(counts, order, self._gauge)
        return self._found[key]

    def _exactly(self, found: Blocking) -> Blocking:
        """The same blocking, with its stages lowered for its blocks."""
        return self._costed(found.counts, found.order, StageCost.exact)

    def _costed(self, counts: tuple[int, ...], order: Labels, gauge: Gauge) -> Blocking:
        step, _ = self._step(stages(self._equation, self._tree, order, self._stages), gauge)
        self._work_done += step.count
        return blocking(step, counts, order, self._equation, self._landing, read_ahead=self._read_ahead)

    def _step(self, stage: Stage, gauge: Gauge) -> tuple[Step, StageCost]:
        """The stage as a step, and what it costs whatever the loops around it are."""
        known = id(stage), gauge
        if known not in self._steps:
            below = {
                place: self._step(source, gauge)
                for place, source in enumerate(stage.inputs)
                if isinstance(source, Stage)
            }
            inputs = tuple([below[place][1] if place in below else source for place, source in enumerate(stage.inputs)])
            key = inputs, stage.terms, stage.output, stage.path, bool(stage.loops)
            if key not in self._works:
                self._works[key] = StageCost(self._model, stage, self._outline, [work for _, work in below.values()])
            steps = {place: step for place, (step, _) in below.items()}
            self._steps[known] = Step(stage, partial(gauge, self._works[key]), steps), self._works[key]
        return self._steps[known]


def _is_near(guess: Blocking, found: Blocking) -> bool:
    """Whether an estimate was right, so that others nearby are too."""
    pairs = ((guess.seconds, found.seconds), (guess.peak_bytes, found.peak_bytes))
    return all(abs(about - exact) <= _SURE * exact for about, exact in pairs)


def _changed(now: Blocking, change: dict[int, int]) -> tuple[int, ...]:
    """The numbers of blocks, some of them changed."""
    counts = list(now.counts)
    for label, count in change.items():
        counts[label] = count
    return tuple(counts)


def _price(now: Blocking, step: Blocking) -> tuple[float, float]:
    """Seconds for a share of the memory; steps that save none come last."""
    saved = now.peak_bytes - step.peak_bytes
    if saved <= 0:
        return inf, step.seconds
    return (step.seconds - now.seconds) / saved, -saved


def _places(order: Labels) -> Iterable[int]:
    """Where a new loop may go: anywhere among few, else outermost or innermost."""
    return range(len(order) + 1) if len(order) <= _FEW else (0, len(order))


def _orders(cut: Labels) -> Iterator[Labels]:
    """All orders where they are few, else those with two loops exchanged; of many, two neighbours."""
    if len(cut) <= _FEW:
        yield from permutations(cut)
        return
    for first, second in combinations(range(len(cut)), 2) if len(cut) <= 2 * _FEW else pairwise(range(len(cut))):
        order = list(cut)
        order[first], order[second] = order[second], order[first]
        yield tuple(order)
