"""Arrays of NumPy in the dtypes of ml_dtypes: bfloat16 is computed, others are an error that says so."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from processes import printed

import einsumx

ml_dtypes = pytest.importorskip("ml_dtypes")
bfloat16 = ml_dtypes.bfloat16


def test_dtypes_that_numpy_does_not_promote_are_an_error_that_names_them():
    lhs, rhs = np.ones((2, 3), bfloat16), np.ones((3, 4), "int16")
    with pytest.raises(einsumx.BackendError, match="numpy has no common dtype for bfloat16 and int16"):
        einsumx.einsum("ij,jk->ik", lhs, rhs)
    assert einsumx.einsum("ij,jk->ik", lhs, rhs, dtype="float64").dtype == "float64"
    assert einsumx.einsum("ij,jk->ik", lhs, rhs.astype(object)).dtype == object


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_other_dtypes_are_an_error_that_says_what_to_do(name):
    array = np.ones((2, 2), getattr(ml_dtypes, name))
    for call in (lambda: einsumx.einsum("ij,jk->ik", array, array), lambda: einsumx.plan("ij->ji", array)):
        with pytest.raises(einsumx.BackendError, match=f"einsum does not support dtype {name}; cast first: x.astype"):
            call()


@pytest.mark.parametrize("dtype", [bfloat16, np.dtype(bfloat16)], ids=["type", "dtype"])
def test_dtype_is_also_the_type_of_ml_dtypes(dtype):
    found = einsumx.einsum("ij->i", np.ones((2, 4096), "float32"), dtype=dtype, casting="same_kind")
    assert (found.dtype, found.tolist()) == (bfloat16, [4096, 4096])


def test_updates_under_a_limit_or_not_take_bfloat16():
    ones, total = np.ones((300, 300), bfloat16), np.full((300, 300), 2, bfloat16)
    found = einsumx.addeinsum(total, "ij,jk->ik", ones, ones, alpha=0.5, beta=2)
    assert (found == bfloat16(154)).all()
    einsumx.addeinsum(total, "ij,jk->ik", ones, ones, alpha=0.5, beta=2, out=total, memory_limit="600kB")
    assert (total == found).all()


def test_a_plan_from_shapes_runs():
    plan = einsumx.plan("ij,jk->ik", (2, 3), (3, 4), dtypes="bfloat16")
    assert plan(np.ones((2, 3), bfloat16), np.ones((3, 4), bfloat16)).tolist() == [[3] * 4] * 2
    with pytest.raises(einsumx.BackendError, match="'complex32'"):
        einsumx.plan("ij->i", (2, 3), dtypes="complex32")


@pytest.mark.long
def test_worker_processes_read_operands_in_bfloat16():
    ones = np.ones((300, 300), bfloat16)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        limit = einsumx.MemoryLimit("900kB", executor=pool)
        assert (einsumx.einsum("ij,jk->ik", ones, ones, memory_limit=limit) == 300).all()


@pytest.mark.long
@pytest.mark.parametrize("shapes", ["(2, 3), (3, 4)", "(2, 0), (0, 4)"])
def test_a_process_that_never_imported_ml_dtypes_runs_a_stored_plan(tmp_path, shapes):
    path = str(tmp_path / "plan.json")
    store = f"""
import einsumx
plan = einsumx.plan("ij,jk->ik", {shapes}, dtypes="float32", dtype="bfloat16", casting="same_kind")
open({path!r}, "w").write(plan.to_json())
"""
    run = f"""
import numpy as np, einsumx
plan = einsumx.Plan.from_json(open({path!r}).read())
assert plan(*[np.ones(shape, "float32") for shape in ({shapes})]).dtype.name == "bfloat16"
"""
    plain = "import sys, einsumx, numpy; einsumx.einsum('i->', numpy.ones(3)); assert 'ml_dtypes' not in sys.modules"
    for code in (store, run, plain):
        printed(code)
