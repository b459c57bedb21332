"""The code of docs/more-than-fits.md runs and does what the page says."""

import re
from pathlib import Path

import numpy as np
import page
import pytest
from processes import ended

TEXT = (Path(__file__).parents[1] / "docs" / "more-than-fits.md").read_text(encoding="utf-8")
FIRST, FILES, RESUME, JIT, LOOPS, OPENED = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

RAY = """
from concurrent.futures import Executor
import dask.array as da
import numpy as np
import ray
from einsumx import MemoryLimit, einsum
from ray.util.dask import ray_dask_get

@ray.remote
def call(function, *args, **kwargs):
    return function(*args, **kwargs)

class RayExecutor(Executor):
    num_workers = 2

    def submit(self, function, /, *args, **kwargs):
        return call.remote(function, *args, **kwargs).future()

ray.init(num_cpus=2)
a, b = np.ones((600, 500)), np.ones((500, 400))
c = einsum("ij,jk->ik", a, b, memory_limit=MemoryLimit("4 MB", executor=RayExecutor()))
assert (c == 500).all()
z = einsum("ij,jk->ik", da.ones((400, 300), chunks=100), da.ones((300, 200), chunks=100))
assert (z.compute(scheduler=ray_dask_get) == 300).all()
"""
"""The executor that the page describes."""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(block):
    names = {}
    exec(block, names)
    return names


def test_a_contraction_in_blocks_is_the_contraction_and_its_plan_says_what_it_does(capsys):
    names = run(FIRST)
    exact = np.einsum("ijk,jr,kr->ir", *(names[name] for name in "xbc"), optimize=True)
    np.testing.assert_allclose(names["a"], exact, rtol=1e-12)
    printed = capsys.readouterr().out
    for word in ("cut ", "operand 0", "operand 1", "peak memory", "time"):
        assert f"\n  {word}" in printed


@pytest.mark.long
def test_the_command_prints_the_plan_of_the_page():
    (commands,) = re.findall(r"```console\n.*?```\n", TEXT, re.DOTALL)
    page.run("more-than-fits.md", commands)


def test_datasets_of_hdf5_are_read_and_a_memory_map_is_written(capsys):
    pytest.importorskip("h5py")
    run(FILES)
    assert (np.load("c.npy", mmap_mode="r") == 1600).all()
    done, total = capsys.readouterr().out.splitlines()[-1].split()
    assert done == total
    assert int(total) > 1


def test_a_run_that_was_interrupted_goes_on():
    first = RESUME.replace('resume="blocks.json"', 'resume="blocks.json", progress=interrupted')
    assert first != RESUME
    done = []

    def interrupted(steps, total):
        done.append(steps)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exec(first, {"interrupted": interrupted})
    assert Path("blocks.json").exists()
    names = run(RESUME.replace('"w+"', '"r+"', 1))
    assert (names["c"] == 300).all()
    assert not Path("blocks.json").exists()


@pytest.mark.long
def test_a_compiled_program_of_jax_keeps_the_limit(capsys):
    pytest.importorskip("jax")
    run(JIT + LOOPS)
    outputs = re.findall(r"```text\n(.*?)```", TEXT[TEXT.index(JIT) :], re.DOTALL)[:2]
    assert capsys.readouterr().out == "".join(outputs)


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
    run_script(RAY)
