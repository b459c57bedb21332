"""The code of docs/more-than-fits.md runs and does what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest
from processes import ended, printed

TEXT = (Path(__file__).parents[1] / "docs" / "more-than-fits.md").read_text(encoding="utf-8")
FIRST, PLAN, ERROR, MAPS, HDF5, RESUME, TORCH, JIT, DEVICES, EXECUTOR, OPENED, RAY, DASK = re.findall(
    r"```python\n(.*?)```", TEXT, re.DOTALL
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*blocks):
    names = {}
    for block in blocks:
        exec(block, names)
    return names


def test_a_contraction_in_blocks_is_the_contraction():
    names = run(FIRST)
    exact = np.einsum("ijk,jr,kr->ir", *(names[name] for name in "xbc"), optimize=True)
    np.testing.assert_allclose(names["a"], exact, rtol=1e-12)


def test_the_plan_says_what_the_page_says_that_it_does(capsys):
    run(FIRST, PLAN)
    printed = capsys.readouterr().out
    for word in ("cut ", "operand 0", "operand 1", "peak memory", "time"):
        assert f"\n  {word}" in printed


@pytest.mark.long
def test_a_limit_that_is_too_small_names_one_that_is_not_and_a_result_that_is_given_does_not_count(capsys):
    names = run(ERROR)
    printed = capsys.readouterr().out
    smallest = int(printed.partition("the smallest memory_limit= is ")[2].split()[0])
    assert smallest >= 1200 * 900 * 8
    run(ERROR, f"einsum('ij,jk->ik', a, b, memory_limit={smallest})")
    np.testing.assert_allclose(names["c"], names["a"] @ names["b"], rtol=1e-12)


def test_memory_maps_are_read_and_written(capsys):
    names = run(MAPS)
    result = np.load("c.npy", mmap_mode="r")
    np.testing.assert_allclose(result, names["a"] @ names["b"], rtol=1e-5)
    done, total = capsys.readouterr().out.splitlines()[-1].split()
    assert done == total
    assert int(total) > 1


def test_a_run_that_was_interrupted_goes_on(capsys):
    names = run(RESUME)
    assert names["c"].filename
    assert capsys.readouterr().out == "300.0 300.0\n"
    assert not Path("blocks.json").exists()


def test_datasets_of_hdf5_are_read_and_written(capsys):
    pytest.importorskip("h5py")
    run(HDF5)
    assert capsys.readouterr().out == "1600.0\n"


def test_gradients_are_computed_under_the_limit(capsys):
    pytest.importorskip("torch")
    run(TORCH)
    assert capsys.readouterr().out == "tensor(400.)\n"


def test_a_compiled_program_of_jax_keeps_the_limit(capsys):
    pytest.importorskip("jax")
    run(JIT)
    assert capsys.readouterr().out == "False\nTrue\n"


def test_blocks_run_on_several_devices():
    pytest.importorskip("jax")
    code = f"{DEVICES}\nassert (np.asarray(c) == 500).all()\nassert len(jax.devices()) == 2\n"  # set before JAX begins
    printed(code)


def test_blocks_run_on_an_executor():
    assert (run(EXECUTOR)["c"] == 500).all()


def run_script(text):
    Path("script.py").write_text(text, encoding="utf-8")
    # Ray keeps its token in HOME, and its sockets, whose paths are bounded, in RAY_TMPDIR.
    process = ended("script.py", HOME=str(Path.cwd()), RAY_TMPDIR="/tmp")
    assert process.returncode == 0, process.stderr


@pytest.mark.long
def test_workers_open_an_operand_by_a_function():
    run_script(f"{OPENED}\n    assert (c == 500).all()\n")


def test_blocks_and_dask_arrays_are_computed_on_ray():
    pytest.importorskip("ray.util.dask")
    on_ray = "(z[:2].compute(scheduler=ray_dask_get) == 3000).all()"
    dask = f"{DASK}\nfrom ray.util.dask import ray_dask_get\nassert {on_ray}\n"
    run_script(f"{RAY}\nassert (c == 500).all()\n{dask}")


def test_dask_arrays_stay_lazy(capsys):
    pytest.importorskip("dask.array")
    run(DASK)
    assert "3000." in capsys.readouterr().out
