"""Runs the code of a documentation page as one program: ``python tests/page.py docs/tutorial.md``.

A page has three kinds of fenced blocks that count:

- ``python`` is executed, in one namespace per page, or with ``title="FILE"`` is written to that file, for the blocks
  after it to import;
- ``text`` right after it is its output, with the name and message of an error last;
- ``console`` has commands of einsumx after ``$``, each followed by its output.

``...`` in an output matches any text, as in doctests.
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
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FENCED = re.compile(r'^```(\w+)(?: title="([^"\n]*)")?[^\n]*\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MATCHING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, text, line in the page, the file that it is, and the output that the page shows."""

    language: str
    text: str
    line: int
    file: str = ""
    printed: str | None = None


def blocks(page: str) -> list[Block]:
    """The blocks of a page that run."""
    result: list[Block] = []
    end = 0
    for match in FENCED.finditer(page):
        language, file, text = match.groups(default="")
        line = page.count("\n", 0, match.start()) + 1
        if language in ("python", "console"):
            result.append(Block(language, text, line, file))
        elif (
            language == "text" and result and result[-1].language == "python" and not page[end : match.start()].strip()
        ):
            result[-1] = replace(result[-1], printed=text)
        end = match.end()
    return result


def needed(page: str) -> list[str]:
    """The modules that a page imports and that are neither installed nor files of the page."""
    names = set()
    files = {Path(block.file).parts[0].removesuffix(".py") for block in blocks(page) if block.file}
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                match node:
                    case ast.Import():
                        names |= {alias.name for alias in node.names}
                    case ast.ImportFrom(module=str(module)):
                        names.add(module)
    # einsumx.mxnet can be imported without MXNet, but does nothing then.
    roots = {"mxnet" if name.startswith("einsumx.mxnet") else name.partition(".")[0] for name in names}
    return sorted(root for root in roots - files if find_spec(root) is None)


def _same(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected.rstrip() + "\n", printed.rstrip() + "\n", MATCHING)


def _differs(name: str, block: Block, expected: str, printed: str) -> AssertionError:
    return AssertionError(f"{name}, line {block.line}: the page shows\n\n{expected}\nbut the code printed\n\n{printed}")


def _run_python(name: str, block: Block, names: dict[str, Any]) -> None:
    printed = io.StringIO()
    # Leading blank lines make tracebacks show the page's line numbers.
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
            raise AssertionError(f"{name}, line {block.line}: only einsumx commands run here, not {program}")
        process = subprocess.run(
            [sys.executable, "-m", "einsumx", *arguments], capture_output=True, encoding="utf-8", check=False
        )
        printed = process.stdout + process.stderr
        if not _same(expected, printed) and (expected.strip() or process.returncode):
            raise _differs(name, block, expected, printed)


def run(name: str, page: str) -> None:
    """Run a page.

    Raises:
        AssertionError: the output differs from the page.
        Exception: the code raises an error that the page does not show.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            _run_python(name, block, names)
        else:
            _run_commands(name, block)


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))  # for the files of a page
    run(sys.argv[1], Path(sys.argv[1]).read_text(encoding="utf-8"))
