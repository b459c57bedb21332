"""docs/other-libraries.md: the code of each section runs by itself if its library is installed."""

import re
from pathlib import Path

import page
import pytest
from processes import ended

PAGE = (Path(__file__).parents[1] / "docs" / "other-libraries.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("library", SECTIONS)
def test_the_code_of_a_section_runs_and_prints_what_the_page_says(library, tmp_path):
    if missing := page.needed(SECTIONS[library]):
        pytest.skip(f"needs {', '.join(missing)}")
    section = tmp_path / f"{library}.md"
    section.write_text(SECTIONS[library], encoding="utf-8")
    process = ended(page.__file__, section, folder=tmp_path)
    assert process.returncode == 0, process.stderr


def test_each_section_with_code_imports_its_library_and_is_in_the_table():
    assert {"xarray", "einops", "tensorly", "einx"} <= set(SECTIONS)
    for library, section in SECTIONS.items():
        if page.blocks(section):
            assert re.search(rf"^(import|from) {library}\b", section, re.MULTILINE)
            assert f"[{library}](#{library})" in PAGE


@pytest.mark.parametrize("library", SECTIONS)
def test_a_hook_takes_at_most_twenty_lines(library):
    assert all(len(block.text.splitlines()) <= 20 for block in page.blocks(SECTIONS[library]))
