"""The progress of a blocked contraction: shown and logged for users, and recorded block by block."""

from __future__ import annotations

from collections.abc import Callable
from logging import INFO
from typing import TYPE_CHECKING, Any

from einsumx.blocked.boxes import BlockIndex, Box, Grid, box_size
from einsumx.blocked.program import BlockedProgram
from einsumx.errors import BackendError
from einsumx.imports import imported
from einsumx.log import log
from einsumx.runtime.limits import Progress
from einsumx.streaming.writers import Target

if TYPE_CHECKING:
    from einsumx.blocked.journal import Journal


class Reported:
    """A context with a function to call after each of ``total`` steps; every tenth part is logged.

    Raises:
        BackendError: a progress bar was requested, but tqdm is not installed.
    """

    def __init__(self, progress: Progress, total: Callable[[], int]) -> None:
        self._progress, self._total = progress, total
        self._done = self._steps = 0
        self._bar: Any = None
        self._is_logged = log.isEnabledFor(INFO)

    def __enter__(self) -> Callable[[], None]:
        if self._progress is False and not self._is_logged:
            return _nothing
        self._steps = self._total()
        if self._progress is True:
            self._bar = _tqdm()(total=self._steps, unit="step").__enter__()
        elif callable(self._progress):
            self._progress(0, self._steps)
        return self._step

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)

    def _step(self) -> None:
        self._done += 1
        done, steps = self._done, self._steps
        if self._bar is not None:
            self._bar.update()
        if callable(self._progress):
            self._progress(done, steps)
        if self._is_logged and steps > 1 and 10 * done // steps > 10 * (done - 1) // steps:
            log.info("blocks: %d of %d steps", done, steps)


def _nothing() -> None:
    """The step of a run that nobody watches."""


def _tqdm() -> Any:
    try:
        return imported("tqdm.auto").tqdm
    except ImportError as error:
        raise BackendError(
            "progress=True draws with tqdm, which is not installed: pip install 'einsumx[progress]'; or pass a "
            "function f(done, total)"
        ) from error


class Ledger:
    """The blocks of a result that are written; they stay those of the first plan, even if another one goes on."""

    def __init__(self, program: BlockedProgram, journal: Journal | None) -> None:
        self._grid, self._journal = program.grid, journal
        self._done = set(journal.done) if journal is not None else set()
        self._left: dict[int, int] = {}  # elements of blocks that are written in part

    def verify(self, target: Target) -> set[int]:
        """Read the blocks that the journal lists, and forget those that differ from what was written.

        Returns:
            The numbers of the blocks that differ.
        """
        if self._journal is None:
            return set()
        done = self._journal.done.items()
        differing = {number for number, digest in done if target.digest(self._grid.boxes[number]) != digest}
        if differing:
            self._journal.drop(differing)
            self._done -= differing
        return differing

    def left(self, grid: Grid) -> dict[int, BlockIndex]:
        """The blocks of a grid that do not lie in a block that is written, by their numbers."""
        every = dict(enumerate(grid.indices))
        if not self._done:
            return every
        return {number: index for number, index in every.items() if not self._has(grid.boxes[number])}

    def _has(self, box: Box) -> bool:
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
            whole = self._grid.boxes[number]
            if all(ours.start < theirs.stop and theirs.start < ours.stop for ours, theirs in zip(box, whole)):
                self._record(number, whole, target)

    def _find(self, box: Box) -> tuple[int, Box] | None:
        """The number and the box of the block that contains ``box``; None if it extends over several."""
        number = self._grid.find(box)
        whole = self._grid.boxes[number]
        return (number, whole) if all(ours.stop <= theirs.stop for ours, theirs in zip(box, whole)) else None
