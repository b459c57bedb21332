"""cubed: lazy arrays of several chunks, and what einsumx refuses for them."""

import numpy as np
import pytest

cubed = pytest.importorskip("cubed")

import einsumx  # noqa: E402

PROBLEMS = {
    "ij,jk->ik": [((6, 6), (2, 3)), ((6, 6), (2, 3))],
    "bind,bjnd->bnij": [((4, 3, 2, 6), (2, 2, 1, 3)), ((4, 5, 2, 6), (2, 2, 1, 3))],
    "ij,ij->i": [((6, 6), (3, 2)), ((1, 6), (1, 2))],
    "iij->j": [((4, 4, 6), (2, 2, 3))],
    "iij,j->ij": [((4, 4, 6), (3, 2, 4)), ((6,), (5,))],
}


def array(values, chunks=-1):
    return cubed.from_array(values, chunks=chunks, spec=cubed.Spec(allowed_mem="200MB"))


@pytest.mark.parametrize("equation", PROBLEMS)
def test_arrays_of_several_chunks_give_the_plain_sum(equation):
    random = np.random.default_rng(3)
    values = [random.integers(0, 9, shape).astype("float64") for shape, _ in PROBLEMS[equation]]
    arrays = [array(host, chunks) for host, (_, chunks) in zip(values, PROBLEMS[equation])]
    result = einsumx.einsum(equation, *arrays)
    assert isinstance(result, cubed.Array)
    assert np.array_equal(result.compute(), np.einsum(equation, *values))


def test_a_product_has_the_tasks_of_one_written_by_hand():
    import cubed.array_api as xp

    lhs, rhs = (array(np.ones((8, 8)), (2, 2)) for _ in range(2))
    tasks = einsumx.einsum("ij,jk->ik", lhs, rhs).plan().num_tasks
    assert tasks == xp.matmul(lhs, rhs).plan().num_tasks


def test_plans_and_messages_name_cubed():
    ones = array(np.ones((2, 2)))
    assert einsumx.plan("ij,jk->ik", ones, ones).backend == "cubed"
    with pytest.raises(einsumx.BackendError, match=r"to cubed and operand 1 \(numpy\.ndarray\) to numpy"):
        einsumx.einsum("ij,jk->ik", ones, np.ones((2, 2)))
    with pytest.raises(einsumx.BackendError, match=r"einsum takes arrays of cubed, not cubed\..*Spec"):
        einsumx.einsum("ij->ji", cubed.Spec())


def test_a_memory_limit_is_refused_as_cubed_has_one_of_its_own():
    ones = array(np.ones((2, 2)))
    with pytest.raises(einsumx.BackendError, match=r"its arrays are lazy, .* spec=cubed\.Spec"):
        einsumx.einsum("ij,jk->ik", ones, ones, memory_limit="1 GB")


def test_nothing_is_computed_to_measure_plans():
    ones = array(np.ones((2, 2)))
    with einsumx.effort("measure"):
        result = einsumx.einsum("ij,jk->ik", ones, ones)
    assert result.plan().num_tasks > 0
    assert np.array_equal(result.compute(), np.full((2, 2), 2.0))
    with pytest.raises(einsumx.BackendError, match="not on traced or lazy ones"):
        einsumx.tune("ij,jk->ik", ones, ones)


@pytest.mark.parametrize(
    "call",
    [
        lambda array: einsumx.addeinsum(array, "ij,jk->ik", array, array, alpha=2.0),
        lambda array: einsumx.einsum("ij,,jk->ik", array, 2.0, array),
        lambda array: einsumx.einsum("ij,j->i", array, [1.0, 2.0, 3.0, 4.0]),
        lambda array: einsumx.semirings.log.einsum("ij,jk->ik", array, array),
        lambda array: einsumx.einsum("ij->j", array[:0]),
    ],
    ids=["factor", "number", "list", "log", "empty"],
)
def test_what_a_call_makes_has_the_spec_of_its_operands(call, tmp_path):
    spec = cubed.Spec(work_dir=str(tmp_path), allowed_mem="100MB", reserved_mem=0)
    result = call(cubed.from_array(np.ones((4, 4)), chunks=2, spec=spec))
    assert result.spec == spec
    result.compute()
