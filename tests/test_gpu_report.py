"""The script of ``nox -s gpu``: the page that it writes, on the CPU."""

import os
import re
import sys
import time
from pathlib import Path

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


def goes_well(report):
    yield "one."
    yield "two."


def fails(report):
    yield "some"
    raise RuntimeError("out of luck\nand more")


def ends_the_process(report):
    yield "nearly all."
    os._exit(3)


def never_ends(report):
    report.faults.append("a case: wrong")
    yield "a part."
    time.sleep(600)


@pytest.mark.long
def test_the_section_says_on_what_it_ran_and_a_step_that_fails_is_a_fault(gpu, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    steps = {"A step": goes_well, "Another": fails, "A third": ends_the_process}
    monkeypatch.setattr(gpu, "STEPS", steps)
    monkeypatch.setattr(gpu, "SHARES", dict.fromkeys(steps.values(), 1))
    path = tmp_path / "page.md"
    path.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    gpu.main(["--backend", "torch", "--fake", str(path)])
    text = path.read_text(encoding="utf-8")
    assert "Ran on the CPU, not on a GPU." in text
    assert re.search(r"\*\*A step\*\*, in [^:]*: two\.\n", text)
    assert ": raised RuntimeError after some\n" in text
    assert "- Another: RuntimeError: out of luck\n- A third: the process ended with status 3\n" in text
    assert all(f"## {name}" in text for name in ("CuPy", "JAX"))  # as they were


@pytest.mark.long
def test_a_step_that_takes_too_long_is_ended_and_what_it_found_stays(gpu, monkeypatch):
    clock = iter([0, 0, 0, 1e9, 1e9])  # the step is late after two messages: it has begun, and its text
    monkeypatch.setattr(gpu, "perf_counter", lambda: next(clock))
    report = gpu.Report(gpu.replace(gpu.GPUS["torch"], device=""), is_fake=True, is_quick=True)
    report.step("A long step", never_ends, 300.0)
    (text,) = report.parts
    assert ": a part.\n\nStopped after" in text
    assert "what is missing was not done" in text
    assert report.faults == ["a case: wrong"]


def test_a_framework_that_is_not_installed_keeps_its_section(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    path = tmp_path / "page.md"
    path.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    gpu.main(["--quick", str(path)])
    assert path.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_the_steps_of_a_quick_run_end_within_eight_minutes_if_each_takes_all_its_time(gpu, tmp_path, monkeypatch):
    now, titles = 0.0, []

    def step(report, title, step, seconds):
        nonlocal now
        now += seconds
        titles.append(title)

    monkeypatch.setattr(gpu, "find_spec", lambda name: name)
    monkeypatch.setattr(gpu, "perf_counter", lambda: now)
    monkeypatch.setattr(gpu.Report, "step", step)
    path = tmp_path / "page.md"
    path.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    gpu.main(["--quick", str(path)])
    assert titles.count("Conformance") == titles.count("Times") == titles.count("Memory limit") == 3
    assert titles.count("Times of compiled functions") == 1
    assert "Tests for GPUs" not in titles
    assert gpu.QUICK_SECONDS < 8 * 60
    assert now == pytest.approx(gpu.QUICK_SECONDS)


@pytest.mark.parametrize("name", ["cupy", "torch", "jax"])
def test_the_quick_run_times_thirty_problems(gpu, name):
    problems = gpu._evenly(gpu._problems(gpu.GPUS[name]), gpu.QUICK_PROBLEMS)
    assert len(set(problems)) == 30
    assert {problem.group for problem in problems} >= {"attention", "mlp", "pairs", "networks", "dtypes"}


@pytest.mark.long
def test_a_timed_problem_has_a_first_call_and_later_calls(gpu, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("EINSUMX_WISDOM", "0")  # which benchmarks set for their process
    report = gpu.Report(gpu.replace(gpu.GPUS["torch"], device=""), is_fake=True, is_quick=True)
    *_, text = gpu._timed(report, gpu._problems(report.framework)[:1])
    assert text.startswith("1 of 1 problems.")
    assert re.search(r"\| `bnid,bnjd->bnij  \(6,6,6,6\) \(6,6,6,6\)` \| \S+ \S+ / \S+ \S+ \|", text)
    assert re.search(r"best peer / einsumx: [\d.]+ of first calls, [\d.]+ of later calls \(", text)


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


@pytest.mark.long
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
    report = gpu.Report(gpu.replace(gpu.GPUS["torch"], device=""), is_fake=True, is_quick=True)
    gpu.CARD = 1 << 21
    assert next(gpu.limit(report)).startswith("an operand of 4.19 MB under a limit of 1.05 MB")
