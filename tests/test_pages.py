"""The documentation's pages: their code prints the output they show, and their links have targets."""

import re
from inspect import signature
from pathlib import Path

import page
import pytest
from processes import ended

import einsumx
from einsumx.conformance.suite import FEATURES

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
IN_ITS_OWN_PROCESS = {
    DOCS / "backends.md": "it registers backends, and imports its files",
    DOCS / "sharded.md": "JAX reads its number of devices once",
    **{
        DOCS / f"{place}.md": "its library may not work beside the others"
        for place in (
            "coming-from/cotengra",
            "coming-from/pyscf",
            "coming-from/tensorflow",
            "sparse",
        )
    },
}
"""Pages whose code would change the other tests' process, and why."""

FEWER_CASES = {
    DOCS / "backends.md": ("--backend gridlib --quiet\n", "--backend gridlib --quiet --case '*(2,3)*'\n"),
}
"""Commands that would judge all cases of the conformance suite, and what runs in their place."""

TESTED_IN_DETAIL = {
    ROOT / "README.md": "test_readme.py",
    DOCS / "more-than-fits.md": "test_more_than_fits_page.py",
    DOCS / "mxnet.md": "test_mxnet_page.py",
    DOCS / "other-libraries.md": "test_other_libraries_page.py",
    DOCS / "patch.md": "test_examples.py",
    DOCS / "tutorial.md": "test_pages.py",
}
"""Pages whose code has further tests, and where."""

PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
WITH_CODE = [path for path in PAGES if path not in TESTED_IN_DETAIL and page.blocks(path.read_text(encoding="utf-8"))]


def name(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(path, tmp_path, monkeypatch):
    text = path.read_text(encoding="utf-8")
    if missing := page.needed(text):
        pytest.skip(f"needs {', '.join(missing)}")
    if path in FEWER_CASES:
        assert FEWER_CASES[path][0] in text
        text = text.replace(*FEWER_CASES[path])
    monkeypatch.chdir(tmp_path)
    if path not in IN_ITS_OWN_PROCESS:
        einsumx.cache_clear()
        page.run(name(path), text)
        return
    Path("page.md").write_text(text, encoding="utf-8")
    process = ended(page.__file__, "page.md")
    assert process.returncode == 0, process.stderr


def test_the_picture_in_the_tutorial_is_what_its_code_draws(tmp_path):
    pytest.importorskip("torch")
    process = ended(page.__file__, DOCS / "tutorial.md", folder=tmp_path)
    assert process.returncode == 0, process.stderr
    drawn, shown = ((place / "plan.svg").read_text(encoding="utf-8") for place in (tmp_path, DOCS / "pictures"))
    assert drawn == shown, "the picture has changed: run the tutorial's code, and commit its plan.svg"
    assert "(pictures/plan.svg)" in (DOCS / "tutorial.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", TESTED_IN_DETAIL, ids=name)
def test_a_page_that_is_tested_in_detail_has_its_test(path):
    assert (ROOT / "tests" / TESTED_IN_DETAIL[path]).is_file()
    assert page.blocks(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_links_to_files_that_are_there(path):
    text = re.sub(r"```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)}
    local = {target for target in targets if target and "://" not in target}
    assert {target for target in local if not (path.parent / target).exists()} == set()


def test_the_contract_names_every_feature_by_which_it_is_judged():
    text = re.sub(r"```.*?```", "", (DOCS / "contract.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert set(FEATURES) <= set(re.findall(r"`([^`]+)`", " ".join(text.split())))


def test_the_reference_describes_every_public_name():
    pages = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    described = {entry.rpartition(".")[2] for entry in re.findall(r"^::: (\S+)", pages, re.MULTILINE)}
    assert set(einsumx.__all__) <= described


def test_the_reference_describes_every_keyword_of_einsum():
    page = (DOCS / "reference" / "einsum.md").read_text(encoding="utf-8")
    table = re.search(r"^\| keyword .*?\n\n", page, re.MULTILINE | re.DOTALL)[0]
    described = [name for row in table.strip().splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    keywords = [name for name, each in signature(einsumx.einsum).parameters.items() if each.kind is each.KEYWORD_ONLY]
    assert sorted(described) == sorted(keywords)


def test_the_reference_says_which_built_in_errors_are_raised():
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    table = {
        name: re.findall(r"\w+", bases) for name, bases in re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)
    }
    assert {"EinsumxError", *table} == {name for name in einsumx.__all__ if name.endswith("Error")}
    for name, bases in table.items():
        actual = [base.__name__ for base in getattr(einsumx, name).__bases__]
        assert [base for base in actual if base != "EinsumxError"] == bases


# -- the runner itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nraise ValueError('no')\n```\n\n```text\nValueError: yes\n```\n",
        "```console\n$ einsumx explain ij->ji 2,3\nsomething else\n```\n",
        "```console\n$ einsumx explain ij->j!\n```\n",
        "```console\n$ true\n```\n",
    ],
)
def test_a_page_that_does_not_do_what_it_says_is_noticed(text):
    with pytest.raises(AssertionError):
        page.run("page.md", text)


def test_a_page_that_does_what_it_says_passes():
    page.run(
        "page.md",
        "```python\na = 1\n```\n\nthen\n\n```python\nprint(a, 2, 3)\n```\n\n```text\n1 ... 3\n```\n"
        "```python\nraise ValueError('no')\n```\n\n```text\nValueError: no\n```\n\n"
        "```console\n$ einsumx explain ij->ji 2,3 --dtype float32\nij->ji...\n```\n\n"
        "```text\nnot printed by anything\n```\n",
    )


def test_code_that_needs_what_is_not_installed_is_named():
    assert page.needed("```python\nimport os, numpy.linalg\nfrom no_such_module.sub import f\n```\n") == [
        "no_such_module"
    ]
