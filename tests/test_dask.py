"""Dask arrays as operands: lazy results, right for any chunking, in chunks of bounded size."""

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("dask", reason="Dask is not installed: pip install 'dask[array]'")
import dask
import dask.array as da

import einsumx
from einsumx.conformance.oracle import expect, judge

CASES = {
    "ij,jk->ik": [(4, 6), (6, 5)],
    "ij,jk": [(4, 6), (6, 5)],
    "ji": [(4, 6)],
    "ij->": [(4, 6)],
    "ii->i": [(6, 6)],
    "iij,j->i": [(5, 5, 4), (4,)],
    "ij,ij->ij": [(4, 6), (4, 6)],
    "ij,ij->i": [(1, 6), (4, 1)],
    "...ij,...jk->...ik": [(2, 4, 6), (3, 1, 6, 5)],
    "...i->...": [(3, 4)],
    "bind,bjnd->bnij": [(2, 5, 3, 4), (2, 6, 3, 4)],
    "ab,bc,cd->ad": [(4, 5), (5, 6), (6, 3)],
    "ab,bc,cd,d->": [(4, 5), (5, 6), (6, 3), (3,)],
    "i,j->ji": [(4,), (5,)],
    ",i->i": [(), (4,)],
    "ij,jk->ik (empty)": [(4, 0), (0, 5)],
}


def operands(case, dtype):
    random = np.random.default_rng(2)
    return [random.integers(-3, 4, shape).astype(dtype) for shape in CASES[case]]


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "complex128"])
@pytest.mark.parametrize("sizes", [(1, 2), (2, 3), (3, 2), (-1, -1)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_any_chunking_gives_the_plain_sum(case, sizes, dtype):
    equation, arrays = case.partition(" ")[0], operands(case, dtype)
    chunked = [da.from_array(array, chunks=sizes[number % 2]) for number, array in enumerate(arrays)]
    result = einsumx.einsum(equation, *chunked)
    assert isinstance(result, da.Array)
    expected = expect(equation, *arrays)
    assert (result.shape, result.dtype.name) == (expected.values.shape, expected.dtype)
    verdict = judge(result.compute(scheduler="sync"), expected)
    assert verdict, verdict.wrong


def test_many_labels_of_sublists_keep_their_sorted_order():
    array = np.arange(6.0).reshape(2, 3)
    result = einsumx.einsum(da.from_array(array, chunks=1), [30, 27])
    assert result.compute(scheduler="sync").tolist() == array.T.tolist()


def test_arrays_in_memory_mix_with_those_of_dask():
    lhs, rhs = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(4, 2)
    result = einsumx.einsum("ij,jk,->ik", da.from_array(lhs, chunks=2), rhs, 2.0)
    assert isinstance(result, da.Array)
    assert result.compute(scheduler="sync").tolist() == (2 * lhs @ rhs).tolist()


def test_the_dtype_asked_for_is_computed_in():
    array = np.full((4, 100), 100, "int8")
    result = einsumx.einsum("ij->i", da.from_array(array, chunks=10), dtype="int64")
    assert result.dtype == np.int64
    assert result.compute(scheduler="sync").tolist() == [10000] * 4


def test_nothing_is_computed_before_it_is_asked_for():
    def fail(block):
        raise AssertionError("computed")

    lazy = da.ones((4, 4), chunks=2).map_blocks(fail, dtype=float, meta=np.empty((0, 0)))
    assert einsumx.einsum("ij,jk->ik", lazy, lazy).shape == (4, 4)


def test_operands_that_are_chunked_alike_are_not_rechunked():
    lhs, rhs = da.ones((40, 60), chunks=(10, 20)), da.ones((60, 30), chunks=(20, 15))
    result = einsumx.einsum("ij,jk->ik", lhs, rhs)
    assert result.chunks == ((10,) * 4, (15,) * 2)
    assert not any("rechunk" in name for name in result.dask.layers)


def test_no_contracted_axis_is_gathered_in_one_chunk():
    seen = []

    def note(block):
        seen.append(block.nbytes)
        return block

    operand = da.ones((8, 4096), chunks=(8, 64)).map_blocks(note, dtype=float, meta=np.empty((0, 0)))
    result = einsumx.einsum("ij,kj->ik", operand, operand)
    assert result.compute(scheduler="sync").tolist() == np.full((8, 8), 4096.0).tolist()
    assert max(seen) == 8 * 64 * 8
    assert len(result.__dask_graph__()) < 64 * 6


def tasks(array):
    """How many tasks a lazy array takes, and how many of them rechunk."""
    layers = array.__dask_graph__().layers
    return sum(map(len, layers.values())), sum(len(layer) for name, layer in layers.items() if "rechunk" in name)


@pytest.mark.parametrize(
    ("equation", "operands"),
    [
        ("ij,jk->ik", [((40, 60), (10, 20)), ((60, 30), (30, 15))]),
        ("ij,jk->ik", [((40, 60), (10, 20)), ((60, 30), (20, 15))]),
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


def test_sums_of_many_chunks_are_added_as_a_tree():
    operand = da.ones((2, 400), chunks=(2, 2))
    result = einsumx.einsum("ij,kj->ik", operand, operand)
    assert max(map(len, result.__dask_graph__().get_all_dependencies().values())) <= 16


@pytest.mark.parametrize("kind", ["bfloat16", "text", "masked"])
def test_chunks_that_are_no_numbers_of_numpy_are_an_error_at_once(kind):
    if kind == "bfloat16":
        array = np.ones(4, pytest.importorskip("ml_dtypes").bfloat16)
    else:
        array = np.array(["a", "b"]) if kind == "text" else np.ma.masked_equal([1.0, 2.0], 1)
    with pytest.raises(einsumx.BackendError, match=r"needs numbers|masks"):
        einsumx.einsum("i->", da.from_array(array, chunks=1))


def in_chunks(shape, chunks, dtype="float64"):
    """Small integers, the same in NumPy and in Dask."""
    values = np.random.default_rng(3).integers(-3, 4, shape).astype(dtype)
    return values, da.from_array(values, chunks=chunks)


def agree(result, equation, *arrays):
    verdict = judge(result.compute(scheduler="sync"), expect(equation, *arrays))
    return verdict or pytest.fail(str(verdict.wrong))


# -- axes that are chunked unlike, empty chunks, objects --------------------------------------------------------------


@pytest.mark.parametrize("chunks", [((2, 4), (3, 3)), ((6,), (1, 2, 3)), ((0, 2, 4), (3, 0, 3)), (1, 6)], ids=str)
@pytest.mark.parametrize("equation", ["ii->i", "ii->", "ii,i->i", "ii,ij->j", "ij,ji->"])
def test_a_diagonal_of_axes_that_are_chunked_unlike_is_the_diagonal(equation, chunks):
    values, array = in_chunks((6, 6), chunks)
    others = {"ii,i->i": values[0], "ii,ij->j": values, "ij,ji->": values}
    arrays = [values, others[equation]] if equation in others else [values]
    assert agree(einsumx.einsum(equation, array, *arrays[1:]), equation, *arrays)


def test_a_diagonal_of_three_axes_may_be_chunked_three_ways():
    values, array = in_chunks((4, 4, 4), ((1, 3), (2, 2), (4,)))
    assert agree(einsumx.einsum("iii->i", array), "iii->i", values)


def test_a_diagonal_of_axes_that_are_chunked_alike_is_not_rechunked():
    result = einsumx.einsum("ii->i", da.ones((6, 6), chunks=2))
    assert result.chunks == da.einsum("ii->i", da.ones((6, 6), chunks=2)).chunks
    assert not any("rechunk" in name for name in result.dask.layers)


@pytest.mark.parametrize(
    ("equation", "shapes", "chunks"),
    [
        ("ij,jk->ik", [(6, 6), (6, 6)], [((0, 2, 4), (3, 0, 3)), ((6, 0), (2, 0, 0, 4))]),
        ("ij,jk->ik", [(2, 0), (0, 3)], [(1, 1), (1, 2)]),
        ("ii->i", [(0, 0)], [((0,), (0, 0))]),
        ("ij,ij->ij", [(1, 6), (4, 1)], [((1,), (2, 4)), ((1, 3), (1,))]),
        ("ij,ij->ij", [(1, 6), (4, 6)], [((0, 1), (2, 4)), ((1, 3), (5, 1))]),
        (",->", [(), ()], [(), ()]),
    ],
    ids=str,
)
def test_empty_chunks_and_axes_that_broadcast_are_summed_as_others_are(equation, shapes, chunks):
    made = [in_chunks(shape, chunk) for shape, chunk in zip(shapes, chunks)]
    values, arrays = zip(*made)
    assert agree(einsumx.einsum(equation, *arrays), equation, *values)


@pytest.mark.parametrize("equation", ["ij->", "ij->i", "ij->ji", "ii", "ij,jk->ik", "ij,ij->"])
def test_chunks_of_objects_are_summed_by_their_own_arithmetic(equation):
    values = np.array([[Fraction(1, 2), 2], [3, Fraction(4, 3)]], object)
    count = equation.count(",") + 1
    result = einsumx.einsum(equation, *[da.from_array(values, chunks=((1, 1), (2,)))] * count)
    computed = result.compute(scheduler="sync")
    assert np.array_equal(computed, np.einsum(equation, *[values] * count))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("i,ij,ij->", [(3,), (3, 2), (3, 2)]),
        ("k,ji,jii->k", [(3,), (2, 1), (2, 1, 1)]),
        (",i,,i->i", [(), (3,), (), (3,)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
        ("ij->", [(2, 0)]),
        ("i,jk->kji", [(5,), (2, 0)]),
    ],
)
def test_objects_in_several_steps_and_in_sums_over_nothing(equation, shapes):
    arrays = []
    for shape in shapes:
        array = np.empty(shape, object)
        array[...] = Fraction(1, 3)
        arrays.append(array)
    result = einsumx.einsum(equation, *[da.from_array(array, chunks=2 if array.ndim else ()) for array in arrays])
    assert result.dtype == object
    expected = expect(equation, *arrays).values
    assert np.asarray(result.compute(scheduler="sync"), object).tolist() == np.asarray(expected, object).tolist()


# -- sizes that are not known -----------------------------------------------------------------------------------------

UNKNOWN = {
    "ij->i": "u",
    "ij->j": "u",
    "ij->": "u",
    "ij->ji": "u",
    "ij,jk->ik": "ux",
    "ij,jk->k": "ux",
    "ij,jk,kl->il": "uxx",
    "ij,jk,kl->l": "uxx",
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


@pytest.mark.parametrize("other", ["x", "v", "u twice"])
def test_a_size_that_is_not_known_and_has_to_fit_is_an_error_that_says_what_to_call(other, operands_by_letter):
    _, arrays = operands_by_letter
    known = {"x": ("ij,ij->ij", arrays["x"]), "v": ("ij,i->ij", arrays["v"]), "u twice": ("ij,ji->", arrays["u"])}
    equation, second = known[other]
    with pytest.raises(
        einsumx.SizeError, match=r"operand 0 has shape \(nan, 6\), where the size of axis 0 .* compute_chunk_sizes\(\)"
    ):
        einsumx.einsum(equation, arrays["u"], second)
    arrays["u"].compute_chunk_sizes()  # the advice
    if other != "v":
        with pytest.raises(einsumx.SizeError, match="has size"):
            einsumx.einsum(equation, arrays["u"], second)


def test_rows_of_two_selections_are_not_taken_to_be_as_many(operands_by_letter):
    _, arrays = operands_by_letter
    with pytest.raises(einsumx.SizeError, match="compute_chunk_sizes"):
        einsumx.einsum("ij,ij->j", arrays["u"], arrays["u"] * 2)


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
        ("ij,kl->ijkl", [(100, 100), (100, 100)], [100, (100, 50)]),
        ("ij,jk->ik", [(5000, 10), (10, 5000)], [5000, 5000]),
        ("i,j,k->ijk", [(500,), (500,), (500,)], [500, 500, 500]),
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
@pytest.mark.parametrize("limit", ["100 B", "1 kiB", 3000])
def test_chunks_that_are_split_have_the_plain_sum(limit):
    (one, x), (other, y) = in_chunks((30,), 10), in_chunks((2, 30), (2, 13))
    with dask.config.set({"array.chunk-size": limit}):
        result = einsumx.einsum("i,kj->ikj", x, y)
    assert largest_chunk(result) * 8 <= max(dask.utils.parse_bytes(limit), 26 * 8)
    assert agree(result, "i,kj->ikj", one, other)


def test_chunks_that_do_not_grow_stay_as_they_are():
    with dask.config.set({"array.chunk-size": "1 kiB"}):
        array = da.ones((100, 100), chunks=50)
        result = einsumx.einsum("ij,ij->ij", array, array)
    assert result.chunks == array.chunks
    assert not any("rechunk" in name for name in result.dask.layers)


def test_plans_and_expressions_of_lazy_arrays_are_errors_that_say_to_pass_shapes():
    array = da.ones((2, 3))
    for call in (
        lambda: einsumx.plan("ij->ji", array),
        lambda: einsumx.plan("ij->ji", array, memory_limit="1 MB"),
        lambda: einsumx.expression("ij,jk->ik", array, (3, 2)),
    ):
        with pytest.raises(einsumx.BackendError, match=r"dask.* are lazy, .*pass shapes"):
            call()
    assert einsumx.plan("ij->ji", array.shape).shape == (3, 2)  # the advice


@pytest.mark.parametrize("given", [{"order": "C"}, {"memory_limit": "1MB"}, {"out": np.ones(2)}, {"device": "cpu"}])
def test_keywords_that_lazy_arrays_have_no_use_for_are_errors(given):
    with pytest.raises(einsumx.BackendError, match=f"{next(iter(given))}= is not for Dask arrays"):
        einsumx.einsum("ij->i", da.ones((2, 3)), **given)
