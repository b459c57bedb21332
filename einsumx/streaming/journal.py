"""The journal of ``resume=``: which blocks of a result are done, what was written, and of which contraction it is.

It is a text: a line of JSON that says what the contraction is, then a line for each block that is done, with its number
and a digest of it as it is stored in ``out=``. Nothing in it is believed: a run that goes on reads each of the blocks
again, and computes those anew that are not as they were written. So the journal may reach the disk before the blocks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from einsumx.blocked.program import BlockedProgram
from einsumx.errors import JournalError, excerpt, shown
from einsumx.runtime import files

__all__ = ["Journal"]

VERSION = 2

_LINE = re.compile(rb"(0|[1-9][0-9]{0,17}) ([0-9a-f]{32})")

_FIRST_LINE = 1 << 20
"""Bytes that the first line may have at least."""


class Journal:
    """The blocks of a result that are done, in a file that this process alone has until it is closed.

    Args:
        path: of the file; where there is one, it is gone on with.
        plan: whose blocks they are.
        operands: gives what each operand is known by now, from what they were known by in the file, if it is not new.
        out: the name of what is written to, where it has one; for messages alone.

    Attributes:
        done: the digests of the blocks that are done, by their numbers.
        was: the name of what was written to by the run that is gone on with.

    Raises:
        JournalError: the file is damaged, another process has it, or it is of another plan or of other operands.
        OSError: it cannot be read or written.
    """

    def __init__(
        self, path: str | os.PathLike[str], plan: BlockedProgram, operands: Callable[[list[Any]], list[Any]], out: str
    ) -> None:
        self._path, self._name = Path(path), f"resume={shown(os.fspath(path))}"
        self.done: dict[int, str] = {}
        self.was = out
        header = {"journal": VERSION, **_identity(plan), "operands": [], "out": out}
        self._blocks = plan.blocks
        self._descriptor = self._open()
        try:
            self._load(header, operands)
        except BaseException:
            self.close()
            raise

    def add(self, number: int, digest: str) -> None:
        """Write down that a block is done, or that it was written again."""
        is_known = number in self.done
        self.done[number] = digest
        if is_known:
            self._rewrite()
        else:
            self._write(f"{number} {digest}\n".encode())

    def drop(self, numbers: set[int]) -> None:
        """Forget blocks that are not as they were written."""
        self.done = {number: digest for number, digest in self.done.items() if number not in numbers}
        self._rewrite()

    def finish(self) -> None:
        """Remove the file: there is nothing left to go on with."""
        if os.name == "nt":  # where nothing is removed that is open
            self.close()
        self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let others have the file."""
        files.close(self._descriptor)

    # -- reading ----------------------------------------------------------------------------------------------

    def _open(self) -> int:
        """The file, made where there is none, for this process alone."""
        while True:
            try:
                descriptor = files.descriptor_of(self._path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise self._unwritable(error) from error
            except ValueError:
                raise JournalError(f"{self._name} is no regular file; name another one") from None
            try:
                if not files.locked(descriptor):
                    raise JournalError(
                        f"{self._name} is in use by another run; wait for its end, or name another file for another "
                        "contraction"
                    )
                if not self._path.exists() or not os.path.samestat(self._path.stat(), os.fstat(descriptor)):
                    os.close(descriptor)  # the run that had it has just ended, and removed it
                    continue
            except BaseException:
                os.close(descriptor)
                raise
            return files.keep(descriptor)

    def _load(self, header: dict[str, Any], operands: Callable[[list[Any]], list[Any]]) -> None:
        size = os.fstat(self._descriptor).st_size
        longest = 4 * (len(json.dumps(header)) + 256 * len(header["shapes"]))
        first, ended, body = self._read(max(_FIRST_LINE, longest)).partition(b"\n")
        header["operands"] = operands(_operands_of(first))
        self._header = json.dumps(header).encode() + b"\n"
        if not ended and self._header.startswith(first):  # it is new, or the first line was cut off
            self._rewrite()
            return
        self._check(first, header)
        start = len(first) + 1
        longest = len(str(self._blocks)) + len(" ") + 32 + len("\n")
        if size - start > longest * (self._blocks + 1):
            raise self._damaged(f"it has {size} bytes, and this contraction {self._blocks} blocks")
        body += self._read(size - start - len(body))
        *lines, _ = body.split(b"\n")  # the end of the process may have cut the last one off
        for number, line in enumerate(lines, 2):
            found = _LINE.fullmatch(line)
            if found is None or int(found[1]) >= self._blocks or int(found[1]) in self.done:
                raise self._damaged(f"line {number} is no block of this contraction, or one that it has twice")
            self.done[int(found[1])] = found[2].decode()
        self._rewrite()

    def _check(self, first: bytes, header: dict[str, Any]) -> None:
        """See that the first line is of this contraction."""
        try:
            found = json.loads(first)
            theirs = {name: json.dumps(found[name]) for name in header if name in found}
            version, is_old = theirs.pop("journal", None), {"equation", "blocks"} <= theirs.keys()
            is_ours = isinstance(found, dict) and (version is not None or is_old)
            was = json.loads(theirs.pop("out", '""'))
            operands = [json.dumps(operand) for operand in found.get("operands", [])]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_ours = False
        if not is_ours:
            raise JournalError(f"{self._name} is a file, but no journal of a contraction")
        if version != json.dumps(VERSION):
            raise JournalError(
                f"{self._name} is a journal of another version of einsumx; remove the file to start anew"
            )
        for name, value in header.items():
            if name in ("journal", "out", "operands") or theirs.get(name) == json.dumps(value):
                continue
            had, has = excerpt(str(theirs.get(name))), excerpt(json.dumps(value))
            raise JournalError(
                f"{self._name} is the journal of another plan: its {name} is {had}, but this one's is {has}; ask for "
                "the same, or remove the file to start anew"
            )
        ours = [json.dumps(operand) for operand in header["operands"]]
        changed = [number for number, operand in enumerate(ours) if operands[number : number + 1] != [operand]]
        if changed or len(operands) != len(ours):
            which = "operand " + ", ".join(map(str, changed)) if changed else "their number"
            raise JournalError(
                f"{self._name} is the journal of other operands: {which} changed since it was written, or is opened "
                "in another mode; bring the same ones, or remove the file to start anew"
            )
        self.was = was if isinstance(was, str) else ""

    def _read(self, most: int) -> bytes:
        parts = []
        try:
            while most > 0 and (part := os.read(self._descriptor, min(most, 1 << 16))):
                parts.append(part)
                most -= len(part)
        except OSError as error:
            raise self._unwritable(error) from error
        return b"".join(parts)

    # -- writing ----------------------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        """Have in the file what is known, and nothing else."""
        lines = (f"{number} {digest}\n".encode() for number, digest in self.done.items())
        text = b"".join([self._header, *lines])
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        if self._read(len(text) + 1) != text:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._write(text)
            os.ftruncate(self._descriptor, len(text))

    def _write(self, text: bytes) -> None:
        """Write to the file, and wait until it is on the disk."""
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> OSError:
        why = os.strerror(error.errno) if error.errno else str(error)
        return OSError(error.errno, f"the journal of resume= cannot be read and written: {why}", str(self._path))

    def _damaged(self, what: str) -> JournalError:
        return JournalError(f"{self._name} is damaged: {what}; remove the file to start anew")


def _operands_of(first: bytes) -> list[Any]:
    """What a first line, which may be anything, says that the operands are known by."""
    try:
        found = json.loads(first)["operands"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _identity(plan: BlockedProgram) -> dict[str, Any]:
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
