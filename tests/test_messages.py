"""Messages say what to do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted([*(ROOT / "einsumx").rglob("*.py"), *(ROOT / "backends").rglob("*.py")])
ERRORS = {"BackendError", "BlockError", "JournalError", "MemoryLimitError", "PathError"}
"""Errors whose remedy is seldom plain from what is wrong, as it is from an equation with a caret."""

REMEDY = re.compile(r"; |: |\bmust\b|, not \0$")
"""What a message with a remedy has; ``\\0`` stands for a value."""


def messages(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each error, with a ``\\0`` for each value; without texts that come from elsewhere."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args or ast.unparse(node.func) not in ERRORS:
            continue
        match node.args[0]:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=values):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in values)
            case _:
                continue
        text = text.partition("\n")[0]
        if re.search(r"\w+ \w+ \w+", text):
            yield node.lineno, text


def test_messages_say_what_to_do():
    without = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {text}"
        for path in FILES
        for line, text in messages(path.read_text(encoding="utf-8"))
        if not REMEDY.search(text)
    ]
    assert without == []


def test_a_message_without_a_remedy_is_noticed():
    lines = [
        'BackendError("this is wrong")',
        'PathError(f"{x} is wrong too; omit it")',
        "BackendError(str(error))",
        'ValueError("a b")',
    ]
    found = list(messages("\n".join(lines)))
    assert found == [(1, "this is wrong"), (2, "\0 is wrong too; omit it")]
    assert [bool(REMEDY.search(text)) for _, text in found] == [False, True]
