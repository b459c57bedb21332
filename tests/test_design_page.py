"""The page on the design: a first call enters the functions of its table, in that order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import einsumx

ROOT = Path(__file__).parents[1]


def flow() -> list[tuple[str, str]]:
    """The file and the name of each function in the first table of the page."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = page.partition("| function | file |")[2].partition("\n\n")[0]
    return [(file, name) for name, file in re.findall(r"^\| `(\w+)` \| `([\w/]+\.py)` \|", table, re.MULTILINE)]


def entered(equation: str, *operands: Any) -> list[tuple[str, str]]:
    """The functions of einsumx that a call enters, each once."""
    found: dict[tuple[str, str], None] = {}
    folder = Path(einsumx.__file__).parent

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and folder in path.parents:
            found[path.relative_to(folder).as_posix(), frame.f_code.co_name] = None

    sys.setprofile(note)
    try:
        einsumx.einsum(equation, *operands)
    finally:
        sys.setprofile(None)
    return list(found)


def test_a_first_call_enters_the_functions_of_the_page_in_their_order() -> None:
    arrays = np.ones((3, 4, 5)), np.ones((5, 4, 6))
    einsumx.cache_clear()
    first, told = entered("abc,cbd->ad", *arrays), flow()
    assert len(told) > 5
    assert [each for each in first if each in told] == told
    assert [each for each in entered("abc,cbd->ad", *arrays) if each in told] == told[:1]
