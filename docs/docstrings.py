"""Rewrites docstrings and signatures for the site: Sphinx roles become code, doctests highlighted examples.

The keywords of a function are those of a TypedDict; the site shows each, with its default.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from operator import attrgetter
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed, and each signature with keywords of a TypedDict."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _examples(re.sub(r":\w+:`(?:~[\w.]*\.)?([^`]+)`", r"`\1`", obj.docstring.value))

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Name the keywords of one function."""
        keywords = next((each for each in func.parameters if each.kind is griffe.ParameterKind.var_keyword), None)
        if keywords is None or "Unpack" not in str(keywords.annotation):
            return
        module = import_module(func.module.path)
        known = getattr(import_module("einsumx.runtime.request"), re.findall(r"\w+", str(keywords.annotation))[-1])
        del func.parameters[keywords.name]
        function = attrgetter(func.path.removeprefix(f"{func.module.path}."))(module)
        for each in inspect.signature(function).parameters.values():
            if each.name not in func.parameters:
                annotation = known.__annotations__[each.name]
                kind = griffe.ParameterKind.keyword_only
                func.parameters.add(
                    griffe.Parameter(each.name, annotation=annotation, kind=kind, default=repr(each.default))
                )


def _examples(text: str) -> str:
    """The text, with each paragraph that begins with ``>>>`` as a section of examples."""
    paragraphs = text.split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith(">>>"):
            paragraphs[number] = "Examples:\n    " + paragraph.replace("\n", "\n    ")
    return "\n\n".join(paragraphs)
