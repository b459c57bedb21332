"""The progress of a blocked contraction: shown and logged for users, and recorded block by block."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from logging import INFO
from typing import TYPE_CHECKING, Any

from einsumx.blocked.program import BlockedProgram
from einsumx.errors import BackendError
from einsumx.imports import imported
from einsumx.ir.layout import ranges
from einsumx.log import log
from einsumx.runtime.limits import Progress
from einsumx.streaming.blocks import Blocks, Box, box_size
from einsumx.streaming.writers import Target

if TYPE_CHECKING:
    from einsumx.blocked.journal import Journal


@contextmanager
def reported(progress: Progress, total: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """A function to call after each of ``total`` steps; every tenth part is logged.

    Raises:
        BackendError: a progress bar was requested, but tqdm is not installed.
    """
    is_logged = log.isEnabledFor(INFO)
    if progress is False and not is_logged:
        yield lambda: None
        return
    done, steps = 0, total()
    with _tqdm()(total=steps, unit="step") if progress is True else nullcontext() as bar:
        report = None if isinstance(progress, bool) else progress

        def step() -> None:
            nonlocal done
            done += 1
            if bar is not None:
                bar.update()
            if report is not None:
                report(done, steps)
            if is_logged and steps > 1 and 10 * done // steps > 10 * (done - 1) // steps:
                log.info("blocks: %d of %d steps", done, steps)

        if report is not None:
            report(0, steps)
        yield step


def _tqdm() -> Any:
    try:
        return imported("tqdm.auto").tqdm
    except ImportError as error:
        raise BackendError(
            "progress=True draws with tqdm, which is not installed: pip install 'einsumx[progress]'; or pass a "
            "function of the steps done and of all"
        ) from error


class Ledger:
    """The blocks of a result that are written; they stay those of the first plan, even if another one goes on."""

    def __init__(self, program: BlockedProgram, journal: Journal | None) -> None:
        sizes, counts, root = program.equation.sizes, program.blocking.counts, program.blocking.root
        self._cuts = [  # each cut axis, and where its blocks start
            (root.output.index(label), [block.start for block in ranges(sizes[label], counts[label])])
            for label in root.nest
        ]
        outline = Blocks.outline(program)
        self._boxes = list(map(outline.box, outline.indices()))
        self._journal = journal
        self._done = set(journal.done) if journal is not None else set()
        self._left: Counter[int] = Counter()  # elements of blocks that are written in part

    def verify(self, target: Target) -> set[int]:
        """Read the blocks that the journal lists, and forget those that differ from what was written.

        Returns:
            The numbers of the blocks that differ.
        """
        if self._journal is None:
            return set()
        done = self._journal.done.items()
        differing = {number for number, digest in done if target.digest(self._boxes[number]) != digest}
        if differing:
            self._journal.drop(differing)
            self._done -= differing
        return differing

    def has(self, box: Box) -> bool:
        """Whether ``box`` lies in one block, and that is written."""
        block = self._find(box)
        return block is not None and block[0] in self._done

    def add(self, box: Box, target: Target) -> None:
        """Record that ``box`` was written, and journal the block that is complete with it."""
        block = self._find(box)
        if block is None:
            self._overwritten(box, target)
            return
        number, whole = block
        left = self._left.pop(number, box_size(whole)) - box_size(box)
        if left:
            self._left[number] = left
            return
        self._record(number, whole, target)
        self._done.add(number)

    def forget(self, *, everything: bool) -> None:
        """Forget the blocks that are written in part, or all blocks."""
        self._left.clear()
        if everything:
            self._done.clear()

    def __bool__(self) -> bool:
        """Whether any block is complete."""
        return bool(self._done)

    def _record(self, number: int, whole: Box, target: Target) -> None:
        if self._journal is not None:
            target.flush()
            self._journal.add(number, target.digest(whole))

    def _overwritten(self, box: Box, target: Target) -> None:
        """Update the digests of blocks that were partly written again, as their last bits may differ now."""
        if self._journal is None:
            return
        for number in sorted(self._done):
            whole = self._boxes[number]
            if all(ours.start < theirs.stop and theirs.start < ours.stop for ours, theirs in zip(box, whole)):
                self._record(number, whole, target)

    def _find(self, box: Box) -> tuple[int, Box] | None:
        """The number and the box of the block that contains ``box``; None if it extends over several."""
        number = 0
        for axis, starts in self._cuts:
            number = number * len(starts) + bisect_right(starts, box[axis].start) - 1
        whole = self._boxes[number]
        return (number, whole) if all(ours.stop <= theirs.stop for ours, theirs in zip(box, whole)) else None
