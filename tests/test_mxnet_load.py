"""MXNet imported beside NumPy versions that it does not know, and beside all the other frameworks."""

from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest
from processes import ended

import einsumx
import einsumx.mxnet
from einsumx import BackendError
from einsumx.adapters.registry import get_backend
from einsumx.backends.mxnet import importing
from einsumx.conformance.kit.oracle import expect, judge


def stand_in(name):
    return importing._stand_in(name, np)


needs_mxnet = pytest.mark.skipif(not find_spec("mxnet"), reason="MXNet is not installed")


def run(code):
    """Run code in a process of its own, where nothing is imported yet; gives what it prints."""
    done = ended("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


NAMES = """
import os, sys
import numpy as np
import einsumx, einsumx.mxnet
from einsumx.backends.mxnet.importing import _ALIASES, _CONSTANTS, _FUNCTIONS
def old_names(): return {name for name in (*_ALIASES, *_CONSTANTS, *_FUNCTIONS) if name in vars(np)}
before = old_names()
"""
LOADED = """
from pathlib import Path
from threadpoolctl import threadpool_info
mx = einsumx.mxnet.load()
import mxnet
print(mx is mxnet is einsumx.mxnet.load(), old_names() == before)
brought = [info for info in threadpool_info() if Path(info["filepath"]).parent == Path(mx.__file__).parent]
own = [info["architecture"] for info in brought if "architecture" in info]
print(*own, os.environ.get("OPENBLAS_CORETYPE"))
"""


@needs_mxnet
def test_whoever_imports_mxnet_afterwards_gets_the_same_module_and_numpy_and_the_environment_are_as_they_were(
    monkeypatch,
):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    same_module, same_names, *kernels, variable = run(NAMES + LOADED)
    assert (same_module, same_names, variable) == ("True", "True", "None")
    if not version("mxnet").startswith("1."):
        assert kernels == []  # MXNet 2 brings no OpenBLAS
    elif {"avx2", "fma"} <= importing._processor_features():
        assert kernels[0] not in ("Prescott", "Core2", "Nehalem", "Sandybridge")


@needs_mxnet
def test_naming_the_backend_imports_it_so_too_and_kernels_that_the_user_chose_stay_chosen(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    call = "print(einsumx.einsum('i,i->', [1.0, 2.0], [3.0, 4.0], backend='mxnet'))"
    result, _, _, *kernels, variable = run(NAMES + call + LOADED)
    assert (result, variable) == ("11.0", "Nehalem")
    assert kernels in ([], ["Nehalem"])


MISSING = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "mxnet":
            raise ModuleNotFoundError("No module named 'mxnet'")
sys.meta_path.insert(0, Finder())
einsumx.plan("ij,jk->ik", (2, 3), (3, 4), backend="mxnet", dtypes="float32")  # which imports no MXNet
try:
    einsumx.mxnet.load()
except einsumx.BackendError as error:
    print("--no-deps" in str(error), old_names() == before, "mxnet" in sys.modules)
"""


def test_without_mxnet_there_are_plans_and_an_error_that_says_how_to_install_it_and_numpy_is_as_it_was():
    assert run(NAMES + MISSING) == ["True", "True", "False"]


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


@needs_mxnet
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("bind,bjnd->bnij", [(2, 4, 3, 5), (2, 6, 3, 5)]), ("iij->j", [(3, 3, 2)])],
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
        assert judge(adapter.to_numpy(result), expect(equation, *hosts)), name
