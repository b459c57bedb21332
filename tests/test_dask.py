"""Dask arrays as operands: lazy results, right for any chunking, in chunks no larger than the operands' own."""

import numpy as np
import pytest

pytest.importorskip("dask", reason="Dask is not installed: pip install 'dask[array]'")
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


def test_sizes_that_are_not_known_are_an_error():
    array = da.ones(6, chunks=2)
    with pytest.raises(einsumx.SizeError, match=r"operand 0 has shape \(nan,\).*compute_chunk_sizes"):
        einsumx.einsum("i->", array[array > 0])


@pytest.mark.parametrize("given", [{"order": "C"}, {"memory_limit": "1MB"}, {"out": np.ones(2)}, {"device": "cpu"}])
def test_keywords_that_lazy_arrays_have_no_use_for_are_errors(given):
    with pytest.raises(einsumx.BackendError, match=f"{next(iter(given))}= is not for Dask arrays"):
        einsumx.einsum("ij->i", da.ones((2, 3)), **given)
