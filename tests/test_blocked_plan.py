"""What is chosen under a memory limit, what a blocked plan says, and that it can be called."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import Stored

import einsumx
from einsumx.cli.main import main
from einsumx.ir.bind import bind
from einsumx.ir.parse import parse_text
from einsumx.planner.path import find_path
from einsumx.streaming.blocks import Blocks, compute

EQUATIONS = ("ij,jk->ik", "ij,jk,kl->il", "ijk,kl,jm->ilm", "ij,ij->i", "ab,bc,cd,de->ae", "abc,bd,cd->ad", "ijk->k")


@st.composite
def problems(draw):
    equation = draw(st.sampled_from(EQUATIONS))
    sizes = {label: draw(st.integers(1, 40), label) for label in "abcdeijklm"}
    terms, output = equation.partition("->")[0].split(","), equation.partition("->")[2]
    shapes = [tuple(sizes[label] for label in term) for term in terms]
    total = sum(8 * prod(shape) for shape in shapes) + 8 * prod(sizes[label] for label in output)
    return equation, shapes, total


def plan_or_none(equation, shapes, limit, **given):
    try:
        return einsumx.plan(equation, *shapes, memory_limit=limit, stored=True, **given)
    except einsumx.MemoryLimitError:
        return None


# -- what is chosen -----------------------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=15)
@given(problems(), st.floats(0.01, 1.5))
def test_what_fits_stays_within_the_limit_and_still_fits_in_more(problem, share):
    equation, shapes, total = problem
    limit = int(share * total) + 1
    plan = plan_or_none(equation, shapes, limit)
    if plan is None:
        return
    assert plan.peak_bytes <= limit
    more = plan_or_none(equation, shapes, 2 * limit)
    assert more is not None
    # The search is no proof: what it finds in more memory may be somewhat slower than what fits in less.
    assert more.seconds <= 1.5 * plan.seconds


@settings(max_examples=15)
@given(problems(), st.floats(0.01, 0.7))
def test_blocks_cover_the_result_once_and_each_sum_of_it_once(problem, share):
    equation, shapes, total = problem
    plan = plan_or_none(equation, shapes, int(share * total) + 1)
    if plan is None:
        return
    ones = [np.ones(shape, "int64") for shape in shapes]

    def contract(stage, _, arrays):
        return einsumx.einsum(*chain(*zip(arrays, stage.terms)), stage.output)

    blocks = Blocks(plan, contract, lambda total, part: total + part)
    found = np.zeros(plan.shape, "int64")
    written = np.zeros(plan.shape, "int64")
    for place in plan.grid.indices:
        box = plan.grid.part(place)
        found[box] = compute(blocks.value(place), lambda number, part: ones[number][part])
        written[box] += 1
    assert (written == 1).all()
    labels = set(equation) - set(",->") - set(equation.partition("->")[2])
    sizes = {
        label: size
        for term, shape in zip(equation.split("->")[0].split(","), shapes)
        for label, size in zip(term, shape)
    }
    assert (found == prod(sizes[label] for label in labels)).all()


@pytest.mark.long
def test_a_path_is_taken_that_is_faster_in_blocks_than_the_best_one_without_a_limit():
    equation = "ab,bc,cd,de,ef,fg->ag"
    shapes = [(2000, 3000), (3000, 500), (500, 4000), (4000, 1000), (1000, 2500), (2500, 2000)]
    given = {"memory_limit": "18 MB", "dtypes": "float32", "stored": True}  # the result alone takes 16 MB
    best = find_path(bind(parse_text(equation, 6), shapes))
    free, kept = (einsumx.plan(equation, *shapes, optimize=path, **given) for path in ("auto", best))
    assert free.seconds < kept.seconds / 2


def test_a_square_product_in_little_memory_is_cut_along_its_sum_too():
    # Without partial sums, strips of the operands would leave room for blocks of a few rows alone.
    plan = einsumx.plan("ij,jk->ik", *[(6000, 6000)] * 2, dtypes="float32", memory_limit="147 MB", stored=True)
    assert plan.cuts.keys() == {"i", "j", "k"}
    assert max(plan.reads) < 20


@pytest.mark.long
def test_the_same_limit_gives_the_same_plan_whatever_was_planned_before():
    shapes = [(300, 300)] * 4
    limits = [900_000, 2_000_000]
    seen = []
    for order in (limits, limits[::-1]):
        einsumx.cache_clear()
        seen.append(
            {limit: einsumx.plan("ab,bc,cd,de->ae", *shapes, memory_limit=limit, stored=True) for limit in order}
        )
    assert seen[0] == seen[1]


# -- what it says -------------------------------------------------------------------------------------------------


def test_a_plan_says_what_is_cut_and_how_often_each_operand_is_read():
    plan = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True)
    strips = {label: plan.cuts.get(label, 1) for label in "ijk"}
    assert plan.blocks == strips["i"] * strips["k"]
    assert plan.reads in ((strips["k"], 1), (1, strips["i"]), (strips["k"], strips["i"]))
    assert plan.read_bytes == tuple(times * 8 * 900 * 800 for times in plan.reads)
    assert plan.seconds > 0


@pytest.mark.parametrize("limit", [1_000_000, 780_000])
def test_operands_are_read_as_often_as_the_plan_says(limit):
    lhs, rhs, out = Stored(np.ones((300, 266))), Stored(np.ones((266, 300))), np.empty((300, 300))
    plan = einsumx.plan("ij,jk->ik", lhs, rhs, memory_limit=limit, out=out)
    assert plan.blocks > 1
    plan(lhs, rhs, out=out)
    assert (out == 266).all()
    assert (lhs.read_bytes, rhs.read_bytes) == plan.read_bytes


def test_a_plan_names_labels_as_the_equation_does_and_says_what_is_summed_in_blocks_and_what_is_kept():
    text = str(einsumx.plan("...j,jk->...k", (9, 400, 300), (300, 200), memory_limit="6 MB", stored=True))
    assert text.startswith("...j,jk->...k  (9,400,300) (300,200)  float64 on numpy in blocks\n")
    assert "  abj,jk->abk" in text
    path = [(0, 1), (0, 1)]
    plan = einsumx.plan("ab,bc,cd->ad", *[(400, 400)] * 3, optimize=path, memory_limit=1_700_000, stored=True)
    for said in ("ab,bc->ac", "summed over blocks of b", "kept while", *(f"  cut {label} " for label in plan.cuts)):
        assert said in str(plan)


# -- calling it ---------------------------------------------------------------------------------------------------


def test_a_plan_for_an_operand_that_repeats_itself_runs_on_one_that_does_not():
    lhs, rhs, row = np.random.default_rng(7).integers(-3, 4, (3, 30, 30)).astype("float64")
    plan = einsumx.plan("ij,jk->ik", np.broadcast_to(row[0], (30, 30)), rhs, memory_limit=9_000)
    np.testing.assert_array_equal(plan(lhs, rhs), lhs @ rhs)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ((np.ones((30, 40)),), einsumx.SizeError, "takes 2 operands, not 1"),
        ((np.ones((40, 30)), np.ones((30, 40))), einsumx.SizeError, r"operand 0 has shape \(40, 30\)"),
        ((np.ones((30, 40), "float32"), np.ones((40, 30))), einsumx.BackendError, "operand 0 has dtype float32"),
        (
            (np.ones((30, 40)), Stored(np.ones((40, 30)))),
            einsumx.BackendError,
            "operand 1 is brought to the device block",
        ),
    ],
)
def test_operands_that_a_plan_is_not_made_for_are_refused(given, error, says):
    plan = einsumx.plan("ij,jk->ik", (30, 40), (40, 30), memory_limit=20_000)
    with pytest.raises(error, match=says):
        plan(*given)


def test_a_plan_records_no_gradients(torch):
    plan = einsumx.plan("ij,jk->ik", (3, 4), (4, 5), memory_limit=10_000, backend="torch")
    with pytest.raises(einsumx.BackendError, match="requires a gradient"):
        plan(torch.ones((3, 4), dtype=torch.float64, requires_grad=True), torch.ones((4, 5), dtype=torch.float64))


def test_what_is_for_blocks_is_refused_without_a_limit():
    with pytest.raises(ValueError, match="stored=True has an effect only with shapes"):
        einsumx.plan("ij->i", (3, 4), stored=True)


def test_shapes_with_the_shape_of_out_plan_as_for_arrays_in_files():
    shapes = (30, 40), (40, 50)
    a, b = (Stored(np.ones(shape)) for shape in shapes)
    out = Stored(np.zeros((30, 50)))
    plan = einsumx.plan("ij,jk->ik", *shapes, memory_limit=9000, stored=True, out=(30, 50))
    assert "result       12 kB, written to out=" in str(plan)
    of_arrays = einsumx.plan("ij,jk->ik", a, b, memory_limit=9000, out=out)
    assert (plan.cuts, plan.reads, plan.peak_bytes) == (of_arrays.cuts, of_arrays.reads, of_arrays.peak_bytes)
    plan(a, b, out=out)
    assert (out.array == 40).all()
    with pytest.raises(einsumx.MemoryLimitError, match="of which 12 kB are for the result"):
        einsumx.plan("ij,jk->ik", *shapes, memory_limit=9000, stored=True)
    with pytest.raises(ValueError, match="expects an out="):
        plan(a, b)


@pytest.mark.parametrize(
    ("out", "what"),
    [
        ((3, 4), r"\(3, 4\)"),
        ((3, None), r"\(3, None\)"),
        ("c.npy", "str"),
        (np.zeros((3, 5)), "ndarray"),
        ((), r"\(\)"),
    ],
)
def test_beside_shapes_out_is_the_shape_of_the_result(out, what):
    with pytest.raises(
        einsumx.SizeError, match=rf"out= must be the shape of the result, \(3, 5\), not {what}\n  ij,jk->ik"
    ):
        einsumx.plan("ij,jk->ik", (3, 4), (4, 5), memory_limit="1 MB", out=out)


@pytest.mark.parametrize(
    "workers", [{"devices": ["cpu", "cuda:0"]}, {"executor": ThreadPoolExecutor(1)}], ids=["devices", "executor"]
)
def test_a_plan_from_shapes_for_several_workers_is_refused(workers):
    limit = einsumx.MemoryLimit("1 MB", **workers)
    with pytest.raises(ValueError, match="a plan from shapes takes no executor"):
        einsumx.plan("ij->i", (3, 4), backend="torch", memory_limit=limit)
    assert einsumx.plan("ij->i", np.ones((3, 4)), memory_limit=einsumx.MemoryLimit("1 MB", devices=["cpu"])).blocks == 1


@pytest.mark.parametrize("settings", [{"progress": True}, {"progress": print}, {"resume": "journal"}])
@pytest.mark.parametrize("operand", [(3, 4), np.ones((3, 4))], ids=["shape", "array"])
def test_what_a_limit_asks_of_a_run_is_refused_for_a_plan(tmp_path, operand, settings):
    limit = einsumx.MemoryLimit("1 MB", **settings)
    out = (3,) if type(operand) is tuple else np.lib.format.open_memmap(tmp_path / "out.npy", "w+", shape=(3,))
    with pytest.raises(ValueError, match=r"progress= and resume= .* not for a plan; pass them to einsum"):
        einsumx.plan("ij->i", operand, memory_limit=limit, out=out)


def test_two_devices_for_one_plan_are_refused():
    limit = einsumx.MemoryLimit("1 MB", device="cpu")
    with pytest.raises(ValueError, match="device='cuda:0' and the device='cpu' of the limit differ; pass one of them"):
        einsumx.plan("ij->i", (3, 4), backend="torch", device="cuda:0", memory_limit=limit)
    assert einsumx.plan("ij->i", (3, 4), backend="torch", device="cpu", memory_limit=limit).device == "cpu"


@pytest.mark.parametrize("keywords", [{"device": "cuda:0"}, {"dtypes": "int8"}])
@pytest.mark.parametrize("limit", [None, "1 MB"])
def test_what_describes_shapes_is_refused_beside_arrays(keywords, limit):
    with pytest.raises(ValueError, match="device= and dtypes= are for plans from shapes"):
        einsumx.plan("ij->i", np.ones((3, 4)), memory_limit=limit, **keywords)


# -- the command --------------------------------------------------------------------------------------------------

EXPLAIN = ("explain", "ij,jk->ik", "900,800", "800,900", "--dtype", "float64", "--memory-limit", "9MB", "--stored")


def test_explain_prints_how_a_contraction_is_cut_also_in_json(capsys):
    assert main(EXPLAIN) == 0
    plan = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="9 MB", stored=True)
    assert capsys.readouterr().out == f"{plan}\n"
    assert main([*EXPLAIN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory_limit"] == 9_000_000
    assert found["peak_bytes"] <= 9_000_000
    assert found["blocks"] == prod(found["cuts"].values())
    assert found["operand_bytes"] == [8 * 900 * 800] * 2
    assert found["read_bytes"] == [times * 8 * 900 * 800 for times in found["reads"]]


def test_explain_plans_for_a_result_in_a_file(capsys):
    assert main([*EXPLAIN[:-2], "2MB", "--stored", "--out"]) == 0
    plan = einsumx.plan("ij,jk->ik", (900, 800), (800, 900), memory_limit="2 MB", stored=True, out=(900, 900))
    assert capsys.readouterr().out == f"{plan}\n"


def test_operands_in_files_need_a_limit(capsys):
    assert main(["explain", "ij,jk->ik", "90,80", "80,90", "--stored"]) == 2
    assert "--stored has an effect only with --memory-limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limit", "says"), [("1MB", "the smallest memory_limit= is"), ("some", "'some' is not an amount of memory")]
)
def test_explain_refuses_limits_that_cannot_be_kept(capsys, limit, says):
    try:
        status = main(["explain", "ij,jk->ik", "900,800", "800,900", "--memory-limit", limit])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert says in capsys.readouterr().err
