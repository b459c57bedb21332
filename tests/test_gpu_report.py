"""The script of ``nox -s gpu``: the page that it writes, on the CPU."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from einsumx.ir.layout import layout_class

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PAGE = Path(__file__).parent.parent / "docs" / "gpu.md"


@pytest.fixture
def gpu(monkeypatch):
    """The script as a module; afterwards nothing of the benchmarks is imported."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu

    yield gpu
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


def test_the_page_has_a_place_for_every_framework(gpu):
    page = PAGE.read_text(encoding="utf-8")
    for name in gpu.GPUS:
        assert "new text" in gpu.with_section(page, name, "new text")
    with pytest.raises(ValueError, match="lacks the lines"):
        gpu.with_section(page, "numpy", "new text")


def test_the_section_says_on_what_it_ran_and_a_step_that_fails_is_a_fault(gpu, tmp_path, monkeypatch):
    pytest.importorskip("torch")

    def fails(report):
        raise RuntimeError("out of luck\nand more")

    monkeypatch.setattr(gpu, "STEPS", {"A step": lambda report: "went well", "Another": fails})
    path = tmp_path / "page.md"
    path.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    gpu.main(["--backend", "torch", "--fake", str(path)])
    text = path.read_text(encoding="utf-8")
    assert "Ran on the CPU, not on a GPU." in text
    assert "**A step**" in text
    assert "- Another: RuntimeError: out of luck\n" in text
    assert all(f"## {name}" in text for name in ("CuPy", "JAX"))  # as they were


def test_every_test_that_needs_a_gpu_is_run(gpu):
    folder = Path(__file__).parent
    files = sorted(folder.glob("test_*.py"))
    marked = [f"tests/{file.name}" for file in files if "pytest.mark." + "gpu" in file.read_text(encoding="utf-8")]
    assert marked == sorted(gpu.TESTS)


@pytest.mark.parametrize(("name", "device"), [("cupy", "cuda:1"), ("torch", "cpu")])
def test_operands_on_a_device_have_the_strides_of_their_problem(gpu, fake_cupy, name, device):
    pytest.importorskip(name)
    framework = gpu.replace(gpu.GPUS[name], device=device)
    for layout in ("C", "F", "rolled", "permuted:102", "gaps", "stepped", "expanded:1", "reversed"):
        problem = gpu.Problem("layouts", "abc->cab", ((3, 4, 5),), layouts=(layout,))
        if framework.takes(problem):
            (host,) = gpu.prepare(problem).operands
            (array,) = framework.arrays(problem, [host])
            assert framework.adapter.operand(framework.adapter.signature(array)).strides == layout_class(
                host.shape, [stride // host.itemsize for stride in host.strides]
            )
            assert framework.adapter.device(array) == device
            np.testing.assert_array_equal(framework.adapter.to_numpy(array), host)


def test_a_matrix_of_repeated_rows_has_the_values_of_its_formula(gpu):
    rows = 3 * (1 << 14)
    matrix = gpu.Repeating(rows)
    for start, stop in ((0, 5), (12_345, 12_350), (100, 40_000), (rows - 3, rows), (4, 4)):
        expected = np.add.outer(np.arange(start, stop) % 7, np.arange(3, 9) % 5)
        np.testing.assert_array_equal(matrix[start:stop, 3:9], expected)


def test_a_wrong_block_of_the_result_is_noticed(gpu):
    factor = np.random.default_rng(0).uniform(0.5, 1, (gpu.COLUMNS, 2)).astype("float32")
    out = gpu.Checked(100, factor)
    right = gpu.Repeating(100)[10:30, :] @ factor
    out[10:30, 0:2] = right
    assert out.is_written.sum() == 40
    assert out.worst < 1e-5
    out[10:30, 0:2] = right[::-1]
    assert out.worst > 0.01


def test_a_contraction_beyond_the_card_is_judged(gpu):
    pytest.importorskip("torch")
    report = SimpleNamespace(framework=gpu.replace(gpu.GPUS["torch"], device=""))
    gpu.CARD = 1 << 21
    assert gpu.limit(report).startswith("4.19 MB under a limit of 1.05 MB")
