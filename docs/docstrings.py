"""Rewrites docstrings for the site: Sphinx roles become code, and doctests become highlighted examples."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _examples(re.sub(r":\w+:`(?:~[\w.]*\.)?([^`]+)`", r"`\1`", obj.docstring.value))


def _examples(text: str) -> str:
    """The text, with each paragraph that begins with ``>>>`` as a section of examples."""
    paragraphs = text.split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith(">>>"):
            paragraphs[number] = "Examples:\n    " + paragraph.replace("\n", "\n    ")
    return "\n\n".join(paragraphs)
