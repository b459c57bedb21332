"""The tutorial runs, prints the output that it shows, and shows the picture that its code draws."""

import subprocess
import sys
from pathlib import Path

import page
import pytest

pytestmark = pytest.mark.long

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the tutorial's code ran."""
    path = tmp_path_factory.mktemp("tutorial")
    command = [sys.executable, page.__file__, str(DOCS / "tutorial.md")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=path)
    assert done.returncode == 0, done.stderr
    return path


def test_the_picture_in_the_tutorial_is_what_its_code_draws(folder):
    drawn = (folder / "plan.svg").read_text(encoding="utf-8")
    shown = (DOCS / "pictures" / "plan.svg").read_text(encoding="utf-8")
    assert drawn == shown, "the picture has changed: run the tutorial's code, and commit its plan.svg"
    assert "(pictures/plan.svg)" in (DOCS / "tutorial.md").read_text(encoding="utf-8")
