"""The journal of ``resume=``: identifies a contraction and lists the finished blocks of its result.

It is a text file: a line of JSON that identifies the contraction, then for each finished block a line with its number
and a digest of its values in ``out=``. A resumed run trusts none of it: it reads each of these blocks again, and
recomputes those whose digest differs. So the journal may reach the disk before the blocks do.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from einsumx.blocked.program import BlockedProgram
from einsumx.errors import JournalError, counted, excerpt, shown
from einsumx.host import files

VERSION = 2

_LINE = re.compile(rb"(0|[1-9][0-9]{0,17}) ([0-9a-f]{32})")

_FIRST_LINE = 1 << 20
"""Bytes that the first line may have at least."""

_ATTEMPTS = 1000
"""How often a file is opened that other runs remove, before it is an error."""


class Journal:
    """The finished blocks of a result, in a file that is locked for this process until it is closed.

    Args:
        path: of the file; an existing one is resumed.
        program: the blocked contraction.
        alpha: the factor of its result.
        operands: gives the operands' current fingerprints, from those in the file, if any.
        out: the name of the stored result for messages, if it has one.

    Attributes:
        done: the digests of the finished blocks, by number.
        was: the name of the stored result of the run that is resumed.

    Raises:
        JournalError: the file is damaged, another process uses it, or it is of another plan or of other operands.
        OSError: it cannot be read or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        program: BlockedProgram,
        alpha: Any,
        operands: Callable[[list[Any]], list[Any]],
        out: str,
    ) -> None:
        self._path, self._name = Path(path), f"resume={shown(os.fspath(path))}"
        self.done: dict[int, str] = {}
        self.was = out
        header = {"journal": VERSION, **_identity(program), "alpha": repr(alpha), "operands": [], "out": out}
        self._blocks = program.blocks
        self._descriptor = self._open()
        try:
            self._load(header, operands)
        except BaseException:
            self.close()
            raise

    def add(self, number: int, digest: str) -> None:
        """Record that a block was written, for the first time or again."""
        is_known = number in self.done
        self.done[number] = digest
        if is_known:
            self._rewrite()
        else:
            self._write(f"{number} {digest}\n".encode())

    def drop(self, numbers: set[int]) -> None:
        """Remove blocks that have changed since they were written."""
        self.done = {number: digest for number, digest in self.done.items() if number not in numbers}
        self._rewrite()

    def finish(self) -> None:
        """Remove the file after the last block."""
        if os.name == "nt":  # Windows removes no open file
            self.close()
            with suppress(PermissionError):  # another run has just opened it, and finds all blocks done
                self._path.unlink(missing_ok=True)
            return
        self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release the file for other processes."""
        files.close(self._descriptor)

    # -- reading ----------------------------------------------------------------------------------------------

    def _open(self) -> int:
        """The descriptor of the file, which is created if necessary and locked for this process."""
        for _ in range(_ATTEMPTS):
            try:
                with self._used():
                    descriptor = files.descriptor_of(self._path, os.O_RDWR | os.O_CREAT)
            except ValueError:
                raise JournalError(f"{self._name} is not a regular file; name another one") from None
            try:
                if not files.locked(descriptor):
                    raise JournalError(
                        f"{self._name} is in use by another run; wait for its end, or name another file for another "
                        "contraction"
                    )
                is_there = self._is_there(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            if is_there:
                return files.keep(descriptor)
            os.close(descriptor)
        with self._used():
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def _is_there(self, descriptor: int) -> bool:
        """Whether an open file still has its name; otherwise another run has just finished and removed it.

        Its folder is on one device, whose number some Pythons tell in another way of an open file.
        """
        if os.name == "nt":  # Windows removes no open file
            return True
        status = files.status_of(self._path)
        return status is not None and status.st_ino == os.fstat(descriptor).st_ino

    def _load(self, header: dict[str, Any], operands: Callable[[list[Any]], list[Any]]) -> None:
        size = os.fstat(self._descriptor).st_size
        longest = 4 * (len(json.dumps(header)) + 256 * len(header["shapes"]))
        first, newline, body = self._read(max(_FIRST_LINE, longest)).partition(b"\n")
        recorded = {"alpha": json.dumps("1"), **_fields(first)}  # journals without a factor name none
        before = json.loads(recorded.get("operands", "[]"))
        header["operands"] = operands(before if isinstance(before, list) else [])
        self._header = json.dumps(header).encode() + b"\n"
        if not newline and self._header.startswith(first):  # the file is new, or its first line was cut off
            self._rewrite()
            return
        self._check(recorded, header, before)
        start = len(first) + 1
        longest = len(str(self._blocks)) + len(" ") + 32 + len("\n")
        if size - start > longest * (self._blocks + 1):
            raise self._damaged(
                f"it has {counted(size, 'byte')}, and this contraction {counted(self._blocks, 'block')}"
            )
        body += self._read(size - start - len(body))
        *lines, _ = body.split(b"\n")  # the last line may be incomplete
        for number, line in enumerate(lines, 2):
            match = _LINE.fullmatch(line)
            if match is None or int(match[1]) >= self._blocks or int(match[1]) in self.done:
                raise self._damaged(f"line {number} is not a block of this contraction, or occurs twice")
            self.done[int(match[1])] = match[2].decode()
        self._rewrite()

    def _check(self, recorded: dict[str, str], header: dict[str, Any], before: Any) -> None:
        """Check that the first line identifies this contraction, with ``before`` as its operands."""
        is_journal = "journal" in recorded or {"equation", "blocks"} <= recorded.keys()
        if not is_journal or not isinstance(before, list):
            raise JournalError(f"{self._name} is a file, but not the journal of a contraction; name another file")
        if recorded.get("journal") != json.dumps(VERSION):
            raise JournalError(
                f"{self._name} is a journal of another version of einsumx; remove the file to start again"
            )
        for name, value in header.items():
            if name in ("journal", "out", "operands") or recorded.get(name) == json.dumps(value):
                continue
            had, has = excerpt(recorded.get(name, "None")), excerpt(json.dumps(value))
            raise JournalError(
                f"{self._name} is the journal of another plan: its {name} is {had}, but this one's is {has}; repeat "
                "the first call, or remove the file to start again"
            )
        were, now = list(map(json.dumps, before)), list(map(json.dumps, header["operands"]))
        changed = [number for number, operand in enumerate(now) if were[number : number + 1] != [operand]]
        if changed or len(were) != len(now):
            which = "operand " + ", ".join(map(str, changed)) if changed else "their number"
            raise JournalError(
                f"{self._name} is the journal of other operands: {which} changed since it was written, or is open in "
                "another mode; pass the same ones, or remove the file to start again"
            )
        out = json.loads(recorded.get("out", '""'))
        self.was = out if isinstance(out, str) else ""

    def _read(self, most: int) -> bytes:
        parts = []
        with self._used():
            while most > 0 and (part := os.read(self._descriptor, min(most, 1 << 16))):
                parts.append(part)
                most -= len(part)
        return b"".join(parts)

    # -- writing ----------------------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        """Make the file list exactly the blocks in ``done``."""
        lines = (f"{number} {digest}\n".encode() for number, digest in self.done.items())
        text = b"".join([self._header, *lines])
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        if self._read(len(text) + 1) != text:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._write(text)
            os.ftruncate(self._descriptor, len(text))

    def _write(self, text: bytes) -> None:
        """Write to the file, and wait until it is on the disk."""
        with self._used():
            while text:
                text = text[os.write(self._descriptor, text) :]
            os.fsync(self._descriptor)

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Raise an OSError of the file that names the journal."""
        try:
            yield
        except TimeoutError:  # of a signal handler
            raise
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(
                error.errno, f"the journal of resume= cannot be read and written: {why}", str(self._path)
            ) from error

    def _damaged(self, why: str) -> JournalError:
        return JournalError(f"{self._name} is damaged: {why}; remove the file to start again")


def _fields(line: bytes) -> dict[str, str]:
    """The fields of a JSON object, as JSON, which unlike Python tells 1 from true; none if it is invalid."""
    try:
        return {name: json.dumps(value) for name, value in json.loads(line).items()}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _identity(program: BlockedProgram) -> dict[str, Any]:
    """The data that must be the same for a run to be resumed, which may be along another path and in another place."""
    contraction = program.contraction
    others = contraction.others("equation", "operands", "dtype", "path", "place")
    return {
        "equation": contraction.equation.text,
        "shapes": [list(operand.shape) for operand in contraction.operands],
        "dtypes": [operand.dtype for operand in contraction.operands],
        "dtype": contraction.dtype,
        **{name: str(value) for name, value in others.items()},
        "memory_limit": program.limit,
        "blocks": list(program.blocking.counts),
        "loops": list(program.blocking.order),
    }
