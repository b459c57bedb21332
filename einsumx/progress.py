"""How far a blocked contraction is: told to people, and written down for a run that goes on from there."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import INFO
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from einsumx.blocked import BlockedPlan, Box
from einsumx.errors import BackendError
from einsumx.log import log
from einsumx.stages import ranges

__all__ = ["Journal", "Ledger", "Progress", "reported"]

Progress: TypeAlias = bool | Callable[[int, int], object]
"""True for a bar of tqdm's; or what is called with the steps that are done, and with how many there are."""


@contextmanager
def reported(progress: Progress, total: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """A function to call after each step, of which there are ``total``; each tenth of them is logged.

    Raises:
        BackendError: a bar was asked for, but tqdm is not installed.
        TypeError: ``progress`` is neither a bool nor to be called.
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
    if progress is False or progress is None:
        yield lambda: None
        return
    if progress is True:
        bar = _tqdm()(total=total(), unit="step")
        try:
            yield bar.update
        finally:
            bar.close()
        return
    if not callable(progress):
        raise TypeError(f"progress= is True, or a function of the steps done and of all, not {progress!r}")
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


class Journal:
    """The blocks of a result that are done, in a file: a line that tells the plan, then a line a block.

    Args:
        path: of the file; where there is one, it is gone on with.
        plan: whose blocks they are.

    Attributes:
        done: the numbers of the blocks that are done.

    Raises:
        ValueError: the file is of another plan, or is no journal.
    """

    def __init__(self, path: str | os.PathLike[str], plan: BlockedPlan) -> None:
        self._path = Path(path)
        self.done: set[int] = set()
        header = _identity(plan)
        if self._path.exists():
            first, *lines = self._path.read_text(encoding="utf-8", errors="replace").split("\n")
            self._check(first, header)
            self.done = set(map(int, lines[:-1]))
            if lines[-1]:  # a line that the end of the process cut off
                os.truncate(self._path, self._path.stat().st_size - len(lines[-1]))
        else:
            part = self._path.with_name(f"{self._path.name}.part")
            _write(part, "w", json.dumps(header) + "\n")
            part.replace(self._path)

    def add(self, number: int) -> None:
        """Write down that a block is done; it is on the disk when this returns."""
        _write(self._path, "a", f"{number}\n")
        self.done.add(number)

    def finish(self) -> None:
        """Remove the file: there is nothing left to go on with."""
        self._path.unlink()

    def _check(self, first: str, header: dict[str, Any]) -> None:
        try:
            found = json.loads(first)
            theirs = {name: found[name] for name in header}
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"resume={str(self._path)!r} is a file, but no journal of a contraction") from None
        for name, value in header.items():
            if theirs[name] != value:
                raise ValueError(
                    f"resume={str(self._path)!r} is the journal of another plan: its {name} is {theirs[name]!r}, but "
                    f"this one's is {value!r}; ask for the same, or remove the file to start anew"
                )


class Ledger:
    """Which blocks of a result are written: those of the plan it began with, also where another one cuts them up.

    Args:
        plan: the one that it began with.
        journal: where the blocks that are done are written down; None where they are not.
    """

    def __init__(self, plan: BlockedPlan, journal: Journal | None) -> None:
        sizes, counts, root = plan.equation.sizes, plan.blocking.counts, plan.blocking.root
        self._cuts = [(root.output.index(label), ranges(sizes[label], counts[label])) for label in root.nest]
        self._shape = plan.shape
        self._journal = journal
        self._done = set(journal.done) if journal is not None else set()
        self._left: Counter[int] = Counter()

    def has(self, box: Box) -> bool:
        """Whether all of ``box`` is written, as a part of one block."""
        found = self._find(box)
        return found is not None and found[0] in self._done

    def add(self, box: Box, flush: Callable[[], None]) -> None:
        """Hear that ``box`` is written; where a block is complete with it, it is flushed and written down."""
        found = self._find(box)
        if found is None:
            return
        number, size = found
        left = self._left.pop(number, size) - _size(box)
        if left:
            self._left[number] = left
            return
        if self._journal is not None:
            flush()
            self._journal.add(number)
        self._done.add(number)

    def forget(self, *, everything: bool) -> None:
        """Forget the blocks that are written in part, or all of them."""
        self._left.clear()
        if everything:
            self._done.clear()

    def __bool__(self) -> bool:
        """Whether there is a block that is all written."""
        return bool(self._done)

    def _find(self, box: Box) -> tuple[int, int] | None:
        """The number and the size of the block that has all of ``box``; None where several have parts of it."""
        number, whole = 0, [slice(0, size) for size in self._shape]
        for axis, blocks in self._cuts:
            at = bisect_right(blocks, box[axis].start, key=lambda block: block.start) - 1
            if box[axis].stop > blocks[at].stop:
                return None
            number, whole[axis] = number * len(blocks) + at, blocks[at]
        return number, _size(whole)


def _size(box: Iterable[slice]) -> int:
    return prod(axis.stop - axis.start for axis in box)


def _write(path: Path, mode: str, text: str) -> None:
    """Write to a file, and wait until it is on the disk."""
    with path.open(mode, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _identity(plan: BlockedPlan) -> dict[str, Any]:
    """What must be the same for a run to go on where another one stopped."""
    return {
        "equation": plan.equation.text,
        "shapes": [list(operand.shape) for operand in plan.operands],
        "dtypes": [operand.dtype for operand in plan.operands],
        "dtype": plan.dtype,
        "memory_limit": plan.limit,
        "blocks": list(plan.blocking.counts),
        "loops": list(plan.blocking.order),
    }
