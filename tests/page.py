"""Runs the code of a documentation page, in order, as one program: ``python tests/page.py docs/tutorial.md``.

It runs these fenced blocks:

- ``python``, in one namespace for the page;
- ``text`` right after a ``python`` block is its output; if the block raises, the error's name and message come last;
- ``console`` contains commands of einsumx after ``$``, each followed by its output.

``...`` in an output stands for any text, as in doctests.
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
    """A fenced block: its language, text and line in the page, and the output that the page shows, if any."""

    language: str
    text: str
    line: int
    printed: str | None = None


def blocks(page: str) -> list[Block]:
    """The blocks of a page that run."""
    result: list[Block] = []
    end = 0
    for match in FENCED.finditer(page):
        language, text = match.groups()
        line = page.count("\n", 0, match.start()) + 1
        if language in ("python", "console"):
            result.append(Block(language, text, line))
        elif (
            language == "text" and result and result[-1].language == "python" and not page[end : match.start()].strip()
        ):
            result[-1] = Block("python", result[-1].text, result[-1].line, text)
        end = match.end()
    return result


def needed(page: str) -> list[str]:
    """The missing modules among those that a page's code imports."""
    names = set()
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                match node:
                    case ast.Import():
                        names |= {alias.name for alias in node.names}
                    case ast.ImportFrom(module=str(module)):
                        names.add(module)
    # einsumx.mxnet can be imported without MXNet, but not used.
    roots = {"mxnet" if name.startswith("einsumx.mxnet") else name.partition(".")[0] for name in names}
    return sorted(root for root in roots if find_spec(root) is None)


def _same(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected.rstrip() + "\n", printed.rstrip() + "\n", MATCHING)


def _differs(name: str, block: Block, expected: str, printed: str) -> AssertionError:
    return AssertionError(f"{name}, line {block.line}, should print\n\n{expected}\nbut printed\n\n{printed}")


def _run_python(name: str, block: Block, names: dict[str, Any]) -> None:
    printed = io.StringIO()
    # Blank lines make tracebacks show the page's line numbers.
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
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command)
        if program != "einsumx":
            raise AssertionError(f"{name}, line {block.line}: only einsumx commands can run, not {program}")
        process = subprocess.run(
            [sys.executable, "-m", "einsumx", *arguments], capture_output=True, encoding="utf-8", check=False
        )
        printed = process.stdout + process.stderr
        if not _same(expected, printed) and (expected.strip() or process.returncode):
            raise _differs(name, block, expected, printed)


def run(name: str, page: str) -> None:
    """Run a page.

    Raises:
        AssertionError: the page shows another output.
        Exception: the page's code raises an error that the page does not show.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            _run_python(name, block, names)
        else:
            _run_commands(name, block)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[1]).read_text(encoding="utf-8"))
