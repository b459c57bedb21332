"""Pictures of plans: shown in notebooks, saved as SVG files or HTML pages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from einsumx.errors import EinsumxError, shown
from einsumx.render.layout import lay_out
from einsumx.render.page import html_page
from einsumx.render.svg import svg_text, theme_rules
from einsumx.render.timeline import Timeline
from einsumx.runtime.files import write_text

__all__ = ["Drawing"]

_LIGHT = ":is(body[data-jp-theme-light=true],body.vscode-light,html[theme=light],[data-md-color-scheme=default])"
_DARK = ":is(body[data-jp-theme-light=false],body.vscode-dark,html[theme=dark],[data-md-color-scheme=slate])"
"""How Jupyter, VS Code, Colab and mkdocs mark a page as light or dark, whatever the system's theme is."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of a plan. Notebooks display it, and :meth:`save` writes it to a file.

    Attributes:
        timeline: the rows to draw.

    >>> import einsumx
    >>> einsumx.plan("ij,jk->ik", (2, 3), (3, 4)).draw().svg[:48]
    '<svg xmlns="http://www.w3.org/2000/svg" class="e'
    """

    timeline: Timeline

    @property
    def svg(self) -> str:
        """The text of an SVG file."""
        return svg_text(self.timeline, lay_out(self.timeline))

    @property
    def html(self) -> str:
        """A page that loads nothing: the picture, the text of the plan, and a table of its calls."""
        return html_page(self.timeline, self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        themes = theme_rules(0, _LIGHT) + theme_rules(1, _DARK)
        return f'<div style="overflow:auto;max-height:50rem"><style>{themes}</style>{self.svg}</div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a ``.svg`` file or the page to a ``.html`` file, atomically.

        Raises:
            EinsumxError: the file name has another ending.
            OSError: the file cannot be written.
        """
        target = Path(path)
        match target.suffix.lower():
            case ".svg":
                write_text(target, self.svg)
            case ".html":
                write_text(target, self.html)
            case _:
                raise EinsumxError(f"pictures are saved as .svg or .html, and {shown(str(target))} ends in neither")
