"""How far a blocked contraction is: told to people, and which blocks of its result are written."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import INFO
from math import prod
from typing import Any

from einsumx.blocked.program import BlockedProgram
from einsumx.blocked.stages import ranges
from einsumx.errors import BackendError
from einsumx.log import log
from einsumx.runtime.request import Progress
from einsumx.streaming.journal import Journal
from einsumx.streaming.walk import Box
from einsumx.streaming.writers import Target

__all__ = ["Ledger", "reported"]


@contextmanager
def reported(progress: Progress, total: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """A function to call after each step, of which there are ``total``; each tenth of them is logged.

    Raises:
        BackendError: a bar was asked for, but tqdm is not installed.
    """
    with _shown(progress, total) as show:
        if not log.isEnabledFor(INFO):
            yield show
            return
        done, every = 0, total()

        def step() -> None:
            nonlocal done
            show()
            done += 1
            if every > 1 and 10 * done // every > 10 * (done - 1) // every:
                log.info("blocks: %d of %d steps", done, every)

        yield step


@contextmanager
def _shown(progress: Progress, total: Callable[[], int]) -> Iterator[Callable[[], None]]:
    if progress is False:
        yield lambda: None
        return
    if progress is True:
        bar = _tqdm()(total=total(), unit="step")
        try:
            yield bar.update
        finally:
            bar.close()
        return
    done, every = 0, total()

    def step() -> None:
        nonlocal done
        done += 1
        progress(done, every)

    progress(0, every)
    yield step


def _tqdm() -> Any:
    try:
        return import_module("tqdm.auto").tqdm
    except ImportError as error:
        raise BackendError(
            "progress=True draws with tqdm, which is not installed: pip install 'einsumx[progress]'; or pass a "
            "function of the steps done and of all"
        ) from error


class Ledger:
    """Which blocks of a result are written: those of the plan it began with, also where another one cuts them up.

    Args:
        plan: the one that it began with.
        journal: where the blocks that are done are written down; None where they are not.
    """

    def __init__(self, plan: BlockedProgram, journal: Journal | None) -> None:
        sizes, counts, root = plan.equation.sizes, plan.blocking.counts, plan.blocking.root
        self._cuts = [(root.output.index(label), ranges(sizes[label], counts[label])) for label in root.nest]
        self._shape = plan.shape
        self._journal = journal
        self._done = set(journal.done) if journal is not None else set()
        self._left: Counter[int] = Counter()

    def verify(self, target: Target) -> set[int]:
        """Read the blocks that the journal says are done, and forget those that are not as they were written.

        Returns:
            The numbers of these.
        """
        if self._journal is None:
            return set()
        done = self._journal.done.items()
        differing = {number for number, digest in done if target.digest(self._box(number)) != digest}
        if differing:
            self._journal.drop(differing)
            self._done -= differing
        return differing

    def has(self, box: Box) -> bool:
        """Whether all of ``box`` is written, as a part of one block."""
        found = self._find(box)
        return found is not None and found[0] in self._done

    def add(self, box: Box, target: Target) -> None:
        """Hear that ``box`` is written; where a block is complete with it, that is written down."""
        found = self._find(box)
        if found is None:
            self._overwritten(box, target)
            return
        number, whole = found
        left = self._left.pop(number, _size(whole)) - _size(box)
        if left:
            self._left[number] = left
            return
        if self._journal is not None:
            target.flush()
            self._journal.add(number, target.digest(whole))
        self._done.add(number)

    def forget(self, *, everything: bool) -> None:
        """Forget the blocks that are written in part, or all of them."""
        self._left.clear()
        if everything:
            self._done.clear()

    def __bool__(self) -> bool:
        """Whether there is a block that is all written."""
        return bool(self._done)

    def _find(self, box: Box) -> tuple[int, Box] | None:
        """The number of the block that has all of ``box``, and its place; None where several have parts of it."""
        number, cuts = 0, []
        for axis, blocks in self._cuts:
            at = bisect_right(blocks, box[axis].start, key=lambda block: block.start) - 1
            if box[axis].stop > blocks[at].stop:
                return None
            number = number * len(blocks) + at
            cuts.append(blocks[at])
        return number, self._whole(cuts)

    def _overwritten(self, box: Box, target: Target) -> None:
        """Hear that parts of several blocks were written again, whose last bits may be others now."""
        if self._journal is None:
            return
        for number in sorted(self._done):
            whole = self._box(number)
            if all(ours.start < theirs.stop and theirs.start < ours.stop for ours, theirs in zip(box, whole)):
                target.flush()
                self._journal.add(number, target.digest(whole))

    def _box(self, number: int) -> Box:
        """The place of the block of that number."""
        cuts = []
        for _, blocks in reversed(self._cuts):
            number, at = divmod(number, len(blocks))
            cuts.append(blocks[at])
        return self._whole(reversed(cuts))

    def _whole(self, cuts: Iterable[slice]) -> Box:
        """The place of a block, from the parts of the axes that are cut."""
        whole = [slice(0, size) for size in self._shape]
        for (axis, _), block in zip(self._cuts, cuts):
            whole[axis] = block
        return tuple(whole)


def _size(box: Iterable[slice]) -> int:
    return prod(axis.stop - axis.start for axis in box)
