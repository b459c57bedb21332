"""The troubleshooting page has every message of einsumx's errors and warnings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")

FILES = sorted(
    {
        *(ROOT / "einsumx").rglob("*.py"),
        *(ROOT / "backends").rglob("*.py"),
        *(ROOT / "conformance" / name for name in ("command.py", "framework.py", "options.py", "subject.py")),
    }
)
NO_MESSAGES = {"AssertionError", "CancelledError", "NotImplementedError", "SystemExit"}
WARNINGS = {"warn", "warnings.warn"}


def messages(source: str) -> Iterator[tuple[int, str]]:
    """The line of each error or warning, and the longest constant part of its first clause.

    The first clause ends at a semicolon, after which messages say what to do, or at the line with the equation.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = ast.unparse(node.func)
        is_error = name.split(".")[-1].endswith("Error") and name not in NO_MESSAGES
        if not is_error and name not in WARNINGS:
            continue
        match node.args[0]:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=values):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in values)
            case _:
                continue
        yield node.lineno, max(re.split(r"[;\n]", text)[0].split("\0"), key=len).strip()


def plain(text: str) -> str:
    """The text without Markdown's marks and with single blanks."""
    return " ".join(re.sub(r"[*`]", "", text).split())


PLAIN_PAGE = plain(PAGE)


def is_on_page(message: str) -> bool:
    return plain(message) in PLAIN_PAGE


@pytest.mark.long
def test_every_message_is_on_the_page():
    missing = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {text}"
        for path in FILES
        for line, text in messages(path.read_text(encoding="utf-8"))
        if not is_on_page(text)
    ]
    assert missing == []


def test_a_message_that_is_not_on_the_page_is_noticed():
    source = 'raise ValueError(f"{name} is a text that {nobody} wrote")\nwarnings.warn("nor these words; do it\\n a,b")'
    assert list(messages(source)) == [(1, "is a text that"), (2, "nor these words")]
    assert not is_on_page("nor these words")
    assert is_on_page("but the operands are arrays of")
