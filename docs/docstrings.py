"""Docstrings as the site shows them: Sphinx's roles become links, and examples code."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _examples(re.sub(r":\w+:`([^`]+)`", r"`\1`", obj.docstring.value))


def _examples(text: str) -> str:
    """Paragraphs that begin with ``>>>``, set off as a section that is highlighted."""
    paragraphs = text.split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith(">>>"):
            paragraphs[number] = "Examples:\n    " + paragraph.replace("\n", "\n    ")
    return "\n\n".join(paragraphs)
