"""The README's examples run as they stand, on every framework that is installed."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import einsumx

TEXT = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
HEADS = next(block for block in BLOCKS if block.startswith("import numpy as np;")).splitlines()
BODY = next(block for block in BLOCKS if "rng = " in block)
BACKEND = next(block for block in BLOCKS if "class MyAdapter" in block)


@pytest.mark.parametrize(
    "head",
    [pytest.param(head, marks=[pytest.mark.gpu] if "cupy" in head else []) for head in HEADS],
    ids=lambda head: re.split(r"\W+", head)[1],
)
def test_the_same_lines_run_on_every_framework(head, capsys):
    module = re.split(r"\W+", head)[1]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    names = {}
    exec(head, names)
    exec(BODY, names)
    assert tuple(names["output"].shape) == (4, 10, 32)
    assert tuple(names["total"].shape) == (8,)
    assert "4, 10, 32" in capsys.readouterr().out
    assert type(names["output"]) is type(names["queries"])


def test_a_product_under_a_limit_is_written_to_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(next(block for block in BLOCKS if "memory_limit=" in block), names)
    np.testing.assert_allclose(np.load("c.npy"), names["a"] @ names["b"], rtol=1e-12)


def test_the_patched_lines_run_and_leave_numpy_as_it_was():
    names, before = {}, np.einsum
    exec(next(block for block in BLOCKS if "einsumx.patch" in block), names)
    np.testing.assert_array_equal(names["total"], np.eye(9))
    assert np.einsum is before


def test_the_backend_of_the_example_is_one():
    names = {}
    exec(BACKEND, names)
    adapter = names["ADAPTER"]
    assert isinstance(adapter, einsumx.Adapter)
    assert adapter.traits("").matmul_dtypes == {"float32", "float64"}


@pytest.mark.parametrize("backend", ["numpy", "mxnet"])
def test_the_plans_shown_are_the_plans_made(backend):
    if backend == "mxnet" and find_spec(backend) and version(backend).startswith("1."):
        pytest.skip("MXNet 1 has another plan than the one shown, MXNet 2's")
    shown_by = rf"\$ einsumx explain '(\S+)' (\S+) (\S+) --dtype float32 --backend {backend}\n(.*?)(?:\n\n|\n\.\.\.)"
    ((equation, lhs, rhs, shown),) = re.findall(shown_by, TEXT, re.DOTALL)
    shapes = [tuple(map(int, sizes.split(","))) for sizes in (lhs, rhs)]
    assert str(einsumx.plan(equation, *shapes, backend=backend, dtypes="float32")) == shown


def test_the_first_example_is_attention_scores():
    queries, keys = np.ones((2, 3, 4, 5)), np.ones((2, 6, 4, 5))
    names = {"queries": queries, "keys": keys}
    exec(BLOCKS[0], names)
    np.testing.assert_array_equal(names["scores"], np.full((2, 4, 3, 6), 5.0))
