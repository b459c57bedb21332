"""Makes the README's links absolute, so that they work on PyPI. All other metadata is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

PROJECT = Path(__file__).parent


def setting(file: str, name: str) -> str:
    """The value of a line ``name = "value"`` of a file of the project."""
    (value,) = re.findall(rf'^{name} = "(.*)"$', (PROJECT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return value


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown whose relative links and pictures point into the repository at a tag."""
    text = re.sub(r'(!\[[^\]]*\]\(|\bsrc(?:set)?=")(?!https?:)', rf"\g<1>{repository}/raw/{tag}/", text)
    return re.sub(r'(\]\(|\bhref=")(?!https?:|#)', rf"\g<1>{repository}/blob/{tag}/", text)


if __name__ == "__main__":
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=absolute(
            readme, setting("pyproject.toml", "Source"), "v" + setting("einsumx/__init__.py", "__version__")
        ),
        long_description_content_type="text/markdown",
    )
