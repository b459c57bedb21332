"""Searches for the fastest blocking within a memory limit: the labels to cut, their blocks and the order of loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from math import inf

from einsumx.blocked.cost import Blocking, ResultFootprint, RunCost, blocking, largest_blocks
from einsumx.blocked.stage_cost import How, Outline, StageCost
from einsumx.blocked.stage_programs import StagePrograms
from einsumx.blocked.stages import Known, Labels, Stage, stages, tree
from einsumx.ir.bind import SizedEquation

_FEW = 3
"""Cut labels up to which all orders of their loops are tried."""

_FEW_OPERANDS = 6
"""Operands up to which the search for the smallest blocking lowers every stage."""

_ROUNDS = 6
"""How often the search is repeated if stages turn out to cost something else than estimated."""

_SURE = 0.01
"""The relative error up to which an estimate counts as right."""

_FASTER = 1 - 1e-6
"""The factor by which a change must reduce the time; less is rounding."""

_KICK = 4
"""How much finer a label is cut to leave a local optimum."""

_KICKS = 400
_KICKS_A_SECOND = 200
"""How many stages are costed to leave a local optimum: a constant, and more for contractions that take longer."""

_ENOUGH = 20_000
"""How many stages are costed before the search returns the best blocking so far."""


class Search:
    """Blockings of one contraction along one path, and their costs.

    The search uses estimates that lower nothing; the blockings that it returns are costed exactly.
    """

    def __init__(self, outline: Outline, landing: ResultFootprint) -> None:
        self._outline, self._landing = outline, landing
        self._equation: SizedEquation = outline.request.contraction.equation
        self._tree = tree(self._equation, outline.path)
        self._stages: Known = {}
        self._stage_costs: dict[tuple[object, ...], StageCost] = {}
        self._by_stage: dict[int, StageCost] = {}  # by the identity of one of those stages
        self._how: How = "about"
        self._read_ahead = False
        self._work_done = self._enough = 0  # the number of stages that were costed, and its limit

    def block(
        self, limit: float, *, read_ahead: bool = False, pieces: int = 1, fastest: bool = True
    ) -> tuple[Blocking, bool]:
        """Search for the fastest blocking within ``limit`` bytes; return it, or else the smallest, and whether it fits.

        First, labels are cut where this saves most memory for the time that it costs, until all fits. Then cuts are
        moved between labels and taken back, as long as this saves time and the limit allows it.

        Args:
            limit: bytes.
            read_ahead: whether the blocks for the next run of a stage are read during one.
            pieces: the least number of pieces to cut the contraction into, if its sizes allow it.
            fastest: False to return the first blocking that fits.
        """
        self._how, self._read_ahead = "about", read_ahead
        self._enough = self._work_done + _ENOUGH
        best = smallest = self._blocking((1,) * len(self._equation.sizes), ())
        # Only estimates choose the cuts here, so that all limits share one sequence of cuts.
        while best.peak_bytes > limit or self._exactly(best).peak_bytes > limit:
            steps = list(self._finer(best))
            if not steps:
                best = self._smallest_exactly(smallest, best)
                if best.peak_bytes > limit:
                    return best, False
                break
            best = min(steps, key=lambda step: _price(best, step))
            smallest = min(smallest, best, key=_peak)
        if not fastest:
            return self._exactly(best), True
        best = self._fastest(self._exactly(best), limit)
        while best.pieces < pieces:
            steps = [step for step in self._finer(best, every=True) if step.pieces > best.pieces]
            steps.sort(key=lambda step: (step.seconds, len(step.root.summed), step.peak_bytes))
            fitting = next((step for step in map(self._exactly, steps) if step.peak_bytes <= limit), None)
            if fitting is None:
                break
            best = fitting
        return best, True

    def programs(self, blocking: Blocking) -> StagePrograms:
        """The programs of the stages of a blocking that was costed exactly, for its largest blocks."""
        request = self._outline.request
        programs = StagePrograms(replace(request.contraction, path=self._outline.path), request.in_place)
        sizes = largest_blocks(self._equation.sizes, blocking.counts)
        todo = [blocking.root]
        while todo:
            stage = todo.pop()
            programs.add(stage, sizes, self._stage_cost(stage).program(sizes))
            todo += [source for source in stage.inputs if isinstance(source, Stage)]
        return programs

    def _finer(self, now: Blocking, *, every: bool = False) -> Iterator[Blocking]:
        """Blockings with one label cut into twice as many blocks; a label that matters to the peak, or ``every``."""
        for label, (size, count) in enumerate(zip(self._equation.sizes, now.counts)):
            if count < size and (every or label in now.tight):
                yield self._cut(now, {label: min(2 * count, size)})

    def _smallest_exactly(self, *known: Blocking) -> Blocking:
        """The blocking that needs least memory, costed exactly."""
        ends = [self._exactly(blocking) for blocking in known]
        if len(self._equation.inputs) <= _FEW_OPERANDS:
            self._how = "exactly"
        return min(*ends, self._exactly(self._smallest(*ends)), key=_peak)

    def _smallest(self, *known: Blocking) -> Blocking:
        """The blocking that needs least memory, found from known ones by cutting a label completely or not at all."""
        best = min(known, key=_peak)
        while True:
            changes = (
                {label: count}
                for label, size in enumerate(self._equation.sizes)
                for count in {1, max(size, 1)}
                if label in (best.order if count == 1 else best.tight)
            )
            smaller = min((self._cut(best, change) for change in changes), key=_peak, default=best)
            if smaller.peak_bytes >= best.peak_bytes:
                return best
            best = smaller

    def _fastest(self, now: Blocking, limit: float) -> Blocking:
        """The fastest blocking that the search reaches from one that fits; both are costed exactly."""
        for _ in range(_ROUNDS):
            self._how = "nearly"
            guess = self._kicked(self._descended(now, limit), limit)
            exact = self._exactly(guess)
            if exact.peak_bytes <= limit and exact.seconds < now.seconds:
                now = exact
            if (guess.counts, guess.order) == (now.counts, now.order) and _is_near(guess, exact):
                break
        return now

    def _descended(self, now: Blocking, limit: float) -> Blocking:
        """Take back cuts, move them to other labels, and reorder loops, while that saves time."""
        while self._work_done < self._enough:
            trials = (trial for trial in self._near(now, limit) if trial.peak_bytes <= limit)
            faster = next((trial for trial in trials if trial.seconds < _FASTER * now.seconds), None)
            if faster is None:
                break
            now = faster
        return now

    def _kicked(self, now: Blocking, limit: float) -> Blocking:
        """Leave local optima: cut one label finer, coarsen the others, descend from there, and keep the faster one.

        This takes no more than a small part of the time of the contraction.
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
            end = self._descended(start, limit)
            if end.seconds < _FASTER * now.seconds:
                now = end
                kicks = deque(range(len(now.counts)))
        return now

    def _near(self, now: Blocking, limit: float) -> Iterator[Blocking]:
        """Blockings with loops reordered, a label cut less, or a cut moved to another label."""
        cut = now.order
        yield from (self._blocking(now.counts, order) for order in _orders(cut))
        for label in cut:
            yield self._coarsest(now, {}, label, limit)
        # If a label is cut less, only a cut of a label at the new peak makes room again.
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
        """Change the numbers of blocks of some labels; each new loop goes where it costs least."""
        counts = tuple([change.get(label, count) for label, count in enumerate(now.counts)])
        orders = [tuple([label for label in now.order if counts[label] > 1])]
        for label in change:
            if counts[label] > 1 and label not in now.order:
                orders = [(*order[:at], label, *order[at:]) for order in orders for at in _places(order)]
        if len(orders) == 1:
            return self._blocking(counts, orders[0])
        trials = [self._blocking(counts, order) for order in orders]
        return min(trials, key=lambda trial: (trial.seconds, trial.peak_bytes))

    def _exactly(self, estimate: Blocking) -> Blocking:
        """The same blocking, with its stages lowered for its blocks."""
        return self._blocking(estimate.counts, estimate.order, "exactly")

    def _blocking(self, counts: tuple[int, ...], order: Labels, how: How | None = None) -> Blocking:
        def run_cost(stage: Stage, sizes: Sequence[int]) -> RunCost:
            self._work_done += 1
            return self._stage_cost(stage).run_cost(sizes, how or self._how)

        root = stages(self._equation, self._tree, order, self._stages)
        return blocking(root, run_cost, counts, order, self._equation, self._landing, read_ahead=self._read_ahead)

    def _stage_cost(self, stage: Stage) -> StageCost:
        """The cost of a stage, which stages share that differ only in the loops around them."""
        if id(stage) not in self._by_stage:
            below = [self._stage_cost(source) for source in stage.inputs if isinstance(source, Stage)]
            costs = iter(below)
            inputs = tuple([next(costs) if isinstance(source, Stage) else source for source in stage.inputs])
            key = inputs, stage.terms, stage.output, stage.path, bool(stage.summed)
            if key not in self._stage_costs:
                self._stage_costs[key] = StageCost(self._outline, stage, below)
            self._by_stage[id(stage)] = self._stage_costs[key]
        return self._by_stage[id(stage)]


def _peak(blocking: Blocking) -> int:
    return blocking.peak_bytes


def _is_near(guess: Blocking, exact: Blocking) -> bool:
    """Whether an estimate was right, so that others nearby are right too."""
    pairs = ((guess.seconds, exact.seconds), (guess.peak_bytes, exact.peak_bytes))
    return all(abs(estimate - value) <= _SURE * value for estimate, value in pairs)


def _price(now: Blocking, step: Blocking) -> tuple[float, float]:
    """Seconds per byte saved; steps that save none come last."""
    saved = now.peak_bytes - step.peak_bytes
    if saved <= 0:
        return inf, step.seconds
    return (step.seconds - now.seconds) / saved, -saved


def _places(order: Labels) -> Iterable[int]:
    """The positions for a new loop: all among few loops, else outermost or innermost."""
    return range(len(order) + 1) if len(order) <= _FEW else (0, len(order))


def _orders(cut: Labels) -> Iterator[Labels]:
    """All orders of few loops, else those with two loops exchanged; of many loops, two neighbours."""
    if len(cut) <= _FEW:
        yield from permutations(cut)
        return
    for first, second in combinations(range(len(cut)), 2) if len(cut) <= 2 * _FEW else pairwise(range(len(cut))):
        order = list(cut)
        order[first], order[second] = order[second], order[first]
        yield tuple(order)
