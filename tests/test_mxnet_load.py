"""MXNet imported beside NumPy versions that it does not know, and beside all the other frameworks."""

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest

import einsumx
import einsumx.mxnet
from einsumx import BackendError
from einsumx.adapters.registry import get_backend
from einsumx.backends.mxnet import importing
from einsumx.conformance.oracle import expect, judge


def stand_in(name):
    return importing._stand_in(name, np)


needs_mxnet = pytest.mark.skipif(not find_spec("mxnet"), reason="MXNet is not installed")


def run(code):
    """Run code in a process of its own, where nothing is imported yet; gives what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


NAMES = """
import numpy as np
import einsumx.mxnet
from einsumx.backends.mxnet.importing import _ALIASES, _CONSTANTS, _FUNCTIONS
def old_names(): return {name for name in (*_ALIASES, *_CONSTANTS, *_FUNCTIONS) if name in vars(np)}
before = old_names()
"""


@needs_mxnet
def test_mxnet_is_imported_and_numpy_has_the_names_that_it_had():
    code = NAMES + "mx = einsumx.mxnet.load()\nprint(mx.__name__, old_names() == before)"
    assert run(code) == ["mxnet", "True"]


@needs_mxnet
def test_whoever_imports_it_afterwards_gets_the_same_module():
    code = "import einsumx.mxnet\nmx = einsumx.mxnet.load()\nimport mxnet\nprint(mx is mxnet is einsumx.mxnet.load())"
    assert run(code) == ["True"]


@needs_mxnet
def test_naming_the_backend_imports_it_so_too():
    code = "import einsumx\nprint(einsumx.einsum('i,i->', [1.0, 2.0], [3.0, 4.0], backend='mxnet'))"
    assert run(code) == ["11.0"]


MISSING = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "mxnet":
            raise ModuleNotFoundError("No module named 'mxnet'")
sys.meta_path.insert(0, Finder())
"""


def test_without_mxnet_it_is_an_error_that_says_how_to_install_it_and_numpy_is_as_it_was():
    load = "try: einsumx.mxnet.load()\nexcept einsumx.BackendError as error: print('--no-deps' in str(error))\n"
    assert run(NAMES + MISSING + load + "print(old_names() == before, 'mxnet' in sys.modules)") == [
        "True", "True", "False",
    ]  # fmt: skip


def test_planning_for_mxnet_does_not_import_it():
    code = "import sys, einsumx.mxnet\neinsumx.plan('ij,jk->ik', (2, 3), (3, 4), backend='mxnet', dtypes='float32')\n"
    assert run(code + "print('mxnet' in sys.modules)") == ["False"]


@pytest.mark.parametrize("name", ["mirr", "rate"])
def test_functions_that_numpy_gave_up_are_there_by_name_alone(name):
    with pytest.raises(BackendError, match="numpy-financial"):
        stand_in(name)(1, 2)


def test_names_that_mxnet_reads_mean_what_they_meant():
    assert stand_in("in1d")(np.array([[1, 2]]), [2]).tolist() == [False, True]
    assert stand_in("msort")(np.array([[3, 1], [2, 2]])).tolist() == [[2, 1], [3, 2]]
    assert stand_in("round_")(2.5) == 2
    assert not stand_in("alltrue")([1, 0])
    assert np.isnan(stand_in("NaN"))
    assert np.signbit(stand_in("NZERO"))


KERNELS = """
import os, einsumx.mxnet
from pathlib import Path
mx = einsumx.mxnet.load()
from threadpoolctl import threadpool_info
brought = [info for info in threadpool_info() if Path(info["filepath"]).parent == Path(mx.__file__).parent]
own = [info["architecture"] for info in brought if "architecture" in info]
print(*own, os.environ.get("OPENBLAS_CORETYPE"))
"""


@needs_mxnet
def test_mxnet_1_computes_with_kernels_for_avx2_where_there_is_avx2_and_the_environment_is_as_it_was():
    if not version("mxnet").startswith("1."):
        pytest.skip("MXNet 2 brings no OpenBLAS")
    if not {"avx2", "fma"} <= importing._processor_features():
        pytest.skip("the processor has no AVX2")
    kernels, variable = run('import os; os.environ.pop("OPENBLAS_CORETYPE", None)' + KERNELS)
    assert kernels not in ("Prescott", "Core2", "Nehalem", "Sandybridge")
    assert variable == "None"


@needs_mxnet
def test_kernels_that_the_user_chose_stay_chosen(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    *kernels, variable = run(KERNELS)
    assert variable == "Nehalem"
    assert kernels in ([], ["Nehalem"])


@needs_mxnet
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bind,bjnd->bnij", [(2, 4, 3, 5), (2, 6, 3, 5)]),
        ("ij,jk,kl->li", [(2, 3), (3, 4), (4, 5)]),
        ("iij->j", [(3, 3, 2)]),
    ],
)
def test_the_same_call_on_all_frameworks_in_one_process(equation, shapes):
    for name in ("torch", "jax"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    einsumx.mxnet.load()
    rng = np.random.default_rng(0)
    hosts = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    for name in ("numpy", "torch", "jax", "mxnet"):
        adapter = get_backend(name)
        arrays = [adapter.from_numpy(host) for host in hosts]
        result = einsumx.einsum(equation, *arrays)
        assert type(result) is type(arrays[0])
        verdict = judge(adapter.to_numpy(result), expect(equation, *hosts))
        assert verdict, (name, verdict.wrong)
