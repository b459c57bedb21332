"""CuPy's adapter on a stand-in backed by NumPy; tests/test_conformance_gpu.py judges it on CuPy itself."""

import sys
from pathlib import Path

import numpy as np
import pytest

import einsumx
from einsumx.adapters import registry
from einsumx.backends.cupy import ADAPTER, CupyAdapter


class CupyStandinAdapter(CupyAdapter):
    """The adapter under test, for the arrays of the stand-in."""

    name = "cupy_standin"
    module = "cupy_standin"


@pytest.fixture
def standin(monkeypatch):
    """The stand-in's module, its backend registered; afterwards all is as before."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "standin")
    monkeypatch.setattr(registry, "_registered", {})
    einsumx.register(CupyStandinAdapter())
    import cupy_standin

    yield cupy_standin
    monkeypatch.undo()
    registry.forget()
    sys.modules.pop("cupy_standin")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("equation", "dtype", "shapes"),
    [
        ("bnid,bnjd->bnij", "float64", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bind,bjnd->bnij", "complex64", [(2, 4, 3, 5), (2, 6, 3, 5)]),
        ("ij,jk,kl->li", "int8", [(2, 3), (3, 4), (4, 5)]),
        ("ij,jk,kl->li", "bool", [(2, 3), (3, 4), (4, 5)]),
        ("ij,jk->ik", "float16", [(2, 3), (3, 4)]),
        ("iij->j", "bool", [(3, 3, 4)]),
        ("iij->j", "float16", [(3, 3, 4)]),
        ("ij->ji", "complex64", [(2, 3)]),
        ("i,j->ij", "bool", [(3,), (4,)]),
        ("...i,i->...", "float64", [(2, 3, 4), (4,)]),
        ("i,i->", "int8", [(0,), (0,)]),
    ],
)
def test_standin_results_are_those_of_numpy(standin, rng, equation, dtype, shapes):
    host = [rng.integers(0, 3, shape).astype(dtype) for shape in shapes]
    result = einsumx.einsum(equation, *map(standin.asarray, host))
    assert type(result) is standin.StandinArray
    assert result.dtype == dtype
    np.testing.assert_array_equal(standin.asnumpy(result), np.einsum(equation, *host))


@pytest.mark.parametrize("dtype", ["float64", "complex64", "int8", "float16", "bool"])
def test_standin_arrays_that_repeat_themselves_are_counted(standin, dtype):
    numbers = np.array([1, 2])
    row = numbers.astype(dtype)
    with standin.cuda.Device(1):
        array = standin.StandinArray(np.broadcast_to(row, (1000, 2)), 1)
    result = einsumx.einsum("ij->j", array)
    assert result.device.id == 1
    expected = row if dtype == "bool" else (numbers * 1000).astype(dtype)
    np.testing.assert_array_equal(standin.asnumpy(result), expected)


def test_standin_work_runs_on_the_operands_device(standin):
    with standin.cuda.Device(1):
        array = standin.asarray([[1.0, 2.0], [3.0, 4.0]])
        out = standin.asarray(np.zeros((2, 2), "float32"))
    result = einsumx.einsum("ij,jk,->ik", array, array, 2.0)
    assert result.device.id == 1
    np.testing.assert_array_equal(standin.asnumpy(result), [[14.0, 20.0], [30.0, 44.0]])
    assert einsumx.einsum("ij->ji", array, out=out, casting="unsafe") is out
    np.testing.assert_array_equal(standin.asnumpy(out), [[1.0, 3.0], [2.0, 4.0]])
    assert einsumx.plan("ij,jk->ik", array, array).device == "cuda:1"


def test_standin_order_is_honoured(standin):
    with standin.cuda.Device(1):
        array = standin.asarray(np.arange(6.0).reshape(2, 3))
    result = einsumx.einsum("ij->ji", array, order="C")
    assert result.flags.c_contiguous
    assert result.device.id == 1
    assert einsumx.einsum("ij->ij", array, order="F").flags.f_contiguous
    turned = array.transpose((1, 0))
    assert not einsumx.einsum("ij->ij", turned, order="A").flags.c_contiguous


def test_cupy_is_reported_as_unverified_and_plans_without_cupy():
    assert not ADAPTER.verified
    plan = einsumx.plan("bnid,bnjd->bnij", (2, 3, 4, 5), (2, 3, 6, 5), backend="cupy", dtypes="float32")
    assert str(plan).splitlines()[1:-1] == [
        "  %2 = transpose %1 (0,1,3,2)  view",
        "  %3 = copy %2                 copy 720 B: its axes do not lie in the order of the matmul",
        "  %4 = matmul %0 %3            720 multiply-adds",
    ]
