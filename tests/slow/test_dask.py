"""Dask arrays as operands: lazy results, right for any chunking, in chunks of bounded size."""

import copy
import json
import logging
import pickle
from fractions import Fraction
from functools import cached_property

import numpy as np
import pytest

pytest.importorskip("dask", reason="Dask is not installed: pip install 'dask[array]'")
import dask
import dask.array as da

import einsumx
from einsumx.cli.main import main
from einsumx.conformance.frameworks import NumpyFramework
from einsumx.conformance.kit.oracle import expect, judge
from einsumx.conformance.subject import Subject
from einsumx.conformance.suite import cases, run
from einsumx.semirings import BUILTIN, boolean, log, max_plus, max_times, min_plus


class DaskFramework(NumpyFramework):
    """Dask's arrays of NumPy chunks, of up to ``length`` along each axis."""

    layouts = ("C",)
    memory_order = views = False
    immutable = "the results of Dask are lazy, and written nowhere"

    def __init__(self, length):
        self.length = length

    @cached_property
    def xp(self):
        return da

    def array(self, values, dtype, device=""):
        return da.from_array(np.array(values, dtype, order="C"), chunks=self.length)

    def values(self, array):
        return np.array(array.compute(scheduler="sync"))

    def is_array(self, array):
        return isinstance(array, da.Array)


FEATURES = (
    "forms", "implicit output", "sublists", "ellipsis", "diagonals", "hyperedges", "broadcasting", "zero sizes",
    "no axes", "promotion", "integers", "bool", "dtype", "casting",
)  # fmt: skip
"""What is promised of lazy results too; nothing is written to them, and they have no order in memory."""


@pytest.mark.parametrize("feature", FEATURES)
def test_lazy_arrays_are_held_to_the_contract(feature):
    subject = Subject("numpy", np.__version__, DaskFramework(2), "", einsumx.einsum, is_einsumx=True)
    outcomes = list(run(subject, [case for case in cases("quick") if case.feature == feature]))
    assert [(outcome.case, outcome.message) for outcome in outcomes if outcome.status == "fail"] == []
    assert sum(outcome.status == "pass" for outcome in outcomes) > 5


def in_chunks(shape, chunks, dtype="float64"):
    """Small integers, the same in NumPy and in Dask."""
    values = np.random.default_rng(3).integers(-3, 4, shape).astype(dtype)
    return values, da.from_array(values, chunks=chunks)


def agree(result, equation, *arrays):
    verdict = judge(result.compute(scheduler="sync"), expect(equation, *arrays))
    return verdict or pytest.fail(str(verdict.wrong))


def test_arrays_in_memory_mix_with_those_of_dask():
    lhs, rhs = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(4, 2)
    result = einsumx.einsum("ij,jk,->ik", da.from_array(lhs, chunks=2), rhs, 2.0)
    assert isinstance(result, da.Array)
    assert result.compute(scheduler="sync").tolist() == (2 * lhs @ rhs).tolist()


def test_nothing_is_computed_before_it_is_asked_for():
    def fail(block):
        raise AssertionError("computed")

    lazy = da.ones((4, 4), chunks=2).map_blocks(fail, dtype=float, meta=np.empty((0, 0)))
    assert einsumx.einsum("ij,jk->ik", lazy, lazy).shape == (4, 4)


def tasks(array):
    """How many tasks a lazy array takes, and how many of them rechunk."""
    layers = array.__dask_graph__().layers
    return sum(map(len, layers.values())), sum(len(layer) for name, layer in layers.items() if "rechunk" in name)


@pytest.mark.parametrize(
    ("equation", "operands"),
    [
        ("ij,jk->ik", [((40, 60), (10, 20)), ((60, 30), (30, 15))]),
        ("ij,j->i", [((40, 60), (10, 20)), ((60,), (60,))]),
        ("ij,ij->", [((40, 60), (10, 20)), ((40, 60), (40, 60))]),
        ("ij,jk,kl->il", [((40, 60), (10, 20)), ((60, 30), (20, 15)), ((30, 20), (15, 10))]),
        ("ij,jk,kl->il", [((40, 60), (20, 30)), ((60, 30), (30, 15)), ((30, 20), (10, 10))]),
    ],
)
def test_it_takes_no_more_tasks_and_rechunks_no_more_than_the_einsum_of_dask(equation, operands):
    arrays = [da.ones(shape, chunks=chunks) for shape, chunks in operands]
    ours, theirs = tasks(einsumx.einsum(equation, *arrays)), tasks(da.einsum(equation, *arrays))
    assert ours[0] <= theirs[0]
    assert ours[1] <= theirs[1]


@pytest.mark.parametrize(
    ("equation", "operands", "chunks"),
    [
        ("ij,jk->ik", [((40, 60), (10, 20)), ((60, 30), (20, 15))], ((10,) * 4, (15,) * 2)),
        ("ii->i", [((6, 6), 2)], ((2,) * 3,)),
        ("ij,ij->ij", [((100, 100), 50)] * 2, ((50,) * 2,) * 2),
    ],
)
def test_operands_that_are_chunked_alike_are_not_rechunked(equation, operands, chunks):
    with dask.config.set({"array.chunk-size": "1 kiB"}):  # which only what grows is split for
        result = einsumx.einsum(equation, *(da.ones(shape, chunks=given) for shape, given in operands))
    assert result.chunks == chunks
    assert tasks(result)[1] == 0


def test_patched_dask_leaves_what_einsumx_refuses_to_dask():
    masked = da.from_array(np.ma.masked_equal([[1.0, 2.0], [3.0, 4.0]], 2), chunks=1)
    with einsumx.patched("dask"):
        assert da.einsum("ij->ji", masked).compute().tolist() == [[1, 3], [2, 4]]
        with pytest.raises(einsumx.SizeError):
            da.einsum("ijk->i", da.ones((2, 2), chunks=1))


@pytest.mark.parametrize("kind", ["float8", "text", "masked"])
def test_chunks_that_are_no_numbers_of_numpy_are_an_error_at_once(kind):
    if kind == "float8":
        array = np.ones(4, pytest.importorskip("ml_dtypes").float8_e5m2)
    else:
        array = np.array(["a", "b"]) if kind == "text" else np.ma.masked_equal([1.0, 2.0], 1)
    with pytest.raises(einsumx.BackendError, match=r"support dtype float8_e5m2|needs numbers|masks"):
        einsumx.einsum("i->", da.from_array(array, chunks=1))


# -- axes that are chunked unlike, empty chunks, objects --------------------------------------------------------------


@pytest.mark.parametrize("chunks", [((2, 4), (3, 3)), ((0, 2, 4), (3, 0, 3)), (1, 6)], ids=str)
@pytest.mark.parametrize("equation", ["ii->i", "ii,ij->j", "ij,ji->"])
def test_a_diagonal_of_axes_that_are_chunked_unlike_is_the_diagonal(equation, chunks):
    values, array = in_chunks((6, 6), chunks)
    others = {"ii,ij->j": values, "ij,ji->": values}
    arrays = [values, others[equation]] if equation in others else [values]
    assert agree(einsumx.einsum(equation, array, *arrays[1:]), equation, *arrays)


@pytest.mark.parametrize(
    ("equation", "shapes", "chunks"),
    [
        ("ij,jk->ik", [(6, 6), (6, 6)], [((0, 2, 4), (3, 0, 3)), ((6, 0), (2, 0, 0, 4))]),
        ("ii->i", [(0, 0)], [((0,), (0, 0))]),
        ("ij,ij->ij", [(1, 6), (4, 1)], [((1,), (2, 4)), ((1, 3), (1,))]),
        ("ij,ij->ij", [(1, 6), (4, 6)], [((0, 1), (2, 4)), ((1, 3), (5, 1))]),
        ("iii->i", [(4, 4, 4)], [((1, 3), (2, 2), (4,))]),
    ],
    ids=str,
)
def test_empty_chunks_and_axes_that_broadcast_or_are_chunked_in_three_ways_are_summed_as_others_are(
    equation, shapes, chunks
):
    made = [in_chunks(shape, chunk) for shape, chunk in zip(shapes, chunks)]
    values, arrays = zip(*made)
    assert agree(einsumx.einsum(equation, *arrays), equation, *values)


@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "ij,jk->ik"])
def test_an_array_that_is_used_twice_may_broadcast_in_one_place_only(equation):
    (column, x), (row, y) = in_chunks((4, 1), (3, 1)), in_chunks((1, 5), (1, 4))
    count = equation.count(",") + 1
    lazy, values = [x, x, y][:count], [column, column, row][:count]
    assert agree(einsumx.einsum(equation, *lazy), equation, *values)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ji", [(3, 2)]),
        ("ii", [(3, 3)]),
        ("ij,jk->ik", [(2, 3), (3, 2)]),
        ("k,ji,jii->k", [(3,), (2, 1), (2, 1, 1)]),
        (",i,,i->i", [(), (3,), (), (3,)]),
        ("ij->", [(2, 0)]),
        ("i,jk->kji", [(5,), (2, 0)]),
    ],
)
def test_chunks_of_objects_are_summed_by_their_own_arithmetic_also_over_nothing(equation, shapes):
    arrays = []
    for shape in shapes:
        array = np.empty(shape, object)
        array[...] = np.arange(array.size).reshape(shape) * Fraction(1, 3)
        arrays.append(array)
    result = einsumx.einsum(equation, *[da.from_array(array, chunks=2 if array.ndim else ()) for array in arrays])
    assert result.dtype == object
    expected = expect(equation, *arrays).values
    assert np.asarray(result.compute(scheduler="sync"), object).tolist() == np.asarray(expected, object).tolist()


# -- sizes that are not known -----------------------------------------------------------------------------------------

UNKNOWN = {
    "ij->i": "u",
    "ij->j": "u",
    "ij->ji": "u",
    "ij,jk->k": "ux",
    "ij,jk,kl->il": "uxx",
    "ij,k->ikj": "uv",
    "ij,lk->ikj": "uu",
    "ij,aj->ij": "uo",
    "...j,jk->...k": "ux",
    "ij,ij->j": "uu",
    "ij,ik->jk": "uu",
    "ij,jk,ik->ik": "uxu",
}
"""Equations of operands: ``x`` and ``v`` of known sizes, ``o`` of one row, ``u`` of rows that nobody has counted."""


@pytest.fixture
def operands_by_letter():
    values, x = in_chunks((6, 6), (2, 3))
    u = x[da.from_array(values[:, 0], chunks=2) > 0]
    assert np.isnan(u.shape[0])
    held = {"x": values, "v": values[0], "o": values[:1], "u": values[values[:, 0] > 0]}
    return held, {"x": x, "v": da.from_array(values[0], chunks=4), "o": da.from_array(values[:1], chunks=3), "u": u}


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")  # which Dask warns of
@pytest.mark.parametrize("equation", UNKNOWN)
def test_a_size_that_is_not_known_may_be_of_a_label_that_nothing_else_has(equation, operands_by_letter):
    values, arrays = operands_by_letter
    result = einsumx.einsum(equation, *(arrays[letter] for letter in UNKNOWN[equation]))
    assert agree(result, equation, *(values[letter] for letter in UNKNOWN[equation]))
    theirs = da.einsum(equation, *(arrays[letter] for letter in UNKNOWN[equation]))
    assert np.array_equal(np.isnan(result.shape), np.isnan(theirs.shape))
    assert list(map(len, result.chunks)) == list(map(len, theirs.chunks))


@pytest.mark.parametrize("other", ["x", "v", "u twice", "two selections"])
def test_a_size_that_is_not_known_and_has_to_fit_is_an_error_that_says_what_to_call(other, operands_by_letter):
    _, arrays = operands_by_letter
    known = {
        "x": ("ij,ij->ij", arrays["x"]),
        "v": ("ij,i->ij", arrays["v"]),
        "u twice": ("ij,ji->", arrays["u"]),
        "two selections": ("ij,ij->j", arrays["u"] * 2),
    }
    equation, second = known[other]
    with pytest.raises(
        einsumx.SizeError, match=r"operand 0 has shape \(nan, 6\), where the size of axis 0 .* compute_chunk_sizes\(\)"
    ):
        einsumx.einsum(equation, arrays["u"], second)
    arrays["u"].compute_chunk_sizes()  # the advice
    if other in ("x", "u twice"):
        with pytest.raises(einsumx.SizeError, match="has size"):
            einsumx.einsum(equation, arrays["u"], second)


def test_a_sum_over_nothing_needs_the_sizes_of_its_result(operands_by_letter):
    empty = operands_by_letter[1]["u"][:, :0]
    with pytest.raises(einsumx.SizeError, match="a summed label has size 0"):
        einsumx.einsum("ij,jk->ik", empty, da.ones((0, 3)))
    assert agree(einsumx.einsum("ij,jk->k", empty, da.ones((0, 3))), "ij,jk->k", np.ones((6, 0)), np.ones((0, 3)))


def test_a_rank_that_does_not_fit_is_said_of_the_shape_as_it_is(operands_by_letter):
    _, arrays = operands_by_letter
    with pytest.raises(einsumx.SizeError, match=r"operand 0 has 2 axes, shape \(nan, 6\), but .* 3 labels"):
        einsumx.einsum("ijk->", arrays["u"])


# -- chunks of bounded size -------------------------------------------------------------------------------------------


def largest_chunk(array):
    """Elements of the largest chunk."""
    return np.prod([max(sizes) for sizes in array.chunks])


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")  # which Dask warns of
@pytest.mark.parametrize(
    ("equation", "shapes", "chunks"),
    [
        ("i,j->ij", [(4096,), (4096,)], [4096, 4096]),
        ("i,j->ij", [(40_000,), (40_000,)], [40_000, 20_000]),
        ("ij,jk->ik", [(5000, 10), (10, 5000)], [5000, 5000]),
        ("ij,ij->ij", [(1, 5000), (5000, 1)], [5000, 5000]),
    ],
)
def test_chunks_that_grow_are_split_below_the_size_that_dask_is_configured_for(equation, shapes, chunks):
    arrays = [da.ones(shape, chunks=chunk) for shape, chunk in zip(shapes, chunks)]
    ours, theirs = einsumx.einsum(equation, *arrays), da.einsum(equation, *arrays)
    assert ours.shape == theirs.shape
    assert ours.npartitions <= theirs.npartitions
    assert largest_chunk(ours) * 8 < dask.utils.parse_bytes(dask.config.get("array.chunk-size"))
    assert largest_chunk(ours) * 8 > 2**25  # no smaller than it takes


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")  # which Dask warns of
@pytest.mark.parametrize("limit", ["100 B", 3000])
def test_chunks_that_are_split_have_the_plain_sum(limit):
    (one, x), (other, y) = in_chunks((30,), 10), in_chunks((2, 30), (2, 13))
    with dask.config.set({"array.chunk-size": limit}):
        result = einsumx.einsum("i,kj->ikj", x, y)
    assert largest_chunk(result) * 8 <= max(dask.utils.parse_bytes(limit), 26 * 8)
    assert agree(result, "i,kj->ikj", one, other)


def test_a_result_of_no_elements_has_one_chunk_whatever_its_size():
    x, y = da.ones((0, 7, 2)), da.ones((0, 2, 3))
    with dask.config.set({"array.chunk-size": "100 B"}):  # of which Dask chooses no chunks
        result = einsumx.einsum("bij,bjk->bik", x, y)
    assert (result.chunks, result.compute(scheduler="sync").shape) == (((0,), (7,), (3,)), (0, 7, 3))


@pytest.mark.parametrize("given", [{"order": "C"}, {"memory_limit": "1MB"}, {"out": np.ones(2)}])
def test_keywords_that_lazy_arrays_have_no_use_for_are_errors(given):
    with pytest.raises(einsumx.BackendError, match=f"{next(iter(given))}= is not for Dask arrays"):
        einsumx.einsum("ij->i", da.ones((2, 3)), **given)


# -- few tasks --------------------------------------------------------------------------------------------------------


def added_tasks(result, *operands):
    """How many tasks a result has beside those of its operands."""
    own = {operand.name: len(operand.__dask_graph__()) for operand in operands}
    return len(result.__dask_graph__()) - sum(own.values())


def test_a_label_of_one_operand_is_summed_before_chunks_are_paired():
    x, y = da.ones((4000, 4000), chunks=500), da.ones((4000, 4000), chunks=500) * 2
    result = einsumx.einsum("ij,jk->k", x, y)
    assert len(result.__dask_graph__()) < 368
    assert added_tasks(da.einsum("ij,jk->k", x, y), x, y) > 1000
    assert result.compute(scheduler="sync").tolist() == [4000.0 * 4000 * 2] * 4000


def test_a_product_of_sums_pairs_no_chunks():
    x, y = da.ones(76_000, chunks=500), da.ones(58_000, chunks=500)
    result = einsumx.einsum("i,j->", x, y)
    assert added_tasks(result, x, y) < 30
    assert result.compute(scheduler="sync") == 76_000 * 58_000


def test_small_chunks_of_a_contracted_label_are_taken_several_to_a_task():
    x, y = da.ones((80, 80), chunks=10), da.ones((80, 80), chunks=10) * 2
    result = einsumx.einsum("ij,jk->ik", x, y)
    assert result.chunks == ((10,) * 8,) * 2
    assert added_tasks(result, x, y) <= 64 + 16
    assert result[:2, :2].compute(scheduler="sync").tolist() == [[160.0] * 2] * 2


def test_large_chunks_are_taken_one_by_one_and_their_products_added_as_they_come():
    with dask.config.set({"array.chunk-size": "64 kiB"}):
        x, y = da.ones((320, 320), chunks=80), da.ones((320, 320), chunks=80)
        (step,) = einsumx.plan("ij,jk->ik", x, y).steps
    assert (step.group, step.fan_in, step.partial_sums) == (1, 2, 4)  # chunks of 51 kB


def test_chunks_of_a_tall_matrix_are_contracted_where_they_are():
    x = da.ones((40_000, 50), chunks=(1000, 50))
    plan = einsumx.plan("ki,kj->ij", x, x)
    (step,) = plan.steps
    assert step.is_fusible
    assert step.partial_sums == 40
    assert plan.moved_bytes == 39 * 50 * 50 * 8  # the sums alone
    assert einsumx.einsum("ki,kj->ij", x, x).compute(scheduler="sync").tolist() == [[40_000.0] * 50] * 50


def test_a_thin_contracted_label_is_gathered_instead_of_adding_large_products():
    x, y = da.ones((1000, 40), chunks=(1000, 4)), da.ones((40, 1000), chunks=(4, 1000))
    plan = einsumx.plan("ik,kj->ij", x, y)
    assert plan.steps[0].partial_sums == 1
    assert plan.moved_bytes < 1000 * 1000 * 8
    assert plan.tasks == added_tasks(einsumx.einsum("ik,kj->ij", x, y), x, y) == 3


def test_of_chunks_that_do_not_align_the_smaller_operand_is_rechunked():
    x, y = da.ones((4000, 600), chunks=(500, 200)), da.ones((600, 60), chunks=(250, 60))
    plan = einsumx.plan("ij,jk->ik", x, y)
    (step,) = plan.steps
    assert [step.sources[each.place] for each in step.rechunks] == [1]
    result = einsumx.einsum("ij,jk->ik", x, y)
    assert result.chunks == ((500,) * 8, (60,))
    assert added_tasks(result, x, y) < added_tasks(da.einsum("ij,jk->ik", x, y), x, y) / 4
    assert result[:1, :2].compute(scheduler="sync").tolist() == [[600.0, 600.0]]


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")  # which Dask warns of
@pytest.mark.parametrize(
    ("equation", "shapes", "chunks"),
    [
        ("ij,jk->ik", [(60, 40), (40, 50)], [(7, 9), (13, 11)]),
        ("ij,jk,kl->il", [(60, 40), (40, 50), (50, 30)], [(20, 15), (20, 20), 30]),
        ("ij,jk->k", [(60, 40), (40, 50)], [20, 20]),
        ("bij,bjk->bik", [(9, 4, 5), (9, 5, 6)], [(3, 4, 5), (2, 5, 6)]),
        ("iij,j->i", [(12, 12, 4), (4,)], [(3, 4, 2), 4]),
        ("ij->", [(60, 40)], [7]),
    ],
)
def test_the_tasks_of_a_plan_are_those_of_the_graph(equation, shapes, chunks):
    made = [in_chunks(shape, chunk) for shape, chunk in zip(shapes, chunks)]
    values, arrays = zip(*made)
    plan = einsumx.plan(equation, *arrays)
    result = einsumx.einsum(equation, *arrays)
    assert plan.chunks == result.chunks
    assert plan.tasks == added_tasks(result, *arrays)
    assert agree(result, equation, *values)


def test_a_change_of_chunks_that_two_steps_need_is_made_and_counted_once():
    _, array = in_chunks((3, 3), ((2, 1), (1, 2)))
    plan = einsumx.plan("ii,jj->ij", array, array)
    assert [len(step.rechunks) for step in plan.steps] == [1, 0, 0]
    assert plan.tasks == added_tasks(einsumx.einsum("ii,jj->ij", array, array), array)


def test_no_task_takes_more_than_sixteen_chunks():
    x, y = da.ones((64, 3000), chunks=(64, 10)), da.ones((3000, 64), chunks=(10, 64))
    for result in (einsumx.einsum("ij,jk->ik", x, y), einsumx.einsum("ij->i", x), einsumx.einsum("ij,jk->", x, y)):
        assert max(map(len, result.__dask_graph__().get_all_dependencies().values())) <= 16


def test_no_chunk_is_changed_by_the_sums_over_it():
    held = [np.ones((4, 1)), np.ones((4, 1))]
    for each in held:
        each.flags.writeable = False
    x = da.concatenate([da.from_array(each, chunks=-1) for each in held], axis=1)
    assert einsumx.einsum("ij->i", x).compute(scheduler="sync").tolist() == [2.0] * 4
    assert [each.tolist() for each in held] == [[[1.0]] * 4] * 2


# -- plans, expressions, patch and the command ------------------------------------------------------------------------

X, Y = da.ones((4000, 4000), chunks=500), da.ones((4000, 3000), chunks=(400, 750))

PRINTED = """\
ij,jk->k  (4000,4000) (4000,3000)  float64 on dask
  operand %0          64 chunks of (500,500), 128 MB
  operand %1          40 chunks of (400,750), 96 MB
  %2 = ij->j %0       72 tasks for 8 chunks of (500), 8 partial sums of each added by 16
  rechunk %2          j to (400); 26 tasks
  %3 = j,jk->k %2 %1  44 tasks for 4 chunks of (750), 10 partial sums of each added by 16
  result              (3000) float64 in 4 chunks of (750)
  tasks               142, besides those of the operands
  moved               at most 600 kB between workers
  largest chunk       2.4 MB"""


def test_a_plan_prints_steps_chunks_tasks_and_bytes_moved():
    assert str(einsumx.plan("ij,jk->k", X, Y)) == PRINTED


def test_a_plan_is_called_with_operands_of_its_chunks():
    values, array = in_chunks((6, 6), 2)
    plan = einsumx.plan("ij,kj->ik", array, array)
    assert agree(plan(array, array), "ij,kj->ik", values, values)
    with pytest.raises(einsumx.SizeError, match=r"operand 0 has shape \(6, 6\) in chunks .* but the plan is for"):
        plan(array.rechunk(3), array)
    with pytest.raises(einsumx.SizeError, match="takes 2 operands, not 1"):
        plan(array)
    with pytest.raises(einsumx.BackendError, match="operands 0 and 1 are two arrays"):
        plan(array, array + 1)
    with pytest.raises(einsumx.BackendError, match="operand 0 has dtype float32, but the plan is for float64"):
        plan(array.astype("float32"), array)


def test_a_plan_of_a_sum_over_nothing_has_no_step():
    plan = einsumx.plan("ij,jk->ik", da.ones((2, 0)), da.ones((0, 3)))
    assert (plan.steps, plan.tasks, plan.shape) == ((), 0, (2, 3))


def test_einsum_path_finds_a_path_that_einsum_accepts():
    z = np.ones((3000, 2))
    path, text = einsumx.einsum_path("ij,jk,kl->il", X, Y, z)
    assert path == ["einsum_path", (1, 2), (0, 1)]
    assert "tasks" in text
    assert einsumx.einsum("ij,jk,kl->il", X, Y, z, optimize=path).shape == (4000, 2)


@pytest.mark.parametrize(("constant", "operand"), [("dask", "numpy"), ("numpy", "dask"), ("numpy", "numpy")])
def test_an_expression_takes_dask_arrays_as_constants_and_as_operands(constant, operand):
    (held, lazy), (values, array) = in_chunks((6, 4), 2), in_chunks((5, 6), 3)
    expression = einsumx.expression("ij,jk->ik", (5, 6), {"dask": lazy, "numpy": held}[constant])
    for _ in range(2):
        result = expression({"dask": array, "numpy": values}[operand])
        assert isinstance(result, da.Array) is ("dask" in (constant, operand))
        assert np.array_equal(np.asarray(result), values @ held)


def test_an_expression_takes_numbers_and_lists_beside_a_lazy_constant():
    held, lazy = in_chunks((6, 4), 2)
    values = np.ones((5, 6))
    expression = einsumx.expression(",ij,jk,kl->il", 2.0, (5, 6), lazy, [[1.0], [0.0], [0.0], [1.0]])
    expected = 2 * values @ held @ np.array([[1], [0], [0], [1]])
    assert np.array_equal(expression(values).compute(), expected)


def test_expressions_with_lazy_constants_pickle_and_compare():
    held, lazy = in_chunks((6, 4), 2)
    run = einsumx.expression("ij,jk,k->i", (5, 6), lazy, np.ones(4))
    for again in (copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert again == run
        assert hash(again) == hash(run)
        assert np.array_equal(again(np.ones((5, 6))).compute(), run(np.ones((5, 6))).compute())
    others = (lazy + 1, np.ones(4)), (lazy, np.zeros(4)), (held, np.ones(4)), (lazy, [1.0] * 4)
    assert all(run != einsumx.expression("ij,jk,k->i", (5, 6), *constants) for constants in others)


def test_an_expression_checks_lazy_operands():
    expression = einsumx.expression("ij,jk->ik", (5, 6), da.ones((6, 4)))
    assert expression.plan(da.ones((5, 6))).chunks == ((5,), (4,))
    with pytest.raises(einsumx.SizeError, match=r"operand 0 has shape \(6, 5\), but the expression was made for"):
        expression(da.ones((6, 5)))
    with pytest.raises(einsumx.SizeError, match="takes 1 operand, not 2"):
        expression(da.ones((5, 6)), da.ones((5, 6)))
    with pytest.raises(einsumx.BackendError, match="order= is not for Dask arrays"):
        expression(da.ones((5, 6)), order="F")


def test_patch_replaces_both_names_of_dasks_einsum():
    own = da.einsum
    with einsumx.patched("dask"):
        assert da.einsum is da.einsumfuncs.einsum is not own
        result = da.einsum("ij,jk->k", X, Y, optimize=True)
        assert result.name == einsumx.einsum("ij,jk->k", X, Y).name == np.einsum("ij,jk->k", X, Y).name
    assert da.einsum is da.einsumfuncs.einsum is own


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: da.einsum("ij->", X, split_every=4), "einsumx has no keyword split_every= for Dask arrays"),
        (lambda: da.einsum("ij->", X, order="C"), "einsumx has no keyword order= for Dask arrays"),
        (lambda: da.einsum("ij->", np.ones((2, 3))), "it has no Dask array"),
    ],
)
def test_what_patch_leaves_to_dask_is_logged(call, reason, caplog):
    expected = call()
    with caplog.at_level(logging.INFO, "einsumx"), einsumx.patched("dask"):
        assert call().name == expected.name or "no Dask array" in reason
    assert reason in caplog.text


WIDEST = einsumx.Semiring("widest", "maximum", "minimum")


@pytest.mark.parametrize(
    ("equation", "shapes", "semiring"),
    [
        ("ij,jk->ik", ((7, 9), (9, 5)), max_plus),
        ("ij,jk->ik", ((7, 9), (9, 5)), boolean),
        ("ij,jk,kl->il", ((7, 9), (9, 5), (5, 4)), log),
        ("ij,jk,kl->il", ((7, 9), (9, 5), (5, 4)), min_plus),
        ("ij->", ((7, 9),), log),
        ("ij->ji", ((7, 9),), max_times),
        ("ii,ij->j", ((7, 7), (7, 3)), max_plus),
        ("ij,kj->ik", ((7, 1), (5, 9)), log),
        ("i,i->", ((90,), (90,)), WIDEST),
        ("ij,jl->il", ((3, 0), (0, 4)), min_plus),
        ("ij,jl->il", ((3, 0), (0, 4)), boolean),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_contraction_in_a_semiring_is_that_of_whole_arrays(equation, shapes, semiring):
    rng = np.random.default_rng(0)
    hosts = [rng.random(shape).astype("float32") for shape in shapes]
    if semiring is boolean:
        hosts = [host > 0.9 for host in hosts]
    expected = semiring.einsum(equation, *hosts)
    arrays = [da.from_array(host, chunks=4) for host in hosts]
    result = semiring.einsum(equation, *arrays)
    assert result.name == semiring.einsum(equation, *arrays).name
    function = semiring.expression(equation, *shapes)
    for lazy in (result, semiring.plan(equation, *arrays)(*arrays), function(*arrays)):
        assert lazy.dtype == expected.dtype
        found = lazy.compute(scheduler="sync")
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_semiring_has_tasks_of_its_own_and_is_in_the_plan():
    x = da.ones((4, 4), chunks=2)
    names = {each.einsum("ij,jk->ik", x, x).name for each in (einsumx, *BUILTIN.values(), WIDEST)}
    assert len(names) == 7
    first = str(log.plan("ij,jk->ik", x, x)).splitlines()[0]
    assert first == "ij,jk->ik  (4,4) (4,4)  float64 on dask in log (logaddexp, add)"


def test_half_precision_is_exact_for_maxima_and_wide_for_sums_of_exponentials():
    x = da.ones((4, 4), chunks=2, dtype="float16")
    kinds = [each.plan("ij,jk->ik", x, x).compute_dtype for each in (max_plus, log)]
    assert kinds == ["float16", "float32"]


def test_a_plan_takes_no_memory_limit():
    with pytest.raises(einsumx.BackendError, match="memory_limit= is not for Dask arrays"):
        einsumx.plan("ij->ji", X, memory_limit="1 MB")


def test_the_command_explains_chunks(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["explain", "ij,jk->k", "4000,4000", "4000,3000", "--dtype", "float64", "--backend", "dask"]
    assert main([*arguments, "--chunks", "500,500", "400,750"]) == 0
    assert capsys.readouterr().out.strip() == PRINTED
    assert main([*arguments, "--json", "--chunks", "500,500", "400,750"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["tasks"], printed["chunks"]) == (142, [[750] * 4])
    assert main([*arguments, "--semiring", "log"]) == 0
    assert "float64 on dask in log (logaddexp, add)" in capsys.readouterr().out
    assert main([*arguments]) == 0
    assert "1 chunk of (4000,4000)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "dask", "--chunks", "2,2", "2,2"], "--chunks has 2 entries for 1 operand"),
        (["--backend", "dask", "--chunks", "2"], "chunks of (2,) do not fit"),
        (["--backend", "dask", "--chunks", "2,0"], "chunks of (2, 0) do not fit"),
        (["--backend", "dask", "--source"], "--source is not for Dask arrays"),
        (["--chunks", "2,2"], "--chunks is for Dask arrays"),
    ],
)
def test_the_command_says_what_is_wrong_with_chunks(arguments, message, capsys):
    assert main(["explain", "ij->j", "4,6", *arguments]) == 2
    assert message in capsys.readouterr().err


# -- chunks that are not NumPy's --------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ij->", "ii->i", "ij->"])
def test_chunks_of_a_fake_of_cupy_go_through_unchanged(fake_cupy, equation):
    values = np.arange(36.0).reshape(6, 6)
    count = equation.count(",") + 1
    array = da.from_array(fake_cupy.asarray(values), chunks=2, asarray=False)
    result = einsumx.einsum(equation, *[array] * count)
    assert type(result._meta) is fake_cupy.ndarray
    expected = np.einsum(equation, *[values] * count)
    for place in np.ndindex(result.numblocks):
        computed = result.to_delayed()[place].compute(scheduler="sync")
        assert type(computed) is fake_cupy.ndarray
        part = tuple(slice(2 * number, 2 * number + 2) for number in place)
        assert np.array_equal(fake_cupy.asnumpy(computed), expected[part])


@pytest.mark.parametrize("equation", ["ij->ji", "ij->i", "ij->ij", "ij,ij->ij"])
def test_chunks_in_another_byte_order_give_the_dtype_that_the_result_declares(equation):
    values = np.arange(12.0).reshape(3, 4).astype(">f8")
    operands = [da.from_array(values, chunks=2)] * (equation.count(",") + 1)
    result = einsumx.einsum(equation, *operands)
    assert result.dtype == result.compute().dtype


# -- added to an array ----------------------------------------------------------------------------------------------


def test_a_result_is_added_to_an_array_also_if_the_size_of_its_chunks_is_unknown():
    left, right, c = np.random.default_rng(5).random((6, 8)), np.ones((8, 5)), np.arange(5.0)
    lazy = da.from_array(left, chunks=3)
    some = left[:, 0] > 0.5
    for rows, array in ((left, lazy), (left[some], lazy[lazy[:, 0] > 0.5])):
        found = einsumx.addeinsum(c, "ij,jk->ik", array, right, alpha=2, beta=3)
        np.testing.assert_allclose(found, 2 * rows @ right + 3 * c, rtol=1e-13)


@pytest.mark.parametrize(
    ("c", "keywords", "says"),
    [
        (np.ones(7), {}, "does not broadcast to the shape of the result"),
        (np.ones(5, "complex128"), {"dtype": "float64"}, "c has dtype complex128, which casting='safe' does not allow"),
        (np.ones(5, "int64"), {"dtype": "int64", "alpha": 0.5}, "alpha= is a float, and the result has dtype int64"),
    ],
    ids=["shape", "casting", "alpha"],
)
def test_what_cannot_be_added_is_refused_as_for_whole_arrays(c, keywords, says):
    array = da.ones((6, 8), chunks=3, dtype="int64")
    with pytest.raises(einsumx.EinsumxError, match=says):
        einsumx.addeinsum(c, "ij,jk->ik", array, np.ones((8, 5), "int64"), **keywords)
