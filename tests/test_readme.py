"""The README's code runs in order with NumPy alone and prints what it shows; each framework's block runs with it."""

import re
from pathlib import Path

import numpy as np
import page
import pytest

import einsumx

TEXT = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(
    r"^```python\n.*?^```(?:\n\n```text\n.*?^```)?|^```console\n.*?^```", TEXT, re.DOTALL | re.MULTILINE
)
FRAMEWORKS = ("torch", "einsumx.mxnet")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder for the README's files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(blocks):
    page.run("README.md", "\n\n".join(blocks) + "\n")


def imports(framework, block):
    return bool(re.search(rf"^import {re.escape(framework)}\b", block, re.MULTILINE))


@pytest.mark.long
def test_every_block_runs_in_order_with_numpy_alone(folder):
    run(block for block in BLOCKS if not any(imports(framework, block) for framework in FRAMEWORKS))
    rng = np.random.default_rng(0)
    a, b = rng.random((1500, 800)), rng.random((800, 1600))
    np.testing.assert_allclose(np.load(folder / "c.npy"), a @ b, rtol=1e-12)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_block_for_a_framework_runs_after_the_first(framework):
    (block,) = [block for block in BLOCKS if imports(framework, block)]
    if missing := page.needed(block):
        pytest.skip(f"needs {', '.join(missing)}")
    run([BLOCKS[0], block])


def test_all_blocks_are_found():
    assert len(BLOCKS) == TEXT.count("```python\n") + TEXT.count("```console\n")


def test_patching_leaves_numpy_as_it_was():
    before = np.einsum
    run(block for block in BLOCKS if block is BLOCKS[0] or "einsumx.patch" in block)
    assert np.einsum is before


def test_the_library_s_own_einsum_is_called_where_the_readme_says_so():
    def calls_it(equation, *shapes, **options):
        return " = einsum " in str(einsumx.plan(equation, *shapes, **options))

    assert calls_it("bij,jk->bik", (2, 3, 4), (4, 5))
    assert calls_it("ac,abc->cb", (2, 2000), (2, 2, 2000), dtypes="float32")
    assert not calls_it("ij,jk->ik", (2, 2), (2, 2))


PROJECTS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "array_api": "array-api-strict", "mxnet": "MXNet",
            "tensorflow": "TensorFlow", "mlx": "MLX", "paddle": "PaddlePaddle"}  # fmt: skip


def test_the_versions_are_those_of_the_conformance_results():
    results = Path(page.__file__).parents[1].joinpath("docs/conformance.md").read_text(encoding="utf-8")
    ours = results.partition("## Other libraries")[0]
    judged = re.findall(r"([\w\\]+)<br>([\d.]+\w*)", " ".join(re.findall(r"^\|  \|.*", ours, re.MULTILINE)))
    (sentence,) = re.findall(r"\[These results\].*? are of (.*?)\. \[", " ".join(TEXT.split()))
    told = re.split(r", | and ", sentence.replace("MXNet 1.9.1 and 2", "MXNet 1.9.1, MXNet 2"))
    assert sorted(told) == sorted(
        f"{PROJECTS.get(name, name)} {version.replace('beta', 'b')}"
        for name, version in ((name.replace("\\", ""), version) for name, version in judged)
    )


def test_the_readme_is_short():
    prose = re.sub(r"^```.*?^```$|^\|[^\n]*|<!--.*?-->", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 900
