"""Arrays of NumPy in the dtypes of ml_dtypes: bfloat16 is computed, others are an error that says so."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from processes import printed

import einsumx
from einsumx.conformance.oracle import expect, judge

ml_dtypes = pytest.importorskip("ml_dtypes")
bfloat16 = ml_dtypes.bfloat16


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def rounded(rng, *shape):
    return rng.standard_normal(shape).astype(bfloat16)


def is_right(found, equation, *arrays):
    verdict = judge(found.astype("float32"), expect(equation, *[a.astype("float32") for a in arrays], dtype="bfloat16"))
    return found.dtype == bfloat16 and verdict


def test_a_sum_accumulates_in_float32_and_rounds_once():
    ones = np.ones((4096, 2), bfloat16)
    assert einsumx.einsum("ij->j", ones).tolist() == [4096, 4096]  # a sum in bfloat16 stops at 256
    assert einsumx.einsum("ij,ij->", ones, ones) == 8192


@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "ij->ji", "ii->i", "ij,j->ij", "ij,jk,kl->il", "i,j->ij", "ij,ij->", "...,...->..."]
)
@pytest.mark.parametrize("size", [3, 130])
def test_contractions_of_bfloat16_are_right(rng, equation, size):
    inputs = equation.partition("->")[0].split(",")
    arrays = [rounded(rng, *[size] * (2 if term == "..." else len(term))) for term in inputs]
    assert is_right(einsumx.einsum(equation, *arrays), equation, *arrays)


@pytest.mark.parametrize("other", ["bool", "int8", "uint8", "float32", "float64", "complex64", "object"])
def test_a_mix_of_dtypes_has_numpys_promotion(rng, other):
    found = einsumx.einsum("ij,jk->ik", rounded(rng, 2, 3), np.ones((3, 4), other))
    assert found.dtype == np.promote_types(bfloat16, other)


@pytest.mark.parametrize("other", ["int16", "int32", "int64", "float16"])
def test_dtypes_that_numpy_does_not_promote_are_an_error_that_names_them(rng, other):
    lhs, rhs = rounded(rng, 2, 3), np.ones((3, 4), other)
    with pytest.raises(einsumx.BackendError, match=f"numpy promotes bfloat16 and {other} to no common dtype"):
        einsumx.einsum("ij,jk->ik", lhs, rhs)
    assert einsumx.einsum("ij,jk->ik", lhs, rhs, dtype="float64").dtype == "float64"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_other_dtypes_are_an_error_that_says_what_to_do(name):
    array = np.ones((2, 2), getattr(ml_dtypes, name))
    for call in (lambda: einsumx.einsum("ij,jk->ik", array, array), lambda: einsumx.plan("ij->ji", array)):
        with pytest.raises(einsumx.BackendError, match=f"einsum computes in no dtype {name}; cast first: x.astype"):
            call()


def test_keywords_take_bfloat16(rng):
    lhs, rhs = rng.standard_normal((2, 3, 4)).astype("float32"), rng.standard_normal((4, 5)).astype("float32")
    for dtype in ("bfloat16", bfloat16, np.dtype(bfloat16)):
        found = einsumx.einsum("aij,jk->aik", lhs, rhs, dtype=dtype, casting="same_kind")
        assert is_right(found, "aij,jk->aik", lhs, rhs)
    out = np.zeros((2, 3, 5), bfloat16)
    halves = lhs.astype(bfloat16), rhs.astype(bfloat16)
    assert einsumx.einsum("aij,jk->aik", *halves, out=out, accumulate="float64") is out
    assert is_right(out, "aij,jk->aik", *halves)


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


def test_semirings_and_exponents_take_bfloat16():
    lhs, rhs = np.array([[1, 2], [3, 4]], bfloat16), np.array([[0, 5], [6, 0]], bfloat16)
    assert einsumx.semirings.max_plus.einsum("ij,jk->ik", lhs, rhs).tolist() == [[8, 6], [10, 8]]
    mantissa, exponent = einsumx.einsum_frexp("i,i,i->", *[np.full(2, 2.0**100, bfloat16)] * 3)
    assert (mantissa, exponent) == (0.5, 302)


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
