"""Pictures of plans: shown in notebooks, saved as SVG files or HTML pages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

from einsumx.errors import EinsumxError, shown
from einsumx.host.files import write_text
from einsumx.render.svg import printable, svg_text, theme_rules
from einsumx.render.timeline import Timeline

__all__ = ["Drawing"]

_LIGHT = ":is(body[data-jp-theme-light=true],body.vscode-light,html[theme=light],[data-md-color-scheme=default])"
_DARK = ":is(body[data-jp-theme-light=false],body.vscode-dark,html[theme=dark],[data-md-color-scheme=slate])"
"""How Jupyter, VS Code, Colab and mkdocs mark a page as light or dark, whatever the system's theme is."""

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; }}</style>
{picture}
<pre>{text}</pre>
</html>
"""


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
        return svg_text(self.timeline)

    @property
    def html(self) -> str:
        """A page that loads nothing: the picture and the text of the plan."""
        title, text = escape(printable(self.timeline.title)), escape(printable(self.timeline.text))
        return _PAGE.format(title=title, picture=self.svg, text=text)

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
