"""Plans as data: printed, stored, costed, and checked."""

import copy
import dataclasses
import json
import pickle
import weakref
from itertools import pairwise

import numpy as np
import pytest

import einsumx
from einsumx.errors import EinsumxError
from einsumx.ir.ops import Matmul, Reshape, Transpose
from einsumx.ir.verify import verify
from einsumx.plans import BlockedPlan, plan_cost


@pytest.fixture
def plan():
    return einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32")


def test_a_plan_prints_as_what_runs(plan):
    lines = str(plan).split("\n")
    assert lines[0] == "ij,kj->ki  (2,3) (4,3)  float32 on numpy"
    assert [line.split("  ")[1] for line in lines[1:]] == ["%2 = transpose %0 (1,0)", "%3 = matmul %1 %2", "result %3"]


def test_a_plan_cannot_be_changed(plan):
    with pytest.raises(AttributeError):
        plan.result = 0
    with pytest.raises(AttributeError):
        plan.ops[0].axes = (0, 1)
    assert len({plan, einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32")}) == 1


def test_wherever_a_plan_comes_from_it_is_one():
    arrays = np.ones((2, 3), "float32"), np.ones((4, 3), "float32")
    plan = einsumx.plan("ij,kj->ki", *arrays)
    for found in (
        einsumx.plan("ij,kj->ki", (2, 3), (4, 3), dtypes="float32", device="cpu"),
        einsumx.expression("ij,kj->ki", (2, 3), (4, 3)).plan(*arrays),
        einsumx.Plan.from_json(plan.to_json()),
        plan.retarget("torch").retarget("numpy", "cpu"),
        dataclasses.replace(plan),
        copy.deepcopy(plan),
        pickle.loads(pickle.dumps(plan)),
    ):
        assert type(found) is einsumx.Plan
        assert (found, hash(found), repr(found)) == (plan, hash(plan), repr(plan))
        assert weakref.ref(found)() is found
        np.testing.assert_array_equal(found(*arrays), np.full((4, 2), 3.0))


def test_wherever_a_plan_in_blocks_comes_from_it_is_one():
    arrays = np.ones((20, 30)), np.ones((30, 40))
    plan = einsumx.plan("ij,jk->ik", (20, 30), (30, 40), device="cpu", memory_limit="10 kB")
    for found in (plan, einsumx.plan("ij,jk->ik", *arrays, memory_limit="10 kB"), pickle.loads(pickle.dumps(plan))):
        assert type(found) is BlockedPlan
        assert (found, hash(found), repr(found), str(found)) == (plan, hash(plan), repr(plan), str(plan))
        np.testing.assert_array_equal(found(*arrays), np.full((20, 40), 30.0))


def test_every_copy_is_printed_with_its_size_and_reason_and_counts_as_bytes_and_as_memory():
    plan = einsumx.plan("ij,jk->ik", np.ones((20, 60))[:, ::2], np.ones((30, 40)))
    assert "copy 4.8 kB: no axis of its matrices has unit stride" in str(plan)
    cost = plan_cost(plan)
    assert cost.copied == 8 * 20 * 30
    assert cost.peak_bytes == cost.input_bytes + 8 * 20 * 30 + 8 * 20 * 40


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ops": (Transpose(2, 0, (1, 0)), Matmul(3, 0, 1))}, r"Matmul.*does not fit shapes \(2, 3\), \(4, 3\)"),
        ({"ops": (Transpose(2, 0, (1, 0)), Reshape(2, 1, (12,)))}, "slot %2 is written out of order"),
        ({"ops": (Transpose(2, 0, (1, 0)), Matmul(3, 99, 1))}, "slot %99 is read before"),
        ({"ops": (Transpose(2, 2, (1, 0)), Matmul(3, 1, 2))}, "slot %2 is read before"),
        ({"ops": (Transpose(0, 0, (1, 0)), Matmul(3, 1, 0))}, "slot %0 is written out of order"),
        ({"ops": (Transpose(2, 0, (1, 0)),)}, "no op writes the result, slot %3"),
        ({"result": 99}, "no op writes the result, slot %99"),
        ({"ops": (Reshape(2, 0, (6,)),), "result": 2}, r"the result has shape \(6,\), not \(4, 2\)"),
    ],
    ids=str,
)
def test_verify_names_what_does_not_fit_and_a_plan_is_verified_before_it_runs(plan, change, says):
    verify(plan)
    changed = dataclasses.replace(plan, **change)
    for check in (verify, lambda plan: plan(np.ones((2, 3), "float32"), np.ones((4, 3), "float32"))):
        with pytest.raises(EinsumxError, match=says):
            check(changed)


def test_cost_counts_arithmetic_and_bytes():
    cost = plan_cost(einsumx.plan("ij,jk,k->i", (20, 30), (30, 40), (40,), dtypes="float64"))
    assert cost.multiply_adds == 30 * 40 + 20 * 30
    assert cost.input_bytes == 8 * (20 * 30 + 30 * 40 + 40)
    assert cost.output_bytes == 8 * 20
    assert cost.copied == 0


def test_peak_memory_counts_what_is_alive_at_once():
    """Operands of 8·10⁶ bytes each; two intermediates, of which the first is freed before the result is made."""
    n = 1000
    cost = plan_cost(einsumx.plan("ij,jk,kl,lm->im", *[(n, n)] * 4, optimize=False))
    assert cost.peak_bytes == 8 * n * n * (4 + 2)


def test_a_plan_with_out_says_whether_the_result_is_written_there_and_counts_its_memory():
    v, n = np.ones(600), 600
    usual = einsumx.plan("i,j->ij", v, v)
    written = einsumx.plan("i,j->ij", v, v, out=np.empty((n, n)))
    copied = einsumx.plan("i,j->ij", v, v, out=np.empty((n, n), "complex128"))
    texts = [str(plan).splitlines()[-1] for plan in (usual, written, copied)]
    assert [text.partition("float64")[2] for text in texts] == ["", ", written to out=", ", copied to out="]
    assert written.peak_bytes == usual.peak_bytes == 8 * (2 * n + n * n)
    assert copied.peak_bytes == usual.peak_bytes + 16 * n * n
    assert written == usual
    assert str(einsumx.plan("i,j->ij", (n,), (n,), out=(n, n))).splitlines()[1:] == str(written).splitlines()[1:]
    chain, matrix = "ij,jk,kl->il", (n, n)
    assert einsumx.plan(chain, matrix, matrix, matrix, out=matrix).peak_bytes == 8 * 5 * n * n
    with pytest.raises(einsumx.SizeError, match="out= has shape"):
        einsumx.plan("i,j->ij", v, v, out=np.empty((n, n + 1)))


def test_einsum_path_is_what_optimize_takes():
    arrays = [np.ones(shape) for shape in ((2, 900), (900, 3), (3, 800))]
    path, text = einsumx.einsum_path("ij,jk,kl->il", *arrays, optimize="optimal")
    assert path[0] == "einsum_path"
    assert len(path) == 3
    assert "Multiply-adds:         10.2 k" in text  # 2·900·3 and 2·3·800
    np.testing.assert_allclose(einsumx.einsum("ij,jk,kl->il", *arrays, optimize=path), np.full((2, 800), 2700.0))


def test_einsum_path_without_an_optimizer_is_the_path_of_einsum():
    sizes = 400, 400, 5, 100, 1500, 400, 400
    equation, shapes = "ab,bc,cd,de,ef,fg->ag", [*pairwise(sizes)]
    found = einsumx.plan(equation, *shapes).path
    assert tuple(einsumx.einsum_path(equation, *shapes)[0][1:]) == found
    assert tuple(einsumx.einsum_path(equation, *shapes, optimize="greedy")[0][1:]) != found


def test_another_number_of_dtypes_than_of_operands_is_an_error():
    with pytest.raises(einsumx.SizeError, match="2 dtypes for 1 operand"):
        einsumx.plan("i->", (3,), dtypes=["float32", "float32"])


@pytest.mark.parametrize("source", ["float64", "int32", "complex64"])
def test_a_plan_of_half_precision_is_retargeted_whatever_its_operands_are(source):
    made = einsumx.plan("ij,jk->ik", (2, 3), (3, 4), dtypes=source, dtype="float16", casting="unsafe")
    again = made.retarget("torch")
    assert (again.backend, again.dtype, [operand.dtype for operand in again.operands]) == (
        "torch", "float16", [source, source],
    )  # fmt: skip


def test_a_plan_for_operands_that_repeat_themselves_is_right_for_others_too():
    rng = np.random.default_rng(0)
    lhs, rhs = rng.random((40, 50)), rng.random((50, 30))
    repeated = np.broadcast_to(lhs[:1], lhs.shape)
    made = einsumx.plan("ij,jk->ik", repeated, rhs)
    assert einsumx.Plan.from_json(made.to_json()) == made
    assert made(repeated, rhs).tolist() == einsumx.einsum("ij,jk->ik", repeated, rhs).tolist()
    for operand in (lhs, np.broadcast_to(lhs[:, :1], lhs.shape), lhs.T.copy().T):
        np.testing.assert_allclose(made(operand, rhs), operand @ rhs, rtol=1e-12)


def test_a_plan_of_names_keeps_them_and_names_that_mean_another_equation_are_refused():
    made = einsumx.plan(np.ones((2, 3)), np.ones((3, 4)), "row col, col k -> row k")
    stored = json.loads(made.to_json())
    for each in (made, made.retarget("torch"), einsumx.Plan.from_json(json.dumps(stored))):
        assert str(each).startswith("row col, col k -> row k  (2,3) (3,4)")
        with pytest.raises(einsumx.SizeError, match="row col, col k -> row k"):
            each(np.ones((2, 3)), np.ones((4, 4)))
    for named in ("row col, col k -> k row", "row col", "x", "\x1b[2J"):
        with pytest.raises(einsumx.EinsumxError):
            einsumx.Plan.from_json(json.dumps({**stored, "named": named}))


def test_a_batched_outer_product_lies_in_memory_along_the_longest_run_of_both_operands():
    result = einsumx.einsum("bn,an->bna", np.ones((4, 123)), np.ones((3, 123)))
    assert result.strides == (3 * 123 * 8, 8, 123 * 8)
