"""Runs the code of a page of the documentation, in order, as one program: ``python tests/page.py docs/tutorial.md``.

Of a page's fenced blocks,

- ``python`` is executed, in one namespace for the page;
- ``text`` right after it is what it prints; where it ends in an error, its name and message come last;
- ``console`` has commands of einsumx after ``$``, and under each what it prints.

``...`` stands for anything in what is printed, as in doctests.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FENCED = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MATCHING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, its line in the page, and what it is said to print, None if nothing."""

    language: str
    text: str
    line: int
    printed: str | None = None


def blocks(page: str) -> list[Block]:
    """The blocks of a page that are run."""
    found: list[Block] = []
    end = 0
    for match in FENCED.finditer(page):
        language, text = match.groups()
        line = page.count("\n", 0, match.start()) + 1
        if language in ("python", "console"):
            found.append(Block(language, text, line))
        elif language == "text" and found and found[-1].language == "python" and not page[end : match.start()].strip():
            found[-1] = Block("python", found[-1].text, found[-1].line, text)
        end = match.end()
    return found


def needed(page: str) -> list[str]:
    """The modules that a page's code imports and that are not installed."""
    names = set()
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                match node:
                    case ast.Import():
                        names |= {alias.name for alias in node.names}
                    case ast.ImportFrom(module=str(module)):
                        names.add(module)
    # einsumx.mxnet is there without MXNet, and then of no use.
    roots = {"mxnet" if name.startswith("einsumx.mxnet") else name.partition(".")[0] for name in names}
    return sorted(root for root in roots if find_spec(root) is None)


def _same(wanted: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(wanted.rstrip() + "\n", printed.rstrip() + "\n", MATCHING)


def _differs(name: str, block: Block, wanted: str, printed: str) -> AssertionError:
    return AssertionError(f"{name}, line {block.line}, is said to print\n\n{wanted}\nbut printed\n\n{printed}")


def _run_python(name: str, block: Block, names: dict[str, Any]) -> None:
    printed = io.StringIO()
    # Blank lines put the lines of errors where they are in the page.
    code = compile("\n" * block.line + block.text, name, "exec")
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, names)
    except Exception as error:
        if block.printed is None:
            raise
        printed.write(f"{type(error).__name__}: {error}\n")
    if not _same(block.printed or "", printed.getvalue()):
        raise _differs(name, block, block.printed or "", printed.getvalue())


def _run_commands(name: str, block: Block) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, wanted = part.partition("\n")
        program, *arguments = shlex.split(command)
        if program != "einsumx":
            raise AssertionError(f"{name}, line {block.line}: only commands of einsumx are run, not {program}")
        done = subprocess.run(
            [sys.executable, "-m", "einsumx", *arguments], capture_output=True, encoding="utf-8", check=False
        )
        printed = done.stdout + done.stderr
        if not _same(wanted, printed) and (wanted.strip() or done.returncode):
            raise _differs(name, block, wanted, printed)


def run(name: str, page: str) -> None:
    """Run a page.

    Raises:
        AssertionError: it prints something else than it says.
        Exception: what its code raises and the page does not show.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            _run_python(name, block, names)
        else:
            _run_commands(name, block)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[1]).read_text(encoding="utf-8"))
