"""The scripts in docs/examples/ run, print the output that the page shows, and fail on wrong results."""

import logging
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

import einsumx
from einsumx import patching
from einsumx.caches import Uncacheable
from einsumx.runtime import calls as repeated

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
LIBRARY = FOLDER / "library"
PAGE = FOLDER.with_suffix(".md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
EXAMPLES = ("attention", "two_electron", "tensor_network", "larger_than_memory", "patched")
"""The examples that need NumPy alone; tests/test_mxnet_page.py tests MXNet's."""


@pytest.fixture
def example(monkeypatch, capfd):
    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        return capfd.readouterr().out

    yield run
    logging.getLogger("einsumx").setLevel(logging.NOTSET)


def test_every_example_is_run_by_a_test():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*EXAMPLES, "mxnet_attention"}


def lines(printed):
    """The set of printed lines, without the figures that differ from run to run."""
    printed = re.sub(r"in \S*tensor.npy", "in a file", printed)
    varying = r"-?\d+\.\d+ *(ms|s|x|kB|M)\b|difference +\S+|\b\d\.\de[-+]\d\d$| +"
    return {re.sub(varying, " ", line).strip() for line in printed.splitlines()}


def test_every_example_has_its_section_on_the_page():
    assert set(SECTIONS) == {path.stem for path in FOLDER.glob("*.py")}
    for name, text in SECTIONS.items():
        assert f"python docs/examples/{name}.py" in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_page_shows(name, example):
    shown = lines(re.search(r"```text\n(.*?)```", SECTIONS[name], re.DOTALL)[1])
    not_installed = {framework for framework in ("torch", "jax") if not find_spec(framework)}
    assert shown - lines(example(name)) <= not_installed


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fails_where_results_are_wrong(name, example, monkeypatch):
    einsum = einsumx.einsum

    def wrong(*operands, out=None, **options):
        result = einsum(*operands, out=out, **options) * np.float32(1.01)
        if out is None:
            return result
        out[...] = result
        return out

    def never_ready(*_, **__):
        raise Uncacheable  # or replacements would find right results in the cache

    monkeypatch.setattr(einsumx, "einsum", wrong)
    monkeypatch.setattr(patching, "einsum", wrong)
    monkeypatch.setattr(repeated, "ready", never_ready)
    einsumx.cache_clear()
    with pytest.raises(AssertionError, match="differ"):
        example(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_what_its_arguments_are(name, example, capfd):
    with pytest.raises(SystemExit) as ended:
        example(name, "--help")
    assert ended.value.code == 0
    assert "--full" in capfd.readouterr().out


def test_the_example_library_passes_its_own_tests():
    pytest.importorskip("array_api_compat")
    places = os.pathsep.join([str(Path(einsumx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    done = subprocess.run(
        command, cwd=LIBRARY, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": places}
    )
    assert done.returncode == 0, done.stdout


def test_the_page_for_authors_of_libraries_shows_the_code_of_the_example():
    code = "".join(path.read_text(encoding="utf-8") for path in LIBRARY.glob("*.py"))
    page = FOLDER.with_name("library-authors.md").read_text(encoding="utf-8")
    shown = [block for block in re.findall(r"^```py\w*\n(.*?)```", page, re.DOTALL | re.MULTILINE) if "native" in block]
    assert len(shown) == 2
    for block in shown:
        assert all(part.strip() in code for part in block.split("\n\n")), block


def test_attention_runs_on_every_framework_that_is_installed(example):
    printed = example("attention")
    for name in ("numpy", "torch", "jax", "mxnet"):
        assert (f"\n{name} " in printed) == bool(find_spec(name))


def test_the_page_on_patch_runs_as_it_stands(caplog):
    caplog.set_level("INFO", "einsumx")
    page = FOLDER.parent.joinpath("patch.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert [text.partition(":")[0] for text in caplog.messages if not text.startswith("blocks")] == [
        "numpy.einsum of 'ij->i' is left to the framework",
    ]
