"""The page on the design: first calls enter the functions of its tables, in that order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import einsumx
from einsumx.planner import clear
from einsumx.runtime import equations

ROOT = Path(__file__).parents[1]


def flow(table: int) -> list[tuple[str, str]]:
    """The file and the name of each function in one of the tables of the page."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    text = page.split("| function | file |")[table].partition("\n\n")[0]
    return [(file, name) for name, file in re.findall(r"^\| `(\w+)` \| `([\w/]+\.py)` \|", text, re.MULTILINE)]


def entered(equation: str, *operands: Any, **keywords: Any) -> list[tuple[str, str]]:
    """The functions of einsumx that a call enters, each once."""
    found: dict[tuple[str, str], None] = {}
    folder = Path(einsumx.__file__).parent

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and folder in path.parents:
            found[path.relative_to(folder).as_posix(), frame.f_code.co_name] = None

    sys.setprofile(note)
    try:
        einsumx.einsum(equation, *operands, **keywords)
    finally:
        sys.setprofile(None)
    return list(found)


def test_first_calls_enter_the_functions_of_the_page_in_their_order() -> None:
    arrays = np.ones((30, 4, 5)), np.ones((5, 4, 60))
    einsumx.cache_clear()
    clear.roles_of.cache_clear()
    equations._of_letters.cache_clear()
    first, told = entered("abc,cbd->ad", *arrays), flow(1)
    assert len(told) > 5
    assert [each for each in first if each in told] == told
    assert [each for each in entered("abc,cbd->ad", *arrays) if each in told] == told[:1]
    others = flow(2)
    assert len(others) > 5
    assert [each for each in entered("abc,cbd->ad", *arrays, casting="same_kind") if each in others] == others
